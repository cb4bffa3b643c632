"""A polynomial in one coordinate: what ten draws can carry in any number of dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.validation import whole_number
from ..method import Control, Method, Problem
from ..problem import Cost
from .polynomial import stein_features
from .ridge import ridge


@dataclass(frozen=True)
class Single(Method):
    r"""$g = Q''(z_i) + Q'(z_i)\,s_i$ with $Q$ a polynomial of one coordinate, for each output the one that suits it.

    Made for very few draws and coordinates that are only scaled: outputs often hang on one of them, and a regression on
    two or three features needs no more than ten draws. Coordinate and penalty have the least leave-one-out error.
    """

    degree: int = 2

    together = False

    def __post_init__(self) -> None:
        whole_number("degree", self.degree, 1)

    def cost(self, n: int, dim: int, outputs: int) -> Cost:
        return Cost(30.0 * n * dim * self.degree * (self.degree + outputs), 8.0 * n * self.degree)

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        return [self._solve(problem) for problem in problems]

    def _solve(self, problem: Problem) -> Control:
        degrees = np.arange(1, self.degree + 1)

        def features(z: np.ndarray, s: np.ndarray, i: int) -> np.ndarray:
            return stein_features(z[:, i : i + 1], s[:, i : i + 1], self.degree)

        dim = problem.z.shape[1]
        fits = [ridge(features(problem.z, problem.s, i), problem.y, degrees, "auto") for i in range(dim)]
        best = np.argmin([fit.leave_one_out for fit in fits], axis=0).tolist()

        def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
            found = [features(z, s, i) @ fits[i].coefficients[:, out] for out, i in enumerate(best)]
            return -np.stack(found, axis=1)

        return Control(evaluate, {"draws": len(problem.z), "coordinate": best})
