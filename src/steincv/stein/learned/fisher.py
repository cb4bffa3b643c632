r"""The Fisher divergence to a normal distribution, $E|s + z|^2$, and the affine map that makes it smallest.

Among all affine maps the divergence is smallest at $z = W^{-1}(x - m)$ with $W W^T = A$ the geometric mean of the
covariance of the draws and the inverse covariance of the scores (as in the adaptation of nutpie).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular


class Robust(NamedTuple):
    """How far single draws may decide."""

    bound: float = 4.0  # a draw that is so many times as far from normal as the median draw counts half,
    rounds: int = 3  # with weights and metric found in so many turns


ROBUST = Robust()


@dataclass(frozen=True, eq=False)
class Metric:
    """A and its inverse (vectors if diagonal), the mean draw and score, and the divergence where they were made."""

    spread: np.ndarray
    precision: np.ndarray
    mean: Float[np.ndarray, " dim"]
    drift: Float[np.ndarray, " dim"]
    divergence: float

    def residuals(self, z: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return e = z + A s and A^-1 e, both of them 0 for a normal distribution; their product is |s + z|^2."""
        away, drift = z - self.mean, s - self.drift
        if self.spread.ndim == 1:
            e = away + drift * self.spread
            return e, e * self.precision
        inner = drift + away @ self.precision
        return inner @ self.spread, inner

    def norms(self, z: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Return |s + z|^2 of every draw, in the coordinates in which A is 1."""
        return np.maximum(np.einsum("ni,ni->n", *self.residuals(z, s)), 0.0)


def metric(z: np.ndarray, s: np.ndarray, weights: np.ndarray, dense: bool) -> Metric:
    """Return the best affine map's A for draws with these weights (which sum to 1)."""
    mean, drift = weights @ z, weights @ s
    away, pull = z - mean, s - drift
    heavy = pull * weights[:, None]
    cross = 2 * np.einsum("ni,ni->", heavy, away)
    if dense:
        factor, draws = _cholesky(heavy.T @ pull), (away * weights[:, None]).T @ away
        if factor is not None:
            values, vectors = np.linalg.eigh(factor.T @ draws @ factor)
            roots = np.sqrt(np.maximum(values, 1e-30))
            half = solve_triangular(factor, vectors, trans="T", lower=True, check_finite=False)
            right = factor @ vectors
            spread, precision = (half * roots) @ half.T, (right / roots) @ right.T
            return Metric(spread, precision, mean, drift, float(2 * roots.sum() + cross))
    vz, vs = np.einsum("n,ni,ni->i", weights, away, away), np.einsum("ni,ni->i", heavy, pull)
    vz, vs = np.maximum(vz, 1e-300), np.maximum(vs, 1e-300)
    return Metric(np.sqrt(vz / vs), np.sqrt(vs / vz), mean, drift, float(2 * np.sqrt(vz * vs).sum() + cross))


def _cholesky(matrix: np.ndarray) -> np.ndarray | None:
    """Return the factor, or None if the matrix has none to round-off."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None


def robust_metric(z: np.ndarray, s: np.ndarray, dense: bool) -> tuple[Metric, np.ndarray]:
    """Return the metric of draws weighted by how usual they are, and the weights.

    In the neck of a funnel scores are a thousand times those elsewhere: unweighted, a few such draws decide all.
    """
    middle = np.median(z, axis=0), np.median(s, axis=0)
    scale = np.median(np.abs(z - middle[0]), axis=0) / np.maximum(np.median(np.abs(s - middle[1]), axis=0), 1e-300)
    scale = np.where(scale > 0, scale, 1.0)
    found = Metric(scale, 1 / scale, *middle, np.nan)
    for _ in range(ROBUST.rounds):
        weights = usual(found.norms(z, s))
        found = metric(z, s, weights, dense)
    return found, weights


def usual(norms: np.ndarray) -> np.ndarray:
    """Return weights, summing to 1, of draws with these |s + z|^2: as of a Cauchy loss on several times the median."""
    weights = 1 / (ROBUST.bound * np.median(norms) + norms + 1e-300)
    return weights / weights.sum()


def bounded(norms: np.ndarray, typical: float) -> np.ndarray:
    """Return the norms with those above the typical ones growing like their logarithm only."""
    bound = ROBUST.bound * typical + 1e-300
    return bound * np.log1p(norms / bound)
