"""The paper's Bayesian classifier: two small convolutions, two max-pools, one linear layer, N(0, 1) on every weight."""

import functools
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from steincv.networks.last_layer import Logits, last_layer_fields
from steincv.networks.model import Array, append_one
from steincv.runtime.validation import InputError
from steincv.samples.samples import finite_array

SIDE = 28
# 5 x 5 with 2 filters, 3 x 3 with 3 filters, 3 x 7 x 7 activations to 2 classes. The paper says 407; this is 405.
SHAPES = ((25, 2), (2,), (18, 3), (3,), (147, 2), (2,))
DIM = sum(int(np.prod(shape)) for shape in SHAPES)
LAST = slice(DIM - 147 * 2 - 2, DIM)


class Filters(NamedTuple):
    """The two convolutions, their filters as (patch x input channel, filter)."""

    first: Array
    first_bias: Array
    second: Array
    second_bias: Array


class Weights(NamedTuple):
    """One draw, layer by layer."""

    filters: Filters
    last: Array
    last_bias: Array


def unpack(theta: Array) -> Weights:
    """Return the layers of a flat vector of 405 numbers."""
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES]).tolist()
    parts = [theta[end - int(np.prod(shape)) : end].reshape(shape) for shape, end in zip(SHAPES, ends, strict=True)]
    return Weights(Filters(*parts[:4]), *parts[4:])


@dataclass(frozen=True, eq=False)
class Classifier:
    r"""$p(y = 1 \mid x, \theta)$ of a convolutional network with 405 weights and independent $N(0, 1)$ priors.

    5x5 convolution with 2 filters, max-pool, 3x3 convolution with 3 filters, max-pool (both with relu and same
    padding), fully connected 147 -> 2. Everything is a function of one flat vector `theta`.

    **Arguments:**

    - `images`: `(n, 28, 28)`, numbers in [0, 1].
    - `labels`: `(n,)`, 0 or 1.
    """

    images: np.ndarray
    labels: np.ndarray
    dim: int = DIM
    single: ClassVar[bool] = True  # fields are computed in single precision

    def __post_init__(self) -> None:
        images = check_images(self.images)
        labels = np.asarray(self.labels)
        if labels.shape != (len(images),):
            raise InputError(f"`labels` has shape {labels.shape}, expected one label for each of {len(images)} images.")
        if not np.isin(labels, (0, 1)).all():
            raise InputError(f"`labels` must be 0 or 1, got {labels[~np.isin(labels, (0, 1))][0]!r}.")
        object.__setattr__(self, "images", images.astype(np.float32))
        object.__setattr__(self, "labels", labels.astype(np.int32))

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return self.images, self.labels

    def log_prior(self, theta: Array) -> Array:
        """Return the log prior density at one vector, up to a constant."""
        return -0.5 * (theta**2).sum()

    def log_likelihood(self, theta: Array, images: Array, labels: Array) -> jax.Array:
        """Return the log likelihood of each of some images."""
        return _log_likelihood(self.logit(theta, images), labels)

    def log_posterior(self, theta: Array) -> Array:
        """Return the log posterior density at one vector, given all images, up to a constant."""
        return self.log_prior(theta) + _log_likelihood(_logit(unpack(theta), self._patches), self.labels).sum()

    @functools.cached_property
    def _patches(self) -> np.ndarray:
        return np.ascontiguousarray(patches(self.images))

    def logit(self, theta: Array, images: Array) -> Array:
        """Return the logit of class 1, `(n,)`: the two outputs of the last layer enter by their difference."""
        return _logit(unpack(theta), patches(images))

    def predict(self, theta: Array, images: Array) -> jax.Array:
        """Return the probability of class 1, `(n,)`."""
        return jax.nn.sigmoid(self.logit(theta, images))

    def hidden(self, theta: Array, images: Array) -> jax.Array:
        """Return what the last layer sees, `(n, 147)`."""
        return activations(unpack(theta).filters, patches(images)).T

    def fields(self, theta: Array, score: Array, inputs: Array) -> jax.Array:
        """Return every g at one draw, `(image, k)`: steps along half the difference of the last layer's two outputs."""
        d, s = (_difference(flat) for flat in (theta, score))

        def logits(x: Array) -> Logits:
            rows = jnp.sqrt(2.0) * append_one(self.hidden(theta, x))
            return Logits(rows @ d, rows)

        return last_layer_fields(logits(self.images), self.labels, logits(inputs), d, s)


def _difference(flat: Array) -> Array:
    r"""Return $d = (w_1 - w_0)/\sqrt2$ of the last layer, bias last; for a score this is its part along d."""
    pairs = flat[LAST].reshape(148, 2)
    return (pairs[:, 1] - pairs[:, 0]) / jnp.sqrt(2.0)


def _logit(weights: Weights, patches: Array) -> Array:
    outer = weights.last[:, 1] - weights.last[:, 0]
    return outer @ activations(weights.filters, patches) + weights.last_bias[1] - weights.last_bias[0]


def _log_likelihood(logit: Array, labels: Array) -> jax.Array:
    return jax.nn.log_sigmoid(logit * (2.0 * labels - 1.0))


def patches(images: Array) -> Array:
    """Return the 5 x 5 surroundings of every pixel, `(25, 4 x 14 x 14 x n)`.

    The four pixels of a pool are side by side, and images last: every operation is one on long rows, which is what a
    CPU does fast.
    """
    xp: ModuleType = np if isinstance(images, np.ndarray) else jnp
    n = len(images)
    padded = xp.pad(images, [(0, 0), (2, 2), (2, 2)])
    shifts = xp.stack([padded[:, i : i + SIDE, j : j + SIDE] for i in range(5) for j in range(5)])
    return shifts.reshape(25, n, 14, 2, 14, 2).transpose(0, 3, 5, 2, 4, 1).reshape(25, -1)


def activations(filters: Filters, patches: Array) -> jax.Array:
    """Return what both convolutions, pools and relus (which commute with a pool) give, `(147, n)`."""
    x = (filters.first.T @ patches).reshape(2, 4, 14, 14, -1)
    x = jnp.maximum(jnp.maximum(x[:, 0], x[:, 1]), jnp.maximum(x[:, 2], x[:, 3]))
    x = jax.nn.relu(x + filters.first_bias[:, None, None, None])
    padded = jnp.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    shifts = jnp.stack([padded[:, i : i + 14, j : j + 14] for i in range(3) for j in range(3)])
    x = (filters.second.T @ shifts.reshape(18, -1)).reshape(3, 7, 2, 7, 2, -1)
    x = jnp.maximum(x[:, :, 0], x[:, :, 1])
    x = jnp.maximum(x[:, :, :, 0], x[:, :, :, 1])
    return jax.nn.relu(x + filters.second_bias[:, None, None, None]).reshape(147, -1)


def check_images(images: ArrayLike) -> np.ndarray:
    """Return the images as an array `(n, 28, 28)` of numbers in [0, 1], or refuse them."""
    array = finite_array("images", images)
    if array.ndim != 3 or array.shape[1:] != (SIDE, SIDE):
        raise InputError(f"`images` has shape {array.shape}, expected (n, {SIDE}, {SIDE}): one image a row.")
    if array.min() < 0 or array.max() > 1:
        raise InputError(
            f"`images` holds numbers from {array.min():.3g} to {array.max():.3g}, expected [0, 1]. Divide by 255."
        )
    return array
