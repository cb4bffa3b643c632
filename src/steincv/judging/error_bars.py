r"""Error bars of means over chains: chain-aware, from arviz-stats, with a defined answer for constants.

The standard error is $\mathrm{sd}/\sqrt{\mathrm{ESS}}$ with the split-chain effective sample size of the
*controlled* draws, so autocorrelation and disagreement between chains are in it.

For independent draws its square is unbiased, but where few draws carry it, it is mostly too small and seldom far
too large. The interval therefore takes its degrees of freedom from the kurtosis: see `error_draws`.
"""

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special
from jaxtyping import Float

from ..runtime.validation import InputError

# A series that varies less than this, relative to the plain one, is constant up to round-off.
ROUND_OFF = 1e-10
# The variance estimate behind an error bar is itself uncertain, as if from ESS / 5 independent Gaussian squares:
# the autocovariances are estimated too. Gives Student intervals, 7 % wider than normal at ESS = 100. With tails the
# same fifth is of `error_draws`: a sample kurtosis is mostly too small (measured in benchmarks/coverage_tails.py).
DRAWS_PER_DEGREE_OF_FREEDOM = 5


@dataclass(frozen=True, eq=False)
class Average:
    """Means of several series with standard errors and effective sample sizes, shaped like f's outputs.

    `error_ess` is how many Gaussian draws would know the standard error as well; `ess` if not given.
    """

    mean: np.ndarray
    standard_error: np.ndarray
    ess: np.ndarray
    error_ess: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.error_ess is None:
            object.__setattr__(self, "error_ess", self.ess)

    def interval(self, level: float = 0.95) -> np.ndarray:
        """Student intervals, with a last axis of 2."""
        if not (isinstance(level, float | np.floating) and 0 < level < 1):
            raise InputError(f"`level` must lie strictly between 0 and 1, got {level!r}.")
        half = self.half_width(level) * self.standard_error
        return np.stack([self.mean - half, self.mean + half], axis=-1)

    def half_width(self, level: float = 0.95) -> np.ndarray:
        """Of an interval, in standard errors."""
        return np.asarray(scipy.special.stdtrit(degrees_of_freedom(self.ess, self.error_ess), 0.5 + level / 2))

    def reshape(self, shape: tuple[int, ...]) -> "Average":
        return Average(*(x.reshape(shape) for x in (self.mean, self.standard_error, self.ess, self.error_ess)))

    def __getitem__(self, pick: Any) -> "Average":
        return Average(*(x[pick] for x in (self.mean, self.standard_error, self.ess, self.error_ess)))


def degrees_of_freedom(ess: Any, error_ess: Any = np.inf) -> Any:
    """Of the Student distribution that a mean over its standard error has, at this many effective draws."""
    each = DRAWS_PER_DEGREE_OF_FREEDOM
    return np.maximum(np.minimum(ess / each - 1, error_ess / each), 1.0)


def average(series: Float[np.ndarray, "chain draw out"], *, tails: bool = True) -> Average:
    """The mean of every output with its Monte Carlo standard error. Without `tails`, `error_ess` is `ess`: quicker."""
    chains, draws, _ = series.shape
    unit, center, spread = _unit(series)
    shift = unit.mean(axis=(0, 1))
    mean = center + spread * shift
    deviation = unit.std(axis=(0, 1), ddof=1)
    ess = np.full(mean.shape, float(chains * draws))
    error_ess = ess.copy()
    moving = deviation > 0
    if moving.any():
        ess[moving] = effective_draws(unit[..., moving])
        if tails:
            error_ess[moving] = error_draws((unit - shift)[..., moving] / deviation[moving])
    return Average(mean, spread * deviation / np.sqrt(ess), ess, error_ess if tails else ess)


def error_draws(z: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, " out"]:
    r"""How many Gaussian draws would know the variance of z (of mean 0 and variance 1) as well as these do.

    The variance estimate of n draws of kurtosis $\kappa$ has relative variance $(\kappa - 1)/n$, and $2/n$ if they are
    Gaussian: $2n/(\kappa - 1)$ draws, n being the effective size of the squares. Half of that is about how many draws
    carry the sum of squares, $(\sum z^2)^2 / \sum z^4 = n/\kappa$. Tails shorter than Gaussian get no credit.
    """
    squares = z**2
    kurtosis = np.maximum((squares**2).mean(axis=(0, 1)), 3.0)
    size = np.full(kurtosis.shape, float(z.shape[0] * z.shape[1]))
    moving = squares.std(axis=(0, 1)) > ROUND_OFF  # not those of a fair coin
    if moving.any():
        size[moving] = np.minimum(size[moving], effective_draws(squares[..., moving]))
    return 2 * size / (kurtosis - 1)


def effective_draws(series: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, " out"]:
    """Split-chain effective sample size of the mean."""
    from arviz_stats.base import array_stats  # a second to import: only when needed

    ess = np.atleast_1d(array_stats.ess(series, chain_axis=0, draw_axis=1, method="mean"))
    size = float(series.shape[0] * series.shape[1])
    return np.where(np.isfinite(ess), ess, size)


def most_effective_draws(n: int) -> float:
    """The bound that arviz-stats puts on the effective size of n draws: chains may be better than independent."""
    return n * max(1.0, np.log10(n))


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
