"""Repeated draws, as rejected proposals leave them, counted instead of kept: they make kernels singular."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ..method import Problem

FOLDS = 4


@dataclass(frozen=True, eq=False)
class Distinct:
    """The distinct draws in the order they came, how often each did, the mean of f there, and its fold."""

    z: Float[np.ndarray, "n dim"]
    s: Float[np.ndarray, "n dim"]
    y: Float[np.ndarray, "n out"]
    count: Int[np.ndarray, " n"]
    fold: Int[np.ndarray, " n"]

    @classmethod
    def of(cls, problem: Problem) -> "Distinct":
        n = len(problem.z)
        _, first, which, count = np.unique(
            np.hstack([problem.z, problem.s]),
            axis=0,
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        order, starts = np.argsort(first), np.cumsum(count) - count
        mean = np.add.reduceat(problem.y[np.argsort(which, kind="stable")], starts) / count[:, None]
        first = first[order]
        folds = min(FOLDS, problem.chains) if problem.chains >= 3 else FOLDS
        units = problem.chains if problem.chains >= 3 else n  # two chains are cut into two blocks each
        fold = first * units // n * folds // units
        if fold[0] == fold[-1]:  # all other chains are copies of the first
            fold = np.arange(len(first)) * FOLDS // len(first)
        fold = np.unique(fold, return_inverse=True)[1]
        return cls(problem.z[first], problem.s[first], mean[order], count[order], fold)

    def part(self, index: Int[np.ndarray, " m"]) -> "Distinct":
        fold = np.unique(self.fold[index], return_inverse=True)[1]
        return Distinct(self.z[index], self.s[index], self.y[index], self.count[index], fold)

    def variance(self, values: Float[np.ndarray, "*any n out"]) -> Float[np.ndarray, "*any out"]:
        """The variance over the draws, each as often as it came."""
        weight = self.count / self.count.sum()
        away = values - np.einsum("n,...no->...o", weight, values)[..., None, :]
        return np.einsum("n,...no,...no->...o", weight, away, away)

    def plain_variance(self) -> Float[np.ndarray, " out"]:
        """The variance of f, or one where f is constant: something to divide by."""
        variance = self.variance(self.y)
        return np.where(variance > 0, variance, 1.0)
