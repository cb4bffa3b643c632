r"""Means and error bars of series that are seen once, draw after draw, and kept as block means.

The standard error is that of the series of block means (`_error_bars.average`: split chains, autocorrelation), the
effective size is the variance of the draws over its square, and the tail index comes from the largest and smallest
draws, which are kept. While there are as few draws as blocks, a block is a draw and all is as it is in memory.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..judging.error_bars import Average, average

# Numbers that are kept for all block means together: 64 MiB.
MOST_ENTRIES = 2**23
MOST_BLOCKS = 100_000
# Draws that are kept of all tails together, on either side; there is room for twice as many on the way.
MOST_TAIL = 2**20


@dataclass(frozen=True)
class Blocks:
    """Every chain is cut into `count` blocks of `size` draws; the last takes what is left over."""

    draws: int
    size: int
    count: int

    @classmethod
    def of(cls, chains: int, draws: int, columns: int) -> "Blocks":
        most = max(100, min(MOST_BLOCKS, MOST_ENTRIES // (chains * columns)))
        size = -(-draws // most)
        return cls(draws, size, draws // size)


class Reduced(NamedTuple):
    """Some draws of a chain: sums over the blocks from `first` on, of squares, and the largest in size."""

    chain: int
    first: int
    sums: np.ndarray
    square: np.ndarray
    largest: np.ndarray


class Series:
    """Columns of numbers at every draw of every chain, about a `center` near their means."""

    def __init__(self, blocks: Blocks, chains: int, center: Float[np.ndarray, " column"]):
        self.blocks, self.center = blocks, center
        self.sums = np.zeros((chains, len(center), blocks.count))
        self.square = np.zeros((chains, len(center)))
        self.largest = np.zeros(len(center))

    def reduce(self, chain: int, start: int, values: Float[np.ndarray, "column m"]) -> "Reduced":
        """What is kept of the draws `start`, `start + 1`, ... of a chain. Pure: any thread may do it."""
        x = values - self.center[:, None]
        size, last, m = self.blocks.size, self.blocks.count - 1, values.shape[1]
        first = min(start // size, last)
        edges = np.arange(first + 1, min((start + m - 1) // size, last) + 1) * size - start
        if size == 1:
            sums = x
        elif len(edges):
            sums = np.add.reduceat(x, np.r_[0, edges], axis=1)
        else:
            sums = x.sum(axis=1, keepdims=True)
        largest = np.maximum(values.max(axis=1), -values.min(axis=1))
        return Reduced(chain, first, sums, np.einsum("km,km->k", x, x), largest)

    def add(self, part: "Reduced") -> None:
        """Parts are added in the order of the draws: the last bits do not depend on who was first."""
        self.sums[part.chain, :, part.first : part.first + part.sums.shape[1]] += part.sums
        self.square[part.chain] += part.square
        np.maximum(self.largest, part.largest, out=self.largest)

    def move(self, shift: Float[np.ndarray, " column"]) -> None:
        """Take `sums` about a center that is further by `shift`."""
        counts = np.full(self.blocks.count, float(self.blocks.size))
        counts[-1] += self.blocks.draws - self.blocks.size * self.blocks.count
        self.sums -= shift[:, None] * counts
        self.center = self.center + shift

    def means(self) -> Float[np.ndarray, "chain block column"]:
        """The block means. The last of a chain, which may be of more draws, so that their mean is that of the draws."""
        found = self.sums / self.blocks.size
        found[..., -1] = self.blocks.count * self.sums.sum(-1) / self.blocks.draws - found[..., :-1].sum(-1)
        return self.center + found.transpose(0, 2, 1)

    def average(self) -> Average:
        n = self.sums.shape[0] * self.blocks.draws
        if self.blocks.size == 1:
            return average(self.means())
        found = average(self.means() - self.center)
        shift = self.sums.sum(axis=(0, 2)) / n
        variance = np.maximum(self.square.sum(axis=0) / n - shift**2, 0) * n / (n - 1)
        error = found.standard_error
        ess = np.divide(variance, error**2, out=np.full(len(shift), float(n)), where=error > 0)
        return Average(self.center + shift, error, ess, found.error_ess)

    def split_rhat(self) -> Float[np.ndarray, " column"]:
        """R-hat of half chains, from their means and the variance within them."""
        half = self.blocks.count // 2
        halves = np.stack([self.sums[..., :half].sum(-1), self.sums[..., -half:].sum(-1)]) / (half * self.blocks.size)
        whole = self.sums.sum(-1) / self.blocks.draws
        within = self.square / self.blocks.draws - whole**2 - (halves[0] - halves[1]) ** 2 / 4
        between = halves.reshape(-1, len(self.center)).var(axis=0, ddof=1)
        within = np.maximum(within.mean(axis=0), 0.0)
        ratio = np.divide(between, within, out=np.where(between > 0, np.inf, 0.0), where=within > 0)
        return np.sqrt(1 + ratio)


class Tails:
    """The largest and the smallest draws of every column: as many as a tail index looks at."""

    def __init__(self, columns: int, draws: int):
        self.draws = draws
        self.count = min(int(3 * np.sqrt(draws)) + 1, max(100, MOST_TAIL // columns))
        # of the values, and of minus the values: not in order, and more than `count` until there is no room
        self.room = np.empty((columns, 2, 2 * self.count))
        self.filled = np.zeros((columns, 2), dtype=int)
        self.least = np.full((columns, 2), -np.inf)

    def add(self, values: Float[np.ndarray, "column m"]) -> None:
        for side, most in enumerate((values.max(axis=1), -values.min(axis=1))):
            for k in np.flatnonzero(most > self.least[:, side]):
                x = -values[k] if side else values[k]
                self._put(int(k), side, x[x > self.least[k, side]])

    def _put(self, k: int, side: int, x: np.ndarray) -> None:
        room = self.room[k, side]
        while len(x):
            filled = self.filled[k, side]
            some, x = x[: len(room) - filled], x[len(room) - filled :]
            room[filled : filled + len(some)] = some
            self.filled[k, side] += len(some)
            if self.filled[k, side] == len(room):
                room[: self.count] = np.partition(room, -self.count)[-self.count :]
                self.filled[k, side] = self.count
                self.least[k, side] = room[: self.count].min()

    def merge(self, other: "Tails") -> None:
        for k, side in np.ndindex(*self.filled.shape):
            self._put(k, side, other.room[k, side, : other.filled[k, side]])

    def index(self) -> Float[np.ndarray, " column"]:
        """The Pareto k of the heavier tail: a series with these tails and nothing between them has the same."""
        found = np.zeros(len(self.room))
        for k, filled in enumerate(self.filled):
            size = min(self.count, self.draws // 2)
            high, low = (np.sort(self.room[k, side, : filled[side]])[-size:] for side in range(2))
            low = -low
            found[k] = _tail_index_of(high, low, self.draws)
        return found


def _tail_index_of(high: np.ndarray, low: np.ndarray, draws: int) -> float:
    """arviz-stats cuts tails of $3\\sqrt{n/r}$ draws off n; here n is what is kept and r makes up for that."""
    from arviz_stats.base import array_stats

    middle = np.full(4 * len(high), (high[0] + low.max()) / 2)
    series = np.concatenate([low, middle, high])
    spread = np.abs(series - series[0]).max()
    if spread == 0 or draws < 100:
        return 0.0
    tail = len(high) - 1
    efficiency = len(series) * 9 / (tail + 0.5) ** 2
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            k = float(
                array_stats.pareto_khat(
                    ((series - series[0]) / spread)[None], chain_axis=0, draw_axis=1, r_eff=efficiency
                )
            )
    except ValueError:  # values that tie
        return 0.0
    return k if np.isfinite(k) else 0.0
