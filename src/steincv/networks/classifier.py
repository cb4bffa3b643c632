"""The paper's Bayesian classifier: two small convolutions, two max-pools, one linear layer, N(0, 1) on every weight."""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..runtime.validation import InputError
from ..samples.samples import finite_array

SIDE = 28
# 5 x 5 with 2 filters, 3 x 3 with 3 filters, 3 x 7 x 7 activations to 2 classes. The paper says 407; this is 405.
SHAPES = ((25, 2), (2,), (18, 3), (3,), (147, 2), (2,))
DIM = sum(int(np.prod(shape)) for shape in SHAPES)
LAST = slice(DIM - 147 * 2 - 2, DIM)


class Weights(NamedTuple):
    """One draw, layer by layer; filters as (patch x input channel, filter)."""

    first: Any
    first_bias: Any
    second: Any
    second_bias: Any
    last: Any
    last_bias: Any


def unpack(theta: Any) -> Weights:
    """From the flat vector of 405 numbers."""
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES])
    parts = [
        theta[end - int(np.prod(shape)) : end].reshape(shape) for shape, end in zip(SHAPES, ends.tolist(), strict=True)
    ]
    return Weights(*parts)


@dataclass(frozen=True, eq=False)
class Classifier:
    r"""$p(y = 1 \mid x, \theta)$ of a convolutional network with 405 weights and independent $N(0, 1)$ priors.

    5x5 convolution with 2 filters, max-pool, 3x3 convolution with 3 filters, max-pool (both with relu and same
    padding), fully connected 147 -> 2. Everything is a function of one flat vector `theta`.

    **Arguments:**

    - `images`: `(n, 28, 28)`, numbers in [0, 1].
    - `labels`: `(n,)`, 0 or 1.
    """

    images: Any
    labels: Any
    dim: int = DIM

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

    def log_prior(self, theta: Any) -> Any:
        return -0.5 * (theta**2).sum()

    def log_likelihood(self, theta: Any, images: Any, labels: Any) -> Any:
        """Of each of some images."""
        return _log_likelihood(self.logit(theta, images), labels)

    def log_posterior(self, theta: Any) -> Any:
        return self.log_prior(theta) + _log_likelihood(_logit(unpack(theta), self._patches), self.labels).sum()

    @functools.cached_property
    def _patches(self) -> np.ndarray:
        return np.ascontiguousarray(patches(self.images))

    def logit(self, theta: Any, images: Any) -> Any:
        """Of class 1 against class 0: the two outputs of the last layer enter by their difference."""
        return _logit(unpack(theta), patches(images))

    def predict(self, theta: Any, images: Any) -> Any:
        """The score of class 1, `(n,)`."""
        import jax

        return jax.nn.sigmoid(self.logit(theta, images))

    def hidden(self, theta: Any, images: Any) -> Any:
        """What the last layer sees, `(n, 147)`."""
        return activations(unpack(theta), patches(images)).T


def _logit(weights: Weights, patches: Any) -> Any:
    outer = weights.last[:, 1] - weights.last[:, 0]
    return outer @ activations(weights, patches) + weights.last_bias[1] - weights.last_bias[0]


def _log_likelihood(logit: Any, labels: Any) -> Any:
    import jax

    return jax.nn.log_sigmoid(logit * (2.0 * labels - 1.0))


def patches(images: Any) -> Any:
    """The 5 x 5 surroundings of every pixel, `(25, 4 x 14 x 14 x n)`: the four of a pool side by side, images last.

    Images last makes every operation one on long rows, which is what a CPU does fast.
    """
    import jax.numpy as jnp

    xp: Any = np if isinstance(images, np.ndarray) else jnp
    n = len(images)
    padded = xp.pad(images, [(0, 0), (2, 2), (2, 2)])
    shifts = xp.stack([padded[:, i : i + SIDE, j : j + SIDE] for i in range(5) for j in range(5)])
    return shifts.reshape(25, n, 14, 2, 14, 2).transpose(0, 3, 5, 2, 4, 1).reshape(25, -1)


def activations(weights: Weights, patches: Any) -> Any:
    """Both convolutions, pools and relus (which commute with a pool), `(147, n)`."""
    import jax
    import jax.numpy as jnp

    x = (weights.first.T @ patches).reshape(2, 4, 14, 14, -1)
    x = jnp.maximum(jnp.maximum(x[:, 0], x[:, 1]), jnp.maximum(x[:, 2], x[:, 3]))
    x = jax.nn.relu(x + weights.first_bias[:, None, None, None])
    padded = jnp.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    shifts = jnp.stack([padded[:, i : i + 14, j : j + 14] for i in range(3) for j in range(3)])
    x = (weights.second.T @ shifts.reshape(18, -1)).reshape(3, 7, 2, 7, 2, -1)
    x = jnp.maximum(x[:, :, 0], x[:, :, 1])
    x = jnp.maximum(x[:, :, :, 0], x[:, :, :, 1])
    return jax.nn.relu(x + weights.second_bias[:, None, None, None]).reshape(147, -1)


def check_images(images: Any) -> np.ndarray:
    array = finite_array("images", images)
    if array.ndim != 3 or array.shape[1:] != (SIDE, SIDE):
        raise InputError(f"`images` has shape {array.shape}, expected (n, {SIDE}, {SIDE}): one image a row.")
    if array.min() < 0 or array.max() > 1:
        raise InputError(
            f"`images` holds numbers from {array.min():.3g} to {array.max():.3g}, expected [0, 1]. Divide by 255."
        )
    return array
