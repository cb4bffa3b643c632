"""A Bayesian regression network: one hidden layer of tanh, N(0, 1) on every weight, Gaussian noise of known size."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..runtime.validation import InputError, whole_number
from ..samples.samples import finite_array
from .gauss_newton import gauss_newton_fields
from .model import Array, append_one


class Weights(NamedTuple):
    """Draws: hidden weights `(..., width, inputs + 1)`, biases last, and outer ones `(..., width + 1)`."""

    hidden: Array
    outer: Array


@dataclass(frozen=True, eq=False)
class Regressor:
    r"""$y = w\cdot\tanh(V\tilde x) + b + \text{noise}$, with $\tilde x = (x, 1)$ and $N(0, 1)$ on every weight.

    **Arguments:**

    - `inputs`: `(n, k)`, best with mean 0 and variance 1.
    - `targets`: `(n,)`, likewise.
    - `noise`: the standard deviation of the noise.
    - `width`: hidden units.
    """

    inputs: np.ndarray
    targets: np.ndarray
    noise: float = 0.1
    width: int = 20

    def __post_init__(self) -> None:
        inputs, targets = finite_array("inputs", self.inputs), finite_array("targets", self.targets)
        if inputs.ndim != 2:
            raise InputError(f"`inputs` has shape {inputs.shape}, expected (n, k): one row a case.")
        if targets.shape != (len(inputs),):
            raise InputError(f"`targets` has shape {targets.shape}, expected one for each of {len(inputs)} inputs.")
        whole_number("width", self.width, 1)
        if not 0 < self.noise < np.inf:
            raise InputError(f"`noise` must be a positive number, got {self.noise!r}.")
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "targets", targets)

    @property
    def dim(self) -> int:
        return self.width * (self.inputs.shape[1] + 2) + 1

    @property
    def precision(self) -> np.ndarray:
        return np.ones(self.dim)

    @property
    def last(self) -> np.ndarray:
        return np.arange(self.dim - self.width - 1, self.dim)

    @property
    def smooth(self) -> bool:
        return True

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return self.inputs, self.targets

    def unpack(self, theta: Array) -> Weights:
        """Return the layers of flat vectors `(..., dim)`: all hidden weights, unit by unit, then the outer ones."""
        cut = self.width * (self.inputs.shape[1] + 1)
        return Weights(theta[..., :cut].reshape(*theta.shape[:-1], self.width, -1), theta[..., cut:])

    def log_prior(self, theta: Array) -> Array:
        """Return the log prior density at one vector, up to a constant."""
        return -0.5 * (theta**2).sum()

    def log_likelihood(self, theta: Array, inputs: Array, targets: Array) -> Array:
        """Return the log likelihood of each of some cases, up to a constant."""
        return -0.5 * ((targets - self.predict(theta, inputs)) / self.noise) ** 2

    def log_posterior(self, theta: Array) -> Array:
        """Return the log posterior density at one vector, given all cases, up to a constant."""
        return self.log_prior(theta) + self.log_likelihood(theta, *self.data).sum()

    def predict(self, theta: Array, inputs: Array) -> Array:
        """Return the mean of y, `(n,)`."""
        outer = self.unpack(theta).outer
        return self.hidden(theta, inputs) @ outer[:-1] + outer[-1]

    def outputs(self, theta: Array, inputs: Array) -> Array:
        """Return what `gauss_newton` moves: the mean of y, `(n, 1)`."""
        return self.predict(theta, inputs)[:, None]

    def information(self, outputs: Array) -> Array:
        """Return what the likelihood of one case knows of its output."""
        return jnp.full((1, 1), self.noise**-2)

    def fields(self, theta: Array, score: Array, inputs: Array) -> jax.Array:
        """Return every g at one draw, `(input, k)`."""
        return gauss_newton_fields(self, self.predict, theta, score, inputs)

    def hidden(self, theta: Array, inputs: Array) -> jax.Array:
        """Return what the last layer sees, `(n, width)`."""
        return jnp.tanh(append_one(inputs) @ self.unpack(theta).hidden.T)
