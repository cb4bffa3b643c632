r"""Error bars of means over chains: chain-aware, from arviz-stats, with a defined answer for constants.

The standard error is $\mathrm{sd}/\sqrt{\mathrm{ESS}}$ with the split-chain effective sample size of the
*controlled* draws, so autocorrelation and disagreement between chains are in it.
"""

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special
from jaxtyping import Float

from ._status import InputError

# A series that varies less than this, relative to the plain one, is constant up to round-off.
ROUND_OFF = 1e-10
# The variance estimate behind an error bar is itself uncertain, as if from ESS / 5 independent squares:
# the autocovariances are estimated too. Gives Student intervals, 7 % wider than normal at ESS = 100.
DRAWS_PER_DEGREE_OF_FREEDOM = 5


@dataclass(frozen=True, eq=False)
class Average:
    """Means of several series with standard errors and effective sample sizes, shaped like f's outputs."""

    mean: np.ndarray
    standard_error: np.ndarray
    ess: np.ndarray

    def interval(self, level: float = 0.95) -> np.ndarray:
        """Student intervals, with a last axis of 2."""
        if not (isinstance(level, float | np.floating) and 0 < level < 1):
            raise InputError(f"`level` must lie strictly between 0 and 1, got {level!r}.")
        half = scipy.special.stdtrit(degrees_of_freedom(self.ess), 0.5 + level / 2) * self.standard_error
        return np.stack([self.mean - half, self.mean + half], axis=-1)

    def reshape(self, shape: tuple[int, ...]) -> "Average":
        return Average(*(x.reshape(shape) for x in (self.mean, self.standard_error, self.ess)))


def degrees_of_freedom(ess: Any) -> Any:
    """Of the Student distribution that a mean over its standard error has, at this many effective draws."""
    return np.maximum(ess / DRAWS_PER_DEGREE_OF_FREEDOM - 1, 1.0)


def average(series: Float[np.ndarray, "chain draw out"]) -> Average:
    """The mean of every output with its Monte Carlo standard error."""
    chains, draws, _ = series.shape
    unit, center, spread = _unit(series)
    shift = unit.mean(axis=(0, 1))
    mean = center + spread * shift
    deviation = unit.std(axis=(0, 1), ddof=1)
    ess = np.full(mean.shape, float(chains * draws))
    moving = deviation > 0
    if moving.any():
        ess[moving] = effective_draws(unit[..., moving])
    return Average(mean, spread * deviation / np.sqrt(ess), ess)


def effective_draws(series: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, " out"]:
    """Split-chain effective sample size of the mean."""
    from arviz_stats.base import array_stats  # a second to import: only when needed

    ess = np.atleast_1d(array_stats.ess(series, chain_axis=0, draw_axis=1, method="mean"))
    size = float(series.shape[0] * series.shape[1])
    return np.where(np.isfinite(ess), ess, size)


def split_rhat(series: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, " out"]:
    """Rank-normalised split R-hat; 1 where it is not defined (a constant series)."""
    from arviz_stats.base import array_stats

    unit, _, _ = _unit(series)
    rhat = np.ones(unit.shape[-1])
    moving = unit.std(axis=(0, 1)) > 0
    if moving.any():
        with np.errstate(divide="ignore", invalid="ignore"):  # chains stuck at different values: infinite
            rhat[moving] = array_stats.rhat(unit[..., moving], chain_axis=0, draw_axis=1, method="rank")
    return np.where(np.isnan(rhat), 1.0, rhat)


def tail_index(series: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, " out"]:
    """The Pareto k of the heavier tail: moments of order 1/k and more are infinite."""
    from arviz_stats.base import array_stats

    unit, _, _ = _unit(series)
    chains, draws, outputs = unit.shape
    if chains * draws < 100:  # no tail to speak of
        return np.zeros(outputs)
    khat = np.zeros(outputs)
    for k in range(outputs):
        if unit[..., k].std() > 0:
            # values that tie, as those of an indicator or a count, may have no tail to fit
            with contextlib.suppress(ValueError), np.errstate(divide="ignore", invalid="ignore"):
                khat[k] = array_stats.pareto_khat(unit[..., k], chain_axis=0, draw_axis=1, r_eff=1.0)
    return np.where(np.isfinite(khat), khat, 0.0)


def _unit(series: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The series moved and scaled into [-1, 1], so that no square of it over- or underflows."""
    center = series[0, 0]
    spread = np.abs(series - center).max(axis=(0, 1))
    spread = np.where(spread > 0, spread, 1.0)
    return (series - center) / spread, center, spread
