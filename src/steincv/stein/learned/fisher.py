r"""The Fisher divergence to a normal distribution, $E|s + z|^2$, and the affine map that makes it smallest.

Among all affine maps the divergence is smallest at $z = W^{-1}(x - m)$ with $W W^T = A$ the geometric mean of the
covariance of the draws and the inverse covariance of the scores (as in the adaptation of nutpie).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular

# A covariance of fewer draws per dimension than this is mostly noise: only its diagonal is used.
DRAWS_PER_DIMENSION = 2


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
    if not dense:
        vz, vs = np.einsum("n,ni,ni->i", weights, away, away), np.einsum("ni,ni->i", heavy, pull)
        vz, vs = np.maximum(vz, 1e-300), np.maximum(vs, 1e-300)
        spread = np.sqrt(vz / vs)
        return Metric(spread, 1 / spread, mean, drift, float(2 * np.sqrt(vz * vs).sum() + cross))
    scores, draws = heavy.T @ pull, (away * weights[:, None]).T @ away
    factor = np.linalg.cholesky(scores)
    values, vectors = np.linalg.eigh(factor.T @ draws @ factor)
    roots = np.sqrt(np.maximum(values, 1e-30))
    half = solve_triangular(factor, vectors, trans="T", lower=True)
    right = factor @ vectors
    return Metric((half * roots) @ half.T, (right / roots) @ right.T, mean, drift, float(2 * roots.sum() + cross))


def huber_weights(norms: np.ndarray, share: float = 0.9) -> np.ndarray:
    """Return weights, summing to 1, of draws with these |s + z|^2: the largest tenth pull as much as they are far."""
    bound = np.quantile(norms, share)
    weights = np.sqrt(bound / np.maximum(norms, bound)) if bound > 0 else np.ones_like(norms)
    return weights / weights.sum()


def huber(norms: np.ndarray, bound: float) -> np.ndarray:
    """Return the norms with those above the bound growing like their roots only."""
    return np.where(norms <= bound, norms, 2 * np.sqrt(bound * norms) - bound)
