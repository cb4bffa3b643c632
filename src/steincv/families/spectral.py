r"""Sums over windows of neighbouring draws: a variance that knows how slowly a chain moves.

$N$ times the variance of the mean of a series $r$ is about its spectral density at zero, by Bartlett's window

$$ \sum_{|k| < b} (1 - |k|/b) \sum_t r_t r_{t+k} = \frac1b \sum_u \Big( \sum_{j < b} r_{u+j} \Big)^2 , $$

where r is zero before and after its chain. So least squares over sums of b neighbours, divided by $\sqrt b$, minimise
the standard error, as over single draws they minimise the variance of one draw.

Reference: Belomestny, Iosipoi, Moulines, Naumov, Samsonov (2020), Statistics and Computing 30 (spectral variances).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..judging.error_bars import effective_draws
from ..samples.samples import unit_range


class Window(NamedTuple):
    """How wide windows are."""

    # In draws that count as one: Bartlett's window of this width misses about a tenth of the variance of an AR(1) mean.
    times: float = 5.0
    # Of a chain at most, so that there are a few of them to tell means from.
    share: float = 1 / 8
    # Sums begin at so many places per width; neighbouring ones hardly differ.
    places: int = 8


WINDOW = Window()
# An effective size needs this many draws per chain.
FEWEST_DRAWS = 4


def draws_per_effective(series: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, " out"]:
    """Return how many draws of every output count as one, at least 1; of one that does not vary, 1."""
    chains, draws, outputs = series.shape
    found, unit = np.ones(outputs), unit_range(series).unit
    moving = unit.std(axis=(0, 1)) > 0
    if draws >= FEWEST_DRAWS and moving.any():
        found[moving] = np.maximum(chains * draws / effective_draws(unit[..., moving]), 1.0)
    return found


def windows_of(slowness: Float[np.ndarray, " out"], draws: int) -> Int[np.ndarray, " out"]:
    """Return how many draws the windows of chains of this length have, if so many draws count as one."""
    wide = np.minimum(np.ceil(WINDOW.times * slowness), WINDOW.share * draws)
    return np.where(slowness > 1, np.maximum(wide, 1), 1).astype(int)


def window_sums(series: Float[np.ndarray, "chain draw column"], window: int) -> Float[np.ndarray, "row column"]:
    """Return sums over windows of every chain, over the root of the width, at evenly spaced places.

    Sums of their squares are those of all windows, on average; with a window of 1 they are the draws.
    """
    chains, draws, columns = series.shape
    if window == 1:
        return series.reshape(-1, columns)
    every = max(1, window // WINDOW.places)
    total = np.zeros((chains, draws + 1, columns))
    np.cumsum(series, axis=1, out=total[:, 1:])
    ends = np.arange(1, draws + window, every)  # the windows that touch the chain
    sums = total[:, np.minimum(ends, draws)] - total[:, np.maximum(ends - window, 0)]
    return (sums * np.sqrt(every / window)).reshape(-1, columns)
