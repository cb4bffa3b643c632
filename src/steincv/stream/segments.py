"""Folds of streamed draws as ranges: the same as `_folds.make_folds`, without an index for every draw."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..families.polynomial.ridge import judged_every
from ..runtime.validation import InputError, whole_number
from ..stein.folds import make_folds


class Range(NamedTuple):
    """The draws `start` to `stop` of a chain."""

    chain: int
    start: int
    stop: int


@dataclass(frozen=True)
class RangeFold:
    """Fit on `train`, evaluate on `test`; the draws of a fold are numbered in this order."""

    train: tuple[Range, ...]
    test: tuple[Range, ...]

    @property
    def fitted_on(self) -> int:
        return sum(r.stop - r.start for r in self.train)


def range_folds(chains: int, draws: int, folds: int | None = None, gap: int = 0) -> list[RangeFold]:
    """Whole chains where there are at least two, else contiguous blocks of the one."""
    if chains >= 2:
        plan = make_folds(chains, 2, folds, gap)  # the chains of a fold do not depend on how long they are
        return [
            RangeFold(*(tuple(Range(int(c), 0, draws) for c in block.chains) for block in (fold.train, fold.test)))
            for fold in plan
        ]
    gap = whole_number("gap", gap, 0)
    count = min(5, draws) if folds is None else whole_number("folds", folds, 2)
    if count > draws:
        raise InputError(f"`folds` is {count} but there are only {draws} draws.")
    sizes = [draws // count + (k < draws % count) for k in range(count)]  # as numpy.array_split cuts
    edges = np.cumsum([0, *sizes]).tolist()
    result = []
    for start, stop in pairwise(edges):
        parts = [Range(0, 0, max(0, start - gap)), Range(0, min(draws, stop + gap), draws)]
        train = tuple(r for r in parts if r.stop > r.start)
        if sum(r.stop - r.start for r in train) < 2:
            raise InputError(f"`gap` = {gap} leaves too few draws to fit on. Use a smaller gap.")
        result.append(RangeFold(train, (Range(0, start, stop),)))
    return result


class Segment(NamedTuple):
    """A range of draws that every fold either fits on as a whole, or does not look at.

    `group`: draws that the same folds fit on and the same fold evaluates, `test`, share their sums.
    """

    chain: int
    start: int
    stop: int
    group: int
    test: int


def segments(folds: list[RangeFold], chains: int, draws: int) -> tuple[list[Segment], np.ndarray]:
    """The segments, and which groups each fold fits on, `(fold, group)`."""
    every = [r for fold in folds for r in (*fold.train, *fold.test)]
    patterns: dict[tuple[tuple[bool, ...], int], int] = {}
    found = []
    for chain in range(chains):
        mine = [r for r in every if r.chain == chain]
        edges = sorted({0, draws, *(r.start for r in mine), *(r.stop for r in mine)})
        for start, stop in pairwise(edges):
            inside = [
                tuple(any(r.chain == chain and r.start <= start < r.stop for r in part) for part in (f.train, f.test))
                for f in folds
            ]
            test = [tested for _, tested in inside].index(True)
            group = patterns.setdefault((tuple(train for train, _ in inside), test), len(patterns))
            found.append(Segment(chain, start, stop, group, test))
    return found, np.array([pattern for pattern, _ in patterns]).T


def judged_draws(fold: RangeFold, spaced: int = 1) -> list[tuple[int, np.ndarray]]:
    """Where a fold's penalties are compared, by chain: at the first of the draws it is fitted on and every so many.

    Those are the draws whose numbers are multiples of `spaced`.
    """
    looked_at = [range(r.start + -r.start % spaced, r.stop, spaced) for r in fold.train]
    every, before, found = judged_every(sum(map(len, looked_at))), 0, []
    for r, numbers in zip(fold.train, looked_at, strict=True):
        found.append((r.chain, np.array(numbers[-before % every :: every], dtype=int)))
        before += len(numbers)
    return found
