"""The score of the whole posterior at every kept draw, in memory that grows with neither draws nor data."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..runtime.compile_cache import compile_cache

# Rows of the data that one piece of a gradient is made of.
ROWS = 512


def full_scores(
    model: Any, draws: Float[np.ndarray, "chain draw dim"], rows: int = ROWS
) -> Float[np.ndarray, "chain draw dim"]:
    """The gradient of log prior plus all of the log likelihood, draw by draw and `rows` of the data at a time."""
    import jax.numpy as jnp

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
def _program(model: Any) -> Callable:
    import jax

    def piece(theta: Any, weight: Any, *rows: Any) -> Any:
        return (weight * model.log_likelihood(theta, *rows)).sum()

    def at(theta: Any, weight: Any, data: Any) -> Any:
        def add(total: Any, one: Any) -> tuple[Any, None]:
            return total + jax.grad(piece)(theta, one[0], *one[1]), None

        return jax.lax.scan(add, jax.grad(model.log_prior)(theta), (weight, data))[0]

    return jax.jit(lambda draws, weight, data: jax.lax.map(lambda theta: at(theta, weight, data), draws))
