"""Bayes factors: how much better one model predicts the data than another, with an error bar."""

from dataclasses import dataclass

import numpy as np

from ..judging.error_bars import Average
from ..result import Estimate
from ..runtime.validation import InputError

# In powers of ten of the Bayes factor. Jeffreys (1961), Theory of Probability, appendix B.
SCALE = ((0.5, "barely worth a mention"), (1.0, "substantial"), (1.5, "strong"), (2.0, "very strong"))


@dataclass(frozen=True, eq=False)
class BayesFactor:
    """The log Bayes factor of the first model against the second.

    - `log`, `standard_error`: its estimate and the error of that.
    - `ess`: the smaller of the effective sizes that were measured for the two models.
    - `degrees_of_freedom`: of the Student interval, Welch's for a difference.
    """

    log: float
    standard_error: float
    ess: float
    degrees_of_freedom: float

    def interval(self, level: float = 0.95) -> np.ndarray:
        """Return the interval of the log Bayes factor."""
        mean, error, ess, freedom = map(np.asarray, (self.log, self.standard_error, self.ess, self.degrees_of_freedom))
        return Average(mean, error, ess, degrees_of_freedom=freedom).interval(level)

    @property
    def factor(self) -> float:
        """The Bayes factor itself."""
        return float(np.exp(min(self.log, 700.0)))

    @property
    def verdict(self) -> str:
        """Return what the evidence says, or that its error bar does not let it say anything."""
        low, high = self.interval()
        if low <= 0 <= high:
            return "undecided: the 95 % interval holds both signs"
        size = abs(self.log) / np.log(10)
        words = next((word for limit, word in SCALE if size < limit), "decisive")
        return f"{words}, for the {'first' if self.log > 0 else 'second'} model"

    def __repr__(self) -> str:
        low, high = self.interval()
        log, low, high = (_digits(x, self.standard_error) for x in (self.log, low, high))
        error = _digits(self.standard_error, self.standard_error)
        return f"log Bayes factor {log} ± {error} (95 % interval {low} to {high}): {self.verdict}"


def _digits(x: float, error: float) -> str:
    """Return a number to the second digit of its error, and to the point where that is before it.

    >>> _digits(0.99998, 0.00014), _digits(-12.3456, 0.52), _digits(1234.5, 200.0)
    ('0.99998', '-12.35', '1234')
    """
    if not (np.isfinite(error) and error > 0):
        return f"{x:.6g}"
    return f"{x:.{int(np.clip(1 - np.floor(np.log10(error)), 0, 12))}f}"


def bayes_factor(first: Estimate, second: Estimate) -> BayesFactor:
    """Return the Bayes factor of two log evidences of the same data, whose errors are independent.

    Each is a result of `log_evidence`, `model_evidence`, `bridge` or `smc_evidence`; they need not be of one kind.

    >>> import numpy as np, steincv as scv
    >>> t, rng = scv.temperature_ladder(20), np.random.default_rng(0)
    >>> def model(prior_precision):
    ...     x = [rng.normal(size=(4, 50, 1)) / np.sqrt(prior_precision + u) for u in t]
    ...     samples = [scv.Samples(a, -(prior_precision + u) * a) for a, u in zip(x, t)]
    ...     return scv.log_evidence(samples, [-0.5 * a[..., 0] ** 2 for a in x], t)
    >>> found = scv.bayes_factor(model(1.0), model(0.5))
    >>> bool(abs(found.log - 0.5 * np.log(3 / 2)) < 1e-3)
    True
    """
    for name, value in (("first", first), ("second", second)):
        if not (isinstance(value, Estimate) and value.shape == () and value.labels == ("log_evidence",)):
            raise InputError(
                f"`{name}` must be a result of log_evidence, model_evidence, bridge or smc_evidence, got "
                f"{type(value).__name__}."
            )
    squares = np.array([float(e.standard_error) ** 2 for e in (first, second)])
    freedom = np.array([float(e._average.degrees_of_freedom) for e in (first, second)])
    total = squares.sum()
    joint = total**2 / (squares**2 / freedom).sum() if total > 0 else freedom.sum()
    ess = min(float(first.ess), float(second.ess))
    return BayesFactor(float(first.mean - second.mean), float(np.sqrt(total)), ess, float(joint))
