"""What adapters do with a log density: make it, compare it with what was recorded, take its scores."""

from collections.abc import Callable

import jax
import numpy as np
from jax import Array

from ..runtime.rows import over_rows
from ..runtime.validation import InputError
from ..samples.log_density import LogDensity


def by_jax(density: Callable[[Array], Array], forward: bool = False) -> LogDensity:
    """Return the log density at many points, of a JAX function of one vector.

    With `forward` it is differentiated forward, which is the only way through a while loop.
    """

    def one(x: Array) -> tuple[Array, Array]:
        return (density(x), jax.jacfwd(density)(x)) if forward else jax.value_and_grad(density)(x)

    return LogDensity(over_rows(jax.vmap(one)))


def at_draws(log_density: LogDensity, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log density `(chain, draw)` and the scores `(chain, draw, dim)` at all draws."""
    values, scores = log_density.batch(draws.reshape(-1, draws.shape[-1]))
    return values.reshape(draws.shape[:2]), scores.reshape(draws.shape)


def refuse_another_density(name: str, computed: np.ndarray, recorded: np.ndarray) -> None:
    """Refuse a log density that differs from the one the sampler recorded by more than a constant."""
    difference = computed - recorded
    spread = float(np.ptp(difference))
    # what was recorded may be in single precision
    if not spread <= 1e-3 + 1e-4 * float(np.ptp(recorded)) + 1e-5 * float(np.abs(recorded).max()):
        raise InputError(
            f"`{name}` is not the log density that was sampled: it differs from the recorded one by "
            f"{difference.min():.4g} to {difference.max():.4g}, where a constant was expected."
        )


def fitting_places(draws: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return warm-up draws `(..., dim)` and their scores as rows `(m, dim)`, without those that are not finite."""
    rows, slopes = (np.asarray(a, dtype=np.float64).reshape(-1, a.shape[-1]) for a in (draws, scores))
    usable = np.isfinite(rows).all(axis=1) & np.isfinite(slopes).all(axis=1)
    return (rows[usable], slopes[usable]) if usable.any() else None
