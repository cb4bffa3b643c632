r"""Error bars of means over chains: chain-aware, as in arviz-stats, with a defined answer for constants.

The standard error is $\mathrm{sd}/\sqrt{\mathrm{ESS}}$ with the split-chain effective sample size of the
*controlled* draws, so autocorrelation and disagreement between chains are in it.

For independent draws its square is unbiased, but where few draws carry it, it is mostly too small and seldom far
too large. The interval therefore takes its degrees of freedom from the kurtosis and the tail: see `degrees_of_freedom`.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float

from ..runtime.validation import InputError
from ..samples.samples import unit_range
from .chain_statistics import effective_draws, pareto_index, rank_rhat

if TYPE_CHECKING:
    from arviz_stats.base.array import BaseArray

# A series that varies less than this, relative to the plain one, is constant up to round-off.
ROUND_OFF = 1e-10


class Freedom(NamedTuple):
    """What degrees of freedom follow from: set by true errors in benchmarks/gain.py and coverage_tails.py."""

    # Draws per degree of freedom: autocovariances are estimated too, and a sample kurtosis is mostly too small.
    each: float = 5.0
    # From so many carriers of the error on, their number alone counts; below, the tail index does.
    many: float = 15.0
    # From so many on nobody looks at the tail.
    looked: float = 60.0
    # Degrees of freedom times tail index, and the indices between which it counts.
    spread: float = 1.5
    # Effective draws at which half of them are left: a tail index from few draws, and a choice among methods by them,
    # promise too much.
    scarce: float = 33.0
    # The fewest of all: half-widths are then 38 standard errors.
    least: float = 0.7
    shortest: float = 0.1
    longest: float = 1.5
    # Distances among the largest few of which one is so many times the next are no tail: those draws stand apart.
    apart: float = 100.0
    largest: int = 6
    # How much of the tail index of f, up to where its variance ends, is added to that of f + g: draws of f that have
    # not come are far out for both.
    beside: float = 0.5
    finite: float = 0.5


FREEDOM = Freedom()
# Where so many draws of f count as one, f + g is not quicker. (`families/budget.py` begins to fit to that there.)
SLOW = 10.0


@dataclass(frozen=True, eq=False)
class Average:
    """Means of several series with standard errors and effective sample sizes, shaped like f's outputs.

    - `ess`: the effective size of the draws, as measured.
    - `error_ess`: how many Gaussian draws would know the standard error as well; `ess` if not given.
    - `degrees_of_freedom`: of the Student intervals; those that follow from the sizes and the tail if not given.
    - `tail`: the Pareto k of distances from the median, infinite where a few draws stand apart; NaN where many draws
      carry the error bar, or none is known.
    """

    mean: np.ndarray
    standard_error: np.ndarray
    ess: np.ndarray
    error_ess: np.ndarray = None  # type: ignore[assignment]
    degrees_of_freedom: np.ndarray = None  # type: ignore[assignment]
    tail: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.error_ess is None:
            object.__setattr__(self, "error_ess", self.ess)
        if self.tail is None:
            object.__setattr__(self, "tail", np.full(np.shape(self.ess), np.nan))
        if self.degrees_of_freedom is None:
            object.__setattr__(
                self,
                "degrees_of_freedom",
                degrees_of_freedom(self.ess, self.error_ess, np.minimum(self.tail, FREEDOM.longest)),
            )

    @property
    def carriers(self) -> np.ndarray:
        """About how many draws carry the error bar."""
        return np.asarray(np.maximum(self.error_ess / 2, 1.0))

    def beside(self, plain: "Average", looks: np.ndarray | None = None) -> "Average":
        """Return this average of f + g with intervals that know of the tail of f too.

        `looks`: how often the tails were looked at, if that is less than the effective size.
        """
        tail = np.minimum(self.tail, FREEDOM.longest)
        tail = tail + FREEDOM.beside * np.clip(np.nan_to_num(plain.tail), 0.0, FREEDOM.finite)
        ess = self.ess if looks is None else looks
        return replace(self, degrees_of_freedom=degrees_of_freedom(ess, self.error_ess, tail))

    def interval(self, level: float = 0.95) -> np.ndarray:
        """Return Student intervals, with a last axis of 2."""
        if not (isinstance(level, float | np.floating) and 0 < level < 1):
            raise InputError(f"`level` must lie strictly between 0 and 1, got {level!r}.")
        half = self.half_width(level) * self.standard_error
        return np.stack([self.mean - half, self.mean + half], axis=-1)

    def half_width(self, level: float = 0.95) -> np.ndarray:
        """Return the half-width of the interval, in standard errors."""
        return np.asarray(scipy.special.stdtrit(self.degrees_of_freedom, 0.5 + level / 2))

    def reshape(self, shape: tuple[int, ...]) -> "Average":
        return Average(*(x.reshape(shape) for x in vars(self).values()))

    def where(self, mine: np.ndarray, other: "Average") -> "Average":
        """Return the fields of this average for the outputs where `mine` is true, of the other one elsewhere."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Average(*(np.where(mine, x, y) for x, y in pairs))

    def __getitem__(self, pick: int | slice | np.ndarray) -> "Average":
        return Average(*(np.asarray(x[pick]) for x in vars(self).values()))


