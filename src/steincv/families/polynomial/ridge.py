r"""Ridge regression with a penalty that grows with the degree, chosen by exact leave-one-out.

$$ \min_{c,\beta}\ \tfrac1n |y - c - X\beta|^2 + \lambda \sum_j \rho^{\,k_j - 1} \beta_j^2 $$

for features of degree $k_j$: linear terms are penalised less than quadratic ones. One
eigendecomposition a $\rho$, of the smaller of the two Gram matrices (features or draws), serves
every $\lambda$ and every output, with the exact leave-one-out residuals $r_i / (1 - 1/n - h_i)$.

States of one orbit are left out together, $(I - H_{oo})^{-1} r_o$, and judged by their weighted mean: they are nearly
copies of each other, and leaving out one of them would choose far too small a penalty.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular

from ...runtime.threads import blas_threads

PENALTIES = np.array([1e-13, 1e-6, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0, 100.0])
FEW_PENALTIES = PENALTIES[[0, 2, 4, 6, 8, 10]]
GROWTHS = (1.0, 10.0, 100.0)
SOME_PENALTIES = PENALTIES[[0, 1, 2, 3, 4, 6, 8, 10]]


class Sizes(NamedTuple):
    """Where a search for penalties is made cheaper, and what is done in pieces."""

    # Decompositions of this size are most of a fit: the middle growth then has to do for all outputs. In 26 dimensions
    # (two sets of draws) Auto() left 1.000 and 1.001 times the variance that it left with three growths.
    large: int = 300
    # From this many features on, systems of orbits are factorised for some penalties instead of decomposed for all:
    # tens of times less work, and minutes instead of hours in 120 dimensions.
    factorised: int = 600
    # With this many draws per feature the penalty hardly matters, and a coarse search is enough.
    plenty: int = 40
    # Penalties are compared by their residuals at this many draws at least: the same ones for all, so that is enough.
    judged: int = 800
    # Residuals of more outputs than these would be most of the work: they are compared at fewer draws, at least these.
    many_outputs: int = 50
    fewest_judged: int = 200
    # A fit that goes through a draw to within this part of its value tells nothing about the error there.
    interpolation: float = 1e-10


SIZES = Sizes()


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """Coefficients `(feature, out)` of y on the features, and the penalty and growth of each output."""

    coefficients: Float[np.ndarray, "feature out"]
    penalty: Float[np.ndarray, " out"]
    growth: Float[np.ndarray, " out"]
    leave_one_out: Float[np.ndarray, " out"]


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """X scaled by its penalties, as `left right'`; `left` carries the root of the eigenvalues `values`.

    `judged` are the rows of `left` at which penalties are compared, `along` is `left' y`, and `back` goes from
    coordinates along `left` to the scaled features.
    """

    values: np.ndarray
    judged: np.ndarray
    along: np.ndarray
    back: Callable[[np.ndarray], np.ndarray]

    @classmethod
    def of_draws(
        cls, gram: np.ndarray, x: np.ndarray, root: np.ndarray, y: np.ndarray, judged: slice | np.ndarray
    ) -> "_Spectrum":
        """From X X', X times `root`, where draws are fewer than features. `judged`: which rows."""
        with blas_threads(9.0 * len(gram) ** 3):
            values, vectors = np.linalg.eigh(gram)
        values = np.maximum(values, 0)
        left = vectors * np.sqrt(values)

        def back(shrunk: np.ndarray) -> np.ndarray:
            # left = scaled @ right holds with right = scaled' left / values on the non-null part.
            safe = np.where(values > values[-1] * 1e-14, values, np.inf)
            return root[:, None] * (x.T @ (left @ (shrunk / safe[:, None])))

        return cls(values, left[judged], left.T @ y, back)


def ridge(
    features: Float[np.ndarray, "n feature"],
    y: Float[np.ndarray, "n out"],
    degree: Int[np.ndarray, " feature"],
    penalty: float | str,
    *,
    overwrite: bool = False,
    orbits: Float[np.ndarray, "orbit state"] | None = None,
    kept: dict | None = None,
) -> RidgeFit:
    """Fit every output; `penalty` is lambda, the same for all degrees, or "auto".

    - `overwrite`: may use up `features`.
    - `orbits`: the weights of the states that the draws are, orbit after orbit; None if they are draws.
    - `kept`: decompositions from an earlier fit on the same features, which is added to.
    """
    if orbits is not None:
        return _ridge_on_orbits(features, y, degree, penalty, orbits)
    n = len(features)
    x = np.subtract(features, features.mean(axis=0), out=features if overwrite else None)
    every = judged_every(n, y.shape[1])
    left = y[::every] - y.mean(axis=0)
    if x.shape[1] <= n:
        return ridge_of_moments(n, lambda: x.T @ x, x.T @ y, x[::every], left, degree, penalty, kept)
    return _choose(_of_fewer_draws(x, y, degree, slice(None, None, every)), n, left, degree, penalty)


