"""Folds for cross-fitting: whole chains, or contiguous blocks of one chain. Never random.

Neighbouring draws of a Markov chain are nearly copies of each other. A random fold is therefore
fitted on near-copies of the draws it is judged by, and its error bars cover 82 % instead of 95 %.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..runtime.validation import InputError, whole_number


@dataclass(frozen=True, eq=False)
class Block:
    """A rectangle of draws: these chains, at these draw indices."""

    chains: np.ndarray
    draws: np.ndarray

    @property
    def size(self) -> int:
        """How many draws it has."""
        return len(self.chains) * len(self.draws)

    def take(self, array: np.ndarray) -> np.ndarray:
        """The block's part of an array `(chain, draw, ...)`."""
        return array[np.ix_(self.chains, self.draws)]

    def put(self, array: np.ndarray, values: np.ndarray) -> None:
        """Write `values` to the block's part of `array`."""
        array[np.ix_(self.chains, self.draws)] = values


@dataclass(frozen=True, eq=False)
class Fold:
    """Fit on `train`, evaluate on `test`."""

    train: Block
    test: Block


def make_folds(chains: int, draws: int, folds: int | None = None, gap: int = 0, step: int = 1) -> list[Fold]:
    """Return folds of whole chains where there are at least two, else of contiguous blocks.

    **Arguments:**

    - `folds`: how many; by default one per chain up to five, and five blocks of a single chain.
    - `gap`: for a single chain, how many draws on either side of a test block are left out of the
      fit, so that the two are less correlated. Whole chains need none.
    - `step`: the folds are of every so many draws only, 0, `step`, 2 `step`, ..., numbered 0, 1, 2, ...; they are cut
      where the folds of all draws are.
    """
    gap = whole_number("gap", gap, 0)
    count = _count(chains, draws, folds)
    index = np.arange(0, draws, step)
    if chains >= 2:
        every = np.arange(len(index))
        groups = np.array_split(np.arange(chains), count)
        return [Fold(Block(np.setdiff1d(np.arange(chains), group), every), Block(group, every)) for group in groups]
    one = np.zeros(1, dtype=int)
    result = []
    for start, stop in pairwise(_edges(draws, count)):
        train = np.flatnonzero((index < start - gap) | (index >= stop + gap))
        if len(train) < 2:
            raise InputError(f"`gap` = {gap} leaves {len(train)} draws to fit on. Use a smaller gap.")
        result.append(Fold(Block(one, train), Block(one, np.flatnonzero((index >= start) & (index < stop)))))
    return result


class Stretch(NamedTuple):
    """The draws `start` to `stop` of a chain, which the fold number `fold` evaluates."""

    chain: int
    start: int
    stop: int
    fold: int


def stretches(chains: int, draws: int, folds: int | None = None) -> list[Stretch]:
    """Return which fold of `make_folds` evaluates which draws, without an index for every draw."""
    count = _count(chains, draws, folds)
    if chains >= 2:
        groups = np.array_split(np.arange(chains), count)
        return [Stretch(int(chain), 0, draws, k) for k, group in enumerate(groups) for chain in group]
    return [Stretch(0, start, stop, k) for k, (start, stop) in enumerate(pairwise(_edges(draws, count)))]


def fewest_fitted(chains: int, draws: int, folds: int | None = None, gap: int = 0) -> int:
    """Return how many draws the smallest fold of `make_folds` is fitted on."""
    count = _count(chains, draws, folds)
    if chains >= 2:
        return (chains - -(-chains // count)) * draws
    cuts = pairwise(_edges(draws, count))
    return min(draws - min(draws, stop + gap) + max(0, start - gap) for start, stop in cuts)


def _count(chains: int, draws: int, folds: int | None) -> int:
    """Return how many folds there are."""
    if chains >= 2:
        folds = min(chains, 5) if folds is None else whole_number("folds", folds, 2)
        if folds > chains:
            raise InputError(
                f"`folds` is {folds} but there are {chains} chains, and a chain is never split between "
                f"fitting and evaluation. Use folds={chains} or fewer."
            )
        return folds
    folds = min(5, draws) if folds is None else whole_number("folds", folds, 2)
    if folds > draws:
        raise InputError(f"`folds` is {folds} but there are only {draws} draws.")
    return folds


def _edges(draws: int, count: int) -> list[int]:
    """Return where a chain is cut into `count` blocks, as `numpy.array_split` does."""
    return [0, *np.cumsum([draws // count + (k < draws % count) for k in range(count)]).tolist()]


def held_out(chains: int, draws: int, test_fraction: float) -> Fold:
    """Fit on the first part of every chain, evaluate on the rest: the paper's train/test protocol."""
    if not (isinstance(test_fraction, float | np.floating) and 0 < test_fraction < 1):
        raise InputError(f"`test_fraction` must lie strictly between 0 and 1, got {test_fraction!r}.")
    cut = draws - round(draws * test_fraction)
    if cut < 2 or draws - cut < 2:
        raise InputError(f"`test_fraction` = {test_fraction} of {draws} draws leaves nothing to fit or test on.")
    every = np.arange(chains)
    return Fold(Block(every, np.arange(cut)), Block(every, np.arange(cut, draws)))
