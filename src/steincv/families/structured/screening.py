"""Pairs and triples of coordinates as Stein features, and the screen that finds those which explain a residual."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..polynomial.polynomial import degrees, stein_features
from .smoother import Smoother

# From so many dimensions on single precision does for a screen, whose products are most of the work.
SINGLE = 200


class Terms(NamedTuple):
    """Pairs `(k, 2)` of coordinates with i <= j, and triples as columns of the cubic features of a few coordinates."""

    pairs: Int[np.ndarray, "k two"]
    variables: Int[np.ndarray, " v"]
    triples: Int[np.ndarray, " t"]

    @classmethod
    def none(cls) -> "Terms":
        return cls(np.empty((0, 2), dtype=int), np.empty(0, dtype=int), np.empty(0, dtype=int))

    def plus(self, pairs: np.ndarray) -> "Terms":
        return self._replace(pairs=np.vstack([self.pairs, pairs]))

    def first(self, part: float) -> "Terms":
        """Return the part of the pairs that was found first. Triples are kept only with all pairs."""
        if part == 1:
            return self
        none = Terms.none()
        return none._replace(pairs=self.pairs[: int(np.ceil(part * len(self.pairs)))])

    def most_used(self, most: int, dim: int) -> Int[np.ndarray, " v"]:
        """Return the variables that are in most pairs, in ascending order; a pair counts more the earlier it came."""
        weight = np.zeros(dim)
        importance = 1 / (10 + np.arange(len(self.pairs)))
        for column in self.pairs.T:
            np.add.at(weight, column, importance)
        strongest = np.argsort(-weight, kind="stable")[:most]
        return np.sort(strongest[weight[strongest] > 0])

    def features(self, z: Float[np.ndarray, "n dim"], s: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n k"]:
        """Return the Stein features, normalised as those of `stein_features`."""
        f = _products(z, s, self.pairs)
        return np.hstack([f, _cubic(z, s, self.variables)[:, self.triples]]) if len(self.triples) else f


def _products(z: np.ndarray, s: np.ndarray, pairs: np.ndarray) -> Float[np.ndarray, "n k"]:
    """Return the Stein features of pairs; quickest where z and s are in Fortran's order, as the result is."""
    (i, j), zt, st = pairs.T, z.T, s.T
    f = zt[i]
    f *= st[j]
    f += zt[j] * st[i]
    f /= 2
    same = i == j
    f[same] = (f[same] + 1) / np.sqrt(2)
    return f.T


def _cubic(z: np.ndarray, s: np.ndarray, variables: np.ndarray) -> np.ndarray:
    """Return the Stein features up to degree 3 of a few coordinates."""
    return stein_features(np.ascontiguousarray(z[:, variables]), np.ascontiguousarray(s[:, variables]), 3)


@dataclass(frozen=True, eq=False)
class Screen:
    """Draws, and the spectrum of their linear features."""

    z: Float[np.ndarray, "n dim"]
    s: Float[np.ndarray, "n dim"]
    linear: Smoother

    @classmethod
    def of(cls, z: np.ndarray, s: np.ndarray) -> "Screen":
        z, s = np.asfortranarray(z), np.asfortranarray(s)
        return cls(z, s, Smoother.of_features(s))

    def pairs(self, pairs: Int[np.ndarray, "k two"]) -> Float[np.ndarray, "n k"]:
        """Return the features of pairs at the draws."""
        return _products(self.z, self.s, pairs)

    def weights(self, along: Float[np.ndarray, " rank"], lam: float) -> Float[np.ndarray, " dim"]:
        """Return the linear fit, with penalty `lam`, to what has these coordinates along the spectrum."""
        return self._back @ (along / (self.linear.values + self.linear.draws * lam))

    @cached_property
    def _back(self) -> Float[np.ndarray, "dim rank"]:
        return self.s.T @ self.linear.vectors

    def strongest(
        self, residual: np.ndarray, most: int, found: Terms, variables: Int[np.ndarray, " v"] | None
    ) -> Int[np.ndarray, "k two"]:
        """Return new pairs whose features correlate most with the residual, strongest first.

        With `variables`, only pairs that have one of them.
        """
        if variables is None:
            z, s = self._screened
            covariance = (z * residual.astype(z.dtype)[:, None]).T @ s
            covariance += covariance.T.copy()
            covariance /= self._size
            first = np.arange(z.shape[1])
        else:
            covariance, first = self._with(variables, residual), variables
        strength = np.abs(covariance)
        place = np.full(self.z.shape[1], -1)
        place[first] = np.arange(len(first))
        for i, j in (found.pairs.T, found.pairs.T[::-1]):
            known = place[i] >= 0
            strength[place[i[known]], j[known]] = -1
        # a pair of two of the variables is there twice: it is kept where i <= j
        twice = (place >= 0) & (np.arange(len(place)) < first[:, None])
        strength[twice] = -1
        flat = strength.ravel()
        top = np.argpartition(-flat, min(most, flat.size) - 1)[:most]
        top = top[np.argsort(-flat[top], kind="stable")]
        i, j = np.unravel_index(top[flat[top] >= 0], strength.shape)
        return np.sort(np.column_stack([first[i], j]), axis=1)

    def cubic(self, residual: np.ndarray, variables: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns of degree 3 that correlate most with the residual, in order, and their features."""
        features = _cubic(self.z, self.s, variables)
        columns = np.flatnonzero(degrees(len(variables), 3) == 3)
        size = np.sqrt(np.einsum("nk,nk->k", features[:, columns], features[:, columns]))
        strength = np.abs(residual @ features[:, columns]) / np.maximum(size, np.finfo(size.dtype).tiny)
        chosen = np.sort(columns[np.argsort(-strength, kind="stable")[:most]])
        return chosen, features[:, chosen]

    def relevant(self, y: np.ndarray, most: int) -> Int[np.ndarray, " v"]:
        """Return the coordinates whose scores or values correlate most with y."""
        strength = np.maximum(np.abs(self.s.T @ y) / _root(self.s), np.abs(self.z.T @ y) / _root(self.z))
        return np.sort(np.argsort(-strength, kind="stable")[:most])

    def _with(self, variables: np.ndarray, residual: np.ndarray) -> Float[np.ndarray, "v dim"]:
        """Return the correlations of the residual, up to a factor, with all pairs that have one of these variables."""
        z, s = self.z[:, variables], self.s[:, variables]
        r = residual[:, None]
        covariance = (z * r).T @ self.s + (s * r).T @ self.z
        square = (z * z).T @ self.s**2 + (s * s).T @ self.z**2 + 2 * (z * s).T @ (self.z * self.s)
        return covariance / np.sqrt(np.maximum(square / len(r), np.finfo(square.dtype).tiny))

    @cached_property
    def _screened(self) -> tuple[np.ndarray, np.ndarray]:
        kind = np.float32 if self.z.shape[1] >= SINGLE else np.float64
        return self.z.astype(kind, copy=False), self.s.astype(kind, copy=False)

    @cached_property
    def _size(self) -> Float[np.ndarray, "dim dim"]:
        """The root mean square of every pair feature."""
        z, s = self._screened
        square = (z * z).T @ (s * s)
        square += square.T.copy()
        d = z * s
        square += 2 * (d.T @ d)
        return np.sqrt(np.maximum(square / len(z), np.finfo(square.dtype).tiny))  # scores may all be zero


def _root(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ni,ni->i", x, x))
