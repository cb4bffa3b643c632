r"""Polynomial (zero-variance) control variates: Phi is the gradient of a polynomial."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...runtime.memory import reserve
from ...runtime.validation import InputError, whole_number
from ..cost import Cost
from ..method import Control, Kind, Method, Problem, Training
from .hermite import Quadratic, degrees, feature_count, hermite_basis, stein_features
from .ridge import GROWTHS, RidgeFit, judged_every, ridge, ridge_of_moments
from .slow import OBJECTIVES, fit_slow, own_steps, systems_solved

# More features per draw than this cost more than they bring (benchmarks/league.py).
FEATURES_PER_DRAW = 0.5
# From this many draws on the features are made in tiles of so many, and only their sums are kept.
MANY_DRAWS, TILE = 20_000, 4096


@dataclass(frozen=True)
class Polynomial(Method):
    r"""$g = \Delta Q + \nabla Q \cdot s$ with $Q$ a polynomial of total degree at most `degree`.

    The coefficients are those of a ridge regression of f on the Stein features of a Hermite basis, so
    all outputs share one factorisation. Degree 1 is the linear, degree 2 the quadratic zero-variance
    control variate. Exact for a Gaussian density and a polynomial f of the same degree.

    **Arguments:**

    - `degree`: total degree of Q, 1 or more.
    - `penalty`: lambda of `_ridge.ridge`; "auto" chooses it, and how it grows with the degree, by exact
      leave-one-out, for each output.
    - `objective`: what the coefficients make small. "variance": that of single draws of f + g. For chains that move
      slowly, such as those of random walks, "spectral": the variance of their mean, from windows of neighbouring draws;
      "diffusion": that of the mean of a Langevin diffusion with steps like the chains' own. Q is then a polynomial in
      coordinates in which these are alike in all directions. The penalty is chosen by what is left of the variance of
      the mean in chains that were left out.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> fitted = scv.Polynomial(degree=2).fit(scv.Samples(x, -x), x[..., 0] ** 2)
    >>> bool(np.ptp(x[..., 0] ** 2 + fitted(scv.Samples(x, -x))[..., 0]) < 1e-9)
    True

    Reference: Mira, Solgi, Imparato (2013), Statistics and Computing 23; South et al. (2023),
    Statistics and Computing 33. Objectives: Brosse et al. (2018), arXiv:1808.01665; Belomestny et al. (2020),
    Statistics and Computing 30.
    """

    degree: int = 2
    penalty: float | Literal["auto"] = "auto"
    objective: str = "variance"

    together = False
    weighted = True

    def __post_init__(self) -> None:
        whole_number("degree", self.degree, 1)
        number = isinstance(self.penalty, int | float) and not isinstance(self.penalty, bool)
        if not (self.penalty == "auto" or (number and 0 <= float(self.penalty) < np.inf)):
            raise InputError(
                f"The 'penalty' parameter of Polynomial must be 'auto' or a number in [0, inf). "
                f"Got {self.penalty!r} instead."
            )
        if self.objective not in OBJECTIVES:
            raise InputError(
                f"The 'objective' parameter of Polynomial must be 'variance', 'diffusion' or 'spectral'. "
                f"Got {self.objective!r} instead."
            )

    def cost(self, n: int, dim: int, outputs: int) -> Cost:
        """Return the cost of a fit: a Gram matrix and its spectrum for every growth, at most three."""
        features = feature_count(dim, self.degree)
        if self.objective != "variance":
            operations = 4.0 * n * features**2 + systems_solved(features) * 2 / 3 * features**3
            return Cost(operations, 2 * self._bytes(n, features))
        rank = min(n, features)
        growths = 1 if self.degree == 1 else len(GROWTHS)
        operations = growths * (2.0 * n * features * rank + 9.0 * rank**3 + 30.0 * n * rank * outputs)
        return Cost(operations, self._bytes(n, features))

    def _bytes(self, n: int, features: int) -> float:
        # features, centred and scaled copies and the eigenvector side; one Gram matrix and its vectors
        return 8.0 * (4 * n * features + 3 * min(n, features) ** 2)

    def kind(self, training: Training) -> Kind:
        """Return the coordinates: beside learned ones the affine ones, where there are draws for the features of both.

        A regression on both gained twice what one on the learned ones did, and has all that affine ones have.
        """
        if training.coordinates != "learned":
            return "affine"
        features = 2 * feature_count(training.draws.shape[-1], self.degree)
        return "both" if features <= FEATURES_PER_DRAW * training.fewest else "learned"

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        return [self._solve(problem) for problem in problems]

    def _solve(self, problem: Problem) -> Control:
        parts = problem.parts
        dim = problem.z.shape[1] // parts
        features = parts * feature_count(dim, self.degree)
        orbits = None if problem.weight is None else problem.weight.reshape(-1, problem.states)
        z, s, y = problem.z, problem.s, problem.y
        n, turn = len(z), None
        if self.objective != "variance":
            self._reserve(n, dim, 2 * self._bytes(n, features))
            turn = own_steps(z, problem.chains, problem.states, parts)
            z, s = z @ turn.draws, s @ turn.scores
            x, kinds = _features(z, s, self.degree, parts), np.tile(degrees(dim, self.degree), parts)
            basis = None if self.objective == "spectral" else _side_by_side(hermite_basis, self.degree, parts, z)
            fit = fit_slow(x, y, kinds, self.penalty, problem.chains, orbits=orbits, basis=basis)
        elif n >= max(MANY_DRAWS, 4 * features) and orbits is None:
            self._reserve(n, dim, 8 * (5 * features**2 + 4 * TILE * features))
            fit = self._fit_in_tiles(z, s, y, parts)
        else:
            self._reserve(n, dim, self._bytes(n, features))
            x, kinds = _features(z, s, self.degree, parts), np.tile(degrees(dim, self.degree), parts)
            fit = ridge(x, y, kinds, self.penalty, overwrite=True, orbits=orbits)

        def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
            z, s = (z, s) if turn is None else (z @ turn.draws, s @ turn.scores)
            return -(_features(z, s, self.degree, parts) @ fit.coefficients)

        info = {"features": features, "draws": n, "penalty": fit.penalty.tolist(), "growth": fit.growth.tolist()}
        quick = Quadratic.of(-fit.coefficients, dim) if (self.degree, parts, turn) == (2, 1, None) else None
        return Control(evaluate, info, quick=quick)

    def _fit_in_tiles(self, z: np.ndarray, s: np.ndarray, y: np.ndarray, parts: int) -> RidgeFit:
        """The same from sums over tiles of draws: its memory does not grow with them."""
        n, kinds = len(z), np.tile(degrees(z.shape[1] // parts, self.degree), parts)
        gram, cross = np.zeros((len(kinds), len(kinds))), np.zeros((len(kinds), y.shape[1]))
        mean = np.zeros(len(kinds))
        for start in range(0, n, TILE):
            tile = slice(start, start + TILE)
            x = _features(z[tile], s[tile], self.degree, parts)
            gram += x.T @ x
            cross += x.T @ y[tile]
            mean += x.sum(axis=0) / n
        center = y.mean(axis=0)
        gram -= n * np.outer(mean, mean)
        cross -= n * np.outer(mean, center)
        every = judged_every(n)
        judged = _features(z[::every], s[::every], self.degree, parts) - mean
        return ridge_of_moments(n, gram, cross, judged, y[::every] - center, kinds, self.penalty)

    def _reserve(self, n: int, dim: int, needed: float) -> None:
        reserve(
            f"Polynomial(degree={self.degree}) of {n} draws in {dim} dimensions has "
            f"{feature_count(dim, self.degree):,} features and",
            needed,
            f"Use degree={max(1, self.degree - 1)} or fewer draws.",
        )


def _features(z: np.ndarray, s: np.ndarray, degree: int, parts: int) -> np.ndarray:
    """Return the features of every system of coordinates that z and s hold, side by side."""
    return _side_by_side(stein_features, degree, parts, z, s)


def _side_by_side(function: Callable[..., np.ndarray], degree: int, parts: int, *arrays: np.ndarray) -> np.ndarray:
    if parts == 1:
        return function(*arrays, degree)
    columns = zip(*(np.split(array, parts, axis=1) for array in arrays), strict=True)
    return np.hstack([function(*each, degree) for each in columns])
