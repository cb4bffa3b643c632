r"""Error bars of means over chains: chain-aware, with a defined answer for constants.

The standard error is $\mathrm{sd}/\sqrt{\mathrm{ESS}}$ with the split-chain effective sample size of the
*controlled* draws, so autocorrelation and disagreement between chains are in it. Its square is unbiased, but where few
draws carry it, it is mostly too small: the interval's degrees of freedom follow from the kurtosis and the tail.

Effective sizes, R-hat and tail indices are those of Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), Bayesian
Analysis 16, and of Vehtari, Simpson, Gelman, Yao, Gabry (2024), JMLR 25; `tests/test_error_bars.py` holds them to
arviz-stats. They are written again because importing it takes longer than an estimate, and it goes through thousands of
outputs one after the other.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float

from ..runtime.validation import InputError
from ..samples.samples import unit_range

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


class Short(NamedTuple):
    """Chains too short for their autocovariances, and enough of them: then the spread of their means is looked at."""

    draws: int = 50
    chains: int = 20


FREEDOM, SHORT = Freedom(), Short()
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
            freedom = degrees_of_freedom(self.ess, self.error_ess, np.minimum(self.tail, FREEDOM.longest))
            object.__setattr__(self, "degrees_of_freedom", freedom)

    @property
    def carriers(self) -> np.ndarray:
        """About how many draws carry the error bar."""
        return np.asarray(np.maximum(self.error_ess / 2, 1.0))

    def beside(self, plain: "Average", looks: np.ndarray | None = None) -> "Average":
        """Return this average of f + g with intervals that know of the tail of f, seen at `looks` effective draws."""
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

    The variance estimate behind an error bar is as uncertain as one from a fifth of the effective draws: the
    autocovariances are estimated too. Tails count by the same fifth of `error_draws`.

    Where fewer than `FREEDOM.many` draws carry the error, a kurtosis is small as long as the largest draw has not come.
    What tells is the tail index $k$: the error turns out to have $\nu = 1.5/k$, whatever the kurtosis (measured in
    benchmarks/gain.py; a quarter less at 100 effective draws). From one to `many` carriers $m$ there is a geometric
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
    """Return means with Monte Carlo standard errors; without `tails` no kurtosis is looked at, which is quicker."""
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


def most_effective_draws(n: int) -> float:
    """Return the bound that arviz-stats puts on the effective size of n draws, which may be better than independent."""
    return n * max(1.0, np.log10(n))


def split_rhat(series: Float[np.ndarray, "chain draw out"], *, two_valued: bool = False) -> Float[np.ndarray, " out"]:
    """Return the rank-normalised split R-hat of every output; 1 where it is not defined (a constant series).

    The ranks of a series that is `two_valued`, and its distances from the median, are itself but for place and scale.
    """
    unit = unit_range(series).unit
    rhat = np.ones(unit.shape[-1])
    moving = unit.std(axis=(0, 1)) > 0
    if moving.any():  # infinite if chains are stuck at different values
        # scaling rounds: what was at one distance from the median, as whole numbers often are, is to remain so
        rhat[moving] = rank_rhat(unit[..., moving], ranked=two_valued, decimals=12)
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
    """Return the Pareto k of every output, or that of the `"right"` tail; NaN where there is no tail to fit."""
    unit = unit_range(series).unit
    khat = np.full(unit.shape[-1], np.nan)
    for k in range(len(khat)):
        if unit[..., k].size >= 100 and unit[..., k].std() > 0:  # of fewer there is no tail to speak of
            khat[k] = pareto_index(unit[..., k].ravel(), tail)
    return np.where(np.isfinite(khat), khat, np.nan)


def as_slow_as(plain: Average, better: Average, series: Float[np.ndarray, "chain draw out"]) -> Average:
    r"""Return the average of f + g, a series of several outputs, beside that of f, which may move slowly.

    What g leaves is mostly noise, with a part that goes as slowly as the chain and is as much in the mean. Where ten
    draws or more of f count as one, the standard error is therefore at least that of means over blocks of five
    effective draws of f, and the tails of f + g were looked at as often as f has effective draws.
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


# Effective sizes, R-hat and tail indices of many series at once -----------------------------------------------


