r"""The pass over all draws of a source: f and f + g at every draw, tile by tile, g by the fold that has not seen it.

Of each series block means are kept. The standard error is that of the series of block means (`error_bars.average`:
split chains, autocorrelation), the effective size is the variance of the draws over its square, and the tail index
comes from the largest and smallest draws, which are kept. While there are as few draws as blocks, a block is a draw and
all is as it is in memory.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..runtime.threads import side_by_side
from ..runtime.validation import InputError
from ..samples.samples import Samples
from ..samples.source import Source, Tile
from ..samples.values import Functions, Targets
from ..stein.coordinates import Bilinear, Evaluator, Standardise
from ..stein.folds import Stretch
from .diagnostics import (
    Status,
    moved_scores,
    rhat_limit,
    status_of_stein_means,
    status_of_values,
    stein_columns,
    value_status,
)
from .error_bars import Average, average, pareto_index

if TYPE_CHECKING:
    from ..stein.bases import Jumps


class Room(NamedTuple):
    """How much is kept of a series, whatever its length, and how much a thread works on at a time."""

    # Numbers for all block means together, 64 MiB, and blocks per chain.
    entries: int = 2**23
    blocks: int = 100_000
    # Draws of all tails together, on either side; there is room for twice as many on the way.
    tail: int = 2**20
    # Draws that may be of a tail and are looked at together.
    at_once: int = 2**18
    # Rows that are compared at a time.
    rows: int = 32
    # Draws that a thread works on, so that they stay in its cache, and numbers in the products of all their blocks.
    piece: int = 4096
    products: int = 2**20
    # Draws at the beginning of every chain that say whether scores were moved, and how much the Stein columns vary.
    head: int = 20_000


ROOM = Room()


# Series that are seen once -------------------------------------------------------------------------


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

    def beyond(self, values: Float[np.ndarray, "m column"]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return those draws that may be kept, on either side, with their columns. Any thread may do it."""
        sides = (np.flatnonzero(values > self.least[:, 0]), np.flatnonzero(values < -self.least[:, 1]))
        return [(at % values.shape[1], values.reshape(-1)[at]) for at in sides]

    def keep(self, *pieces: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Keep draws that are far out. What is kept in the end does not depend on their order."""
        for side, found in enumerate(zip(*pieces, strict=True)):
            which, x = map(np.concatenate, zip(*found, strict=True))
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
                self.keep(*some)
                some = []
        self.keep(*some)

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
        found = np.zeros(len(self.room[which]))
        for k, (room, filled) in enumerate(zip(self.room[which], self.filled[which], strict=True)):
            high, low = (np.sort(room[side, : filled[side]])[-size:] for side in range(2))
            series = np.concatenate([-low, high])
            spread = np.abs(series - series[0]).max()
            if spread > 0 and self.draws >= 100:
                index = pareto_index((series - series[0]) / spread, kept=len(high) - 1)
                found[k] = index if np.isfinite(index) else 0.0
        return found


# The pass -----------------------------------------------------------------------------------------


class Choice(NamedTuple):
    """A g of every fold, and the variance of what is averaged with it, as far as the draws fitted on know it."""

    controls: Sequence[Evaluator]
    variance: Float[np.ndarray, " column"]


class Together(NamedTuple):
    """The fitted g of a fold with what takes the jumps out beside it."""

    one: Evaluator
    jumps: "Jumps"
    fold: int

    def __call__(self, samples: Samples) -> np.ndarray:
        return self.one(samples) + self.jumps.elsewhere(self.fold, samples)

    def form(self, scaled: Standardise) -> Bilinear | None:
        return None


class Piece(NamedTuple):
    """Some draws of one chain: their place in the tile, the number of the first, and the fold that evaluates them."""

    chain: int
    rows: slice
    start: int
    fold: int

    def samples(self, tile: Tile, names: tuple[str, ...]) -> Samples:
        chain = slice(self.chain, self.chain + 1)
        return Samples.trusted(tile.draws[chain, self.rows], tile.scores[chain, self.rows], names)


def pieces(tile: Tile, stretches: Sequence[Stretch], length: int = ROOM.piece) -> Iterator[Piece]:
    """Yield a tile in pieces of one chain and one fold each."""
    for part in stretches:
        low, high = max(part.start, tile.start), min(part.stop, tile.start + tile.draws.shape[1])
        for first in range(low, high, length):
            rows = slice(first - tile.start, min(first + length, high) - tile.start)
            yield Piece(part.chain, rows, first, part.fold)


def out_of_fold(
    source: Source, stretches: Sequence[Stretch], controls: Sequence[Evaluator], outputs: int
) -> Float[np.ndarray, "chain draw out"]:
    """Return g at every draw."""
    g = np.empty((*source.shape[:2], outputs))

    def work(tile: Tile, piece: Piece) -> None:
        found = controls[piece.fold](piece.samples(tile, source.names))[0]
        g[piece.chain, piece.start : piece.start + len(found)] = found

    for tile in source.tiles():
        side_by_side([functools.partial(work, tile, piece) for piece in pieces(tile, stretches)], 0)
    return g


@dataclass(frozen=True, eq=False)
class Passed:
    """Block means of f, of f + g for every choice of g, and of the Stein means, and the tails of f: what is left."""

    labels: tuple[str, ...]
    shape: tuple[int, ...]
    blocks: Blocks
    plain: Series
    controlled: list[Series]
    stein: Series
    tails: Tails
    standardise: Standardise

    def value_status(self, which: slice, ess: np.ndarray) -> list[list[Status]]:
        """Return what the values of some of the columns say: as in memory where a block is a draw."""
        if self.blocks.size == 1:
            return value_status(self.plain.means()[..., which], ess)
        limit = rhat_limit(len(self.plain.sums), self.plain.effective_within())
        return status_of_values(self.plain.split_rhat()[which], limit[which], self.tails.index(which), ess)

    def stein_status(self, source: Source) -> list[Status]:
        """Return an alarm if any Stein mean is too far from zero for correct input."""
        tile = source.rows(np.arange(min(ROOM.head, source.shape[1], source.step)))
        head = Samples.trusted(tile.draws, tile.scores, source.names)
        variance = stein_columns(*self.standardise(head)).var(axis=0)
        found = average(self.stein.means(), tails=False)
        found = Average(found.mean, found.standard_error, self.stein.effective(variance, found))
        scale = np.abs(tile.draws - tile.draws[0, 0]).max(axis=(0, 1))  # its size is enough
        return status_of_stein_means(found, moved_scores(head, np.where(scale > 0, scale, 1.0)), source.shape[2])


def pass_over(
    source: Source,
    functions: Functions,
    targets: Targets,
    stretches: Sequence[Stretch],
    choices: Sequence[Choice],
    standardise: Standardise,
) -> Passed:
    """Go through all draws; `standardise`: coordinates for the Stein means."""
    chains, draws, dim = source.shape
    first = source.rows(np.arange(1), functions.names)
    values = functions(first)
    # about their values at one draw: where f + g is constant nothing is left to round
    start = targets(values.array)[:1]
    at = Samples.trusted(first.draws[:1], first.scores[:1], source.names)
    center = targets.columns(start)[0, 0]
    blocks = Blocks.of(chains, draws, (1 + len(choices)) * len(center) + 2 * dim + 1)
    plain, stein = Series(blocks, chains, center), Series(blocks, chains, np.zeros(2 * dim + 1))
    forms = [_forms(one.controls, standardise) for one in choices]
    controlled = [
        Series(blocks, chains, targets.columns(start + one.controls[0](at))[0, 0], one.variance if form else None)
        for one, form in zip(choices, forms, strict=True)
    ]
    tails = Tails(start.shape[-1], chains * draws)
    length = max(1, min(ROOM.piece, blocks.size * max(1, ROOM.products // (1 + dim) ** 2)))

    def work(tile: Tile, f: np.ndarray, piece: Piece) -> tuple[list[Reduced], list]:
        samples = piece.samples(tile, source.names)
        mine = f[piece.chain, piece.rows]
        own = plain.reduce(piece.chain, piece.start, targets.columns(mine))
        try:
            products = standardise.products(samples, blocks.parts(piece.start, len(mine))[1])
            count, better = products[:, 0, :1], []
            for one, choice, form in zip(controlled, choices, forms, strict=True):
                if form:
                    g = targets.change(form[piece.fold].sums(products))
                    sums = own.sums + g - count * (one.center - center)
                    better.append(Reduced(own.chain, own.first, sums))
                else:
                    found = targets.columns(mine + choice.controls[piece.fold](samples)[0])
                    better.append(one.reduce(piece.chain, piece.start, found))
        except InputError as error:
            last = piece.start + len(mine) - 1
            where = f"{source.where}, chain {piece.chain}, draws {piece.start} to {last}"
            raise InputError(f"{where}: {error} (Indices are those within these draws.)") from error
        stein_part = Reduced(own.chain, own.first, standardise.stein_sums(products))
        return [own, *better, stein_part], tails.beyond(mine) if blocks.size > 1 else []

    for tile in source.tiles(functions.names):
        f = targets(functions(tile).array)
        tasks = [functools.partial(work, tile, f, piece) for piece in pieces(tile, stretches, length)]
        done = side_by_side(tasks, 0)
        tails.keep_all(far for _, far in done)
        for parts, _ in done:
            for one, part in zip((plain, *controlled, stein), parts, strict=True):
                one.add(part)
    return Passed(values.labels, values.shape, blocks, plain, controlled, stein, tails, standardise)


def _forms(controls: Sequence[Evaluator], scaled: Standardise) -> list[Bilinear]:
    """Return the forms of all folds, or none."""
    forms = [form for control in controls if (form := control.form(scaled)) is not None]
    return forms if len(forms) == len(controls) else []
