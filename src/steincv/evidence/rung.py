r"""The rungs: mean and variance of their log likelihoods, controlled, as draws that can be added over rungs.

With $u = (l - c)/r$ for constants c and r, the mean is $E = c + r\,\overline{u}$ and the variance
$V = r^2(\overline{u^2} - \overline{u}^2 + \mathrm{se}(\overline u)^2)$. The series
$r^2(u_i^2 - 2\bar u u_i + \bar u^2)$ has that mean and its standard error (delta method), so the contribution
$wE + vV$ of a rung to a rule is the mean of *one* series, whose error bar knows the covariance of the two.

`Auto()` fits polynomials on every rung, and all that it has on those that carry the error. Log likelihoods are smooth,
and along most of the ladder nearly quadratic. A few rungs, often those in the middle where the power posterior changes
its shape, carry most of the error; networks are worth their time only there.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float

from ..estimating import estimate
from ..families.auto import Auto
from ..families.budget import LIMITS as BUDGET
from ..families.method import Method
from ..families.polynomial.polynomial import Polynomial, feature_count
from ..families.stack import Stack
from ..judging.error_bars import Average, tail_index
from ..result import Estimate
from ..runtime.progress import bar
from ..runtime.validation import InputError
from ..samples.samples import Samples, unit_range
from .ladder import Integral, rung_name
from .parts import independent, log_mean, mean_of


class Limits(NamedTuple):
    """When a sample mean can be trusted, and what the draws of a rung can carry.

    `families/budget.py` says how many features a draw carries; the numbers below the first two are first choices, with
    which benchmarks/evidence_coverage.py was run.
    """

    # Beyond it a mean converges so slowly that no error bar describes it; Vehtari, Simpson, Gelman, Yao, Gabry (2024),
    # JMLR 25.
    pareto_k: float = 0.7
    # Of one draw in all deviations from the median, where there are too few draws for a tail index.
    alone: float = 0.5
    # No polynomial beyond these.
    degree: int = 6
    features: int = 600
    # With as many draws as a choice of members needs, a quadratic is worth trying even with so many features a draw.
    quadratic_features_per_draw: float = 3.0
    # With fewer draws per rung, `Auto()` has nothing more than the polynomials have.
    fewest_for_all: int = 100
    # A rung gets everything if it carries more than this share of the average rung's squared error.
    share: float = 0.25


LIMITS = Limits()


def no_usable_mean(values: Float[np.ndarray, "chain draw"]) -> str | None:
    """Return why no mean of these values can be trusted, or nothing."""
    khat = float(tail_index(values[..., None])[0])
    if khat > LIMITS.pareto_k:
        return f"Pareto k = {khat:.2f} > {LIMITS.pareto_k}"
    with np.errstate(over="ignore"):
        away = np.abs(values / 2 - np.median(values) / 2)
    share = float(away.max() / total) if np.isfinite(total := away.sum()) and total > 0 else 0.0
    if share > LIMITS.alone and values.size > 2 / LIMITS.alone:
        return f"one of {values.size} draws makes up {share:.0%} of all deviations"
    return None


@dataclass(frozen=True)
class Bridge:
    r"""An interval between two rungs without the mean of the log likelihood at either end.

    For any constant C, the `shift`, and with $\sigma$ the logistic function,

    $$ \int_{t_i}^{t_{i+1}} E_t\,dt = \log\frac{Z_{i+1}}{Z_i}
       = C + \log E_i[\sigma(\Delta l - C)] - \log E_{i+1}[\sigma(C - \Delta l)], $$

    means of bounded functions, whatever the tail of l. Best is the C for which the two are equal: the `overlap`.

    Reference: Bennett (1976), J. Comput. Phys. 22; Meng, Wong (1996), Statistica Sinica 6.
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
class Rung:
    """What the sum needs of a rung: its sides of the bridges `above` and `below`, and E and V if none is above.

    `result` has the outputs u, u^2 of the log likelihood with this `center` and `radius`, and the sides of bridges.
    """

    values: Float[np.ndarray, "chain draw"]
    above: Bridge | None
    below: Bridge | None
    center: float
    radius: float
    result: Estimate

    @classmethod
    def fit(
        cls, samples: Samples, values: np.ndarray, above: Bridge | None, below: Bridge | None, method: Method, seed: int
    ) -> "Rung":
        unit, center, radius = unit_range(values, center=values.mean())
        outputs = [above.lower_side(values)] if above else [unit, unit**2]
        outputs += [below.upper_side(values)] if below else []
        result = estimate(samples, np.stack(outputs, -1), method, seed=seed)
        return cls(values, above, below, float(center), float(radius), result)

    @property
    def bridged(self) -> bool:
        return self.above is not None

    def contribution(self, mean: float, variance: float) -> tuple[np.ndarray, np.ndarray]:
        """Return draws `(chain, draw)` whose mean is this rung's part of the sum, without and with control variates."""
        moments, bridges = self.moments(mean, variance), self.bridges
        return moments[0] + bridges[0], moments[1] + bridges[1]

    def moments(self, mean: float, variance: float) -> tuple[np.ndarray, np.ndarray]:
        """Return draws whose mean is `mean` E + `variance` V."""
        if self.bridged:
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

        def combined(series: np.ndarray) -> np.ndarray:
            total = np.zeros(self.values.shape)
            if self.above:
                total = total + self.above.shift + log_mean(series[..., 0], plain[..., 0])
            return total - log_mean(series[..., -1], plain[..., -1]) if self.below else total

        return combined(plain), combined(self.result.controlled)

    @functools.cached_property
    def mean(self) -> tuple[Average, Average]:
        """The mean E, plain and controlled; of a bridged rung only the first means anything."""
        if self.bridged:
            plain = mean_of(self.values)
            return plain, plain
        plain, controlled = map(mean_of, self.moments(1.0, 0.0))
        return plain, controlled

    @functools.cached_property
    def variance(self) -> tuple[Average, Average]:
        """The variance V, plain and controlled."""
        plain, controlled = map(mean_of, self.moments(0.0, 1.0))
        return plain, controlled


