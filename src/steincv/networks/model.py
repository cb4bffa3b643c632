"""What a Bayesian model of data is here, and the arrays its functions take."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import jax
import numpy as np

# Functions of a model are called with NumPy's arrays, and with JAX's inside compiled programs.
Array = jax.Array | np.ndarray


@runtime_checkable
class Model(Protocol):
    """A posterior over one flat vector of weights, given rows of data."""

    @property
    def data(self) -> Sequence[Array]:
        """The arrays of the data, each with one row per case."""

    def log_prior(self, theta: Array) -> Array:
        """Return the log prior density at one vector."""

    @property
    def log_likelihood(self) -> Callable[..., Array]:
        """The function `(theta, *rows)` that returns the log likelihood of each of some cases."""

    def __hash__(self) -> int:
        """A program is compiled once per model."""


def append_one(inputs: Array) -> jax.Array:
    """Return the inputs with a last column of ones."""
    found = jax.numpy.asarray(inputs)
    return jax.numpy.concatenate([found, jax.numpy.ones((*found.shape[:-1], 1), found.dtype)], -1)
