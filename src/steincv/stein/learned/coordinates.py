"""Learned coordinates as every family sees them: where there is no map, the affine ones."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from ...samples.samples import Samples
from ..coordinates import LARGEST, Coordinates, Standardise
from .learned import Learned


@dataclass(frozen=True, eq=False)
class LearnedCoordinates(Coordinates):
    """Draws and scores seen through a learned map; `scaled` refuses what is too large before it."""

    scaled: Standardise
    learned: Learned

    @property
    def mean(self) -> Float[np.ndarray, " dim"]:  # type: ignore[override]
        return self.scaled.mean

    def rows(self, samples: Samples, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        self.scaled.rows(samples, rows)
        dim = len(self.mean)
        return self.learned(samples.draws.reshape(-1, dim)[rows], samples.scores.reshape(-1, dim)[rows])

    def pull(self, x: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.learned(x, scores)

    def inverse(self, z: np.ndarray) -> np.ndarray:
        return self.learned.inverse(z)

    def log_jacobian(self, z: np.ndarray) -> np.ndarray:
        return self.learned.log_jacobian(z)

    def unmixed(self, samples: Samples) -> "LearnedCoordinates":
        """Return the same map without its last whitening, scaled by these draws."""
        dim = len(self.mean)
        flat = samples.draws.reshape(-1, dim), samples.scores.reshape(-1, dim)
        return replace(self, learned=self.learned.unmixed(*flat))


def learned_coordinates(fitted: Samples, everywhere: Samples, like: Coordinates | None = None) -> Coordinates:
    """Return coordinates learned from some draws, or affine ones where they show no shape.

    So they are where the map is out of bounds at any draw that it will be used at. `like`: those of another fold, of
    which the kind is taken, so that it is not looked for again.
    """
    affine = Standardise.of(fitted)
    dim, chains = len(affine.mean), len(fitted.draws)
    flat = fitted.draws.reshape(-1, dim), fitted.scores.reshape(-1, dim)
    if isinstance(like, LearnedCoordinates):
        found = Learned.fit(*flat, chains=chains, kind=like.learned.kind)
    else:
        found = Learned.of(*flat, chains=chains) if like is None else None
    if found is None:
        return affine
    with np.errstate(all="ignore"):
        z, s = found(everywhere.draws.reshape(-1, dim), everywhere.scores.reshape(-1, dim))
    if not ((np.abs(z) < LARGEST).all() and (np.abs(s) < LARGEST).all()):
        return affine
    return LearnedCoordinates(replace(affine, factor=None), found)


@dataclass(frozen=True, eq=False)
class SideBySide(Coordinates):
    """Two systems of coordinates beside each other: twice as many columns, for regressions on the features of both."""

    first: Coordinates
    second: Coordinates

    @property
    def mean(self) -> Float[np.ndarray, " dim"]:  # type: ignore[override]
        return self.first.mean

    def rows(self, samples: Samples, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        (z, s), (w, t) = self.first.rows(samples, rows), self.second.rows(samples, rows)
        return np.hstack([z, w]), np.hstack([s, t])

    def pull(self, x: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (z, s), (w, t) = self.first.pull(x, scores), self.second.pull(x, scores)
        return np.hstack([z, w]), np.hstack([s, t])

    def inverse(self, z: np.ndarray) -> np.ndarray:
        return self.first.inverse(z[:, : len(self.mean)])

    def log_jacobian(self, z: np.ndarray) -> np.ndarray:
        return self.first.log_jacobian(z[:, : len(self.mean)])
