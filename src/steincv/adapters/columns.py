"""Named arrays as the columns of one matrix, and scores where the sampler kept none."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..runtime.validation import InputError

# Gradients are computed for this many draws at a time, which bounds the memory of a large model.
BATCH = 256


def labels(name: str, shape: Sequence[int]) -> list[str]:
    """What the entries of an array are called: `mu`, or `theta[0]`, `theta[1]`."""
    return [f"{name}[{', '.join(map(str, i))}]" if shape else name for i in np.ndindex(*shape)]


def columns(arrays: Mapping[str, Any]) -> tuple[np.ndarray, list[str]]:
    """Arrays `(chain, draw, ...)` side by side as `(chain, draw, dim)`, and what the columns are called."""
    flat = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
    joined = [array.reshape(*array.shape[:2], -1) for array in flat.values()]
    return np.concatenate(joined, axis=-1), [x for name, a in flat.items() for x in labels(name, a.shape[2:])]


def entry(array: np.ndarray, index: Sequence[int]) -> np.ndarray:
    """The view `(chain, draw)` of one entry of an array `(chain, draw, ...)`."""
    place: Any = (slice(None), slice(None), *index)
    return array[place]


def at_every_draw(f: Callable[[Any], Any], rows: Any) -> Any:
    """f of every row of a tree of arrays `(n, ...)`, by JAX, in float64."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        exact = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), rows)
        return jax.tree.map(np.asarray, jax.jit(lambda t: jax.lax.map(f, t, batch_size=BATCH))(exact))


def same_density(name: str, computed: np.ndarray, kept: np.ndarray) -> None:
    """Refuse a log density that differs from the one the sampler recorded by more than a constant."""
    difference = computed - kept
    spread = float(np.ptp(difference))
    # what was recorded may be in single precision
    if not spread <= 1e-3 + 1e-4 * float(np.ptp(kept)) + 1e-5 * float(np.abs(kept).max()):
        raise InputError(
            f"`{name}` is not the log density that was sampled: it differs from the recorded one by "
            f"{difference.min():.4g} to {difference.max():.4g}, where a constant was expected."
        )
