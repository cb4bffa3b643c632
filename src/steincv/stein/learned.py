"""Stand-in until the learned coordinates land."""

from ..samples.samples import Samples
from .coordinates import Coordinates, Standardise


def learned_coordinates(samples: Samples, seed: int) -> Coordinates:
    return Standardise.of(samples)
