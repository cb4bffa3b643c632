"""All rungs: their fits, by `Auto()` polynomials and all that it has where the error is, and their contributions.

Log likelihoods are smooth, and along most of the ladder nearly quadratic. A few rungs, often those in the middle where
the power posterior changes its shape, carry most of the error; networks are worth their time only there.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..families.auto import Auto
from ..families.budget import LIMITS as BUDGET
from ..families.method import Method
from ..families.polynomial.polynomial import Polynomial, feature_count
from ..families.stack import Stack
from ..runtime.progress import bar
from ..runtime.validation import InputError
from ..samples.samples import Samples
from .ladder import Integral, rung_name
from .parts import independent, mean_of
from .rung import Bridge, Rung, Use


class Limits(NamedTuple):
    """What the draws of a rung can carry beyond `families/budget.py`, which says how many features a draw carries.

    First choices, with which benchmarks/evidence_coverage.py was run.

    - `degree`, `features`: no polynomial beyond these.
    - `quadratic_features_per_draw`: with as many draws as a choice of members needs, a quadratic is worth trying even
      with more features than draws, up to this share.
    - `fewest_for_all`: with fewer draws per rung, `Auto()` has nothing more than the polynomials have.
    - `share`: a rung gets everything if it carries more than this share of the average rung's squared error.
    """

    degree: int = 6
    features: int = 600
    quadratic_features_per_draw: float = 3.0
    fewest_for_all: int = 100
    share: float = 0.25


LIMITS = Limits()


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
            return Rung.fit(samples[k], values[k], Use(k >= bridges, above[k], below[k]), method, seed)
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
    above = [rung for rung in rungs if rung.use.moments]
    largest = 0.0
    for probe in rule.probes:
        parts = [r.moments(float(w), float(v))[1] for r, w, v in zip(above, probe.mean, probe.variance, strict=True)]
        found = independent(parts)
        largest = max(largest, float(found.mean) ** 2 - float(found.standard_error) ** 2)
    return float(np.sqrt(largest))
