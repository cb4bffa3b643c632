"""The pass over all draws of a source: f and f + g at every draw, tile by tile, g by the fold that has not seen it."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..runtime.threads import side_by_side
from ..runtime.validation import InputError
from ..samples.samples import Samples
from ..samples.source import Source, Tile
from ..samples.values import Functions, Targets
from ..stein.coordinates import Bilinear, Evaluator, Standardise
from ..stein.folds import Stretch
from .diagnostics import moved_scores, rhat_limit, status_of_stein_means, status_of_values, stein_columns, value_status
from .error_bars import Average, average
from .series import Blocks, Reduced, Series, Tails
from .status import Status


class Sizes(NamedTuple):
    """Draws that a thread works on at a time, so that what is made of them on the way stays in its cache.

    - `products`: numbers in the products of draws and scores of all blocks that it works on.
    - `head`: draws at the beginning of every chain that say whether scores were moved by a draw, and how much the
      Stein columns vary.
    """

    piece: int = 4096
    products: int = 2**20
    head: int = 20_000


SIZES = Sizes()


class Choice(NamedTuple):
    """A g of every fold, and the variance of what is averaged with it, as far as the draws fitted on know it."""

    controls: Sequence[Evaluator]
    variance: Float[np.ndarray, " column"]


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


def pieces(tile: Tile, stretches: Sequence[Stretch], length: int = SIZES.piece) -> Iterator[Piece]:
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
        tile = source.rows(np.arange(min(SIZES.head, source.shape[1], source.step)))
        head = Samples.trusted(tile.draws, tile.scores, source.names)
        variance = stein_columns(*self.standardise(head)).var(axis=0)
        found = average(self.stein.means())
        found = Average(found.mean, found.standard_error, self.stein.effective(variance, found), found.error_ess)
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
    length = max(1, min(SIZES.piece, blocks.size * max(1, SIZES.products // (1 + dim) ** 2)))

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
