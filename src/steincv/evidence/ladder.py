r"""The ladder of temperatures $0 = t_0 < \dots < t_K = 1$ of $p(y|\theta)^t\,p(\theta)$, and integrals along it.

With $E_i$ and $V_i$ the mean and the variance of the log likelihood at rung i, and since $dE/dt = V$, every rule is

$$ \int_0^1 E_t\,dt \approx \sum_i w_i E_i + v_i V_i. $$

Halving the ladder gives a second value, and the difference of the two the error of the rule (Richardson).
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..runtime.validation import InputError, whole_number

RULES = ("second-order", "trapezoid")


class Richardson(NamedTuple):
    """How errors grow when every second rung is dropped."""

    gain: int = 2**4  # the second-order rule has an error of order four
    next_gain: int = 2**6  # once that is taken off, one of order six is left
    fewest_intervals: int = 8  # with fewer, halving twice leaves nothing to extrapolate from
    # Where a long interval meets a short one, halving hardly coarsens, and the error that it shows is not known well
    # enough to be multiplied by more.
    largest_factor: float = 5.0


RICHARDSON = Richardson()


def temperature_ladder(rungs: int = 30, power: float = 5.0) -> Float[np.ndarray, " rung"]:
    r"""Return $t_i = (i / (\text{rungs} - 1))^{\text{power}}$: dense near 0, where the log likelihood changes fastest.

    >>> temperature_ladder(5, power=2).tolist()
    [0.0, 0.0625, 0.25, 0.5625, 1.0]

    Reference: Friel, Pettitt (2008), JRSS B 70; Calderhead, Girolami (2009), CSDA 53.
    """
    rungs = whole_number("rungs", rungs, 2)
    number = isinstance(power, int | float | np.integer | np.floating) and not isinstance(power, bool)
    if not (number and 0 < power < np.inf):
        raise InputError(f"`power` must be a positive number, got {power!r}.")
    ladder = (np.arange(rungs) / (rungs - 1)) ** float(power)
    if not (np.diff(ladder) > 0).all():
        raise InputError(
            f"`power` = {power} with {rungs} rungs puts two rungs on the same temperature. Use a lower one."
        )
    return ladder


def check_temperatures(temperatures: object) -> Float[np.ndarray, " rung"]:
    """Return the temperatures as an array that increases from 0 to 1, or an `InputError` naming the rung."""
    try:
        ladder = np.array(temperatures, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"`temperatures` must be numbers that increase from 0 to 1, got {temperatures!r}.") from error
    if ladder.ndim != 1 or len(ladder) < 2:
        raise InputError(f"`temperatures` has shape {ladder.shape}, expected at least two numbers, from 0 to 1.")
    if not np.isfinite(ladder).all():
        k = int(np.argmin(np.isfinite(ladder)))
        raise InputError(f"`temperatures` must increase from 0 to 1, but rung {k} is at {ladder[k]}.")
    for k, end in ((0, 0.0), (len(ladder) - 1, 1.0)):
        if ladder[k] != end:
            raise InputError(
                f"`temperatures` must run from 0 (prior) to 1 (posterior), but rung {k} is at {ladder[k]:.6g}."
            )
    if (falls := np.flatnonzero(np.diff(ladder) <= 0)).size:
        k = int(falls[0]) + 1
        raise InputError(
            f"`temperatures` must increase, but rung {k} is at {ladder[k]:.6g} and rung {k - 1} at {ladder[k - 1]:.6g}."
        )
    return ladder


def rung_name(k: int, temperatures: np.ndarray) -> str:
    """Return how messages call a rung: its number and its temperature."""
    return f"rung {k} (t = {temperatures[k]:.3g})"


class Weights(NamedTuple):
    """A linear function of the means and variances of all rungs."""

    mean: Float[np.ndarray, " rung"]
    variance: Float[np.ndarray, " rung"]

    def __call__(self, mean: np.ndarray, variance: np.ndarray) -> float:
        return float(self.mean @ mean + self.variance @ variance)

    def minus(self, other: "Weights") -> "Weights":
        return Weights(self.mean - other.mean, self.variance - other.variance)

    def times(self, factor: float) -> "Weights":
        return Weights(factor * self.mean, factor * self.variance)


class Integral(NamedTuple):
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
    if rule == "trapezoid":
        plain = trapezoid(t)
        return Integral(plain, (integral(t, "second-order").value.minus(plain),))
    value, gaps = second_order(t), np.diff(t)
    if len(gaps) == 1:
        return Integral(value, (value.minus(trapezoid(t)),))
    half, other = _halves(np.arange(len(t)))
    # Errors of many intervals add up to a clean power of the spacing only where the spacing changes smoothly.
    if not (np.diff(gaps) >= -1e-9 * gaps[1:]).all():
        return Integral(value, (_pairwise_error(t, half),))

    def error(coarse: np.ndarray, fine: Weights) -> Weights:
        """Return what dropping rungs shows of the error of the finer rule."""
        return second_order(t, coarse).minus(fine).times(1 / (RICHARDSON.gain - 1))

    if not extrapolate or len(gaps) < RICHARDSON.fewest_intervals:
        return Integral(value, (error(half, value),))
    quarter, _ = _halves(half)
    extrapolated, halved_value = value.minus(error(half, value)), second_order(t, half)
    coarse = halved_value.minus(error(quarter, halved_value))
    left = coarse.minus(extrapolated).times(1 / (RICHARDSON.next_gain - 1))
    return Integral(extrapolated, (left, error(half, value).minus(error(other, value))))


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
    total = np.zeros((2, len(t)))
    for low, high in pairwise(half):
        if high - low != 2:
            continue
        a, b = t[low + 1] - t[low], t[high] - t[low + 1]
        two = a**5 + b**5
        factor = min(two / ((a + b) ** 5 - two), RICHARDSON.largest_factor)
        one = second_order(t, np.array([low, high])).minus(second_order(t, np.array([low, low + 1, high])))
        total += one.times(factor)
    return Weights(*total)
