r"""Ridge regression of many outputs through one spectrum, with penalties chosen by leaving out blocks of draws.

A ridge regression on features X, about their mean, has the fitted values $H_\rho y$ with

$$ H_\rho = V \,\mathrm{diag}(w / (w + \rho))\, V^T + 1 1^T / n, \qquad X X^T = V \,\mathrm{diag}(w)\, V^T . $$

The residuals of a block B of draws under a fit on all others are exactly $(I - H_{BB})^{-1} (y - Hy)_B$. Blocks are
stretches of neighbouring draws: leaving out one draw of a Markov chain leaves its near-copies in, and chooses too
small a penalty.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg.lapack import dposv

from ...runtime.threads import blas_threads


class _Search(NamedTuple):
    """The penalties that are tried, in units of the number of draws, and about how many blocks are left out in turn.

    With 60 blocks of 1500 draws a block is 25 draws: several autocorrelation times of NUTS, and a fit on all others
    is one on 98 % of the draws. A fit that goes through a block to within `interpolation` says nothing about it.
    """

    penalties: tuple[float, ...] = (1e-13, *(10 ** (k / 2) for k in range(-16, 4)), 100.0)
    blocks: int = 60
    interpolation: float = 1e-10


SEARCH = _Search()


@dataclass(frozen=True, eq=False)
class Smoother:
    """The spectrum of X X' about its mean: orthonormal `vectors` `(n, rank)` and eigenvalues `values`."""

    vectors: Float[np.ndarray, "n rank"]
    values: Float[np.ndarray, " rank"]

    @classmethod
    def of_kernel(cls, kernel: Float[np.ndarray, "n n"]) -> "Smoother":
        """From the Gram matrix of the draws, which is used up."""
        mean = kernel.mean(axis=0)
        kernel -= mean
        kernel -= mean[:, None] - mean.mean()
        with blas_threads(9.0 * len(kernel) ** 3):
            values, vectors = np.linalg.eigh(kernel)
        return cls._of(values, vectors)

    @classmethod
    def of_features(cls, features: Float[np.ndarray, "n k"]) -> "Smoother":
        """From features, by the smaller of their two Gram matrices."""
        n, k = features.shape
        if k >= n:
            return cls.of_kernel(features @ features.T)
        x = features - features.mean(axis=0)
        with blas_threads(9.0 * k**3):
            values, right = np.linalg.eigh(x.T @ x)
        kept = values > 1e-14 * max(values[-1], 1e-300)
        return cls(x @ (right[:, kept] / np.sqrt(values[kept])), values[kept])

    @classmethod
    def _of(cls, values: np.ndarray, vectors: np.ndarray) -> "Smoother":
        """Leave out the null space, which is noise."""
        kept = values > 1e-14 * max(values[-1], 1e-300)
        return cls(vectors[:, kept], values[kept])

    @property
    def draws(self) -> int:
        return len(self.vectors)

    def dual(self, y: Float[np.ndarray, "n out"], penalty: Float[np.ndarray, " out"]) -> Float[np.ndarray, "n out"]:
        """Return alpha, of mean zero, such that the coefficients of the features are X' alpha."""
        along = self.vectors.T @ y
        alpha = self.vectors @ (along / (self.values[:, None] + self.draws * penalty))
        return alpha - alpha.mean(axis=0)

    def residual(self, y: Float[np.ndarray, "n out"], penalty: Float[np.ndarray, " out"]) -> np.ndarray:
        """Return y - H y."""
        y = y - y.mean(axis=0)
        shrink = self.values[:, None] / (self.values[:, None] + self.draws * penalty)
        return y - self.vectors @ (shrink * (self.vectors.T @ y))

    def choose(
        self, y: Float[np.ndarray, "n out"], orbit: int = 1
    ) -> tuple[Float[np.ndarray, " out"], Float[np.ndarray, " out"]]:
        """Return the penalty of each output that leaves the least variance in left-out blocks, and that variance.

        So many draws in a row, the states of an `orbit`, are left out together; with the larger blocks, fewer of them.
        """
        n, outputs = y.shape
        best, penalty = np.full(outputs, np.inf), np.full(outputs, SEARCH.penalties[-1])
        size = orbit * max(1, n // orbit // SEARCH.blocks)
        count = n // size
        some = slice(None, None, max(1, orbit // 2))
        blocks = self.vectors[: count * size].reshape(count, size, -1)[some]
        for candidate in SEARCH.penalties:
            shrink = self.values / (self.values + n * candidate)
            kept = np.eye(size) - 1 / n - (blocks * shrink) @ blocks.transpose(0, 2, 1)
            if np.einsum("bii->bi", kept).min() < SEARCH.interpolation:
                continue
            inside = self.residual(y, np.full(outputs, candidate))[: count * size].reshape(count, size, outputs)
            outside = np.linalg.solve(kept, inside[some])
            error = np.einsum("bio,bio->o", outside, outside) / (len(blocks) * size)
            better = error < best * (1 - 1e-12)
            best[better], penalty[better] = error[better], candidate
        return penalty, best


class Side(NamedTuple):
    """Columns of mean zero, their coordinates `along` the vectors of a smoother, and what is `left` by H."""

    values: Float[np.ndarray, "n k"]
    along: Float[np.ndarray, "rank k"]
    left: Float[np.ndarray, "n k"]

    @classmethod
    def of(cls, linear: Smoother, values: Float[np.ndarray, "n k"], lam: float) -> "Side":
        return cls(values, linear.vectors.T @ values, values).at(linear, lam)

    def at(self, linear: Smoother, lam: float) -> "Side":
        """Return the same with another penalty."""
        shrink = linear.values / (linear.values + linear.draws * lam)
        return self._replace(left=self.values - linear.vectors @ (shrink[:, None] * self.along))

    def beside(self, other: "Side") -> "Side":
        return Side(*(np.hstack(pair) for pair in zip(self, other, strict=True)))


def solve_symmetric(matrix: Float[np.ndarray, "k k"], right: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Solve by Cholesky, at half the work, or by LU where rounding has left no factor."""
    if not len(right):
        return right
    _, found, failed = dposv(matrix, right, lower=1)
    return np.linalg.solve(matrix, right) if failed else np.asarray(found)


class Split(NamedTuple):
    """Rows to fit on and rows to judge by."""

    fit: Int[np.ndarray, " n"]
    judge: Int[np.ndarray, " m"]

    @classmethod
    def of(cls, n: int, chains: int) -> "Split":
        """Split n draws, chain after chain, so that no draw is judged by a fit on its neighbours."""
        rows = np.arange(n)
        length = n // chains
        whole, tails = rows >= (chains - chains // 3) * length, rows % length >= length - length // 3
        judged = whole if chains >= 3 else tails
        return cls(rows[~judged], rows[judged])
