r"""Integrals along the ladder as weights on the rungs, and what the spacing of the rungs costs.

With $E_i$ and $V_i$ the mean and the variance of the log likelihood at rung i, and since $dE/dt = V$, every rule is

$$ \int_0^1 E_t\,dt \approx \sum_i w_i E_i + v_i V_i. $$

Halving the ladder gives a second value, and the difference of the two the error of the rule (Richardson).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..runtime.validation import InputError

RULES = ("second-order", "trapezoid")


class Richardson(NamedTuple):
    """How errors grow when every second rung is dropped.

    - `gain`: the second-order rule has an error of order four, which becomes 2^4 times as large.
    - `next_gain`: once that is taken off, an error of order six is left.
    - `fewest_intervals`: with fewer, halving twice leaves nothing to extrapolate from.
    - `largest_factor`: where a long interval meets a short one, halving hardly coarsens, and the error that it shows
      would be multiplied by more than that error is known.
    """

    gain: int = 2**4
    next_gain: int = 2**6
    fewest_intervals: int = 8
    largest_factor: float = 5.0


RICHARDSON = Richardson()


@dataclass(frozen=True, eq=False)
class Weights:
    """A linear function of the means and variances of all rungs."""

    mean: Float[np.ndarray, " rung"]
    variance: Float[np.ndarray, " rung"]

    def __call__(self, mean: np.ndarray, variance: np.ndarray) -> float:
        return float(self.mean @ mean + self.variance @ variance)

    def __add__(self, other: "Weights") -> "Weights":
        return Weights(self.mean + other.mean, self.variance + other.variance)

    def __sub__(self, other: "Weights") -> "Weights":
        return self + other.times(-1.0)

    def times(self, factor: float) -> "Weights":
        return Weights(factor * self.mean, factor * self.variance)


@dataclass(frozen=True, eq=False)
class Integral:
    """A rule and its error: `value` is the integral, the largest of |`probes`| the discretisation error left in it."""

    value: Weights
    probes: tuple[Weights, ...]


def trapezoid(t: Float[np.ndarray, " rung"], kept: Int[np.ndarray, " kept"] | None = None) -> Weights:
    r"""Return $\sum_i \frac{\Delta_i}{2}(E_i + E_{i+1})$, on the `kept` rungs only if given."""
    kept = np.arange(len(t)) if kept is None else kept
    half = np.diff(t[kept]) / 2
    mean = np.zeros(len(t))
    np.add.at(mean, kept[:-1], half)
    np.add.at(mean, kept[1:], half)
    return Weights(mean, np.zeros(len(t)))


def second_order(t: Float[np.ndarray, " rung"], kept: Int[np.ndarray, " kept"] | None = None) -> Weights:
    r"""$\sum_i \frac{\Delta_i}{2}(E_i + E_{i+1}) - \frac{\Delta_i^2}{12}(V_{i+1} - V_i)$, Friel, Hurn, Wyse (2014)."""
    kept = np.arange(len(t)) if kept is None else kept
    correction = np.diff(t[kept]) ** 2 / 12
    variance = np.zeros(len(t))
    np.add.at(variance, kept[:-1], correction)
    np.add.at(variance, kept[1:], -correction)
    return Weights(trapezoid(t, kept).mean, variance)


def integral(t: Float[np.ndarray, " rung"], rule: str, extrapolate: bool = True) -> Integral:
    """Return the rule with its error.

    - "second-order": with `extrapolate`, what halving the ladder shows of its error is taken off. The error that is
      left is seen by halving twice, and by halving in the other of the two ways.
    - "trapezoid": as it is; its error is its distance from the second-order rule.
    """
    if rule not in RULES:
        raise InputError(f"`rule` must be one of {', '.join(map(repr, RULES))}, got {rule!r}.")
    better = _second_order(t, extrapolate or rule == "trapezoid")
    if rule == "second-order":
        return better
    plain = trapezoid(t)
    return Integral(plain, (better.value - plain,))


def _second_order(t: np.ndarray, extrapolate: bool) -> Integral:
    full = np.arange(len(t))
    value = second_order(t)
    gaps = np.diff(t)
    if len(gaps) == 1:
        return Integral(value, (value - trapezoid(t),))
    half, other = _halves(full)
    # Errors of many intervals add up to a clean power of the spacing only where the spacing changes smoothly.
    smooth = bool((np.diff(gaps) >= -1e-9 * gaps[1:]).all())
    if not smooth:
        return Integral(value, (_pairwise_error(t, half),))
    error = (second_order(t, half) - value).times(1 / (RICHARDSON.gain - 1))
    if not extrapolate or len(gaps) < RICHARDSON.fewest_intervals:
        return Integral(value, (error,))
    quarter, _ = _halves(half)
    coarse_error = (second_order(t, quarter) - second_order(t, half)).times(1 / (RICHARDSON.gain - 1))
    extrapolated = value - error
    coarse = second_order(t, half) - coarse_error
    left = (coarse - extrapolated).times(1 / (RICHARDSON.next_gain - 1))
    other_error = (second_order(t, other) - value).times(1 / (RICHARDSON.gain - 1))
    return Integral(extrapolated, (left, error - other_error))


def halved(t: Float[np.ndarray, " rung"]) -> Weights:
    """Return the second-order rule on every second rung: for comparison with the whole ladder."""
    return second_order(t, _halves(np.arange(len(t)))[0])


def _halves(kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the two ways to drop every second rung, both ends kept. The first keeps the longest intervals paired."""
    last = len(kept) - 1
    first, second = (np.union1d(np.arange(last - skip, -1, -2), [0, last]) for skip in (0, 1))
    return kept[first], kept[second]


def _pairwise_error(t: np.ndarray, half: np.ndarray) -> Weights:
    r"""Return the error from each pair of neighbouring intervals $a, b$ alone.

    The error of one interval goes like its fifth power, so
    $e = (H - I)\,(a^5 + b^5) / ((a + b)^5 - a^5 - b^5)$ with H over the pair as one interval and I over the two.
    """
    total = Weights(np.zeros(len(t)), np.zeros(len(t)))
    for low, high in pairwise(half):
        if high - low != 2:
            continue
        a, b = t[low + 1] - t[low], t[high] - t[low + 1]
        two = a**5 + b**5
        factor = min(two / ((a + b) ** 5 - two), RICHARDSON.largest_factor)
        one = second_order(t, np.array([low, high])) - second_order(t, np.array([low, low + 1, high]))
        total = total + one.times(factor)
    return total
