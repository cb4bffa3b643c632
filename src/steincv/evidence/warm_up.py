"""Step sizes and preconditioners, one a rung, learned during warm-up and fixed afterwards."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

# Windows double in length; at the end of each the preconditioner is made anew from the draws of that window.
WINDOWS = 5
FEWEST_IN_WINDOW = 20
# How fast a step size reacts to an acceptance rate off its target, and how fast that dies down.
GAIN, DECAY = 2.0, 0.6
# In more dimensions than this only the scales of the coordinates are learned.
LARGEST_DENSE = 100
# The draws of a window are correlated: so many of them count as one.
DRAWS_PER_EFFECTIVE = 10


class Moments(NamedTuple):
    """Running sums of x and x x', less a first guess of the mean, over iterations and replicas, for every rung."""

    origin: Any
    count: Any
    first: Any
    second: Any


class Tuning(NamedTuple):
    """The log step sizes and the factors L of the preconditioners, of every rung."""

    log_step: Any
    factor: Any


def windows(units: int, fewest: int) -> list[int]:
    """Lengths of the windows, each about twice the one before and the first at least `fewest`: `units` in all."""
    parts = min(WINDOWS, max(1, int(np.log2(units / fewest + 1))))
    edges = np.round(units * (2.0 ** np.arange(parts + 1) - 1) / (2.0**parts - 1)).astype(int)
    return [int(n) for n in np.diff(edges) if n > 0]


def no_moments(x: np.ndarray, dense: bool) -> Moments:
    """Nothing summed yet; the mean over replicas is the first guess."""
    import jax.numpy as jnp

    _, rungs, dim = x.shape
    shape = (rungs, dim, dim) if dense else (rungs, dim)
    return Moments(jnp.asarray(x.mean(0)), jnp.zeros(()), jnp.zeros((rungs, dim)), jnp.zeros(shape))


def add(moments: Moments, x: Any) -> Moments:
    import jax.numpy as jnp

    away = x - moments.origin
    dense = moments.second.ndim == 3
    square = jnp.einsum("rki,rkj->kij", away, away) if dense else (away**2).sum(0)
    return Moments(moments.origin, moments.count + len(x), moments.first + away.sum(0), moments.second + square)


def react(log_step: Any, acceptance: Any, stepped: Any, target: float, i: Any) -> Any:
    """Robbins and Monro: a larger step where more of the steps are accepted than wanted."""
    off = ((acceptance - target) * stepped).mean(0)
    return log_step + GAIN * off / (i + 1.0) ** DECAY


def factors(moments: Moments, old: Float[np.ndarray, "rung dim dim"]) -> Float[np.ndarray, "rung dim dim"]:
    """Cholesky factors of the covariances, shrunk towards their diagonals by how little is known of them."""
    count, first, second = float(moments.count), np.asarray(moments.first), np.asarray(moments.second)
    result = np.array(old)
    dim = first.shape[1]
    for k in range(len(first)):
        mean = first[k] / count
        if second.ndim == 2:
            covariance = np.diag(np.maximum(second[k] / count - mean**2, 0))
        else:
            covariance = second[k] / count - np.outer(mean, mean)
        scale = np.diag(covariance)
        if not (np.isfinite(covariance).all() and (scale > 0).all()):
            continue  # a rung that has not moved keeps what it had
        effective = count / DRAWS_PER_EFFECTIVE
        share = effective / (effective + dim + 2)
        shrunk = share * covariance + (1 - share) * np.diag(scale)
        try:
            result[k] = np.linalg.cholesky(shrunk)
        except np.linalg.LinAlgError:
            result[k] = np.diag(np.sqrt(scale))
    return result
