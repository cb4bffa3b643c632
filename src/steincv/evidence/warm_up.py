"""Step sizes and preconditioners, one per rung, learned during warm-up and fixed afterwards."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float


class Adaptation(NamedTuple):
    """How warm-up learns."""

    # At most so many windows, the first of at least so many iterations. At the end of each the preconditioner is made
    # anew from its draws, as Stan does.
    windows: int = 5
    fewest: int = 20
    # How fast a step size reacts to an acceptance rate off its target, and how fast that dies down: Robbins and Monro
    # (1951) need a decay between 1/2 and 1.
    gain: float = 2.0
    decay: float = 0.6
    # In more dimensions only the scales of the coordinates are learned.
    largest_dense: int = 100
    # The draws of a window are correlated; so many of them count as one.
    draws_per_effective: int = 10


ADAPTATION = Adaptation()


class Moments(NamedTuple):
    """Running sums of x and x x', less a first guess of the mean, over iterations and replicas, for every rung."""

    origin: Array
    draws: Array
    first: Array
    second: Array


class Tuning(NamedTuple):
    """The log step sizes and the factors L of the preconditioners, of every rung."""

    log_step: Array
    factor: Array


def windows(units: int, fewest: int) -> list[int]:
    """Return lengths of windows, `units` in all, each about twice the one before and the first at least `fewest`."""
    parts = min(ADAPTATION.windows, max(1, int(np.log2(units / fewest + 1))))
    edges = np.round(units * (2.0 ** np.arange(parts + 1) - 1) / (2.0**parts - 1)).astype(int)
    return [int(n) for n in np.diff(edges) if n > 0]


def no_moments(x: np.ndarray, dense: bool) -> Moments:
    """Return sums of nothing yet; the mean over replicas is the first guess."""
    _, rungs, dim = x.shape
    shape = (rungs, dim, dim) if dense else (rungs, dim)
    return Moments(jnp.asarray(x.mean(0)), jnp.zeros(()), jnp.zeros((rungs, dim)), jnp.zeros(shape))


def add(moments: Moments, x: Array) -> Moments:
    """Return the sums with the points x `(replica, rung, dim)` added."""
    away = x - moments.origin
    dense = moments.second.ndim == 3
    square = jnp.einsum("rki,rkj->kij", away, away) if dense else (away**2).sum(0)
    return Moments(moments.origin, moments.draws + len(x), moments.first + away.sum(0), moments.second + square)


def react(log_step: Array, acceptance: Array, stepped: Array, target: float, i: Array) -> Array:
    """Return new log step sizes, by Robbins and Monro: larger where more of the steps are accepted than wanted."""
    off = ((acceptance - target) * stepped).mean(0)
    return log_step + ADAPTATION.gain * off / (i + 1.0) ** ADAPTATION.decay


def factors(moments: Moments, old: Float[np.ndarray, "rung dim dim"]) -> Float[np.ndarray, "rung dim dim"]:
    """Return Cholesky factors of the covariances, shrunk towards their diagonals by how little is known of them."""
    count, first, second = float(moments.draws), np.asarray(moments.first), np.asarray(moments.second)
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
        effective = count / ADAPTATION.draws_per_effective
        share = effective / (effective + dim + 2)
        shrunk = share * covariance + (1 - share) * np.diag(scale)
        try:
            result[k] = np.linalg.cholesky(shrunk)
        except np.linalg.LinAlgError:
            result[k] = np.diag(np.sqrt(scale))
    return result
