r"""One rung: the mean and the variance of its log likelihood, controlled, as draws that can be added over rungs.

With $u = (l - c)/r$ for constants c and r, the mean is $E = c + r\,\overline{u}$ and the variance
$V = r^2(\overline{u^2} - \overline{u}^2 + \mathrm{se}(\overline u)^2)$. The series
$r^2(u_i^2 - 2\bar u u_i + \bar u^2)$ has that mean and its standard error (delta method), so the contribution
$wE + vV$ of a rung to a rule is the mean of *one* series, whose error bar knows the covariance of the two.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float

from ..estimating import estimate
from ..families.method import Method
from ..judging.error_bars import Average, tail_index
from ..result import Estimate
from ..samples.samples import Samples, unit_range
from .parts import log_mean, mean_of


class Usable(NamedTuple):
    """Until where a sample mean can be trusted.

    - `pareto_k`: beyond it a mean converges so slowly that no error bar describes it; Vehtari, Simpson, Gelman, Yao,
      Gabry (2024), JMLR 25.
    - `share`: of one draw in all deviations from the median, where there are too few draws for a tail index.
    """

    pareto_k: float = 0.7
    share: float = 0.5


USABLE = Usable()


@dataclass(frozen=True)
class Bridge:
    r"""An interval between two rungs without the mean of the log likelihood at either end.

    For any constant C, with $\sigma$ the logistic function,

    $$ \int_{t_i}^{t_{i+1}} E_t\,dt = \log\frac{Z_{i+1}}{Z_i}
       = C + \log E_i[\sigma(\Delta l - C)] - \log E_{i+1}[\sigma(C - \Delta l)], $$

    means of bounded functions, whatever the tail of l. Best is the C for which the two are equal; they are then the
    overlap of the rungs.

    Reference: Bennett (1976), J. Comput. Phys. 22; Meng, Wong (1996), Statistica Sinica 6.

    It is over the `gap` between two temperatures, with the constant `shift`; `overlap` is at most one half.
    """

    gap: float
    shift: float
    overlap: float

    @classmethod
    def between(cls, gap: float, lower: np.ndarray, upper: np.ndarray) -> "Bridge":
        """Find the best shift, from the log likelihoods at the lower and at the upper rung."""
        low, high = gap * lower, gap * upper

        def difference(shift: float) -> float:
            return float(scipy.special.expit(low - shift).mean() - scipy.special.expit(shift - high).mean())

        ends = min(low.min(), high.min()) - 1, max(low.max(), high.max()) + 1
        # plain bisection: the ends can be 1e300 apart, and the function flat almost everywhere between them
        shift = float(scipy.optimize.bisect(difference, *ends, maxiter=3000))
        return cls(gap, shift, float(scipy.special.expit(low - shift).mean()))

    def lower_side(self, values: Float[np.ndarray, "chain draw"]) -> Float[np.ndarray, "chain draw"]:
        return scipy.special.expit(self.gap * values - self.shift)

    def upper_side(self, values: Float[np.ndarray, "chain draw"]) -> Float[np.ndarray, "chain draw"]:
        return scipy.special.expit(self.shift - self.gap * values)


@dataclass(frozen=True, eq=False)
class Use:
    """What of a rung the sum needs: `moments` E and V; `above`, `below`: its side of the `Bridge` there."""

    moments: bool = True
    above: Bridge | None = None
    below: Bridge | None = None


@dataclass(frozen=True, eq=False)
class Rung:
    """`result` has the outputs u, u^2 of a log likelihood with this `center` and `radius`, and its sides of bridges."""

    values: Float[np.ndarray, "chain draw"]
    use: Use
    center: float
    radius: float
    result: Estimate

    @classmethod
    def fit(cls, samples: Samples, values: np.ndarray, use: Use, method: Method, seed: int) -> "Rung":
        unit, center, radius = unit_range(values, center=values.mean())
        outputs = [unit, unit**2] if use.moments else []
        outputs += [use.above.lower_side(values)] if use.above else []
        outputs += [use.below.upper_side(values)] if use.below else []
        result = estimate(samples, np.stack(outputs, -1), method, seed=seed)
        return cls(values, use, float(center), float(radius), result)

    def contribution(self, mean: float, variance: float) -> tuple[np.ndarray, np.ndarray]:
        """Return draws `(chain, draw)` whose mean is this rung's part of the sum, without and with control variates."""
        moments, bridges = self.moments(mean, variance), self.bridges
        return moments[0] + bridges[0], moments[1] + bridges[1]

    def moments(self, mean: float, variance: float) -> tuple[np.ndarray, np.ndarray]:
        """Return draws whose mean is `mean` E + `variance` V."""
        if not self.use.moments:
            return np.zeros(self.values.shape), np.zeros(self.values.shape)

        def combined(series: np.ndarray, found: Average) -> np.ndarray:
            u, square = series[..., 0], series[..., 1]
            center, error = u.mean(), found.standard_error[0]
            spread = square - 2 * center * u + center**2 + error**2
            return mean * (self.center + self.radius * u) + variance * self.radius**2 * spread

        result = self.result
        return combined(result.values, result.plain), combined(result.controlled, result._average)

    @functools.cached_property
    def bridges(self) -> tuple[np.ndarray, np.ndarray]:
        """Return draws whose mean is this rung's part of the intervals that are bridged."""
        plain = self.result.values
        columns = range(2 * self.use.moments, plain.shape[-1])

        def combined(series: np.ndarray) -> np.ndarray:
            logs = [log_mean(series[..., k], plain[..., k]) for k in columns]
            total = np.zeros(self.values.shape)
            if self.use.above:
                total = total + self.use.above.shift + logs.pop(0)
            return total - logs.pop(0) if self.use.below else total

        return combined(plain), combined(self.result.controlled)

    @functools.cached_property
    def mean(self) -> tuple[Average, Average]:
        """The mean E, plain and controlled; without `use.moments` only the first means anything."""
        if not self.use.moments:
            plain = mean_of(self.values)
            return plain, plain
        plain, controlled = map(mean_of, self.moments(1.0, 0.0))
        return plain, controlled

    @functools.cached_property
    def variance(self) -> tuple[Average, Average]:
        """The variance V, plain and controlled."""
        plain, controlled = map(mean_of, self.moments(0.0, 1.0))
        return plain, controlled


def no_usable_mean(values: Float[np.ndarray, "chain draw"]) -> str | None:
    """Return why no mean of these values can be trusted, or nothing."""
    khat = float(tail_index(values[..., None])[0])
    if khat > USABLE.pareto_k:
        return f"Pareto k = {khat:.2f} > {USABLE.pareto_k}"
    with np.errstate(over="ignore"):
        away = np.abs(values / 2 - np.median(values) / 2)
    share = float(away.max() / total) if np.isfinite(total := away.sum()) and total > 0 else 0.0
    if share > USABLE.share and values.size > 2 / USABLE.share:
        return f"one of {values.size} draws makes up {share:.0%} of all deviations"
    return None
