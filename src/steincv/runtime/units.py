"""Series moved and scaled into [-1, 1], so that no square of them over- or underflows."""

from typing import NamedTuple

import numpy as np


class UnitRange(NamedTuple):
    """A series as `center + spread * unit`, with `unit` in [-1, 1]."""

    unit: np.ndarray
    center: np.ndarray
    spread: np.ndarray


def unit_range(series: np.ndarray, leading: int = 2, center: np.ndarray | float | None = None) -> UnitRange:
    """Scale the series into [-1, 1], each output by itself; the first `leading` axes run over its draws.

    `center` is the first draw if not given: exact for a constant series, as a mean is not.
    """
    center = np.asarray(series[(0,) * leading] if center is None else center)
    spread = spread_about(series, center, leading)
    return UnitRange((series - center) / spread, center, spread)


def spread_about(series: np.ndarray, center: np.ndarray | float, leading: int = 2, least: float = 0.0) -> np.ndarray:
    """Return the largest distance of every output from `center`, and 1 where it is at most `least` times `center`."""
    axes = tuple(range(leading))
    spread = np.maximum(series.max(axis=axes) - center, center - series.min(axis=axes))
    return np.where(spread > least * np.abs(center), spread, 1.0)