def fit_rungs(
    t: np.ndarray,
    samples: Sequence[Samples],
    values: Sequence[np.ndarray],
    bridges: int,
    rule: Integral,
    method: Method,
    seed: int,
    progress: bool,
) -> tuple[list[Rung], list[int]]:
    """Fit sides of bridges on the lowest rungs, means and variances on the others, all weighed by the rule.

    Return the rungs, and which of them were fitted a second time with all there is.
    """
    found = [Bridge.between(float(t[k + 1] - t[k]), *values[k : k + 2]) for k in range(bridges)]
    above, below = [*found, *[None] * (len(t) - bridges)], [None, *found, *[None] * (len(t) - bridges - 1)]

    def fit(k: int, method: Method) -> Rung:
        try:
            return Rung.fit(samples[k], values[k], above[k], below[k], method, seed)
        except InputError as error:
            raise InputError(f"{rung_name(k, t)}: {error}") from error

    rungs: list[Rung] = []
    automatic = isinstance(method, Auto)
    with bar("control variates", len(t), progress) as advance:
        for k, entry in enumerate(samples):
            rungs.append(fit(k, polynomials(entry.size, entry.dim) if automatic else method))
            advance(1)
        tried: list[int] = []
        if not automatic or any(entry.size < LIMITS.fewest_for_all for entry in samples):
            return rungs, tried
        floor = discretisation(rungs, rule)  # it will be there anyway: nothing is spent below a third of it
        while True:
            squares = _squared_errors(rungs, rule)
            least = LIMITS.share * squares.sum() / len(rungs)
            hard = [int(k) for k in np.argsort(-squares) if squares[k] > least and k not in tried]
            if not hard or squares.sum() <= (floor / 3) ** 2:
                return rungs, tried
            k = hard[0]
            tried.append(k)
            better = fit(k, method)
            if _squared_errors([*rungs[:k], better, *rungs[k + 1 :]], rule)[k] < squares[k]:
                rungs[k] = better


def polynomials(draws: int, dim: int) -> Method:
    """Return the polynomials that `draws` in `dim` dimensions can carry; four fifths of them are fitted on."""
    fitted_on = 4 * draws // 5
    degrees = [1]
    for degree in range(2, LIMITS.degree + 1):
        features = feature_count(dim, degree)
        few = features <= BUDGET.quadratic_features_per_draw * fitted_on and features <= LIMITS.features
        quadratic = degree == 2 and fitted_on >= BUDGET.few
        if few or (quadratic and features <= LIMITS.quadratic_features_per_draw * fitted_on):
            degrees.append(degree)
    members = [Polynomial(degree) for degree in degrees]
    return members[0] if len(members) == 1 else Stack(members)


def contributions(rungs: Sequence[Rung], rule: Integral) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for every rung, draws whose mean is its part of the sum: plain and controlled."""
    bridged = np.zeros(len(rungs) - len(rule.value.mean))
    mean, variance = (np.append(bridged, weights) for weights in (rule.value.mean, rule.value.variance))
    return [rung.contribution(float(m), float(v)) for rung, m, v in zip(rungs, mean, variance, strict=True)]


def _squared_errors(rungs: Sequence[Rung], rule: Integral) -> np.ndarray:
    """Return the squared standard error that each rung brings into the sum."""
    return np.array([float(mean_of(series).standard_error) for _, series in contributions(rungs, rule)]) ** 2


def discretisation(rungs: Sequence[Rung], rule: Integral) -> float:
    """Return the largest of the rule's probes, each beyond what the noise of the draws puts into it."""
    above = [rung for rung in rungs if not rung.bridged]
    largest = 0.0
    for probe in rule.probes:
        parts = [r.moments(float(w), float(v))[1] for r, w, v in zip(above, probe.mean, probe.variance, strict=True)]
        found = independent(parts)
        largest = max(largest, float(found.mean) ** 2 - float(found.standard_error) ** 2)
    return float(np.sqrt(largest))
