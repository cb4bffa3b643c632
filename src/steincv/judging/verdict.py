r"""Whether there is a gain, and which mean is therefore reported: one verdict for every verb. How large the gain is.

The gain that may be quoted is how many times as many draws the plain mean would need, with an interval of its own.

Write $a$ and $b$ for the standard errors of the plain and of the controlled mean. $a^2/b^2$ promises too much where few
draws carry $b$: the far draws that decide have mostly not come. What they would add follows from three things that the
draws do show. Let $r_1 \ge r_2 \ge \dots$ be the distances of f + g from its median, $m$ of them, of mean square $V$.

- The tail index at the end, $k$: the mean of $\log(r_i/r_4)$ over the three largest.
- How far it can go: to a factor $e^x$ beyond $r_1$. What a kernel or a network leaves where it knows nothing is about f
  itself. So $e^x = R/r_1$, where $R = c^2/C$, $C$ is the largest distance of f from its median and $c$ that at the draw
  of $r_1$: the tail of f counts if f + g is far out where f is. It is 2 at least, as f + g can be further out than f.
- What a Pareto tail from there to there adds to the variance:
  $\Delta = \frac{r_1^2}{m}\,\frac{2}{a}(e^{ax} - 1)$, with $a = 2 - 1/k$.

The gain is $G = \frac{a^2}{b^2}\,e^{-k}\,\big(1 + \Delta/V\big)^{-1/2}$: half way, in logarithms, between no such tail
and all of it, and less again by what one draw exceeds the next by. Half way and three draws were chosen on the
densities of benchmarks/gain.py; docs/trust.md says what came of them on other draws, densities and posteriors.

The true gain is $\sigma_p^2/\sigma_\nu^2$, and for variances known on $\nu_p$ and $\nu$ degrees of freedom the ratio of
$(\sigma_p^2/a^2)/(\sigma_\nu^2/b^2)$ has the distribution F on $(\nu, \nu_p)$. The two series are of the same draws:
where their squares are correlated by $\rho$ the logarithm of the ratio varies less, by
$\sqrt{(v + v_p - 2\rho\sqrt{vv_p})/(v + v_p)}$, where $v = \psi_1(\nu/2)$ is the variance of the logarithm of a chi
square.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Bool, Float

from ..runtime.validation import InputError
from .diagnostics import Code, Status, rare_draws_status, value_status
from .error_bars import FREEDOM, ROUND_OFF, SLOW, Average, as_slow_as, average, degrees_of_freedom


class Beyond(NamedTuple):
    """What is taken from draws about those that have not come: set in benchmarks/gain.py."""

    # The level at which the guard compares widths: it asks for the smaller error, of which the far ends say less.
    guard_level: float = 0.8
    # The share of the degrees of freedom that the gain's own interval has: another run's fit is another one, so that
    # gains differ more than their error bars say.
    fewer: float = 0.6
    # The largest draws that a tail's index is taken from, and how many times as far the next one may be, whatever f is.
    largest: int = 3
    reach: float = 2.0
    # Of an interval whose ends are further apart than this factor only the lower end is told; no gain beyond the other.
    vague: float = 1000.0
    most_told: float = 1e6
    # How often chance may put the chains of f + g so far apart that their spread alone is believed; and in how many
    # blocks a single chain is looked at: as many as it has folds.
    by_chance: float = 1e-3
    blocks: int = 5


BEYOND = Beyond()


@dataclass(frozen=True, eq=False)
class Seen:
    """Draws of every output, or means over blocks of draws, with their average and what their values say.

    `apart`: of f + g, where its chains are further apart than chance puts them.
    """

    array: Float[np.ndarray, "chain draw out"]
    known: Average | None = None
    status: Callable[[np.ndarray], list[list[Status]]] | None = None
    largest: Float[np.ndarray, " out"] | None = None
    apart: Bool[np.ndarray, " out"] | bool = False

    @functools.cached_property
    def average(self) -> Average:
        return average(self.array) if self.known is None else self.known

    @property
    def size(self) -> Float[np.ndarray, " out"]:
        """The largest value in size."""
        return np.abs(self.array).max(axis=(0, 1)) if self.largest is None else self.largest

    @property
    def finite(self) -> Bool[np.ndarray, " out"]:
        return np.isfinite(self.array).all(axis=(0, 1))

    def statuses(self, ess: np.ndarray) -> list[list[Status]]:
        return value_status(self.array, ess) if self.status is None else self.status(ess)

    def beside(self, plain: "Seen") -> "Seen":
        """Return these draws of f + g with intervals that know of the tail of f too, and how slowly it moves."""
        known, apart = as_apart_as_chains(as_slow_as(plain.average, self.average, self.array), self.array)
        return replace(self, known=known, apart=apart)

    def where(self, mine: Bool[np.ndarray, " out"], other: "Seen") -> "Seen":
        """Return this one for the outputs where `mine` is true, the other one elsewhere."""
        if mine.all():
            return self
        return Seen(np.where(mine, self.array, other.array), self.average.where(mine, other.average))


def as_apart_as_chains(
    better: Average, series: Float[np.ndarray, "chain draw out"]
) -> tuple[Average, Bool[np.ndarray, " out"]]:
    r"""Return the average of f + g with an error bar that knows how far its chains are apart; and where that counts.

    Every fold has a g of its own. Where draws are missing that the scores know of, as in the neck of a funnel, each g
    is off zero in the mean by another constant, the same at all draws of a fold: autocorrelations do not tell. The
    means of chains do. Where there is nothing of the kind the ratio of the two squared errors has the distribution F;
    beyond what chance makes of it, the spread of the chains alone is the error bar.
    """
    blocks = BEYOND.blocks if len(series) == 1 and series.shape[1] >= BEYOND.blocks else 1
    size, free = series.shape[1] // blocks, len(series) * blocks - 1
    if free == 0:
        return better, np.zeros(series.shape[-1], dtype=bool)
    means = series[:, : blocks * size].reshape(free + 1, size, -1).mean(axis=1)
    unit = np.abs(means - means[0]).max(axis=0)  # squares of the means themselves could overflow
    unit = np.where(unit > 0, unit, 1.0)
    spread = unit * ((means - means[0]) / unit).std(axis=0, ddof=1) / np.sqrt(free + 1)
    error, known = better.standard_error, degrees_of_freedom(better.ess)
    apart = (error > 0) & (spread > np.sqrt(scipy.special.fdtri(free, known, 1 - BEYOND.by_chance)) * error)
    wider = np.where(apart, spread / np.where(apart, error, 1.0), 1.0)
    freedom = np.where(apart, np.minimum(better.degrees_of_freedom, free), better.degrees_of_freedom)
    return replace(better, standard_error=error * wider, ess=better.ess / wider**2, degrees_of_freedom=freedom), apart


class Verdict(NamedTuple):
    """For every output: whether control variates are used, the mean that is reported, and what happened."""

    used: Bool[np.ndarray, " out"]
    reported: Average
    statuses: list[list[Status]]


def verdict(before: Seen, after: Seen, alarms: Sequence[Status], info: Mapping[str, Any], *, guard: bool) -> Verdict:
    """Judge every output of f and of f + g.

    - `alarms`: what draws and scores say, for all outputs.
    - `info`: of the fit, whose folds may say how many features they had on how many draws.
    """
    plain, better, size = before.average, after.average, before.size  # what is below the round-off of size is exact
    counts = [(fold["features"], fold["draws"]) for fold in info.get("folds", []) if {"features", "draws"} <= {*fold}]
    features, fitted_on = max((c[0] for c in counts), default=0), min((c[1] for c in counts), default=0)
    deviation, left = (a.standard_error * np.sqrt(a.ess) for a in (plain, better))
    widened = widened_ratio(plain, better)
    used = np.ones(len(widened), dtype=bool)
    said: list[list[Status]] = []
    for k, about in enumerate(before.statuses(np.minimum(plain.ess, better.ess))):
        found = list(about)
        said.append(found)
        if deviation[k] <= 4 * np.finfo(float).eps * size[k]:
            found[:] = [Status.of(Code.CONSTANT)]
            used[k] = False
            continue
        found += alarms
        if left[k] <= max(ROUND_OFF * deviation[k], 64 * np.finfo(float).eps * size[k]) and not alarms:
            found[:] = [s for s in found if s.code is not Code.LOW_ESS]
            found.append(Status.of(Code.EXACT, spread=left[k] / deviation[k]))
        elif guard and (alarms or widened[k] >= gain_limit(plain.ess[k])):
            used[k] = False
            if not alarms:
                found.append(Status.of(Code.NO_GAIN, ratio=widened[k]))
            found += rare_draws_status(plain, k)
        else:
            found += rare_draws_status(better, k) + _slow_status(plain, better, before.array[..., k].size, k)
        if features > fitted_on:
            found.append(Status.of(Code.TOO_MANY_FEATURES, features=features, draws=fitted_on))
    return Verdict(used, better.where(used, plain), said)


def _slow_status(plain: Average, better: Average, draws: int, k: int) -> list[Status]:
    """Say whether the gain of output k is more than a slow chain can know.

    Among m effective draws a place of probability 1/m may be missing. Draws that are nearly independent show by their
    tails how f + g goes on there; a slow chain is there for long, or not at all.
    """
    gain = (plain.standard_error[k] / better.standard_error[k]) ** 2 if better.standard_error[k] > 0 else np.inf
    each = draws / plain.ess[k]
    if each < SLOW or gain <= plain.ess[k]:
        return []
    return [Status.of(Code.SLOW_CHAINS, draws=each, gain=gain, ess=plain.ess[k])]


def gain_limit(ess: np.ndarray | float) -> np.ndarray:
    """Return the variance ratio that counts as a gain: below 1 by more than its noise at this many effective draws."""
    return np.asarray(np.maximum(0.2, 1 - 2 / np.sqrt(np.maximum(ess, 1.0))))


def widened_ratio(plain: Average, better: Average) -> np.ndarray:
    """Return the variance ratio, times the square of how many more standard errors an interval of `better` has."""
    wider = np.maximum(better.half_width(BEYOND.guard_level) / plain.half_width(BEYOND.guard_level), 1.0)
    return np.asarray(ratio_of(plain, better) * wider**2)


def ratio_of(plain: Average, better: Average) -> np.ndarray:
    """Return the variance ratio: the squared standard error over the plain one."""
    old = plain.standard_error
    return np.asarray(np.divide(better.standard_error, old, out=np.ones_like(old), where=old > 0) ** 2)


# How large the gain is -----------------------------------------------------------------------------


class Gain(np.ndarray):
    """Gains, an array of floats shaped like the outputs, with `interval`: 1 is the plain mean, infinity an exact one.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 250, 1))
    >>> gain = scv.estimate(scv.Samples(x, -x), np.tanh(x[..., 0]), scv.Polynomial(3)).gain
    >>> low, high = gain.interval(0.9)
    >>> bool(1 < low < gain < high)
    True
    """

    _interval: Callable[[float], np.ndarray] | None

    @classmethod
    def of(cls, gain: np.ndarray, interval: Callable[[float], np.ndarray]) -> "Gain":
        found = np.asarray(gain, dtype=float).view(cls)
        found._interval = interval
        return found

    def __array_finalize__(self, other: object) -> None:
        self._interval = None

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        return np.asarray(array)[()] if return_scalar else np.asarray(array)

    def __getitem__(self, pick: Any) -> Any:
        found = super().__getitem__(pick)
        if isinstance(found, Gain) and (interval := self._interval) is not None:
            places = np.arange(self.size).reshape(self.shape)[pick]
            found._interval = lambda level: interval(level).reshape(-1, 2)[places]
        return found

    def interval(self, level: float = 0.9) -> np.ndarray:
        """Return intervals for the gains, with a last axis of 2."""
        if not (isinstance(level, float | np.floating) and 0 < level < 1):
            raise InputError(f"`level` must lie strictly between 0 and 1, got {level!r}.")
        if self._interval is None:
            raise InputError(
                "These numbers were computed from a gain and have no interval. Use `result.gain.interval`."
            )
        return self._interval(float(level))


def gain_of(
    plain: Average,
    better: Average,
    used: np.ndarray,
    exact: np.ndarray,
    values: Float[np.ndarray, "chain draw out"],
    controlled: Float[np.ndarray, "chain draw out"],
) -> Gain:
    """Return the gain of `better` over `plain`, all arrays shaped like the outputs.

    - `used`: where control variates are used; elsewhere the gain is 1, and so are the ends of its interval.
    - `exact`: where there is no sampling error left, and the gain is infinite.
    - `values`, `controlled`: f and f + g at the draws, or means of them over blocks.
    """
    gained = used & ~exact & (plain.standard_error > 0)
    left = np.where(gained, ratio_of(plain, better), 1.0)
    ratio = left.copy()
    ratio[gained] *= unseen(values[..., gained.ravel()], controlled[..., gained.ravel()], better.standard_error[gained])
    # what is left has a long tail, but then so has f: less is still no loss
    ratio = np.minimum(ratio, np.maximum(left, 1.0))

    def interval(level: float) -> np.ndarray:
        freedom = np.asarray(BEYOND.fewer * better.degrees_of_freedom)
        before = degrees_of_freedom(plain.ess, plain.error_ess)
        first, second = (scipy.special.polygamma(1, nu / 2) for nu in (freedom, before))
        correlation = _correlation(values, controlled).reshape(ratio.shape)
        paired = np.sqrt(1 - 2 * correlation * np.sqrt(first * second) / (first + second))
        quantiles = (scipy.special.fdtri(freedom, before, p) ** paired for p in ((1 - level) / 2, (1 + level) / 2))
        low, high = (np.where(exact, np.inf, np.where(gained, q / left, 1.0)) for q in quantiles)
        shown = np.where(exact, np.inf, 1 / ratio)
        return np.stack([np.minimum(low, shown), np.maximum(high, shown)], axis=-1)

    return Gain.of(np.where(exact, np.inf, 1 / ratio), interval)


def unseen(
    values: Float[np.ndarray, "chain draw out"],
    controlled: Float[np.ndarray, "chain draw out"],
    standard_error: Float[np.ndarray, " out"],
) -> Float[np.ndarray, " out"]:
    """Return by how much draws that have not come may raise the variance of every output of f + g."""
    found = np.ones(len(standard_error))
    for k, error in enumerate(standard_error):
        f, left = (np.abs(series[..., k] - np.median(series[..., k])).ravel() for series in (values, controlled))
        at = left.argmax()
        if left[at] == 0:
            continue
        variance, draws = np.mean((left / left[at]) ** 2), len(left)
        effective = min(variance * (left[at] / error) ** 2, draws) if error > 0 else draws
        # draws of a slow chain are far out together, and count once
        stretch = min(int(np.ceil(draws / effective)), draws // (BEYOND.largest + 1))
        apart = left[: draws // stretch * stretch].reshape(-1, stretch).max(axis=1) / left[at]
        largest = np.maximum(np.sort(apart)[: -BEYOND.largest - 2 : -1], 1 / FREEDOM.apart)
        index = max(float(np.log(largest / largest[-1]).sum()) / BEYOND.largest, np.finfo(float).eps)
        to, there = f.max() / left[at], f[at] / left[at]
        reach = max(np.log(there**2 / to) if there > 0 else 0.0, np.log(BEYOND.reach))
        added = 2 * reach * scipy.special.exprel((2 - 1 / index) * reach) / (effective * variance)
        found[k] = np.exp(index) * np.sqrt(1 + added)
    return found


def _correlation(x: Float[np.ndarray, "chain draw out"], y: Float[np.ndarray, "chain draw out"]) -> np.ndarray:
    """Return the correlation of the squares about the means; 0 where one of them does not vary."""
    squares = []
    for series in (x, y):
        # outputs first: the sums of one do not depend, to the bit, on how many others there are
        z = np.ascontiguousarray(series.reshape(-1, series.shape[-1]).T)
        z = z - z.mean(axis=1, keepdims=True)
        size = np.abs(z).max(axis=1, keepdims=True)
        z = (z / np.where(size > 0, size, 1.0)) ** 2
        squares.append(z - z.mean(axis=1, keepdims=True))
    first, second = (np.sqrt((z**2).mean(axis=1)) for z in squares)
    product = (squares[0] * squares[1]).mean(axis=1)
    return np.clip(np.divide(product, first * second, out=np.zeros_like(product), where=first * second > 0), 0.0, 0.99)


class Words(NamedTuple):
    """A gain as words: `about 120 times` with ` (70 to 200)`, or `more than 1,000 times` with nothing."""

    amount: str
    between: str

    @classmethod
    def of(cls, gain: float, low: float, high: float) -> "Words":
        if gain == 1 == low == high:
            return cls("1 times", "")
        if low > BEYOND.most_told or math.isinf(gain):
            return cls("over a million times", "")
        if high > BEYOND.vague * low and low >= 2:
            return cls(f"more than {two_digits(low)} times", "")
        return cls(f"about {two_digits(gain)} times", f" ({two_digits(low)} to {two_digits(high)})")


def two_digits(x: float) -> str:
    """Return a number to two digits.

    >>> [two_digits(x) for x in (0.034, 1.0, 4.134, 123.0, 98765.0, 3.4e9)]
    ['0.034', '1', '4.1', '120', '99,000', '3.4e+09']
    """
    rounded = float(f"{x:.1e}")
    return f"{rounded:,.0f}" if 10 <= rounded < 1e7 else f"{rounded:g}"
