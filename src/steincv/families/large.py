"""More draws than are held or fitted on: a fit looks at evenly spaced ones, and its g is a function of all others."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..runtime.validation import InputError
from ..samples.samples import Samples
from ..stein.folds import Fold, fewest_fitted
from .method import CrossFit, Method, Training


class Limits(NamedTuple):
    """What a fit looks at, of larger samples: so many draws, or up to twice as many, evenly spaced.

    With p features fitted on m draws the variance is 1 + p/m times the least possible: at m = 200,000 there is about a
    thousandth left to gain for a quadratic in 20 dimensions, and more draws would be most of the time. All draws count
    in the mean.
    """

    draws: int = 200_000
    # Draws, scores and values of f together, while there are this many draws per dimension.
    bytes: int = 256 << 20
    per_dimension: int = 50


LIMITS = Limits()


def fitting_step(shape: tuple[int, ...], outputs: int, folds: int | None, gap: int) -> int:
    """Return the step at which draws `(chain, draw, dim)` are fitted on: 1 where all of them are."""
    chains, draws, dim = shape
    held = max(LIMITS.bytes // (8 * (2 * dim + outputs)), LIMITS.per_dimension * dim)
    # a wide gap may leave few draws to some fold: it is then to look at most of them
    wanted = min(chains * draws, 4 * fewest_fitted(chains, draws, folds, gap))
    return max(1, wanted // LIMITS.draws, chains * draws // held)


def fit_spaced(
    method: Method,
    samples: Samples,
    targets: Float[np.ndarray, "chain draw out"],
    folds: Sequence[Fold],
    seed: int,
    coordinates: str,
    base: Float[np.ndarray, "fold chain draw out"] | None = None,
) -> CrossFit:
    """Return a fit on these draws, to f with a `base` where there is one, that keeps g of every fold as a function."""
    data = (samples.draws, samples.scores, targets, tuple(folds), samples.names, seed, len(samples.draws))
    fit = method.across(Training(*data, coordinates, keep=True, base=base))
    if len(fit.fitted) != len(folds):
        raise InputError(f"{method} cannot be evaluated at draws it was not given. Use fewer draws.")
    return fit
