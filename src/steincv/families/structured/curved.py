r"""Control variates that know the curvature of the density from its scores, for many weakly non-Gaussian dimensions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...runtime.validation import available_memory, reserve, whole_number
from ..method import Control, Method, Problem
from ..polynomial.polynomial import feature_count, stein_features
from ..problem import Cost, resampled
from .cubic_density import SIZES, CubicDensity
from .cubic_tensor import SETTINGS as TENSOR, CubicTensor
from .smoother import Smoother, Split, solve_symmetric
from .symmetric_field import STEPS, SymmetricField


class _Grid(NamedTuple):
    """What is tried on draws left out: penalties of the features, and parts of the first penalty of the scores.

    The penalty `none` leaves nothing of the features.
    """

    penalties: tuple[float, ...] = (1e-8, 1e-3, 1e-2, 1e-1, 1.0)
    none: float = 1e8
    linear: tuple[float, ...] = (1.0, 1e-2, 1e-5)


GRID = _Grid()
Density = CubicDensity | CubicTensor


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
    # Of orbits, as many states as a fit takes these operations and bytes for; with fewer than `least` of each orbit, or
    # where that is more than this part of the free memory, the draws alone. Products of matrices are most of it, 3e10
    # operations of a core in a second: some eight seconds. Of 1500 orbits that is, for a dozen outputs, all eight
    # states in 90 dimensions, four in 120 and two in 144; twice the time gains a tenth more in 120. Blocks of a
    # sixtieth of the `states` are left out in turn, which takes their square.
    operations: float = 2.5e11
    bytes: float = 1 << 30
    memory: float = 0.125
    states: int = 20_000
    least: int = 2


DRAWS = _Draws()


@dataclass(frozen=True)
class Curved(Method):
    r"""$g = \Delta Q + \nabla Q \cdot s$ with Q linear, a polynomial of few directions, and what perturbation asks for.

    Directions are chosen for each output by `Directions.of`. For directions a, b the features $\partial_b h$ and
    $(a\cdot z)\,\partial_b h$ are added, with h the cubic part of the log density that `CubicDensity` learns from the
    scores of all coordinates. Made for whitened coordinates. Penalties are chosen by a fit on part of the chains judged
    on the others.

    States of orbits, where there are enough to learn h from as a tensor (`CubicTensor`), are fitted on as well, each as
    often as its weight says; and what is left is fitted by linear fields with a symmetric matrix (`SymmetricField`).

    **Arguments:**

    - `degree`: of the polynomial; less where draws are few.
    - `most`: how many directions.
    - `states`: of every orbit, that are fitted on at most; if 0, as many as there is time and memory for.
    """

    degree: int = 4
    most: int = 5
    states: int = 0

    together = False
    weighted = True

    def __post_init__(self) -> None:
        whole_number("degree", self.degree, 1)
        whole_number("most", self.most, 1)
        whole_number("states", self.states, 0)

    def sketch(self, states: int = 1) -> Method:
        return replace(self, states=DRAWS.least) if states > DRAWS.least and not self.states else self

    def cost(self, n: int, dim: int, outputs: int) -> Cost:
        """Return the cost of a fit on part of the draws and one on all: conjugate gradients, and features."""
        rank, features = min(n, dim), self._width(n, dim)
        gradients = 12 * 3.0 * n * n * dim  # in single precision they count half
        each = 2.0 * n * dim**2 + 10.0 * dim**3 + 16.0 * n * n * self.most + 12.0 * n * (rank + features) * features
        shared = 8.0 * n * n * dim + 2.0 * n * dim * rank + 10.0 * rank**3
        arrays = 2 * n * n + 10 * n * dim + (outputs + 4) * n * features + 10 * SIZES.rows * n
        return Cost(1.5 * (gradients + outputs * each + shared), 8.0 * arrays)

    def affordable(self, orbits: int, states: int, dim: int, outputs: int) -> int:
        """Return how many of the states of every orbit can be fitted on: none, where time or memory is short."""
        features = self._width(orbits, dim)
        # a fit on two thirds of the states and one on all; operations in single precision count half
        tensor = (2 / 3 * TENSOR.steps + TENSOR.more) * dim**3
        each = 2.0 * STEPS * dim**2 + 4.0 * self.most * dim**2 + 4.0 * (dim + features) * features
        time = DRAWS.operations / (tensor + 5 / 3 * outputs * each)
        bytes_each = 8.0 * 2 * outputs * features
        most = min(states, self.states or states, int(min(DRAWS.states, time, DRAWS.bytes / bytes_each) / orbits))
        enough = most >= DRAWS.least and most * orbits * bytes_each <= DRAWS.memory * available_memory()
        return most if enough else 0

    def _width(self, n: int, dim: int) -> float:
        k = min(dim, self.most)
        return feature_count(k, self._degree(n, k)) + k + k * k

    def _degree(self, n: int, k: int) -> int:
        fits = [d for d in range(1, self.degree + 1) if feature_count(k, d) * DRAWS.per_feature <= n]
        return max(fits, default=1)

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        return [self._solve(problem) for problem in problems]

    def _solve(self, problem: Problem) -> Control:
        points = self._points(problem)
        z, s, y = points.z, points.s, points.y
        chosen = self._chosen(points)
        density = points.density(z, s, chosen.density)
        model = _Model.of(points, density, self._degree(points.draws, min(z.shape[1], self.most)), self.most)
        found = model.fit(chosen.ridges, chosen.linear)
        field = None
        if chosen.steps.any():
            field = SymmetricField.fit(z, s, model.left(model.fitted, s, y, *found), chosen.steps)
        basis, size = model.basis, model.size  # what is evaluated; the draws are not kept

        def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
            g = _Model.left(basis(z, s) / size[:, None], s, 0.0, *found)
            return g if field is None else g - field(z, s)

        info = {"draws": len(z), "degree": basis.degree, "penalty": chosen.ridges.tolist()}
        info |= {"linear": chosen.linear.tolist()} | ({"steps": chosen.steps.tolist()} if points.orbit > 1 else {})
        return Control(evaluate, info)

    def _points(self, problem: Problem) -> "_Points":
        """Return what is fitted on: states of orbits, each as often as its weight says, or draws."""
        states, (n, dim), outputs = problem.states, problem.z.shape, problem.y.shape[1]
        orbits = n // states
        most = self.affordable(orbits, states, dim, outputs)
        if problem.weight is not None and most:
            # an orbit has as many rows as states, for its weights sum to one
            own = resampled(problem.weight).reshape(orbits, states)
            rows = own[:, np.linspace(0, states - 1, most).astype(int)].ravel()
            return _Points(problem.z[rows], problem.s[rows], problem.y[rows], problem.chains, most)
        problem = problem.at_draws()
        some = problem.spaced(DRAWS.most)
        points = _Points(problem.z[some], problem.s[some], problem.y[some], problem.chains)
        needed = self.cost(points.draws, dim, outputs).bytes
        reserve(f"Curved() of {points.draws} draws in {dim} dimensions", needed, "Use fewer draws.")
        return points

    def _chosen(self, points: "_Points") -> "_Chosen":
        """Choose penalties by a fit on part of the chains judged on the others."""
        fit, judge = (points.part(rows) for rows in Split.of(points.draws, points.chains))
        outputs, steps = points.y.shape[1], np.zeros(points.y.shape[1], int)
        if fit.draws < DRAWS.per_dimension * fit.z.shape[1]:
            return _Chosen(np.full(outputs, GRID.none), np.ones(outputs), steps, None)
        density = points.density(fit.z, fit.s)
        # the degree is the one that all draws carry
        trial = _Model.of(fit, density, self._degree(points.draws, min(fit.z.shape[1], self.most)), self.most)
        features = trial.features(judge.z, judge.s)
        ridges, linear = trial.judge(features, judge)
        if points.orbit > 1:
            tried = trial.fit(ridges, linear)
            left = trial.left(trial.fitted, fit.s, fit.y, *tried), trial.left(features, judge.s, judge.y, *tried)
            steps = SymmetricField.judge((fit.z, fit.s, left[0]), (judge.z, judge.s, left[1]))
        return _Chosen(ridges, linear, steps, density)


class _Points(NamedTuple):
    """Draws to fit on, or `orbit` states in a row of every orbit."""

    z: Float[np.ndarray, "n dim"]
    s: Float[np.ndarray, "n dim"]
    y: Float[np.ndarray, "n out"]
    chains: int
    orbit: int = 1

    @property
    def draws(self) -> int:
        return len(self.z) // self.orbit

    def part(self, draws: np.ndarray) -> "_Points":
        """Return some draws with their orbits."""
        rows = (draws[:, None] * self.orbit + np.arange(self.orbit)).ravel()
        return self._replace(z=self.z[rows], s=self.s[rows], y=self.y[rows])

    def density(self, z: np.ndarray, s: np.ndarray, start: "Density | None" = None) -> "Density":
        """Learn the cubic part of the log density, from a start where there may be one."""
        if self.orbit == 1:
            return CubicDensity.of(z, s)
        return CubicTensor.of(z, s, start if isinstance(start, CubicTensor) else None)


class _Chosen(NamedTuple):
    """What was best on draws left out, and the density that was learned from the others, if any was."""

    ridges: Float[np.ndarray, " out"]
    linear: Float[np.ndarray, " out"]
    steps: Int[np.ndarray, " out"]
    density: Density | None


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
    density: Density
    degree: int

    def __call__(self, z: Float[np.ndarray, "n dim"], s: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "out n k"]:
        """Return the features of every output: polynomials of its directions, and those of the density."""
        bent = self.density.features(z, s, np.stack([chosen.to for chosen in self.directions]))
        smooth = feature_count(self.directions[0].to.shape[1], self.degree)
        out = np.empty((len(self.directions), len(z), smooth + bent.shape[2]))
        out[..., smooth:] = bent
        for chosen, features in zip(self.directions, out, strict=True):
            features[:, :smooth] = stein_features(*chosen(z, s), self.degree)
        return out


@dataclass(frozen=True, eq=False)
class _Model:
    """What a fit of all outputs on the same draws needs; the features there are `fitted`, of mean square one."""

    points: _Points
    y: Float[np.ndarray, "n out"]
    linear: Smoother
    penalty: Float[np.ndarray, " out"]
    basis: _Basis
    size: Float[np.ndarray, "out k"]
    fitted: Float[np.ndarray, "out n k"]

    @classmethod
    def of(cls, points: _Points, density: Density, degree: int, most: int) -> "_Model":
        z, s, y = points.z, points.s, points.y
        linear = Smoother.of_features(s)
        penalty, _ = linear.choose(y, points.orbit)
        weights = s.T @ linear.dual(y, penalty)
        left = y - s @ weights
        left -= left.mean(axis=0)
        directions = [Directions.of(z, s, w, r, most) for w, r in zip(weights.T, left.T, strict=True)]
        basis = _Basis(directions, density, degree)
        fitted = basis(z, s)
        size = np.sqrt((fitted**2).mean(axis=1))
        size = np.where(size > 0, size, 1.0)
        fitted /= size[:, None]
        return cls(points, y - y.mean(axis=0), linear, penalty, basis, size, fitted)

    def features(self, z: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "out n k"]:
        """Return the features at other draws, in the same units."""
        return self.basis(z, s) / self.size[:, None]

    @staticmethod
    def left(
        features: np.ndarray, s: np.ndarray, y: np.ndarray | float, weights: np.ndarray, coefficients: np.ndarray
    ) -> Float[np.ndarray, "n out"]:
        """Return what a fit leaves of y where the features are these."""
        return y - (s @ weights + np.einsum("onk,ko->no", features, coefficients))

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
        return self.points.s.T @ self.linear.vectors

    def judge(self, features: np.ndarray, points: _Points) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each output, the penalties with the least variance at points of these features."""
        s, y = points.s, points.y
        ridges, linear = np.full(y.shape[1], GRID.none), np.ones(y.shape[1])
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
            if left[ridges[o], linear[o]] > (1 - 2 / np.sqrt(points.draws)) * (y[:, o] - s @ w).var():
                ridges[o], linear[o] = GRID.none, 1.0
        return ridges, linear
