"""What a Bayesian model of data is here, and the scores of its posterior."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..runtime.double import in_double, program
from ..runtime.validation import InputError
from ..samples.samples import finite_array

# Functions of a model are called with NumPy's arrays, and with JAX's inside compiled programs.
Array = jax.Array | np.ndarray


@runtime_checkable
class Model(Protocol):
    """A posterior over one flat vector of weights, given rows of data; hashable, to be compiled once."""

    @property
    def data(self) -> Sequence[Array]:
        """The arrays of the data, each with one row per case."""

    def log_prior(self, theta: Array) -> Array:
        """Return the log prior density at one vector."""

    @property
    def log_likelihood(self) -> Callable[..., Array]:
        """The function `(theta, *rows)` that returns the log likelihood of each of some cases."""

    def __hash__(self) -> int: ...


def training_data(inputs: object, targets: object, noise: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and targets as arrays, one row per case, or refuse them or the noise."""
    x, y = finite_array("inputs", inputs), finite_array("targets", targets)
    if y.shape != (len(x),):
        raise InputError(f"`targets` has shape {y.shape}, expected one for each of {len(x)} inputs.")
    if noise is not None and not 0 < noise < np.inf:
        raise InputError(f"`noise` must be a positive number, got {noise!r}.")
    return x, y


def append_one(inputs: Array) -> jax.Array:
    """Return the inputs with a last column of ones."""
    found = jnp.asarray(inputs)
    return jnp.concatenate([found, jnp.ones((*found.shape[:-1], 1), found.dtype)], -1)


def full_scores(
    model: Model, draws: Float[np.ndarray, "chain draw dim"], rows: int = 512
) -> Float[np.ndarray, "chain draw dim"]:
    """Return the gradient of log prior plus all of the log likelihood at every draw.

    Draw by draw, `rows` of the data at a time: memory grows with neither. In the precision of the draws.
    """
    double = draws.dtype == np.float64
    data = tuple(np.asarray(a) for a in model.data)
    n = len(data[0])
    pieces = -(-n // rows)
    rows = -(-n // pieces)
    # the last piece is filled up with the first row, at weight 0
    index = np.arange(pieces * rows)
    weight = (index < n).astype(np.float32).reshape(pieces, rows)
    cut = tuple(a[np.where(index < n, index, 0)].reshape(pieces, rows, *a.shape[1:]) for a in data)
    given = draws.reshape(-1, draws.shape[-1]).astype(np.float64 if double else np.float32), weight, cut
    found = in_double(program(_scores(model), *given, double=double), *given, double=double)
    return found.astype(np.float64).reshape(draws.shape)


def _scores(model: Model) -> Callable:
    def piece(theta: Array, weight: Array, *rows: Array) -> Array:
        return (weight * model.log_likelihood(theta, *rows)).sum()

    def at(theta: Array, weight: Array, data: tuple[Array, ...]) -> Array:
        def add(total: Array, one: tuple[Array, tuple[Array, ...]]) -> tuple[Array, None]:
            return total + jax.grad(piece)(theta, one[0], *one[1]), None

        return jax.lax.scan(add, jax.grad(model.log_prior)(theta), (weight, data))[0]

    return lambda draws, weight, data: jax.lax.map(lambda theta: at(theta, weight, data), draws)
