r"""Any family on few directions: a field $\Phi(z) = A\,\varphi(Bz)$ with $BA = I$ is valid whatever else z does.

Its g is $\nabla\cdot\varphi(u) + \varphi(u)\cdot A^T s$ with $u = Bz$: the same family on the problem of `u` and
`A's`. The latter is not the score of u alone, and need not be.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from ...runtime.validation import InputError, whole_number
from ..cost import Cost
from ..method import Control, Method, Problem
from ..polynomial.hermite import feature_count
from ..polynomial.polynomial import Polynomial
from .smoother import Smoother


@dataclass(frozen=True)
class OnDirections(Method):
    """What a linear control variate leaves, taken by another method on few directions chosen for each output.

    The first direction is that of the linear fit, along which f changes most. The others are the leading eigenvectors
    of the matrix of covariances between what is left and all pair features.

    **Arguments:**

    - `inner`: the method on the directions. Each output is a problem of its own.
    - `most`: how many directions.
    """

    inner: Method = field(default_factory=lambda: Polynomial(4))
    most: int = 5

    together = False

    def __post_init__(self) -> None:
        whole_number("most", self.most, 1)
        if not isinstance(self.inner, Method):
            raise InputError(f"The 'inner' of OnDirections must be a method. Got {self.inner!r} instead.")

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        return [self._solve(problem, seed) for problem in problems]

    def cost(self, n: int, dim: int, outputs: int) -> Cost:
        """Return the cost of a fit without that of the inner method, and with the inner one if it is a polynomial."""
        rank, features = min(n, dim), 0.0
        if isinstance(self.inner, Polynomial):
            features = float(feature_count(min(dim, self.most), self.inner.degree))
        one = 2.0 * n * dim**2 + 10.0 * dim**3 + 60.0 * n * features + 6.0 * n * features**2 + 30.0 * features**3
        shared = 2.0 * n * dim * rank + 10.0 * rank**3
        return Cost(outputs * one + shared, 8.0 * (3 * n * rank + 3 * n * dim + 4 * dim**2 + 6 * n * features))

    def _solve(self, problem: Problem, seed: int) -> Control:
        z, s, y = problem.z, problem.s, problem.y
        linear = Smoother.of_features(s)
        penalty, _ = linear.choose(y)
        weights = s.T @ linear.dual(y, penalty)
        left = y - s @ weights
        left -= left.mean(axis=0)
        maps = [Directions.of(z, s, w, r, self.most) for w, r in zip(weights.T, left.T, strict=True)]
        size = np.sqrt(np.einsum("no,no->o", left, left) / len(left))
        size = np.where(size > 0, size, 1.0)
        reduced = [
            Problem(*chosen(z, s), left[:, [o]] / size[o], np.zeros(1), problem.chains, place=problem.place)
            for o, chosen in enumerate(maps)
        ]
        controls = self.inner.solve(reduced, seed)

        def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
            g = -(s @ weights)
            for o, (chosen, control) in enumerate(zip(maps, controls, strict=True)):
                g[:, o] += size[o] * control.evaluate(*chosen(z, s))[:, 0]
            return g

        info = {"directions": maps[0].to.shape[1], "linear_penalty": penalty.tolist()}
        return Control(evaluate, info | {"inner": [dict(control.info) for control in controls]})


@dataclass(frozen=True, eq=False)
class Directions:
    """u = z B' of mean square one, and scores s A: `to` is B' and `back` is A, with BA = 1."""

    to: Float[np.ndarray, "dim k"]
    back: Float[np.ndarray, "dim k"]

    @classmethod
    def of(cls, z: np.ndarray, s: np.ndarray, gradient: np.ndarray, left: np.ndarray, most: int) -> "Directions":
        """Choose directions for one output with this linear fit and these residuals."""
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
