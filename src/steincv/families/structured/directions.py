r"""Few directions for one output: a field $\Phi(z) = A\,\varphi(Bz)$ with $BA = I$ is valid whatever else z does.

Its g is $\nabla\cdot\varphi(u) + \varphi(u)\cdot A^T s$ with $u = Bz$: that of $\varphi$ on the problem of `u` and
`A's`. The latter is not the score of u alone, and need not be.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Directions:
    """u = z B' of mean square one, and scores s A: `to` is B' and `back` is A, with BA = 1."""

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
