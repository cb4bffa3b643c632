r"""One rung: the mean and the variance of its log likelihood, controlled, as draws that can be added over rungs.

With $u = (l - c)/r$ for constants c and r, the mean is $E = c + r\,\overline{u}$ and the variance
$V = r^2(\overline{u^2} - \overline{u}^2 + \mathrm{se}(\overline u)^2)$. The series
$r^2(u_i^2 - 2\bar u u_i + \bar u^2)$ has that mean and its standard error (delta method), so the contribution
$wE + vV$ of a rung to a rule is the mean of *one* series, whose error bar knows the covariance of the two.
"""

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .._error_bars import Average, average, tail_index
from .._estimate import estimate
from .._result import Estimate
from .._samples import Samples
from .._status import InputError
from ..families._method import Method

# Beyond this Pareto k a sample mean converges so slowly that no error bar describes it.
NO_MEAN = 0.7
# Where there are too few draws for a tail index: the share of one draw in all deviations from the median.
DOMINATED = 0.5


@dataclass(frozen=True, eq=False)
class Rung:
    """`result` has the outputs u and u^2 of a log likelihood with this `center` and `radius`."""

    temperature: float
    center: float
    radius: float
    result: Estimate

    @classmethod
    def fit(cls, temperature: float, samples: Samples, values: np.ndarray, method: Method, seed: int) -> "Rung":
        center = float(values.mean())
        radius = float(np.abs(values - center).max()) or 1.0
        unit = (values - center) / radius
        return cls(temperature, center, radius, estimate(samples, np.stack([unit, unit**2], -1), method, seed=seed))

    def contribution(self, mean: float, variance: float) -> tuple[np.ndarray, np.ndarray]:
        """Draws `(chain, draw)` whose mean is `mean` E + `variance` V, without and with control variates."""
        both = []
        for series, found in ((self.result.values, self.result.plain), (self.result.controlled, self.result._average)):
            u, square = series[..., 0], series[..., 1]
            center, error = u.mean(), found.standard_error[0]
            spread = square - 2 * center * u + center**2 + error**2
            both.append(mean * (self.center + self.radius * u) + variance * self.radius**2 * spread)
        return both[0], both[1]

    @functools.cached_property
    def mean(self) -> tuple[Average, Average]:
        """E, plain and controlled."""
        return _averages(self.contribution(1.0, 0.0))

    @functools.cached_property
    def variance(self) -> tuple[Average, Average]:
        """V, plain and controlled."""
        return _averages(self.contribution(0.0, 1.0))


@dataclass(frozen=True, eq=False)
class Bridge:
    r"""The interval from a rung without a usable mean to the next, by $\log E_t[e^{\Delta l}]$.

    That is its part of the integral exactly, and the mean of a bounded function: $e^{\Delta(l - \max l)}$.
    """

    temperature: float
    highest: float
    gap: float
    values: Float[np.ndarray, "chain draw"]
    result: Estimate

    @classmethod
    def fit(
        cls, temperature: float, gap: float, samples: Samples, values: np.ndarray, method: Method, seed: int
    ) -> "Bridge":
        highest = float(values.max())
        ratio = np.exp(gap * (values - highest))
        return cls(temperature, highest, gap, values, estimate(samples, ratio, method, seed=seed))

    def contribution(self) -> tuple[np.ndarray, np.ndarray]:
        """Draws whose mean is the integral over the interval, without and with control variates."""
        plain, controlled = self.result.values[..., 0], self.result.controlled[..., 0]
        if controlled.mean() <= 0:  # no mean of a positive function
            controlled = plain
        both = [np.log(r.mean()) + r / r.mean() - 1 + self.gap * self.highest for r in (plain, controlled)]
        return both[0], both[1]


def _averages(pair: tuple[np.ndarray, np.ndarray]) -> tuple[Average, Average]:
    plain, controlled = (average(series[..., None]).reshape(()) for series in pair)
    return plain, controlled


def no_usable_mean(values: Float[np.ndarray, "chain draw"]) -> str | None:
    """Why no mean of these values can be trusted, or nothing."""
    khat = float(tail_index(values[..., None])[0])
    if khat > NO_MEAN:
        return f"Pareto k = {khat:.2f} > {NO_MEAN}"
    with np.errstate(over="ignore"):
        away = np.abs(values / 2 - np.median(values) / 2)
    share = float(away.max() / total) if np.isfinite(total := away.sum()) and total > 0 else 0.0
    if share > DOMINATED and values.size > 2 / DOMINATED:
        return f"one of {values.size} draws makes up {share:.0%} of all deviations"
    return None


def check_values(name: str, values: object, samples: Samples) -> Float[np.ndarray, "chain draw"]:
    """Log likelihoods of one rung, `(chain, draw)`, checked against its samples."""
    from .._samples import finite_array

    array = finite_array(f"log_likelihoods of {name}", values)
    chains, draws, _ = samples.draws.shape
    if chains == 1 and array.shape == (draws,):
        array = array[None]
    if array.shape != (chains, draws):
        raise InputError(
            f"`log_likelihoods` of {name} has shape {array.shape}, expected ({chains}, {draws}): one number for every "
            f"draw of that rung."
        )
    return array
