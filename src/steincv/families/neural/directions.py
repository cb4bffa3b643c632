"""Directions that the data already point out, and few of them where there are many dimensions or outputs.

In many dimensions random directions are all nearly orthogonal to the few that matter, and units that use every
coordinate have more weights than there are draws.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..method import Problem


class Most(NamedTuple):
    """How many of what may be many.

    - `dimensions`: in more than these a potential is one of `kept` directions.
    - `hints`: of each kind, at most.
    - `mixtures`: of the outputs that units are trained on, at most.
    - `rounds`: of subspace iteration; leading directions need not be exact.
    """

    dimensions: int = 1000
    kept: int = 48
    hints: int = 3
    mixtures: int = 24
    rounds: int = 4


MOST = Most()


def hints(z: np.ndarray, y: np.ndarray, residual: np.ndarray) -> Float[np.ndarray, "hint dim"]:
    """Return directions along which f is likely to vary, of length one.

    Those along which the outputs grow, and those along which what the polynomial leaves curves most.
    """
    slopes = np.linalg.lstsq(z - z.mean(axis=0), y - y.mean(axis=0), rcond=None)[0].T
    grows = np.linalg.svd(slopes, full_matrices=False)[2][: MOST.hints]
    weight = residual @ np.random.default_rng(0).normal(size=residual.shape[1])  # one mixture of all outputs
    values, vectors = np.linalg.eigh((z * weight[:, None]).T @ z / len(z))
    curves = vectors[:, np.argsort(-np.abs(values))[: MOST.hints]].T
    return np.concatenate([grows, curves])


def mixing(y: Float[np.ndarray, "n out"]) -> Float[np.ndarray, "out mixture"]:
    """Return the matrix by which very many outputs are mixed to few, those that vary most, of mean square one.

    The units then cost the same for 20 and for 2,000 outputs. A few outputs are left as they are.
    """
    outputs = y.shape[1]
    if outputs <= MOST.mixtures:
        return np.eye(outputs)
    basis = _leading(y, MOST.mixtures)
    return basis / max(np.sqrt(((y @ basis) ** 2).mean()), 1e-300)


@dataclass(frozen=True, eq=False)
class Few:
    r"""Orthonormal directions, `(kept, dim)`; None where the coordinates are few enough to be used as they are.

    With $z' = Pz$ and $s' = Ps$ a function of $z'$ has gradient $P^T\nabla'$ and Laplacian $\Delta'$, so that its Stein
    features are those of the problem in fewer dimensions.
    """

    directions: Float[np.ndarray, "kept dim"] | None

    @classmethod
    def of(cls, problem: Problem) -> "Few":
        """Choose those along which f grows or curves, or along which the density is narrowest against its spread."""
        n, dim = problem.z.shape
        if dim <= MOST.dimensions:
            return cls(None)
        y = problem.y @ mixing(problem.y)
        third = MOST.kept // 3
        slopes = problem.z.T @ y / n
        grows = np.linalg.svd(slopes, full_matrices=False)[0][:, :third]
        random = np.random.default_rng(0)
        weight = y @ random.normal(size=y.shape[1])
        curves = _leading_of(lambda v: problem.z.T @ (weight[:, None] * (problem.z @ v)) / n, dim, third)
        narrow = _leading(problem.s, third)
        return cls(np.linalg.qr(np.concatenate([grows, curves, narrow], axis=1))[0].T)

    def __call__(self, z: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (z, s) if self.directions is None else (z @ self.directions.T, s @ self.directions.T)


def _leading(a: Float[np.ndarray, "n dim"], count: int) -> Float[np.ndarray, "dim count"]:
    """Return the leading right singular vectors, nearly."""
    return _leading_of(lambda v: a.T @ (a @ v) / len(a), a.shape[1], count)


def _leading_of(product: Callable[[np.ndarray], np.ndarray], dim: int, count: int) -> Float[np.ndarray, "dim count"]:
    """Return the eigenvectors of largest size of a symmetric matrix that is given by its products."""
    count = min(count, dim)
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, count)))[0]
    for _ in range(MOST.rounds):
        basis = np.linalg.qr(product(basis))[0]
    return basis