def _of_fewer_draws(
    x: np.ndarray, y: np.ndarray, degree: np.ndarray, judged: slice | np.ndarray
) -> Callable[[np.ndarray], _Spectrum]:
    """Return the spectrum as a function of the roots of penalties, equal for features of one degree.

    The products X X' of each degree are made once: they are most of the work.
    """
    kinds = [np.flatnonzero(degree == k) for k in np.unique(degree)]
    with blas_threads(2.0 * len(x) ** 2 * x.shape[1]):
        grams = [x[:, kind] @ x[:, kind].T for kind in kinds]

    def spectrum(root: np.ndarray) -> _Spectrum:
        gram = sum(root[kind[0]] ** 2 * g for kind, g in zip(kinds, grams, strict=True))
        return _Spectrum.of_draws(gram, x, root, y, judged)

    return spectrum


def _ridge_on_orbits(
    features: np.ndarray, y: np.ndarray, degree: np.ndarray, penalty: float | str, weight: np.ndarray
) -> RidgeFit:
    n, states = weight.shape
    flat = weight.reshape(-1, 1)
    root_weight = np.sqrt(flat)
    x = features - (flat * features).sum(axis=0) / n
    x *= root_weight
    y = root_weight * (y - (flat * y).sum(axis=0) / n)
    judged = (np.arange(0, n, judged_every(n * states, y.shape[1]))[:, None] * states + np.arange(states)).ravel()
    few, roots = x[judged], root_weight[judged].reshape(-1, states)
    moments = (x.T @ x, x.T @ y) if x.shape[1] <= len(x) else None
    if moments is not None and x.shape[1] > SIZES.factorised:
        return _factorised(*moments, few, y[judged], n, degree, penalty, roots)

    if moments is None:
        spectrum_of = _of_fewer_draws(x, y, degree, judged)
    else:
        spectrum_of = _of_moments(lambda: moments[0], moments[1], few, {})
    return _choose(spectrum_of, n, y[judged], degree, penalty, roots)


def _of_moments(
    gram: Callable[[], np.ndarray], cross: np.ndarray, judged: np.ndarray, kept: dict
) -> Callable[[np.ndarray], _Spectrum]:
    """Return the spectrum as a function of the roots of penalties, from X'X, X'y and some rows of X."""
    gram = functools.cache(gram)

    def spectrum(root: np.ndarray) -> _Spectrum:
        key = root.tobytes()
        if key not in kept:
            with blas_threads(9.0 * len(root) ** 3):
                values, right = np.linalg.eigh(root[:, None] * gram() * root)
            kept[key] = np.maximum(values, 0), right
        values, right = kept[key]
        along = right.T @ (root[:, None] * cross)
        return _Spectrum(values, (judged * root) @ right, along, lambda shrunk: right @ shrunk)

    return spectrum


def _factorised(
    gram: np.ndarray,
    cross: np.ndarray,
    few: np.ndarray,
    judged_y: np.ndarray,
    n: int,
    degree: np.ndarray,
    penalty: float | str,
    roots: np.ndarray,
) -> RidgeFit:
    """Choose among some penalties of the middle growth, one Cholesky factor each."""
    lambdas = SOME_PENALTIES if penalty == "auto" else np.array([max(float(penalty), PENALTIES[0])])
    growth = GROWTHS[1] if penalty == "auto" and degree.max() > 1 else GROWTHS[0]
    (features, outputs), (orbits, states) = cross.shape, roots.shape
    fit = RidgeFit(np.zeros((features, outputs)), np.zeros(outputs), np.ones(outputs), np.full(outputs, np.inf))
    for lam in lambdas:
        with blas_threads(features**3 / 3):
            try:
                lower = np.linalg.cholesky(gram + np.diag(n * lam * growth ** (degree - 1.0)))
            except np.linalg.LinAlgError:
                continue
            left = solve_triangular(lower, few.T, lower=True).T.reshape(orbits, states, -1)
            beta = solve_triangular(lower, solve_triangular(lower, cross, lower=True), lower=True, trans="T")
        residual = (judged_y - few @ beta).reshape(orbits, states, -1)
        error = _orbit_error(left @ left.transpose(0, 2, 1), residual, roots, n)
        better = error < fit.leave_one_out
        fit.coefficients[:, better] = beta[:, better]
        fit.penalty[better], fit.growth[better], fit.leave_one_out[better] = lam, growth, error[better]
    return fit


def ridge_of_moments(
    n: int,
    gram: Callable[[], np.ndarray],
    cross: Float[np.ndarray, "feature out"],
    judged: Float[np.ndarray, "m feature"],
    judged_y: Float[np.ndarray, "m out"],
    degree: Int[np.ndarray, " feature"],
    penalty: float | str,
    kept: dict | None = None,
) -> RidgeFit:
    """The same from X'X (asked for where nothing is `kept`) and X'y of n draws, at least as many as features.

    X and y are given at every `judged_every(n)`-th draw. Everything is about its mean.
    """
    spectrum_of = _of_moments(gram, cross, judged, {} if kept is None else kept)
    return _choose(spectrum_of, n, judged_y, degree, penalty)