def effective_draws(series: Float[np.ndarray, "chain draw out"], entries: int = 2**22) -> Float[np.ndarray, " out"]:
    """Return the split-chain effective sample size of every output; temporary arrays have so many `entries`."""
    chains, draws, outputs = series.shape
    if draws < 4:
        return np.full(outputs, float(chains * draws))
    half = _halves(series)
    step = max(1, entries // half[0].size)
    found = np.concatenate([_effective(half[k : k + step]) for k in range(0, outputs, step)])
    if not short_chains(chains, draws):
        return found
    between = series.mean(axis=1).var(axis=0, ddof=1) / chains
    whole = series.var(axis=(0, 1), ddof=1)
    return np.minimum(found, np.divide(whole, between, out=found.copy(), where=between > 0))


def short_chains(chains: int, draws: int) -> bool:
    """Return whether error bars rest on the spread of chains: autocovariances of 4 draws gave .4 of the true error."""
    return chains >= SHORT.chains and draws < SHORT.draws


def _halves(series: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, "out part length"]:
    """Return half chains, outputs first: to the bit, the sums of one do not depend on the others."""
    half = series.shape[1] // 2
    return np.ascontiguousarray(np.moveaxis(np.concatenate([series[:, :half], series[:, -half:]]), -1, 0))


def _effective(series: Float[np.ndarray, "out chain draw"]) -> Float[np.ndarray, " out"]:
    """Return effective sizes by Geyer's initial monotone sequence of sums of two autocorrelations."""
    outputs, chains, n = series.shape
    constant = np.ptp(series, axis=(1, 2)) < 1e-15
    means = series.mean(axis=2)
    # in twice the length no lag meets itself round the corner
    waves = np.fft.rfft(series - means[..., None], n=2 ** int(np.ceil(np.log2(2 * n))))
    power = (waves.real**2 + waves.imag**2).sum(axis=1) / chains
    covariance = np.fft.irfft(power)[:, :n] / n
    within = covariance[:, :1] * (n / (n - 1))
    whole = covariance[:, 0] + (means.var(axis=1, ddof=1) if chains > 1 else 0.0)
    rho = 1 - (within - covariance) / np.where(constant, 1.0, whole)[:, None]
    rho[:, 0] = 1.0
    pairs = rho[:, : n - n % 2].reshape(outputs, -1, 2)[:, : max(1, -(-(n - 2) // 2))].sum(axis=2)
    ended = pairs <= 0
    last = np.where(ended.any(axis=1), ended.argmax(axis=1), pairs.shape[1] - 1)
    each = np.arange(outputs)
    falling = np.minimum.accumulate(pairs, axis=1)
    falling[np.arange(pairs.shape[1]) >= last[:, None]] = 0.0
    even = rho[each, 2 * last]
    tau = -1 + 2 * falling.sum(axis=1) + np.where((even > 0) | (pairs[each, last] >= 0), even, 0.0)
    size = float(chains * n)
    return np.where(constant | np.isnan(tau), size, size / np.maximum(tau, 1 / np.log10(size)))


def rank_rhat(
    series: Float[np.ndarray, "chain draw out"], *, ranked: bool = False, decimals: int | None = None
) -> Float[np.ndarray, " out"]:
    """Return the rank-normalised split R-hat, of locations and of scales, of every output; NaN where it has none.

    Distances from the median that agree to so many decimals are equal.
    """
    if series.shape[0] < 2 or series.shape[1] < 4:
        return np.full(series.shape[-1], np.nan)
    half = _halves(series)
    if ranked:
        return _rhat(half)
    folded = np.abs(half - np.median(half, axis=(1, 2), keepdims=True))
    folded = folded if decimals is None else np.round(folded, decimals)
    return np.fmax(_rhat(_normal_scores(half)), _rhat(_normal_scores(folded)))


def _normal_scores(series: Float[np.ndarray, "out chain draw"]) -> Float[np.ndarray, "out chain draw"]:
    """Return normal quantiles of the average ranks among all draws (Blom 1958)."""
    flat = series.reshape(len(series), -1)
    rank = np.empty(flat.shape)
    for column, ranks in zip(flat, rank, strict=True):
        order = column.argsort()
        ordered = column[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        ties = np.diff(np.append(starts, len(order)))
        ranks[order] = np.repeat(starts + (ties + 1) / 2, ties)
    scores: np.ndarray = scipy.special.ndtri((rank - 3 / 8) / (rank.shape[1] + 1 / 4))
    return scores.reshape(series.shape)


def _rhat(series: Float[np.ndarray, "out chain draw"]) -> Float[np.ndarray, " out"]:
    n = series.shape[2]
    between = n * series.mean(axis=2).var(axis=1, ddof=1)
    within = series.var(axis=2, ddof=1).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that stand still
        return np.sqrt((between / within + n - 1) / n)


def pareto_index(draws: Float[np.ndarray, " n"], tail: str = "both", kept: float | None = None) -> float:
    """Return the Pareto k of the heavier tail or the `"right"` one, NaN if there is none; `kept`: its length."""
    n = len(draws)
    usual = 3 * np.sqrt(n) if n > 225 else n / 5
    size = int(usual if kept is None else kept)
    if tail == "both":
        size = max(5, min(size, n // 2))
    if not 5 <= size < n:
        return np.nan
    ordered = np.sort(draws)
    found = [_tail_index(ordered[-size:] - ordered[-size - 1])]
    if tail == "both":
        found.append(_tail_index(ordered[size] - ordered[size - 1 :: -1]))
    return float(np.max(found))


def _tail_index(excess: Float[np.ndarray, " n"]) -> float:
    """Return k of a generalised Pareto distribution of ascending excesses (Zhang and Stephens 2009), drawn to 0.5."""
    n = len(excess)
    if excess[-1] - excess[0] < np.finfo(float).tiny:
        return np.nan
    count = 30 + int(np.sqrt(n))
    with np.errstate(all="ignore"):
        b = 1 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))
        b = b / (3 * excess[int(n / 4 + 0.5) - 1]) + 1 / excess[-1]
        k = np.log1p(-b[:, None] * excess).mean(axis=1)
        likelihood = n * (np.log(-b / k) - k - 1)
        weights = np.exp(likelihood - likelihood.max())
        weights /= weights.sum()
        counted = weights >= 10 * np.finfo(float).eps  # none, if a quarter of the excesses are 0
        found = np.log1p(-np.average(b[counted], weights=weights[counted]) * excess).mean() if counted.any() else 0.0
    return float((n * found + 5) / (n + 10))
