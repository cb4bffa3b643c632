r"""Means and error bars of series that are seen once, draw after draw, and kept as block means.

The standard error is that of the series of block means (`error_bars.average`: split chains, autocorrelation), the
effective size is the variance of the draws over its square, and the tail index comes from the largest and smallest
draws, which are kept. While there are as few draws as blocks, a block is a draw and all is as it is in memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..samples.values import Unit
from .chain_statistics import pareto_index
from .error_bars import Average, average, most_effective_draws


class Room(NamedTuple):
    """How much is kept of a series, whatever its length."""

    # Numbers for all block means together, 64 MiB, and blocks per chain.
    entries: int = 2**23
    blocks: int = 100_000
    # Draws of all tails together, on either side; there is room for twice as many on the way.
    tail: int = 2**20
    # Draws that may be of a tail and are looked at together.
    at_once: int = 2**18
    # Rows that are compared at a time.
    rows: int = 32


ROOM = Room()


@dataclass(frozen=True)
class Blocks:
    """Every chain is cut into `count` blocks of `size` draws; the last takes what is left over."""

    draws: int
    size: int
    count: int

    @classmethod
    def of(cls, chains: int, draws: int, columns: int) -> "Blocks":
        most = max(100, min(ROOM.blocks, ROOM.entries // (chains * columns)))
        size = -(-draws // most)
        return cls(draws, size, draws // size)

    def parts(self, start: int, m: int) -> tuple[int, Int[np.ndarray, " part"]]:
        """Return the block of draw `start`, and where blocks begin among the m draws from there on."""
        last = self.count - 1
        first = min(start // self.size, last)
        edges = np.arange(first + 1, min((start + m - 1) // self.size, last) + 1) * self.size - start
        return first, np.r_[0, edges]


class Reduced(NamedTuple):
    """Some draws of a chain: sums over the blocks from `first` on, of squares, and the largest in size, if known."""

    chain: int
    first: int
    sums: Float[np.ndarray, "block column"]
    square: Float[np.ndarray, " column"] | float = 0.0
    largest: Float[np.ndarray, " column"] | float = 0.0


class Series:
    """Columns of numbers at every draw of every chain, about a `center` near their means."""

    def __init__(self, blocks: Blocks, chains: int, center: np.ndarray, variance: np.ndarray | None = None):
        """Begin; `variance` is that of the draws, if it is known, and squares are then not looked at."""
        self.blocks, self.center, self.known = blocks, center, variance
        self.sums = np.zeros((chains, blocks.count, len(center)))
        self.square = np.zeros((chains, len(center)))
        self.largest = np.zeros(len(center))

    def reduce(self, chain: int, start: int, values: Float[np.ndarray, "m column"]) -> Reduced:
        """Return what is kept of the draws `start`, `start + 1`, ... of a chain. Any thread may do it."""
        x = values - self.center
        first, starts = self.blocks.parts(start, len(values))
        sums = x if self.blocks.size == 1 else np.add.reduceat(x, starts, axis=0)
        return Reduced(chain, first, sums, np.einsum("mk,mk->k", x, x), _largest(values))

    def add(self, part: Reduced) -> None:
        """Add a part. They come in the order of the draws: the last bits do not depend on who was first."""
        self.sums[part.chain, part.first : part.first + len(part.sums)] += part.sums
        self.square[part.chain] += part.square
        np.maximum(self.largest, part.largest, out=self.largest)

    def means(self) -> Float[np.ndarray, "chain block column"]:
        """Return the block means, the last of a chain (it may have more draws) such that their mean is that of all."""
        found = self.sums / self.blocks.size
        found[:, -1] = self.blocks.count * self.sums.sum(axis=1) / self.blocks.draws - found[:, :-1].sum(axis=1)
        return self.center + found

    def average(self) -> Average:
        """Return the means with their error bars."""
        if self.blocks.size == 1:
            return average(self.means())
        found = average(self.means() - self.center)
        ess = self.effective(self.variance(), found)
        return Average(self.center + self._shift(), found.standard_error, ess, found.error_ess, tail=found.tail)

    def effective(self, variance: Float[np.ndarray, " out"], found: Average) -> Float[np.ndarray, " out"]:
        """Return how many independent draws of this variance have the standard errors that block means have."""
        error = found.standard_error
        return np.divide(variance, error**2, out=np.full(len(error), float(self.size)), where=error > 0)

    def effective_within(self) -> Float[np.ndarray, " out"]:
        """Return how many independent draws the chains are worth, if their means did not differ."""
        means = self.means() - self.center
        return self.effective(self.variance(), average(means - means.mean(axis=1, keepdims=True), tails=False))

    @property
    def size(self) -> int:
        """The number of draws, over all chains."""
        return len(self.sums) * self.blocks.draws

    def variance(self) -> Float[np.ndarray, " column"]:
        """Return the variance of the draws."""
        if self.known is not None:
            return self.known
        n = self.size
        return np.maximum(self.square.sum(axis=0) / n - self._shift() ** 2, 0) * n / (n - 1)

    def _shift(self) -> Float[np.ndarray, " column"]:
        return self.sums.sum(axis=(0, 1)) / self.size

    def split_rhat(self) -> Float[np.ndarray, " column"]:
        """Return R-hat of half chains, from their means and the variance within them."""
        half = self.blocks.count // 2
        ends = [self.sums[:, :half].sum(axis=1), self.sums[:, -half:].sum(axis=1)]
        halves = np.stack(ends) / (half * self.blocks.size)
        whole = self.sums.sum(axis=1) / self.blocks.draws
        within = self.square / self.blocks.draws - whole**2 - (halves[0] - halves[1]) ** 2 / 4
        between = halves.reshape(-1, len(self.center)).var(axis=0, ddof=1)
        within = np.maximum(within.mean(axis=0), 0.0)
        ratio = np.divide(between, within, out=np.where(between > 0, np.inf, 0.0), where=within > 0)
        return np.sqrt(1 + ratio)


def _largest(values: Float[np.ndarray, "m column"]) -> Float[np.ndarray, " column"]:
    """Return the largest value of every column in size; of many rows at a time, which is faster than one by one."""
    columns, whole = values.shape[1], len(values) // ROOM.rows * ROOM.rows
    wide = values[:whole].reshape(-1, ROOM.rows * columns)
    parts = [np.abs(values[whole:])]
    if whole:
        parts.append(np.maximum(wide.max(axis=0), -wide.min(axis=0)).reshape(ROOM.rows, columns))
    return np.concatenate(parts).max(axis=0)


class Tails:
    """The largest and the smallest draws of every column: as many as a tail index looks at."""

    def __init__(self, columns: int, draws: int):
        self.draws = draws
        self.count = min(int(3 * np.sqrt(draws)) + 1, max(100, ROOM.tail // columns))
        # of the values, and of minus the values: not in order, and more than `count` until there is no room
        self.room = np.empty((columns, 2, 2 * self.count))
        self.filled = np.zeros((columns, 2), dtype=int)
        self.least = np.full((columns, 2), -np.inf)

    def add(self, values: Float[np.ndarray, "m column"]) -> None:
        """Look at some more draws."""
        self.keep(self.beyond(values))

    def beyond(self, values: Float[np.ndarray, "m column"]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return those draws that may be kept, on either side, with their columns. Any thread may do it."""
        sides = (np.flatnonzero(values > self.least[:, 0]), np.flatnonzero(values < -self.least[:, 1]))
        return [(at % values.shape[1], values.reshape(-1)[at]) for at in sides]

    def keep(self, found: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Keep draws that are far out. What is kept in the end does not depend on their order."""
        for side, (which, x) in enumerate(found):
            order = np.argsort(which, kind="stable")
            each = np.split((-x if side else x)[order], np.cumsum(np.bincount(which, minlength=len(self.room)))[:-1])
            for k, far in enumerate(each):
                self._put(k, side, far)

    def keep_all(self, pieces: Iterable[list[tuple[np.ndarray, np.ndarray]]]) -> None:
        """Keep what is far out of several pieces, as many at a time as there is room for."""
        some: list[list[tuple[np.ndarray, np.ndarray]]] = []
        for piece in pieces:
            some.append(piece)
            if sum(len(x) for far in some for _, x in far) >= ROOM.at_once:
                self._keep_joined(some)
                some = []
        self._keep_joined(some)

    def _keep_joined(self, pieces: list[list[tuple[np.ndarray, np.ndarray]]]) -> None:
        joined = [[np.concatenate(part) for part in zip(*side, strict=True)] for side in zip(*pieces, strict=True)]
        self.keep([(which, x) for which, x in joined])

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

    def index(self, which: slice = slice(None)) -> Float[np.ndarray, " column"]:
        """Return the Pareto k of the heavier tail: a series with these tails and nothing between them has the same."""
        size = min(self.count, self.draws // 2)
        found = []
        for room, filled in zip(self.room[which], self.filled[which], strict=True):
            high, low = (np.sort(room[side, : filled[side]])[-size:] for side in range(2))
            found.append(_tail_index_of(high, -low, self.draws))
        return np.array(found)


def _tail_index_of(high: np.ndarray, low: np.ndarray, draws: int) -> float:
    """Return the index from both tails, each with the draw before it."""
    series = np.concatenate([low, high])
    spread = np.abs(series - series[0]).max()
    if spread == 0 or draws < 100:
        return 0.0
    k = pareto_index((series - series[0]) / spread, kept=len(high) - 1)
    return k if np.isfinite(k) else 0.0


# Standard deviations -------------------------------------------------------------------------------


def deviation(unit: Unit, targets: np.ndarray, outputs: int) -> np.ndarray:
    r"""Return draws whose mean is the standard deviation of f, by the delta method.

    With $u = (f - c)/r$ for constants $c$ and $r$, $\sigma^2/r^2 = E[u^2] - (E u)^2$, and the draws
    $\hat\sigma + (v_i - \bar v)\,r^2 / 2\hat\sigma$, $v = u^2 - 2 \bar u u$ (both controlled or both plain), have mean
    $\hat\sigma$ and its standard error. `targets` holds the draws of f and then those of $u^2$.
    """
    first, second = unit(targets[..., :outputs]), targets[..., outputs:]
    mean = first.mean(axis=(0, 1))
    variance = second.mean(axis=(0, 1)) - mean**2
    sd = np.sqrt(np.where(variance > 0, variance, np.nan))
    v = second - 2 * mean * first
    with np.errstate(invalid="ignore"):
        draws = sd + (v - v.mean(axis=(0, 1))) / (2 * sd)
    return unit.scale * np.where(second.max(axis=(0, 1)) > 0, draws, 0.0)


def block_deviation(unit: Unit, series: Series, outputs: int) -> tuple[np.ndarray, Average]:
    """Return draws, or block means, whose mean is the standard deviation of f, from a series of `Targets.columns`."""
    draws = deviation(unit, series.means()[..., : 2 * outputs], outputs)
    found = average(draws)
    if series.blocks.size == 1:
        return draws, found
    each = series.variance()
    first, second, both = each[:outputs] / unit.scale**2, each[outputs : 2 * outputs], each[2 * outputs :]
    mean = unit(series.means()[..., :outputs]).mean(axis=(0, 1))
    # the variance of second - 2 mean first, where 2 cov(first, second) = var(first + second) - var(first) - var(second)
    variance = second + 4 * mean**2 * first - 2 * mean * (both - first - second)
    sd = found.mean / unit.scale
    variance = np.divide(variance, 4 * sd**2, out=np.zeros(outputs), where=sd > 0) * unit.scale**2
    # an exact answer has no variance but that of round-off
    ess = np.clip(series.effective(variance, found), found.ess, most_effective_draws(series.size))
    return draws, Average(found.mean, found.standard_error, ess, found.error_ess, tail=found.tail)
