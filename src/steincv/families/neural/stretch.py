r"""The coordinates that networks see: those in which the *score*, not the draws, has covariance one.

With $F = E[s s^T]$ in standard coordinates (at least 1 in every direction, and 1 for a Gaussian), take
$\tilde z = F^{1/2} z$ and $\tilde s = F^{-1/2} s$. Where the density is narrow against its spread, between two modes
say, the score is large: there $\tilde z$ is stretched, and random weights of size one are at the scale on which things
happen. The map depends on draws and scores alone, so that affine invariance is kept.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..method import Problem

# A direction is stretched by the root of this at most: a few extreme scores must not set the scale.
MOST_STRETCHED = 30.0


@dataclass(frozen=True, eq=False)
class Stretch:
    """The symmetric root of F, with eigenvalues kept in [1, MOST_STRETCHED], and its inverse."""

    root: np.ndarray
    inverse: np.ndarray

    @classmethod
    def of(cls, problem: Problem) -> "Stretch":
        return cls.of_scores(problem.s)

    @classmethod
    def of_scores(cls, s: np.ndarray) -> "Stretch":
        n, dim = s.shape
        if n <= dim:
            return cls(np.eye(dim), np.eye(dim))
        values, vectors = np.linalg.eigh(s.T @ s / n)
        size = np.sqrt(np.clip(values, 1.0, MOST_STRETCHED))
        return cls((vectors * size) @ vectors.T, (vectors / size) @ vectors.T)

    def __call__(self, z: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return z @ self.root, s @ self.inverse

    def problem(self, problem: Problem) -> Problem:
        z, s = self(problem.z, problem.s)
        return replace(problem, z=z, s=s)
