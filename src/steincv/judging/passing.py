"""The pass over all draws of a source: f and f + g at every draw, tile by tile, g by the fold that has not seen it."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..runtime.threads import side_by_side
from ..runtime.validation import InputError
from ..samples.functions import Functions
from ..samples.samples import Samples
from ..samples.source import Source, Tile
from ..stein.coordinates import Standardise
from ..stein.folds import Stretch
from .diagnostics import moved_scores, status_of_stein_means, status_of_values, value_status
from .error_bars import Average, average
from .series import Blocks, Reduced, Series, Tails
from .status import Status


class Sizes(NamedTuple):
    """Draws that a thread works on at a time, so that what is made of them on the way stays in its cache.

    - `head`: draws at the beginning of every chain that say whether scores were moved by a draw, and how much the
      Stein columns vary.
    - `stein_blocks`: block means of the Stein columns per chain, about. A thousand are plenty for a standard error, and
      sums over long blocks are products of matrices.
    """

    piece: int = 4096
    head: int = 20_000
    stein_blocks: int = 1000


SIZES = Sizes()

#: g of a fold, as a function of samples.
Control = Callable[[Samples], Float[np.ndarray, "chain draw out"]]


class Piece(NamedTuple):
    """Some draws of one chain: their place in the tile, the number of the first, and the fold that evaluates them."""

    chain: int
    rows: slice
    start: int
    fold: int

    def samples(self, tile: Tile, names: tuple[str, ...]) -> Samples:
        """Return the draws and scores of the piece."""
        chain = slice(self.chain, self.chain + 1)
        return Samples.trusted(tile.draws[chain, self.rows], tile.scores[chain, self.rows], names)


def pieces(tile: Tile, stretches: Sequence[Stretch]) -> Iterator[Piece]:
    """Yield a tile in pieces of one chain and one fold each."""
    for part in stretches:
        low, high = max(part.start, tile.start), min(part.stop, tile.start + tile.draws.shape[1])
        for first in range(low, high, SIZES.piece):
            rows = slice(first - tile.start, min(first + SIZES.piece, high) - tile.start)
            yield Piece(part.chain, rows, first, part.fold)


def out_of_fold(
    source: Source, stretches: Sequence[Stretch], controls: Sequence[Control], outputs: int
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
        return status_of_values(self.plain.split_rhat()[which], self.tails.index(which), ess)

    def stein_status(self, source: Source) -> list[Status]:
        """Return an alarm if any Stein mean is too far from zero for correct input."""
        tile = source.rows(np.arange(min(SIZES.head, source.shape[1], source.step)))
        head = Samples.trusted(tile.draws, tile.scores, source.names)
        variance = _stein_columns(*self.standardise(head)).var(axis=0)
        found = average(self.stein.means())
        found = Average(found.mean, found.standard_error, self.stein.effective(variance, found), found.error_ess)
        scale = np.abs(tile.draws - tile.draws[0, 0]).max(axis=(0, 1))  # its size is enough
        return status_of_stein_means(found, moved_scores(head, np.where(scale > 0, scale, 1.0)), source.shape[2])


def pass_over(
    source: Source,
    functions: Functions,
    targets: Callable[[np.ndarray], np.ndarray],
    columns: Callable[[np.ndarray], np.ndarray],
    stretches: Sequence[Stretch],
    choices: Sequence[Sequence[Control]],
    standardise: Standardise,
) -> Passed:
    """Go through all draws.

    - `targets`: of the values of f, what g is added to. `columns`: of the targets, what is averaged.
    - `choices`: several g, each as a function per fold.
    - `standardise`: coordinates for the Stein means.
    """
    chains, draws, dim = source.shape
    first = source.rows(np.arange(1), functions.names)
    values = functions(first)
    # about their values at one draw: where f + g is constant nothing is left to round
    start = targets(values.array)[:1]
    at = Samples.trusted(first.draws[:1], first.scores[:1], source.names)
    centers = [columns(start + g)[0, 0] for g in (0.0, *(controls[0](at) for controls in choices))]
    blocks = Blocks.of(chains, draws, len(centers) * len(centers[0]) + 2 * dim + 1)
    series = [Series(blocks, chains, center) for center in centers]
    length = max(1, draws // SIZES.stein_blocks)
    stein = Series(Blocks(draws, length, draws // length), chains, np.zeros(2 * dim + 1))
    tails = Tails(start.shape[-1], chains * draws)

    def work(tile: Tile, f: np.ndarray, piece: Piece) -> list[Reduced]:
        samples = piece.samples(tile, source.names)
        mine = f[piece.chain, piece.rows]
        try:
            found = [columns(mine), *(columns(mine + controls[piece.fold](samples)[0]) for controls in choices)]
            block, starts = stein.blocks.parts(piece.start, len(mine))
            sums = standardise.stein_sums(samples.draws[0], samples.scores[0], starts.tolist())
        except InputError as error:
            last = piece.start + len(mine) - 1
            where = f"{source.where}, chain {piece.chain}, draws {piece.start} to {last}"
            raise InputError(f"{where}: {error} (Indices are those within these draws.)") from error
        unknown = np.zeros(2 * dim + 1)  # squares, and the largest: nobody asks
        reduced = [one.reduce(piece.chain, piece.start, x) for one, x in zip(series, found, strict=True)]
        return [*reduced, Reduced(piece.chain, block, sums, unknown, unknown)]

    for tile in source.tiles(functions.names):
        f = targets(functions(tile).array)
        tasks = [functools.partial(work, tile, f, piece) for piece in pieces(tile, stretches)]
        for parts in side_by_side(tasks, 0):
            for one, part in zip((*series, stein), parts, strict=True):
                one.add(part)
        if blocks.size > 1:
            tails.add(f.reshape(-1, f.shape[-1]))
    return Passed(values.labels, values.shape, blocks, series[0], series[1:], stein, tails, standardise)


def _stein_columns(z: np.ndarray, s: np.ndarray) -> np.ndarray:
    r"""Return $s_i$, $z_i s_i + 1$ and the sum of the latter at every draw."""
    dim = z.shape[1]
    found = np.empty((len(z), 2 * dim + 1))
    found[:, :dim] = s
    np.multiply(z, s, out=found[:, dim:-1])
    found[:, dim:-1] += 1
    np.sum(found[:, dim:-1], axis=1, out=found[:, -1])
    return found
