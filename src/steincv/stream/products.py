"""One pass instead of two: what the error bars of a quadratic control variate need, kept as sums over blocks."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .coordinates import FoldMap
from .segments import Segment
from .series import Blocks, Series, Tails

if TYPE_CHECKING:
    from .passes import FoldSums, Passed, Stream


class BlockProducts:
    r"""Sums of $(1, t) \otimes (1, s)$ over blocks: a quadratic g is linear in them, so one pass is enough.

    Kept where there are so many draws that a block is many of them. A block that two folds evaluate is two slots.
    """

    def __init__(self, stream: "Stream", blocks: Blocks, lanes: int):
        self.stream, self.blocks = stream, blocks
        size, last = blocks.size, blocks.count - 1
        self.slots = [range(min(p.start // size, last), min((p.stop - 1) // size, last) + 1) for p in stream.parts]
        self.first = dict(zip(stream.parts, np.cumsum([0, *map(len, self.slots)]).tolist(), strict=False))
        width = 1 + stream.source.shape[2]
        self.sums = np.zeros((sum(map(len, self.slots)), width, width))
        self.plain = Series(blocks, stream.source.shape[0], stream.target.center)
        outputs, draws = len(stream.target.center), stream.source.shape[0] * stream.source.shape[1]
        self.tails = [Tails(outputs, draws) for _ in range(lanes)]

    @classmethod
    def of(cls, stream: "Stream", lanes: int) -> "BlockProducts | None":
        chains, draws, dim = stream.source.shape
        blocks = Blocks.of(chains, draws, 2 * len(stream.target.center) + (1 + dim) ** 2)
        return cls(stream, blocks, lanes) if stream.degree == 2 and blocks.size > 1 else None

    def reduce(self, part: Segment, start: int, t: np.ndarray, s: np.ndarray, f: np.ndarray, lane: int) -> tuple:
        """What is kept of a tile: its slots with their sums, and f."""
        one = np.ones((1, t.shape[1]))
        left, right = np.concatenate([one, t]), np.concatenate([one, s])
        size, last = self.blocks.size, self.blocks.count - 1
        first = min(start // size, last)
        edges = [0, *(k * size - start for k in range(first + 1, min((start + t.shape[1] - 1) // size, last) + 1))]
        slot = self.first[part] + first - min(part.start // size, last)
        sums = [left[:, a:b] @ right[:, a:b].T for a, b in pairwise([*edges, t.shape[1]])]
        f = np.ascontiguousarray(f)
        self.tails[lane].add(f)
        return slot, sums, self.plain.reduce(part.chain, start, f)

    def add(self, part: tuple) -> None:
        slot, sums, plain = part
        for k, one in enumerate(sums):
            self.sums[slot + k] += one
        self.plain.add(plain)

    def passed(self, controls: Sequence[Any], everything: FoldMap, sums: "FoldSums") -> "Passed":
        """What a second pass would leave."""
        from .passes import Passed

        stream, blocks = self.stream, self.blocks
        chains, _, dim = stream.source.shape
        stein_rows = stein_map(everything)
        better = Series(blocks, chains, self.plain.center)
        stein = Series(blocks, chains, np.zeros(2 * dim + 1))
        better.sums += self.plain.sums
        for part, slots in zip(stream.parts, self.slots, strict=True):
            first = self.first[part]
            p = self.sums[first : first + len(slots)].reshape(len(slots), -1)
            here = slice(slots.start, slots.stop)
            better.sums[part.chain, :, here] += controls[part.test].coefficients @ p.T
            stein.sums[part.chain, :, here] += stein_rows @ p.T
        tests = {part.group: part.test for part in stream.parts}
        scale = stream.target.scale
        # second moments of f + g and of the Stein means, from the draws whose products are there
        n, seen = sums.everything.count, sum(one.count for one in sums.groups)
        total, second, stein_second = np.zeros_like(scale), np.zeros_like(scale), np.zeros(2 * dim + 1)
        for group, one in enumerate(sums.groups):
            v = controls[tests[group]].coefficients
            gram = one.gram()
            mixed = 2 * scale * np.einsum("ki,ki->k", v, one.cross)
            total += scale * one.cross[:, 0] + v @ gram[0]
            second += scale**2 * one.square + mixed + np.einsum("ki,ij,kj->k", v, gram, v, optimize=True)
            stein_second += np.einsum("ki,ij,kj->k", stein_rows, gram, stein_rows, optimize=True)
        variance = second / seen - (total / seen) ** 2
        stein.square[0] += n / seen * stein_second
        better.move(better.sums.sum(axis=(0, 2)) / n)
        # where nothing is left but round-off the sum of squares is all cancellation: the block means have more digits
        left = blocks.size * (better.means() - better.center).var(axis=(0, 1))
        cancelled = variance < 1e-10 * (self.plain.square.sum(axis=0) / n)
        better.square[0] = n * np.where(cancelled, left, variance)
        for lane in self.tails[1:]:
            self.tails[0].merge(lane)
        labels, shape = stream.labels, stream.shape
        return Passed(labels, shape, blocks, self.plain, better, stein, self.tails[0].index())


def stein_map(coordinates: FoldMap) -> np.ndarray:
    """s_i, z_i s_i + 1 and the sum of the latter as combinations of `(1, t) x (1, s)`."""
    a, b, dim = coordinates.a, coordinates.b, len(coordinates.center)
    rows = np.zeros((2 * dim + 1, 1 + dim, 1 + dim))
    rows[:dim, 0, 1:] = b
    rows[dim:-1, 1:, 1:] = a[:, :, None] * b[:, None, :]
    rows[dim:-1, 0, 1:] = -(a @ coordinates.center)[:, None] * b
    rows[dim:-1, 0, 0] = 1
    rows[-1] = rows[dim:-1].sum(axis=0)
    return rows.reshape(2 * dim + 1, -1)
