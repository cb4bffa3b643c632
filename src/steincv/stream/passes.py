"""The two passes over streamed draws: sums for the fits, then controlled values for means and error bars."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..families.method import spaced_sample, spacing
from ..families.polynomial.polynomial import most_fitted
from ..runtime.memory import GIB, reserve
from ..samples.samples import LARGEST, Samples
from ..samples.source import Source, Tile as Piece
from .coordinates import FoldMap, Provisional, not_finite
from .functions import Functions
from .moments import TILE, Sums, Tiles
from .polynomial import Target
from .segments import RangeFold, Segment, judged_draws, segments
from .series import Blocks, Reduced, Series, Tails

if TYPE_CHECKING:
    from .products import BlockProducts

# Pieces that are worked on at a time, each with sums of its own, which are added in one order: the last bits do not
# depend on the number of cores.
LANES = 2
# Provisional coordinates come from about this many draws of every chain, from the start, the middle and the end.
PROVISIONAL = 2000

Control = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class FoldSums:
    """Sums over the fitting draws of every fold, and over all draws.

    `regressions` are over those fitting draws that a polynomial looks at, `groups` over those of every group. They are
    the same sums where it looks at all draws.
    """

    folds: list[Sums]
    everything: Sums
    regressions: list[Sums]
    groups: list[Sums]


@dataclass(frozen=True, eq=False)
class Passed:
    """What the second pass leaves: block means of f, of f + g, and of the Stein means."""

    labels: tuple[str, ...]
    shape: tuple[int, ...]
    blocks: Blocks
    plain: Series
    controlled: Series
    stein: Series
    tail: np.ndarray


class Lane:
    """The sums that one thread makes, by group: of all draws, and of every so many for the regressions."""

    def __init__(self, dim: int, degree: int, outputs: int, groups: int, every: int, linear: bool):
        counted = 0 if linear else outputs  # the products of f with the rest are in the table already
        self.every = every
        # few of the draws in a tile are then multiplied, so it can be larger
        self.tile = TILE * min(every, 8)
        first = degree if every == 1 else 1
        self.whole = [Sums(dim, first, outputs) for _ in range(groups)]
        self._whole = Tiles(dim, first, counted)
        if every > 1:
            self.spaced = [Sums(dim, degree, outputs) for _ in range(groups)]
            self._spaced = Tiles(dim, degree, counted)

    def add(self, group: int, first: int, t: np.ndarray, s: np.ndarray, f: np.ndarray | None) -> None:
        self._whole.add(self.whole[group], t, s, f)
        if self.every > 1:
            rows = slice(-first % self.every, None, self.every)
            self._spaced.add(self.spaced[group], t[:, rows], s[:, rows], None if f is None else f[:, rows])


@dataclass(frozen=True, eq=False)
class Stream:
    """The draws of a file, cut into segments, in provisional coordinates and units."""

    source: Source
    functions: Functions
    folds: list[RangeFold]
    parts: list[Segment]
    fitted: np.ndarray
    provisional: Provisional
    target: Target
    labels: tuple[str, ...]
    shape: tuple[int, ...]
    degree: int

    @classmethod
    def of(cls, source: Source, functions: Functions, folds: list[RangeFold], degree: int) -> "Stream":
        chains, draws, _ = source.shape
        parts, fitted = segments(folds, chains, draws)
        starts = list(range(0, draws, source.step))
        chosen = sorted({starts[0], starts[len(starts) // 2], starts[-1]})
        few: list[Piece] = []
        for piece in source.tiles(functions.names, starts=chosen):
            thin = max(1, len(chosen) * piece.draws.shape[1] // PROVISIONAL)
            others = tuple(other[:, ::thin].copy() for other in piece.others)
            few.append(Piece(piece.start, piece.draws[:, ::thin].copy(), piece.scores[:, ::thin].copy(), others))
            for name, array in (("draws", few[-1].draws), ("scores", few[-1].scores)):
                bad = np.argwhere(~(np.abs(array) < LARGEST))
                if len(bad):
                    chain, draw, _ = map(int, bad[0])
                    raise not_finite(source.where, name, array[tuple(bad[0])], chain, piece.start + draw * thin)
        samples = Samples(joined(p.draws for p in few), joined(p.scores for p in few), source.names)
        found = [functions(piece) for piece in few]
        values = joined(v.array for v in found)
        provisional = Provisional.of(samples)
        if functions.linear:
            target = Target(provisional.standardise.mean, provisional.standardise.scale)
        else:
            target = Target.of(values.reshape(-1, values.shape[-1]))
        labels, shape = found[0].labels, found[0].shape
        return cls(source, functions, folds, parts, fitted, provisional, target, labels, shape, degree)

    def tiles(self, piece: Piece, values: np.ndarray | None, size: int) -> Iterator[tuple]:
        """A piece as tiles within a segment: the segment, the first draw, t, s and f (out, m), if it is given."""
        for part in self.parts:
            low, high = max(part.start, piece.start), min(part.stop, piece.start + piece.draws.shape[1])
            for first in range(low, high, size):
                rows = slice(first - piece.start, min(first + size, high) - piece.start)
                x, score = (np.asarray(a[part.chain, rows], np.float64) for a in (piece.draws, piece.scores))
                t, s = self.provisional(x, score, self.source.where, part.chain, first)
                yield part, first, t, s, None if values is None else values[part.chain, rows].T

    def first_pass(self, products: "BlockProducts | None" = None) -> tuple[FoldSums, list[tuple]]:
        """The sums of every fold, and t, s and f at the draws where its penalties are compared."""
        dim, outputs, groups = self.source.shape[2], len(self.target.center), self.fitted.shape[1]
        table = 8.0 * (1 + dim + dim * (dim + 1) // 2) ** 2 if self.degree == 2 else 0.0
        table += 8.0 * outputs * (1 + dim) ** self.degree
        reserve(
            f"The sums of {groups} groups of draws in {dim} dimensions",
            (LANES * (groups + 1) + len(self.folds) + 4) * table + GIB / 4,
            "Use Polynomial(1), or fewer functions.",
        )
        draws = self.source.shape[0] * self.source.shape[1]
        sample = spaced_sample(draws, [fold.fitted_on for fold in self.folds])
        every = spacing(sample, most_fitted(dim, self.degree))
        lanes = [Lane(dim, self.degree, outputs, groups, every, self.functions.linear) for _ in range(LANES)]
        wanted = [judged_draws(fold, every) for fold in self.folds]

        def work(piece: Piece, lane: int) -> tuple[list[list[tuple]], list]:
            values = None if self.functions.linear and products is None else self.functions(piece).array
            kept: list[list[tuple]] = [[] for _ in self.folds]
            blocks: list = []
            for part, first, t, s, f in self.tiles(piece, values, lanes[lane].tile):
                if products is not None:
                    blocks.append(products.reduce(part, first, t, s, f, lane))
                if self.functions.linear:
                    f = None
                if f is not None:
                    f = (f - self.target.center[:, None]) / self.target.scale[:, None]
                lanes[lane].add(part.group, first, t, s, f)
                for k, rows in enumerate(wanted):
                    if self.fitted[k, part.group]:
                        for chain, index in rows:
                            if chain == part.chain:
                                low, high = np.searchsorted(index, [first, first + t.shape[1]])
                                pick = index[low:high] - first
                                if len(pick):
                                    y = (self.provisional.factor @ t[:, pick]) if f is None else f[:, pick]
                                    kept[k].append((chain, first, t[:, pick], s[:, pick], y))
            return kept, blocks

        found: list[list[tuple]] = [[] for _ in self.folds]
        for kept, blocks in in_lanes(work, self.source.tiles(self.functions.names)):
            for k, rows in enumerate(kept):
                found[k] += rows
            for part in blocks:
                products.add(part)  # type: ignore[union-attr]
        whole = [_total([lane.whole[group] for lane in lanes]) for group in range(groups)]
        spaced = whole
        if every > 1:
            spaced = [_total([lane.spaced[group] for lane in lanes]) for group in range(groups)]
        if self.functions.linear:
            for one in whole if every == 1 else [*whole, *spaced]:
                self._coordinates_as_f(one)
        judged = []
        for rows in found:
            rows.sort(key=lambda row: row[:2])
            judged.append(tuple(np.concatenate([row[i] for row in rows], axis=1) for i in (2, 3, 4)))
        folds = self._by_fold(whole)
        regressions = folds if every == 1 else self._by_fold(spaced)
        return FoldSums(folds, _total(whole), regressions, spaced), judged

    def _by_fold(self, groups: list[Sums]) -> list[Sums]:
        return [_total([s for s, used in zip(groups, pattern, strict=True) if used]) for pattern in self.fitted]

    def _coordinates_as_f(self, sums: Sums) -> None:
        """f is x, that is the factor times t in provisional units: its products with t and s are in the table."""
        factor = self.provisional.factor
        sums.square = np.einsum("ij,jk,ik->i", factor, sums.second(scores=False), factor)
        if sums.degree == 2:
            sums.cross = factor @ sums.cross_of_draws()
        else:
            sums.cross[:, 0] = factor @ sums.first(scores=False)
            sums.cross[:, 1:] = factor @ sums.mixed

    def second_pass(self, controls: Sequence[Control], everything: FoldMap, judged: tuple) -> Passed:
        """f and f + g at every draw, as block means; g by the fold that has not seen it."""
        chains, draws, dim = self.source.shape
        outputs = len(self.target.center)
        blocks = Blocks.of(chains, draws, 2 * outputs + 2 * dim + 1)
        # about their values at one draw: where f + g is constant nothing is left to round
        t, s, y = (x[:, :1] for x in judged)
        f = self.target.center + self.target.scale * y[:, 0]
        plain, better = Series(blocks, chains, f), Series(blocks, chains, f + controls[0](t, s)[:, 0])
        stein = Series(blocks, chains, np.zeros(2 * dim + 1))
        lanes = [Tails(outputs, chains * draws) for _ in range(LANES)]

        def work(piece: Piece, lane: int) -> list[tuple[Reduced, ...]]:
            values = self.functions(piece).array
            found = []
            checks = np.empty((2 * dim + 1, TILE))
            for part, first, t, s, f in self.tiles(piece, values, TILE):
                check = checks[:, : t.shape[1]]
                z, check[:dim] = everything(t, s)
                np.multiply(z, check[:dim], out=check[dim:-1])
                check[dim:-1] += 1
                np.sum(check[dim:-1], axis=0, out=check[-1])
                f = np.ascontiguousarray(f)
                lanes[lane].add(f)
                controlled = controls[part.test](t, s)
                controlled += f
                columns = zip((plain, better, stein), (f, controlled, check), strict=True)
                found.append(tuple(series.reduce(part.chain, first, x) for series, x in columns))
            return found

        for found in in_lanes(work, self.source.tiles(self.functions.names)):
            for parts in found:
                for series, part in zip((plain, better, stein), parts, strict=True):
                    series.add(part)
        for lane in lanes[1:]:
            lanes[0].merge(lane)
        tail = lanes[0].index() if blocks.size > 1 else np.zeros(outputs)
        return Passed(self.labels, self.shape, blocks, plain, better, stein, tail)


def _total(parts: list[Sums]) -> Sums:
    whole = Sums(parts[0].dim, parts[0].degree, parts[0].outputs)
    for part in parts:
        whole += part
    return whole


def in_lanes(work: Callable[[Piece, int], Any], pieces: Iterator[Piece]) -> Iterator[Any]:
    """`work(piece, lane)` of all pieces, in their order; a lane has one piece at a time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    waiting: deque[Future] = deque()
    with ThreadPoolExecutor(min(LANES, cores), "steincv") as pool:
        try:
            for k, piece in enumerate(pieces):
                if len(waiting) == LANES:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(work, piece, k % LANES))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate(list(parts), axis=1)
