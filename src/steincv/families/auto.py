"""The default."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._folds import Fold
from .._samples import Samples
from ._method import Control, CrossFit, Method, Problem
from .polynomial import Polynomial
from .stack import Stack, combine


@dataclass(frozen=True)
class Auto(Method):
    """Chooses for you."""

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        return Stack([Polynomial(1), Polynomial(2)]).solve(problems, seed)

    def cross_fit(self, samples: Samples, values: np.ndarray, folds: Sequence[Fold], *, seed: int = 0) -> CrossFit:
        start = time.perf_counter()
        members = [Polynomial(1), Polynomial(2)]
        fits = [m.cross_fit(samples, values, folds, seed=seed) for m in members]
        return combine([str(m) for m in members], fits, values, folds, start)
