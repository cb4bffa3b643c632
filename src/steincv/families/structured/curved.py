r"""Control variates that know the curvature of the density from its scores, for many weakly non-Gaussian dimensions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...runtime.validation import reserve, whole_number
from ..method import Control, Method, Problem
from ..polynomial.polynomial import feature_count, stein_features
from ..problem import Cost
from .cubic_density import SIZES, CubicDensity
from .smoother import Smoother, Split, solve_symmetric


class _Grid(NamedTuple):
    """What is tried on draws left out: penalties of the features, and parts of the first penalty of the scores.

    The penalty `none` leaves nothing of the features.
    """

    penalties: tuple[float, ...] = (1e-8, 1e-3, 1e-2, 1e-1, 1.0)
    none: float = 1e8
    linear: tuple[float, ...] = (1.0, 1e-2, 1e-5)


GRID = _Grid()


class _Draws(NamedTuple):
    """How many draws are fitted on, evenly spaced, and how many a fit needs.

    - `most`: about; products of all pairs of them are made.
    - `per_dimension`: with fewer only the scores are fitted. The linear fit then goes through many draws, and what is
      best on part of them was harmful on all (1006 dimensions, 1500 draws: 2.6 times the variance of the plain mean).
    - `per_feature`: of a polynomial on the directions, at least.
    """

    most: int = 1500
    per_dimension: int = 2
    per_feature: int = 4


DRAWS = _Draws()


@dataclass(frozen=True)
class Curved(Method):
    r"""$g = \Delta Q + \nabla Q \cdot s$ with Q linear, a polynomial of few directions, and what perturbation asks for.

    Directions are chosen for each output by `Directions.of`. For directions a, b the features $\partial_b h$ and
    $(a\cdot z)\,\partial_b h$ are added, with h the cubic part of the log density that `CubicDensity` learns from the
    scores of all coordinates. Made for whitened coordinates. Penalties are chosen by a fit on part of the chains judged
    on the others.

    **Arguments:**

    - `degree`: of the polynomial; less where draws are few.
    - `most`: how many directions.
    """

    degree: int = 4
    most: int = 5

    together = False

    def __post_init__(self) -> None:
        whole_number("degree", self.degree, 1)
        whole_number("most", self.most, 1)

    def cost(self, n: int, dim: int, outputs: int) -> Cost:
        """Return the cost of a fit on part of the draws and one on all: conjugate gradients, and features."""
        rank, features = min(n, dim), self._width(n, dim)
        gradients = 12 * 3.0 * n * n * dim  # in single precision they count half
        each = 2.0 * n * dim**2 + 10.0 * dim**3 + 16.0 * n * n * self.most + 12.0 * n * (rank + features) * features
        shared = 8.0 * n * n * dim + 2.0 * n * dim * rank + 10.0 * rank**3
        arrays = 2 * n * n + 10 * n * dim + (outputs + 4) * n * features + 10 * SIZES.rows * n
        return Cost(1.5 * (gradients + outputs * each + shared), 8.0 * arrays)

    def _width(self, n: int, dim: int) -> float:
        k = min(dim, self.most)
        return feature_count(k, self._degree(n, k)) + k + k * k

    def _degree(self, n: int, k: int) -> int:
        fits = [d for d in range(1, self.degree + 1) if feature_count(k, d) * DRAWS.per_feature <= n]
        return max(fits, default=1)

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        return [self._solve(problem) for problem in problems]

    def _solve(self, problem: Problem) -> Control:
        rows = problem.spaced(DRAWS.most)
        z, s, y = problem.z[rows], problem.s[rows], problem.y[rows]
        n, dim = z.shape
        needed = self.cost(n, dim, y.shape[1]).bytes
        reserve(f"Curved() of {n} draws in {dim} dimensions", needed, "Use fewer draws.")
        degree = self._degree(n, min(dim, self.most))
        split = Split.of(n, problem.chains)
        trial = _Model.of(z[split.fit], s[split.fit], y[split.fit], degree, self.most)
        ridges, linear = trial.judge(z[split.judge], s[split.judge], y[split.judge])
        model = _Model.of(z, s, y, degree, self.most)
        weights, coefficients = model.fit(ridges, linear)

        def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
            features = model.features(z, s)
            return -(s @ weights + np.einsum("onk,ko->no", features, coefficients))

        return Control(evaluate, {"draws": n, "degree": degree, "penalty": ridges.tolist(), "linear": linear.tolist()})


@dataclass(frozen=True, eq=False)
class Directions:
    r"""Few directions for one output: u = z B' of mean square one, and scores s A; `to` is B' and `back` is A.

    With BA = 1 a field $\Phi(z) = A\,\varphi(Bz)$ is valid whatever else z does. Its g is
    $\nabla\cdot\varphi(u) + \varphi(u)\cdot A^T s$ with $u = Bz$: that of $\varphi$ on the problem of u and
    $A^T s$. The latter is not the score of u alone, and need not be.
    """

    to: Float[np.ndarray, "dim k"]
    back: Float[np.ndarray, "dim k"]

    @classmethod
    def of(cls, z: np.ndarray, s: np.ndarray, gradient: np.ndarray, left: np.ndarray, most: int) -> "Directions":
        """Choose directions for one output with this linear fit and these residuals.

        The first is that of the linear fit, along which f changes most. The others are the leading eigenvectors of the
        matrix of covariances between the residuals and all pair features.
        """
        dim = z.shape[1]
        pairs = (z * left[:, None]).T @ s
        values, vectors = np.linalg.eigh(pairs + pairs.T)
        order = np.argsort(-np.abs(values), kind="stable")[: max(0, min(most, dim) - 1)]
        length = np.linalg.norm(gradient)
        first = gradient / length if length > 0 else vectors[:, -1]
        basis = np.linalg.qr(np.column_stack([first, vectors[:, order]]))[0]
        u = z @ basis
        factor = np.linalg.cholesky(u.T @ u / len(u) + 1e-12 * np.eye(basis.shape[1]))
        return cls(basis @ np.linalg.inv(factor).T, basis @ factor)

    def __call__(self, z: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return z @ self.to, s @ self.back


@dataclass(frozen=True, eq=False)
class _Basis:
    """The directions of every output, and the cubic part of the log density."""

    directions: list[Directions]
    density: CubicDensity
    degree: int

    def __call__(self, z: Float[np.ndarray, "n dim"], s: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "out n k"]:
        """Return the features of every output: polynomials of its directions, and those of the density."""
        bent = self.density.features(z, s, np.stack([chosen.to for chosen in self.directions]))
        smooth = np.stack([stein_features(*chosen(z, s), self.degree) for chosen in self.directions])
        return np.concatenate([smooth, bent], axis=2)


@dataclass(frozen=True, eq=False)
class _Model:
    """What a fit of all outputs on the same draws needs; the features there are `fitted`, of mean square one."""

    s: Float[np.ndarray, "n dim"]
    y: Float[np.ndarray, "n out"]
    linear: Smoother
    penalty: Float[np.ndarray, " out"]
    basis: _Basis
    size: Float[np.ndarray, "out k"]
    fitted: Float[np.ndarray, "out n k"]

    @classmethod
    def of(cls, z: np.ndarray, s: np.ndarray, y: np.ndarray, degree: int, most: int) -> "_Model":
        linear = Smoother.of_features(s)
        penalty, _ = linear.choose(y)
        weights = s.T @ linear.dual(y, penalty)
        left = y - s @ weights
        left -= left.mean(axis=0)
        directions = [Directions.of(z, s, w, r, most) for w, r in zip(weights.T, left.T, strict=True)]
        basis = _Basis(directions, CubicDensity.of(z, s), degree)
        fitted = basis(z, s)
        size = np.sqrt((fitted**2).mean(axis=1))
        size = np.where(size > 0, size, 1.0)
        fitted /= size[:, None]
        return cls(s, y - y.mean(axis=0), linear, penalty, basis, size, fitted)

    def features(self, z: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "out n k"]:
        """Return the features at other draws, in the same units."""
        return self.basis(z, s) / self.size[:, None]

    def fit(self, ridges: np.ndarray, linear: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights of the scores and the coefficients of the features, a column per output."""
        columns = [self._fits(o)([ridges[o]], linear[o])[0] for o in range(self.y.shape[1])]
        return np.column_stack([w for w, _ in columns]), np.column_stack([c for _, c in columns])

    def _fits(self, o: int) -> Callable[[Sequence[float], float], list[tuple[np.ndarray, np.ndarray]]]:
        """Return the fits to an output as a function of penalties; what all of them need is made once."""
        n, values = len(self.y), self.linear.values
        f, y = self.fitted[o] - self.fitted[o].mean(axis=0), self.y[:, o]
        along_f, along_y = self.linear.vectors.T @ f, self.linear.vectors.T @ y
        square, product = f.T @ f, f.T @ y

        def fits(ridges: Sequence[float], linear: float) -> list[tuple[np.ndarray, np.ndarray]]:
            lam = n * max(self.penalty[o] * linear, 1e-13)
            kept = along_f * (values / (values + lam))[:, None]
            gram, right = square - along_f.T @ kept, product - kept.T @ along_y
            found = []
            for ridge in ridges:
                c = solve_symmetric(gram + n * ridge * np.eye(len(gram)), right)
                found.append((self._back @ ((along_y - along_f @ c) / (values + lam)), c))
            return found

        return fits

    @cached_property
    def _back(self) -> Float[np.ndarray, "dim rank"]:
        return self.s.T @ self.linear.vectors

    def judge(self, z: np.ndarray, s: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each output, the penalties with the least variance at these draws."""
        ridges, linear = np.full(y.shape[1], GRID.none), np.ones(y.shape[1])
        if len(self.y) < DRAWS.per_dimension * z.shape[1]:
            return ridges, linear
        features = self.features(z, s)
        for o in range(y.shape[1]):
            fits = self._fits(o)
            left = {
                (ridge, part): (y[:, o] - s @ w - features[o] @ c).var()
                for part in GRID.linear
                for ridge, (w, c) in zip(GRID.penalties, fits(GRID.penalties, part), strict=True)
            }
            ridges[o], linear[o] = min(left, key=lambda choice: left[choice])
            ((w, _),) = fits([GRID.none], 1.0)
            # so much less variance can be chance where few draws are judged by
            if left[ridges[o], linear[o]] > (1 - 2 / np.sqrt(len(y))) * (y[:, o] - s @ w).var():
                ridges[o], linear[o] = GRID.none, 1.0
        return ridges, linear
