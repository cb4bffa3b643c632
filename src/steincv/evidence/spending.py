"""`Auto()` along a ladder: polynomials on every rung, and all that `Auto()` has on the rungs that carry the error.

Log likelihoods are smooth, and along most of the ladder nearly quadratic. A few rungs, often those in the middle where
the power posterior changes its shape, carry most of the error; networks are worth their time only there.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..families.method import Method
from ..families.polynomial.hermite import feature_count
from ..families.polynomial.polynomial import Polynomial
from ..families.stack import Stack

HIGHEST_DEGREE = 6
MOST_FEATURES = 600
# A degree is tried if its features are at most this share of the draws it is fitted on.
FEATURES_PER_DRAW = 0.5
# With at least this many draws quadratics are worth trying even where they have more features than draws.
MANY = 60
# A rung gets everything if it carries more than this share of the average rung's part of the squared error.
SHARE = 0.25
# With fewer draws a rung than this, `Auto()` has nothing more than the polynomials have.
FEWEST_FOR_ALL = 100


def polynomials(n: int, dim: int) -> Method:
    """A stack of the polynomial degrees that n draws in `dim` dimensions can carry."""
    degrees = [1]
    for degree in range(2, HIGHEST_DEGREE + 1):
        features = feature_count(dim, degree)
        few = features <= FEATURES_PER_DRAW * n and features <= MOST_FEATURES
        if few or (degree == 2 and n >= MANY and features <= 3 * n):
            degrees.append(degree)
    members = [Polynomial(degree) for degree in degrees]
    return members[0] if len(members) == 1 else Stack(members)


def spend(
    pieces: list[Any], errors: Callable[[Sequence[Any]], np.ndarray], refit: Callable[[int], Any], floor: float
) -> list[int]:
    """Refit the pieces that carry the error, in place, until none of the others does; returns which they were.

    - `errors(pieces)`: the standard error that each piece brings into the sum.
    - `refit(k)`: piece k with everything there is. It is kept if its error is smaller.
    - `floor`: an error that will be there anyway: nothing is spent below a third of it.
    """
    tried: list[int] = []
    while True:
        squares = errors(pieces) ** 2
        total = squares.sum()
        hard = [k for k in np.argsort(-squares) if squares[k] > SHARE * total / len(pieces) and k not in tried]
        if not hard or total <= (floor / 3) ** 2:
            return tried
        k = int(hard[0])
        tried.append(k)
        better = refit(k)
        new = [*pieces[:k], better, *pieces[k + 1 :]]
        if errors(new)[k] ** 2 < squares[k]:
            pieces[k] = better
