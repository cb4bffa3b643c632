"""`Auto()` along a ladder: polynomials on every rung, and all that `Auto()` has on the rungs that carry the error.

Log likelihoods are smooth, and along most of the ladder nearly quadratic. A few rungs, often those in the middle where
the power posterior changes its shape, carry most of the error; networks are worth their time only there.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from ..families.budget import LIMITS as BUDGET
from ..families.method import Method
from ..families.polynomial.polynomial import Polynomial, feature_count
from ..families.stack import Stack


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


class Carried(NamedTuple):
    """What a rung is given: the method of the first round, and whether all of `Auto()` may follow."""

    first: Method
    everything: bool


def carried(draws: int, dim: int) -> Carried:
    """Return what `draws` in `dim` dimensions can carry; four fifths of them are fitted on."""
    fitted_on = 4 * draws // 5
    degrees = [1]
    for degree in range(2, LIMITS.degree + 1):
        features = feature_count(dim, degree)
        few = features <= BUDGET.quadratic_features_per_draw * fitted_on and features <= LIMITS.features
        quadratic = degree == 2 and fitted_on >= BUDGET.few
        if few or (quadratic and features <= LIMITS.quadratic_features_per_draw * fitted_on):
            degrees.append(degree)
    members = [Polynomial(degree) for degree in degrees]
    return Carried(members[0] if len(members) == 1 else Stack(members), draws >= LIMITS.fewest_for_all)


Piece = TypeVar("Piece")


def spend(
    pieces: list[Piece], errors: Callable[[Sequence[Piece]], np.ndarray], refit: Callable[[int], Piece], floor: float
) -> list[int]:
    """Refit the pieces that carry the error, in place, until none of the others does; return which they were.

    - `errors(pieces)`: the standard error that each piece brings into the sum.
    - `refit(k)`: piece k with everything there is. It is kept if its error is smaller.
    - `floor`: an error that will be there anyway: nothing is spent below a third of it.
    """
    tried: list[int] = []
    while True:
        squares = errors(pieces) ** 2
        total = squares.sum()
        hard = [k for k in np.argsort(-squares) if squares[k] > LIMITS.share * total / len(pieces) and k not in tried]
        if not hard or total <= (floor / 3) ** 2:
            return tried
        k = int(hard[0])
        tried.append(k)
        better = refit(k)
        new = [*pieces[:k], better, *pieces[k + 1 :]]
        if errors(new)[k] ** 2 < squares[k]:
            pieces[k] = better
