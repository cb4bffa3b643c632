"""Quantiles: the plain ones with ArviZ's Monte Carlo error, and those of a controlled distribution function."""

from collections.abc import Sequence

import numpy as np
import scipy.special
from jaxtyping import Float
from scipy.optimize import isotonic_regression

from .chain_statistics import effective_draws
from .error_bars import Average
from .weighted import Weights


def plain_quantiles(values: Float[np.ndarray, "chain draw out"], levels: Sequence[float]) -> list[Average]:
    """Return the quantiles of every output over all draws, level by level, with ArviZ's error and effective size."""
    ordered = np.sort(values.reshape(-1, values.shape[-1]), axis=0)
    size, each = len(ordered), np.arange(values.shape[-1])
    one_deviation = (0.1586553, 0.8413447)  # on either side of a normal distribution's middle, as ArviZ rounds them
    found = []
    for level in levels:
        mean = np.quantile(ordered, level, axis=0)
        ess = effective_draws(1.0 * (values <= mean))
        places = np.array([scipy.special.betaincinv(ess * level + 1, ess * (1 - level) + 1, p) for p in one_deviation])
        places = places * size - 1
        low = ordered[np.floor(np.maximum(places[0], 0)).astype(int), each]
        high = ordered[np.ceil(np.minimum(places[1], size - 1)).astype(int), each]
        found.append(Average(mean, (high - low) / 2, ess))
    return found


def weighted_quantile(values: Float[np.ndarray, "chain draw out"], level: float, weights: Weights) -> Average:
    """Return the same of draws with weights: the error is that of the level, on the scale of the output."""
    w = weights.w.reshape(-1)
    flat = values.reshape(len(w), -1)
    order = np.argsort(flat, axis=0, kind="stable")
    ordered, share = np.take_along_axis(flat, order, axis=0), np.cumsum(w[order], axis=0) / w.sum()
    share -= w[order] / (2 * w.sum())  # a draw stands in the middle of its weight

    def at(levels: np.ndarray) -> np.ndarray:
        return np.array([np.interp(p, share[:, o], ordered[:, o]) for o, p in enumerate(levels)])

    mean = at(np.full(flat.shape[1], level))
    shares = weights.average(indicator_draws(1.0 * (values <= mean), weights))
    low, high = (at(np.clip(level + side * shares.standard_error, 0, 1)) for side in (-1, 1))
    return Average(mean, (high - low) / 2, shares.ess)


def indicator_draws(indicators: np.ndarray, weights: Weights | None) -> Float[np.ndarray, "chain draw out"]:
    """Return draws with the mean of the indicators and its error; without weights they are the indicators."""
    if weights is None:
        return indicators
    center = weights.mean(indicators)
    return weights.draws(weights.w[..., None] * (indicators - center), center)


def quantile_draws(
    indicators: Float[np.ndarray, "chain draw out"],
    cut: Float[np.ndarray, " out"],
    level: float,
    density: Float[np.ndarray, " out"],
) -> Float[np.ndarray, "chain draw out"]:
    r"""Return draws whose mean is the quantile: $c + (p - 1\{f \le c\} - g)/\rho(c)$, a Newton step from the cut c."""
    steep = np.where(density > 0, density, 1.0)
    return np.where(density > 0, cut + (level - indicators) / steep, cut)


def in_order(
    means: Sequence[Float[np.ndarray, " out"]], errors: Sequence[Float[np.ndarray, " out"]]
) -> list[Float[np.ndarray, " out"]]:
    """Return means of which none is below the one before it: neighbours that cross share their weighted mean."""
    found, spread = np.array(means), np.array(errors)
    for o in range(found.shape[1]):
        if (np.diff(found[:, o]) < 0).any():
            least = max(float(spread[:, o].max()) * 1e-6, 1e-300)
            found[:, o] = isotonic_regression(found[:, o], weights=np.maximum(spread[:, o], least) ** -2).x
    return list(found)