def degrees_of_freedom(
    ess: np.ndarray, error_ess: np.ndarray | float = np.inf, tail: np.ndarray | float = np.nan
) -> np.ndarray:
    r"""Return those of the Student distribution that a mean over its standard error has.

    The variance estimate behind an error bar is itself uncertain, as if from a fifth of the effective draws in
    independent Gaussian squares: the autocovariances are estimated too. Intervals are 7 % wider than normal ones at 100
    effective draws. Tails count by the same fifth of `error_draws`, as a sample kurtosis is mostly too small.

    Where fewer than `FREEDOM.many` draws carry the error, how many did is luck: a kurtosis is small as long as the
    largest draw has not come. What tells is whether others may be far larger, the tail index $k$. Student's t on $\nu$
    degrees of freedom has $k = 1/\nu$, and the error turns out to have $\nu = 1.5/k$, whatever the kurtosis (measured
    in benchmarks/gain.py; a quarter less at 100 effective draws). From one to `many` carriers $m$ there is a geometric
    mean of the two, with weight $(m/15)^2$ on the kurtosis, and never more than $1 + m/2$.
    """
    carriers = np.asarray(error_ess) / 2
    known = ~np.isnan(tail) & (carriers < FREEDOM.many)
    weight = np.minimum(carriers / FREEDOM.many, 1.0) ** 2
    rate = FREEDOM.spread / np.maximum(np.where(known, tail, 1.0), FREEDOM.shortest) / (1 + FREEDOM.scarce / ess)
    kurtosis = np.asarray(error_ess) / FREEDOM.each
    with np.errstate(invalid="ignore", over="ignore"):
        blended = np.where(known, kurtosis, 1.0) ** weight * rate ** (1 - weight)
    fewer = np.maximum(np.minimum(blended, 1 + carriers / 2), FREEDOM.least)
    tails = np.where(known, fewer, np.maximum(kurtosis, 1.0))
    return np.asarray(np.minimum(np.maximum(ess / FREEDOM.each - 1, 1.0), tails))


def average(series: Float[np.ndarray, "chain draw out"], *, tails: bool = True) -> Average:
    """Return the mean of every output with its Monte Carlo standard error.

    Without `tails` the kurtosis is not looked at, and `error_ess` is `ess`: quicker.
    """
    chains, draws, _ = series.shape
    unit, center, spread = unit_range(series)
    shift = unit.mean(axis=(0, 1))
    mean = center + spread * shift
    deviation = unit.std(axis=(0, 1), ddof=1)
    ess = np.full(mean.shape, float(chains * draws))
    error_ess, tail = ess.copy(), np.full(mean.shape, np.nan)
    moving = deviation > 0
    if moving.any():
        ess[moving] = effective_draws(unit[..., moving])
        if tails:
            z = (unit - shift)[..., moving] / deviation[moving]
            error_ess[moving] = error_draws(z)
            few = np.flatnonzero(moving)[error_ess[moving] < 2 * FREEDOM.looked]
            if len(few):
                some = unit[..., few]
                tail[few] = tail_of_distances(np.abs(some - np.median(some, axis=(0, 1))))
    return Average(mean, spread * deviation / np.sqrt(ess), ess, error_ess if tails else ess, tail=tail)


