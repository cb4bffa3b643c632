"""Standard deviations and quantiles as means of draws; plain quantiles with ArviZ's Monte Carlo error."""

from collections.abc import Sequence

import numpy as np
import scipy.special
from jaxtyping import Float
from scipy.optimize import isotonic_regression

from ..samples.values import Unit
from .error_bars import Average, average, effective_draws, most_effective_draws
from .passing import Series
from .weighted import Weights


def deviation(unit: Unit, targets: np.ndarray, outputs: int) -> np.ndarray:
    r"""Return draws whose mean is the standard deviation of f, by the delta method.

    With $u = (f - c)/r$ for constants $c$ and $r$, $\sigma^2/r^2 = E[u^2] - (E u)^2$, and the draws
    $\hat\sigma + (v_i - \bar v)\,r^2 / 2\hat\sigma$, $v = u^2 - 2 \bar u u$ (both controlled or both plain), have mean
    $\hat\sigma$ and its standard error. `targets` holds the draws of f and then those of $u^2$.
    """
    first, second = unit(targets[..., :outputs]), targets[..., outputs:]
    mean = first.mean(axis=(0, 1))
    variance = second.mean(axis=(0, 1)) - mean**2
    sd = np.sqrt(np.where(variance > 0, variance, np.nan))
    v = second - 2 * mean * first
    with np.errstate(invalid="ignore"):
        draws = sd + (v - v.mean(axis=(0, 1))) / (2 * sd)
    return unit.scale * np.where(second.max(axis=(0, 1)) > 0, draws, 0.0)


def block_deviation(unit: Unit, series: Series, outputs: int) -> tuple[np.ndarray, Average]:
    """Return draws, or block means, whose mean is the standard deviation of f, from a series of `Targets.columns`."""
    draws = deviation(unit, series.means()[..., : 2 * outputs], outputs)
    found = average(draws)
    if series.blocks.size == 1:
        return draws, found
    each = series.variance()
    first, second, both = each[:outputs] / unit.scale**2, each[outputs : 2 * outputs], each[2 * outputs :]
    mean = unit(series.means()[..., :outputs]).mean(axis=(0, 1))
    # the variance of second - 2 mean first, where 2 cov(first, second) = var(first + second) - var(first) - var(second)
    variance = second + 4 * mean**2 * first - 2 * mean * (both - first - second)
    sd = found.mean / unit.scale
    variance = np.divide(variance, 4 * sd**2, out=np.zeros(outputs), where=sd > 0) * unit.scale**2
    # an exact answer has no variance but that of round-off
    ess = np.clip(series.effective(variance, found), found.ess, most_effective_draws(series.size))
    return draws, Average(found.mean, found.standard_error, ess, found.error_ess, tail=found.tail)


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
