"""Polynomial control variates of a fold from its sums: the answer of the in-memory fit, to round-off."""

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..families.polynomial.hermite import degrees, stein_features
from ..families.polynomial.ridge import ridge_of_moments
from .coordinates import FoldMap
from .moments import Sums, outer


@dataclass(frozen=True, eq=False)
class Target:
    """f in provisional units: `(f - center) / scale`."""

    center: Float[np.ndarray, " out"]
    scale: Float[np.ndarray, " out"]

    @classmethod
    def of(cls, values: Float[np.ndarray, "n out"]) -> "Target":
        spread = np.abs(values - values[0]).max(axis=0)
        return cls(values[0].copy(), np.where(spread > 1e-14 * np.abs(values[0]), spread, 1.0))


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and standard deviation of f in provisional units over a fold's draws; 1 where it is constant."""

    mean: Float[np.ndarray, " out"]
    deviation: Float[np.ndarray, " out"]

    @classmethod
    def of(cls, sums: Sums) -> "Moments":
        mean = sums.cross[:, 0] / sums.count
        variance = sums.square / sums.count - mean**2
        return cls(mean, np.sqrt(np.where(variance > 1e-28, variance, 1.0)))


@dataclass(frozen=True, eq=False)
class LinearControl:
    """g as a linear function of `(1, s)`, or of `(1, t) x (1, s)`: `coefficients` is `(out, k)`, in units of f."""

    coefficients: Float[np.ndarray, "out k"]
    degree: int
    info: dict[str, Any]

    def __call__(self, t: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "out m"]:
        if self.degree == 1:
            return self.coefficients[:, :1] + self.coefficients[:, 1:] @ s
        return self.coefficients @ outer(_scratch(self.coefficients.shape[1], t.shape[1]), t, s)


_kept = threading.local()


def _scratch(rows: int, columns: int) -> np.ndarray:
    """Room for a tile, the same one again and again: new memory costs more than what is written to it."""
    room = getattr(_kept, "room", None)
    if room is None or len(room) < rows * columns:
        room = _kept.room = np.empty(rows * columns)
    return room[: rows * columns].reshape(rows, columns)


def feature_map(coordinates: FoldMap, degree: int) -> Float[np.ndarray, "feature k"]:
    """The Stein features of `_hermite.stein_features` in a fold's coordinates, as combinations of products of t, s."""
    a, b, dim = coordinates.a, coordinates.b, len(coordinates.center)
    if degree == 1:
        return np.hstack([np.zeros((dim, 1)), b])
    size = 1 + dim
    shift = a @ coordinates.center
    rows = np.zeros((dim, size, size))
    rows[:, 0, 1:] = b
    products = []
    for i in range(dim):
        for j in range(i + 1):
            one = np.zeros((size, size))
            one[1:, 1:] = np.outer(a[j], b[i]) + np.outer(a[i], b[j])
            one[0, 1:] = -shift[j] * b[i] - shift[i] * b[j]
            if i == j:
                one[0, 0] = 2.0
            products.append(one / (2 * np.sqrt(2.0 if i == j else 1.0)))
    return np.concatenate([rows, np.array(products)]).reshape(-1, size * size)


def fit_polynomial(
    sums: Sums,
    f: Moments,
    coordinates: FoldMap,
    target: Target,
    judged: tuple[np.ndarray, np.ndarray, np.ndarray],
    degree: int,
    penalty: float | str,
) -> LinearControl:
    """From the sums of the draws that the regression looks at, and the moments of f over all of the fold's.

    `judged`: t, s and f (provisional units), coordinates first, at the draws where penalties are compared.
    """
    n, w = sums.count, feature_map(coordinates, degree)
    if degree == 2:
        raw = sums.gram()
    else:
        raw = np.zeros((1 + sums.dim, 1 + sums.dim))
        raw[0, 0], raw[0, 1:], raw[1:, 1:] = n, sums.first(scores=True), sums.second(scores=True)
        raw[1:, 0] = raw[0, 1:]
    mean = w @ raw[0] / n
    gram = w @ raw @ w.T - n * np.outer(mean, mean)
    center = sums.cross[:, 0] / n
    cross = (w @ sums.cross.T - n * np.outer(mean, center)) / f.deviation
    t, s, y = judged
    z, scores = coordinates(t, s)
    rows = stein_features(np.ascontiguousarray(z.T), np.ascontiguousarray(scores.T), degree) - mean
    y = (y.T - center) / f.deviation
    kinds = degrees(sums.dim, degree)
    fit = ridge_of_moments(n, (gram + gram.T) / 2, cross, rows, y, kinds, penalty)
    g = -(target.scale * f.deviation)[:, None] * (fit.coefficients.T @ w)
    info = {"features": len(kinds), "draws": n, "penalty": fit.penalty.tolist(), "growth": fit.growth.tolist()}
    return LinearControl(g, degree, info)