def error_draws(z: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, " out"]:
    r"""Return how many Gaussian draws would know the variance of z (of mean 0 and variance 1) as well as these do.

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


def array_stats() -> "BaseArray":
    """Return arviz-stats for arrays, imported when first needed: it takes a second."""
    from arviz_stats.base import array_stats as loaded

    return loaded


def most_effective_draws(n: int) -> float:
    """Return the bound that arviz-stats puts on the effective size of n draws, which may be better than independent."""
    return n * max(1.0, np.log10(n))


def split_rhat(series: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, " out"]:
    """Return the rank-normalised split R-hat of every output; 1 where it is not defined (a constant series)."""
    unit = unit_range(series).unit
    rhat = np.ones(unit.shape[-1])
    moving = unit.std(axis=(0, 1)) > 0
    if moving.any():
        rhat[moving] = rank_rhat(unit[..., moving])  # infinite if chains are stuck at different values
    return np.where(np.isnan(rhat), 1.0, rhat)


def tail_of_distances(distances: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, " out"]:
    """Return the Pareto k of distances from a median, infinite where a few draws stand apart from all others."""
    flat = distances.reshape(-1, distances.shape[-1])
    largest = np.sort(np.partition(flat, -min(FREEDOM.largest, len(flat)), axis=0)[-FREEDOM.largest :], axis=0)
    apart = (largest[1:] > FREEDOM.apart * largest[:-1]).any(axis=0)
    return np.where(apart, np.inf, pareto_k(distances, "right"))


def tail_index(series: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, " out"]:
    """Return the Pareto k of the heavier tail of every output: moments of order 1/k and more are infinite."""
    return np.nan_to_num(pareto_k(series), nan=0.0, posinf=0.0, neginf=0.0)


def pareto_k(series: Float[np.ndarray, "chain draw out"], tail: str = "both") -> Float[np.ndarray, " out"]:
    """Return the same, or that of the `"right"` tail, and NaN where there is no tail to fit."""
    unit = unit_range(series).unit
    chains, draws, outputs = unit.shape
    khat = np.full(outputs, np.nan)
    if chains * draws < 100:  # no tail to speak of
        return khat
    for k in range(outputs):
        if unit[..., k].std() > 0:
            khat[k] = pareto_index(unit[..., k].ravel(), tail)
    return np.where(np.isfinite(khat), khat, np.nan)


def as_slow_as(plain: Average, better: Average, series: Float[np.ndarray, "chain draw out"]) -> Average:
    r"""Return the average of f + g, a series of several outputs, beside that of f, which may move slowly.

    What g leaves is mostly noise, with a part that goes as slowly as the chain: autocorrelations so small that their
    sum ends early, and still as much as the noise in the mean. Where ten draws or more of f count as one, the standard
    error is therefore at least that of means over blocks of five effective draws of f, and the tails of f + g were
    looked at as often as f has effective draws: far draws of a slow chain come together.
    """
    chains, draws, _ = series.shape
    error, ess = better.standard_error.copy(), better.ess.copy()
    slow = (chains * draws >= SLOW * plain.ess) & (error > 0)
    for k in np.flatnonzero(slow):
        blocks = max(round(plain.ess[k] / FREEDOM.each / chains), 2)
        size = draws // blocks
        means = series[:, : blocks * size, k].reshape(chains * blocks, size).mean(axis=1)
        unit = np.abs(means - means[0]).max()  # squares of the means themselves could overflow
        spread = unit * ((means - means[0]) / unit).std(ddof=1) if unit > 0 else 0.0
        wider = max(spread / np.sqrt(len(means)) / error[k], 1.0)
        error[k] *= wider
        ess[k] /= wider**2
    looks = np.where(slow, np.minimum(ess, plain.ess), ess)
    return replace(better, standard_error=error, ess=ess).beside(plain, looks)
