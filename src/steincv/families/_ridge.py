r"""Ridge regression with a penalty that grows with the degree, chosen by exact leave-one-out.

$$ \min_{c,\beta}\ \tfrac1n |y - c - X\beta|^2 + \lambda \sum_j \rho^{\,k_j - 1} \beta_j^2 $$

for features of degree $k_j$: linear terms are penalised less than quadratic ones. One
eigendecomposition a $\rho$, of the smaller of the two Gram matrices (features or draws), serves
every $\lambda$ and every output, with the exact leave-one-out residuals $r_i / (1 - 1/n - h_i)$.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from .._threads import blas_threads

PENALTIES = np.array([1e-13, 1e-6, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0, 100.0])
FEW_PENALTIES = PENALTIES[[0, 2, 4, 6, 8, 10]]
GROWTHS = (1.0, 10.0, 100.0)
# A decomposition of this size takes seconds: the middle growth then has to do for all outputs.
LARGE = 2000
# With this many draws a feature the penalty hardly matters, and a coarse search is enough.
PLENTY = 40
# Penalties are compared by their residuals at this many draws at least: the same ones for all, so that is enough.
JUDGED = 2500
# A fit that goes through a draw to within this part of its value tells nothing about the error there.
INTERPOLATION = 1e-10
# Residuals are made for a tile of draws at a time, so that they stay in the cache.
TILE_ENTRIES = 2**16


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """Coefficients `(feature, out)` of y on the features, and the penalty and growth of each output."""

    coefficients: Float[np.ndarray, "feature out"]
    penalty: Float[np.ndarray, " out"]
    growth: Float[np.ndarray, " out"]
    leave_one_out: Float[np.ndarray, " out"]


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """X scaled by its penalties, as `left diag(values)^(1/2) right'`; `left` carries the root of `values`."""

    left: np.ndarray
    values: np.ndarray
    scaled: np.ndarray
    right: np.ndarray | None

    @classmethod
    def of(cls, scaled: np.ndarray) -> "_Spectrum":
        n, features = scaled.shape
        with blas_threads(9.0 * min(n, features) ** 3):
            if features <= n:
                values, right = np.linalg.eigh(scaled.T @ scaled)
                return cls(scaled @ right, np.maximum(values, 0), scaled, right)
            values, vectors = np.linalg.eigh(scaled @ scaled.T)
            values = np.maximum(values, 0)
            return cls(vectors * np.sqrt(values), values, scaled, None)

    def coefficients(self, shrunk: np.ndarray) -> np.ndarray:
        """From coordinates along `left` back to the scaled features."""
        if self.right is not None:
            return self.right @ shrunk
        # left = scaled @ right holds with right = scaled' left / values on the non-null part.
        safe = np.where(self.values > self.values[-1] * 1e-14, self.values, np.inf)
        return self.scaled.T @ (self.left @ (shrunk / safe[:, None]))


def ridge(
    features: Float[np.ndarray, "n feature"],
    y: Float[np.ndarray, "n out"],
    degree: Int[np.ndarray, " feature"],
    penalty: float | str,
) -> RidgeFit:
    """Fit every output; `penalty` is lambda, the same for all degrees, or "auto"."""
    n = len(features)
    x = features - features.mean(axis=0)
    plenty = n >= PLENTY * features.shape[1]
    if penalty == "auto":
        lambdas = FEW_PENALTIES if plenty else PENALTIES
        growths = GROWTHS[:1] if plenty or degree.max() == 1 else GROWTHS[1:2] if min(x.shape) > LARGE else GROWTHS
    else:
        lambdas, growths = np.array([max(float(penalty), 1e-13)]), GROWTHS[:1]
    outputs = y.shape[1]
    best = np.full(outputs, np.inf)
    fit = RidgeFit(np.zeros((x.shape[1], outputs)), np.zeros(outputs), np.ones(outputs), best)
    for growth in growths:
        root = growth ** (-0.5 * (degree - 1.0))
        spectrum = _Spectrum.of(x * root if growth != 1 else x)
        along = spectrum.left.T @ y
        errors = _leave_one_out(spectrum, along, y, n * lambdas, max(1, n // JUDGED))
        choice = errors.argmin(axis=0)
        lowest = errors[choice, np.arange(outputs)]
        better = (lowest < best) | (growth == growths[0])
        if not better.any():
            continue
        chosen = lambdas[choice[better]]
        shrunk = along[:, better] / (spectrum.values[:, None] + n * chosen)
        fit.coefficients[:, better] = root[:, None] * spectrum.coefficients(shrunk)
        fit.penalty[better], fit.growth[better], best[better] = chosen, growth, lowest[better]
    return fit


def _leave_one_out(spectrum: _Spectrum, along: np.ndarray, y: np.ndarray, ridges: np.ndarray, every: int) -> np.ndarray:
    """Mean squared leave-one-out residual, `(penalty, out)`, at `every` so many draws.

    It is infinite where the fit goes through a draw.
    """
    n, center = len(y), y.mean(axis=0)
    shrink = 1 / (spectrum.values[:, None] + ridges)
    coefficients = [s[:, None] * along for s in shrink.T]
    errors = np.zeros((len(ridges), y.shape[1]))
    least = np.full(len(ridges), np.inf)
    rows = max(64, TILE_ENTRIES // (spectrum.left.shape[1] + 2 * y.shape[1]))
    residual = np.empty((rows, y.shape[1]))
    for start in range(0, n, rows * every):
        tile = slice(start, start + rows * every, every)
        left, values = np.ascontiguousarray(spectrum.left[tile]), y[tile] - center
        kept = 1 - 1 / n - (left * left) @ shrink
        least = np.minimum(least, kept.min(axis=0))
        np.maximum(kept, INTERPOLATION, out=kept)
        r = residual[: len(left)]
        for k, c in enumerate(coefficients):
            np.matmul(left, c, out=r)
            np.subtract(values, r, out=r)
            r /= kept[:, k, None]
            errors[k] += np.einsum("ij,ij->j", r, r)
    errors /= -(-n // every)
    errors[least < INTERPOLATION] = np.inf
    return errors
