"""A Bayesian regression network: one hidden layer of tanh, N(0, 1) on every weight, Gaussian noise of known size."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ..runtime.validation import InputError, whole_number
from .gauss_newton import gauss_newton_fields
from .model import Array, append_one, training_data


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
        inputs, targets = training_data(self.inputs, self.targets, self.noise)
        if inputs.ndim != 2:
            raise InputError(f"`inputs` has shape {inputs.shape}, expected (n, k): one row a case.")
        whole_number("width", self.width, 1)
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
        """Return the mean of y, `(n,)`; `theta` has V row by row, then w and b."""
        cut = self.dim - self.width - 1
        hidden = jnp.tanh(append_one(inputs) @ theta[:cut].reshape(self.width, -1).T)
        return hidden @ theta[cut:-1] + theta[-1]

    def outputs(self, theta: Array, inputs: Array) -> Array:
        """Return what `gauss_newton` moves: the mean of y, `(n, 1)`."""
        return self.predict(theta, inputs)[:, None]

    def information(self, outputs: Array) -> Array:
        """Return what the likelihood of one case knows of its output."""
        return jnp.full((1, 1), self.noise**-2)

    def fields(self, theta: Array, score: Array, inputs: Array) -> jax.Array:
        """Return every g at one draw, `(input, k)`."""
        return gauss_newton_fields(self, self.predict, theta, score, inputs)
