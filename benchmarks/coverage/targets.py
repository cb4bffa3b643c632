"""Six densities in two dimensions with exact draws, exact means and chains whose autocorrelation is known.

Five are pictures x = push(w) of a standard Gaussian w (the mixture with a fair coin besides), so that a stationary
Gaussian AR(1) chain of w becomes a stationary Markov chain of x, and means are integrals over w. The sixth, the
posterior of a logistic regression, is sampled by rejection, and its chains by MALA from exact starts.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.signal
import scipy.special

# An AR(1) chain of this correlation has one effective draw in four, (1 - r) / (1 + r).
CORRELATION = 0.6
MALA_STEP, MALA_THIN = 0.9, 2


def functions(x):
    """Both coordinates, a square, a wave and a smooth step: names and values `(..., 5)`."""
    a, b = x[..., 0], x[..., 1]
    return NAMES, np.stack([a, b, a**2, np.sin(a + b), scipy.special.expit(3 * (b - 1))], axis=-1)


NAMES = ("x0", "x1", "x0^2", "sin(x0 + x1)", "step(x1 - 1)")


@dataclass(frozen=True)
class Target:
    """`score(x)`, `chains(rng, count, draws, correlation)` as `(count, draws, 2)`, and a quadrature of the density.

    `rule(every)`: points `(n, 2)` and their weights, of the fine grid or of every so many of its rows and columns.
    """

    name: str
    score: Callable
    chains: Callable
    rule: Callable

    def truth(self):
        """The means of `functions`."""
        points, weights = self.rule(1)
        return weights @ functions(points)[1]


# Pictures of a Gaussian ------------------------------------------------------------------------------


def gaussian_chains(rng, count, draws, correlation):
    """Stationary Gaussian AR(1) chains, exactly."""
    noise = rng.normal(size=(draws, count, 2))
    noise[1:] *= np.sqrt(1 - correlation**2)
    return scipy.signal.lfilter([1.0], [1.0, -correlation], noise, axis=0).swapaxes(0, 1)


def coins(rng, count, draws, correlation):
    """Fair coins of -1 and 1, each kept with a chance that makes their autocorrelation that of the chains."""
    flips = np.where(rng.random((count, draws)) < (1 - correlation) / 2, -1.0, 1.0)
    flips[:, 0] = rng.choice([-1.0, 1.0], size=count)
    return np.cumprod(flips, axis=1)


@functools.cache
def _grid():
    """An even rule for the standard Gaussian in the plane: as accurate as rounding for smooth integrands."""
    axis = np.linspace(-9.5, 9.5, 1201)
    weight = np.exp(-0.5 * axis**2)
    weight /= weight.sum()
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1), weight[:, None] * weight


def coarser(points, weights, every):
    """Every so many rows and columns of a rule `(n, n, 2)`, as lists."""
    points, weights = points[::every, ::every].reshape(-1, 2), weights[::every, ::every].ravel()
    return points, weights / weights.sum()


def pushed(name, push, score, coin=False):
    """The density of push(w), or of push(w, c) with a coin c = -1 or 1."""

    def chains(rng, count, draws, correlation):
        w = gaussian_chains(rng, count, draws, correlation)
        return push(w, coins(rng, count, draws, correlation)[..., None]) if coin else push(w)

    def rule(every):
        w, weights = coarser(*_grid(), every)
        pictures = [push(w, -1.0), push(w, 1.0)] if coin else [push(w)]
        return np.concatenate(pictures), np.concatenate([weights / len(pictures)] * len(pictures))

    return Target(name, score, chains, rule)


ROOT = np.array([[1.0, 0.0], [1.2, 1.6]])  # standard deviations 1 and 2, correlation 0.6
PRECISION = np.linalg.inv(ROOT @ ROOT.T)


def _columns(*columns):
    return np.stack(columns, axis=-1)


def banana(w):
    return _columns(w[..., 0], 0.5 * w[..., 0] ** 2 + 0.5 * w[..., 1])


def banana_score(x):
    rest = 4 * (x[..., 1] - 0.5 * x[..., 0] ** 2)
    return _columns(-x[..., 0] + rest * x[..., 0], -rest)


def funnel(w):
    """A mild one: x0 has log scale x1 / 2, and x1 has scale 1."""
    return _columns(np.exp(w[..., 1] / 2) * w[..., 0], w[..., 1])


def funnel_score(x):
    a, b = x[..., 0], x[..., 1]
    return _columns(-a * np.exp(-b), -b + 0.5 * a**2 * np.exp(-b) - 0.5)


NU = 5.0


def student(w):
    """Two independent t(5), by their quantiles; from the lower half, where small probabilities have all digits."""
    return np.sign(w) * -scipy.special.stdtrit(NU, scipy.special.ndtr(-np.abs(w)))


def mixture_score(x):
    """Of 0.5 N(-1, I) + 0.5 N(1, I)."""
    return -x + np.tanh(x.sum(axis=-1, keepdims=True))


# The logistic posterior ------------------------------------------------------------------------------

# Four doses, five animals each: Racine et al. (1986), as in many textbooks. Intercept and slope, weak normal priors.
DOSE, ANIMALS, DEATHS = np.array([-0.86, -0.30, -0.05, 0.73]), np.full(4, 5.0), np.array([0.0, 1.0, 3.0, 5.0])
PRIOR = np.array([2.0, 5.0])
BOX = ((-8.0, 10.0), (-8.0, 42.0))


def logistic(x):
    eta = x[..., :1] + x[..., 1:] * DOSE
    prior = -0.5 * ((x / PRIOR) ** 2).sum(axis=-1)
    return (DEATHS * eta - ANIMALS * np.logaddexp(0, eta)).sum(axis=-1) + prior


def logistic_score(x):
    rest = DEATHS - ANIMALS * scipy.special.expit(x[..., :1] + x[..., 1:] * DOSE)
    return _columns(rest.sum(axis=-1), (rest * DOSE).sum(axis=-1)) - x / PRIOR**2


@functools.cache
def _posterior():
    """Points and weights of an even rule over the box, mean, Cholesky factor of the covariance, log density there."""
    axes = [np.linspace(low, high, 1601) for low, high in BOX]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    logs = logistic(points)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ points
    root = np.linalg.cholesky((points - mean).T @ ((points - mean) * weights[:, None]))
    return points, weights, mean, root, logs


def logistic_rule(every):
    points, weights, *_ = _posterior()
    size = math.isqrt(len(weights))
    return coarser(points.reshape(size, size, 2), weights.reshape(size, size), every)


def logistic_exact(rng, size):
    """`(size, 2)`, by rejection from a wide Student t whose bound is taken on the grid, with a margin."""
    points, _, mean, root, logs = _posterior()
    nu, wide = 5.0, np.sqrt(1.2) * root

    def log_proposal(x):
        u = np.linalg.solve(wide, (x - mean).T)
        return -(nu + 2) / 2 * np.log1p((u**2).sum(axis=0) / nu)

    bound = (logs - log_proposal(points)).max() + 0.02
    kept, have = [], 0
    while have < size:
        u = rng.normal(size=(100_000, 2)) / np.sqrt(rng.chisquare(nu, size=(100_000, 1)) / nu)
        x = mean + u @ wide.T
        kept.append(x[np.log(rng.random(len(x))) < logistic(x) - log_proposal(x) - bound])
        have += len(kept[-1])
    return np.concatenate(kept)[:size]


def logistic_chains(rng, count, draws, correlation):
    """Independent draws, or MALA in whitened coordinates from exact starts: stationary, nothing to burn."""
    if correlation == 0:
        return logistic_exact(rng, count * draws).reshape(count, draws, 2)
    root = _posterior()[3]
    h, x = MALA_STEP, logistic_exact(rng, count)
    log, drift = logistic(x), logistic_score(x) @ root
    kept = np.empty((count, draws, 2))
    for t in range(draws * MALA_THIN):
        step = h**2 / 2 * drift + h * rng.normal(size=x.shape)
        new = x + step @ root.T
        new_log, new_drift = logistic(new), logistic_score(new) @ root
        forth = ((step - h**2 / 2 * drift) ** 2).sum(axis=-1)
        back = ((step + h**2 / 2 * new_drift) ** 2).sum(axis=-1)
        take = np.log(rng.random(count)) < new_log - log + (forth - back) / (2 * h**2)
        x, drift = np.where(take[:, None], new, x), np.where(take[:, None], new_drift, drift)
        log = np.where(take, new_log, log)
        if t % MALA_THIN == MALA_THIN - 1:
            kept[:, t // MALA_THIN] = x
    return kept


TARGETS = {
    target.name: target
    for target in (
        pushed("Gaussian", lambda w: w @ ROOT.T, lambda x: -x @ PRECISION),
        pushed("mixture", lambda w, c: w + c, mixture_score, coin=True),
        pushed("banana", banana, banana_score),
        pushed("funnel", funnel, funnel_score),
        Target("logistic posterior", logistic_score, logistic_chains, logistic_rule),
        pushed("t(5)", student, lambda x: -(NU + 1) * x / (NU + x**2)),
    )
}