def judged_every(n: int, outputs: int = 1) -> int:
    """Penalties are compared at the first draw and every so many."""
    enough = SIZES.judged * SIZES.many_outputs // max(outputs, SIZES.many_outputs)
    return max(1, n // max(SIZES.fewest_judged, enough))


def _choose(
    spectrum_of: Callable[[np.ndarray], _Spectrum],
    n: int,
    judged_y: np.ndarray,
    degree: np.ndarray,
    penalty: float | str,
    orbits: np.ndarray | None = None,
) -> RidgeFit:
    """Choose growth and penalty of every output. `orbits`: roots of the weights of the judged states."""
    features, outputs = len(degree), judged_y.shape[1]
    plenty = n >= SIZES.plenty * features
    if penalty == "auto":
        lambdas = FEW_PENALTIES if plenty else PENALTIES
        large = min(n, features) > SIZES.large
        growths = GROWTHS[:1] if plenty or degree.max() == 1 else GROWTHS[1:2] if large else GROWTHS
    else:
        lambdas, growths = np.array([max(float(penalty), 1e-13)]), GROWTHS[:1]
    best, start = np.full(outputs, np.inf), np.full(outputs, len(lambdas) // 2)
    fit = RidgeFit(np.zeros((features, outputs)), np.zeros(outputs), np.ones(outputs), best)
    for growth in growths:
        root = growth ** (-0.5 * (degree - 1.0))
        spectrum = spectrum_of(root)
        if orbits is None:
            errors = _leave_one_out(spectrum, judged_y, n, n * lambdas, start)
        else:
            errors = _leave_orbit_out(spectrum, judged_y, n, n * lambdas, orbits)
        # where a draw decides a feature alone nothing can be judged: then the largest penalty
        errors[-1, np.isinf(errors).all(axis=0)] = np.finfo(float).max
        start = choice = errors.argmin(axis=0)
        lowest = errors[choice, np.arange(outputs)]
        better = (lowest < best) | (growth == growths[0])
        if not better.any():
            continue
        chosen = lambdas[choice[better]]
        shrunk = spectrum.along[:, better] / (spectrum.values[:, None] + n * chosen)
        fit.coefficients[:, better] = root[:, None] * spectrum.back(shrunk)
        fit.penalty[better], fit.growth[better], best[better] = chosen, growth, lowest[better]
    return fit


def _leave_one_out(
    spectrum: _Spectrum, y: np.ndarray, n: int, ridges: np.ndarray, start: Int[np.ndarray, " out"]
) -> np.ndarray:
    """Mean squared leave-one-out residual, `(penalty, out)`, at the judged ones of n draws, downhill from a start.

    It is infinite where the fit goes through a draw, and where it was not looked for: beyond neighbours of the least.
    """
    shrink = 1 / (spectrum.values[:, None] + ridges)
    kept = 1 - 1 / n - np.square(spectrum.judged) @ shrink
    possible = np.flatnonzero(kept.min(axis=0) >= SIZES.interpolation)
    errors, each = np.full((len(ridges), y.shape[1]), np.inf), np.arange(y.shape[1])
    known = np.zeros(errors.shape, dtype=bool)
    at = np.clip(start, possible.min(initial=len(ridges) - 1), len(ridges) - 1)
    while len(possible):
        wanted = np.zeros(errors.shape, dtype=bool)
        for side in (-1, 0, 1):
            wanted[np.clip(at + side, possible[0], possible[-1]), each] = True
        wanted &= ~known
        if not wanted.any():
            break
        known |= wanted
        for k in np.flatnonzero(wanted.any(axis=1)):
            some = np.flatnonzero(wanted[k])
            residual = spectrum.judged @ (shrink[:, k, None] * spectrum.along[:, some])
            np.subtract(y[:, some], residual, out=residual)
            residual /= kept[:, k, None]
            errors[k, some] = np.einsum("ij,ij->j", residual, residual) / len(y)
        at = errors.argmin(axis=0)
    return errors


def _leave_orbit_out(
    spectrum: _Spectrum, y: np.ndarray, n: int, ridges: np.ndarray, root: Float[np.ndarray, "orbit state"]
) -> np.ndarray:
    """Mean squared residual of orbit means, `(penalty, out)`, each from a fit to the other orbits."""
    orbits, states = root.shape
    left = spectrum.judged.reshape(orbits, states, -1)
    errors = np.empty((len(ridges), y.shape[1]))
    for k, ridge in enumerate(ridges):
        shrink = 1 / (spectrum.values + ridge)
        residual = (y - spectrum.judged @ (shrink[:, None] * spectrum.along)).reshape(orbits, states, -1)
        errors[k] = _orbit_error((left * shrink) @ left.transpose(0, 2, 1), residual, root, n)
    return errors


def _orbit_error(hat: np.ndarray, residual: np.ndarray, root: np.ndarray, n: int) -> np.ndarray:
    """Return the mean square of what each orbit leaves, from the fit to all: it is infinite where that interpolates."""
    kept = np.eye(root.shape[1]) - hat - root[:, :, None] * root[:, None] / n
    if np.linalg.eigvalsh(kept).min() < SIZES.interpolation:
        return np.full(residual.shape[-1], np.inf)
    return ((root[:, :, None] * np.linalg.solve(kept, residual)).sum(axis=1) ** 2).mean(axis=0)
