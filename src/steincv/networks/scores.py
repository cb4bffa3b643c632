"""The score of the whole posterior at every kept draw, in memory that grows with neither draws nor data."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..runtime.compile_cache import compile_cache
from .model import Array, Model


def full_scores(
    model: Model, draws: Float[np.ndarray, "chain draw dim"], rows: int = 512
) -> Float[np.ndarray, "chain draw dim"]:
    """Return the gradient of log prior plus all of the log likelihood, draw by draw, `rows` of the data at a time."""
    data = tuple(np.asarray(a) for a in model.data)
    n = len(data[0])
    pieces = -(-n // rows)
    rows = -(-n // pieces)
    # the last piece is filled up with the first row, at weight 0
    index = np.arange(pieces * rows)
    weight = (index < n).astype(np.float32).reshape(pieces, rows)
    cut = tuple(a[np.where(index < n, index, 0)].reshape(pieces, rows, *a.shape[1:]) for a in data)
    flat = draws.reshape(-1, draws.shape[-1])
    with compile_cache():
        found = _program(model)(jnp.asarray(flat), jnp.asarray(weight), cut)
    return np.asarray(found, dtype=np.float64).reshape(draws.shape)


@functools.lru_cache(maxsize=8)
def _program(model: Model) -> Callable:
    def piece(theta: Array, weight: Array, *rows: Array) -> Array:
        return (weight * model.log_likelihood(theta, *rows)).sum()

    def at(theta: Array, weight: Array, data: tuple[Array, ...]) -> Array:
        def add(total: Array, one: tuple[Array, tuple[Array, ...]]) -> tuple[Array, None]:
            return total + jax.grad(piece)(theta, one[0], *one[1]), None

        return jax.lax.scan(add, jax.grad(model.log_prior)(theta), (weight, data))[0]

    return jax.jit(lambda draws, weight, data: jax.lax.map(lambda theta: at(theta, weight, data), draws))
