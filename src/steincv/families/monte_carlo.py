"""The plain mean: g = 0."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .method import Control, Method, Problem


@dataclass(frozen=True)
class MonteCarlo(Method):
    """No control variate. The estimate is the plain mean of f over the draws."""

    together = False

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        return [Control(_zero(problem.y.shape[1])) for problem in problems]


def _zero(outputs: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda z, s: np.zeros((len(z), outputs))
