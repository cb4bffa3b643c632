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


def learned_coordinates(fitted: Samples, everywhere: Samples) -> Coordinates:
    """Return coordinates learned from some draws, or affine ones where they show no shape.

    So they are where the map is out of bounds at any draw that it will be used at.
    """
    affine = Standardise.of(fitted)
    dim = len(affine.mean)
    found = Learned.of(fitted.draws.reshape(-1, dim), fitted.scores.reshape(-1, dim), chains=len(fitted.draws))
    if found is None:
        return affine
    with np.errstate(all="ignore"):
        z, s = found(everywhere.draws.reshape(-1, dim), everywhere.scores.reshape(-1, dim))
    if not ((np.abs(z) < LARGEST).all() and (np.abs(s) < LARGEST).all()):
        return affine
    return LearnedCoordinates(replace(affine, factor=None), found)
