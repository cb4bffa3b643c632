"""Indicators of outputs of f, and for every fold the control variates that take their jumps out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..runtime.threads import side_by_side
from ..runtime.validation import reserve
from ..samples.derivatives import Derivatives
from .folds import Fold
from .rises import Place, find_place, monotone_in
from .steps import Step, fit_step


class Search(NamedTuple):
    """Numbers of the search for a quantile; none of them was swept."""

    rounds: int = 3  # of Newton's method on the distribution function with the jump taken out
    farthest: float = 4.0  # plain standard errors that it may go
    unlike: float = 3.0  # the density may differ by this factor from the plain one
    nearby: float = 1.0  # quantiles are compared so many standard errors of a level apart, at least
    share: float = 0.25  # and so large a share of the smaller tail
    harmful: float = 2.0  # times the variance of the indicator: a base that leaves more of it is left out
    batches: int = 20  # of the draws, by which a base's mean is compared with zero,
    off: float = 5.0  # standard errors from which it is left out: f has a kink, or the scores are wrong
    work: float = 2e4  # operations per draw, output and fold, to an order of magnitude


SEARCH = Search()


class Columns(NamedTuple):
    """Indicators: column j is 1 where output `output[j]` of f is above `cut[j]`, if `above`, else where it is not."""

    output: Int[np.ndarray, " column"]
    cut: Float[np.ndarray, " column"]
    above: Bool[np.ndarray, " column"]

    def __call__(self, values: Float[np.ndarray, "*rows out"]) -> Float[np.ndarray, "*rows column"]:
        return 1.0 * ((values[..., self.output] > self.cut) == self.above)


class Points(NamedTuple):
    """States of chains with f at each, as in `families.method.Training`; chains after those of the folds are idle."""

    draws: Float[np.ndarray, "chain state dim"]
    scores: Float[np.ndarray, "chain state dim"]
    values: Float[np.ndarray, "chain state out"]
    folds: Sequence[Fold]
    states: int
    weight: Float[np.ndarray, "chain state"] | None

    def rows(self, fold: Fold, *, train: bool) -> Int[np.ndarray, " n"]:
        """Return the numbers of the draws that a fold is fitted on, or of all states that it is judged by."""
        number = np.arange(self.draws.shape[0] * self.draws.shape[1]).reshape(self.draws.shape[:2])
        block, own = (fold.train, np.zeros(1, int)) if train else (fold.test, np.arange(self.states))
        return number[np.ix_(block.chains, (block.draws[:, None] * self.states + own).ravel())].ravel()


@dataclass(frozen=True, eq=False)
class Jumps:
    """What was found: the columns, how each output rises (None: unknown), and the base of every fold.

    - `density`: of f at every cut, where a quantile was asked for.
    - `doubt`: how far each probability may be off because the place of the jump is only known between draws.
    """

    columns: Columns
    how: tuple[str | None, ...]
    base: Float[np.ndarray, "fold chain state column"]
    density: Float[np.ndarray, " column"]
    doubt: Float[np.ndarray, " column"]


class Wanted(NamedTuple):
    """Of one output: cuts, or levels of quantiles where `levels` is given; the columns are above the cuts or not."""

    output: int
    cuts: Float[np.ndarray, " cut"]
    above: bool = False
    levels: Float[np.ndarray, " cut"] | None = None
    errors: Float[np.ndarray, " cut"] | None = None


def find_jumps(points: Points, wanted: Sequence[Wanted], differentiate: Callable[[], Derivatives | None]) -> Jumps:
    """Fit a step to every wanted output on every fold's training draws, and evaluate it at all states.

    `differentiate` is asked only where some output is not a function of one coordinate.
    """
    chains, states, dim = points.draws.shape
    count = sum(len(one.cuts) for one in wanted)
    reserve(
        f"{count} steps on {chains * states} draws",
        8.0 * (len(points.folds) + 4) * chains * states * count,
        "Ask for fewer outputs or levels at a time.",
    )
    x, s = points.draws.reshape(-1, dim), points.scores.reshape(-1, dim)
    f = points.values.reshape(len(x), -1)
    coordinate = monotone_in(x, f)
    derivatives = None if all(coordinate[one.output] >= 0 for one in wanted) else differentiate()
    base = np.zeros((len(points.folds), len(x), count))
    start = np.cumsum([0, *(len(one.cuts) for one in wanted)])

    def one(j: int) -> tuple[np.ndarray, np.ndarray, str | None, np.ndarray]:
        asked = wanted[j]
        place = find_place(asked.output, x, s, f[:, asked.output], coordinate[asked.output], derivatives)
        cuts, density = asked.cuts, np.zeros(len(asked.cuts))
        if asked.levels is not None:
            density = plain_density(f[:, asked.output], asked.levels, asked.errors)
        if place is None:
            return cuts, density, None, np.zeros(len(cuts))
        steps = [fit_step(place.rise.part(rows), x[rows]) for rows in trained]
        if asked.levels is not None and place.how != "regression":
            cuts, density = _search(points, place, steps, x, asked)
        sign = -1.0 if place.falls != asked.above else 1.0
        here = place.cut(cuts)
        jumps = 1.0 * (place.rise.h[:, None] <= here)
        mine = base[:, :, start[j] : start[j + 1]]
        for k, (step, rows) in enumerate(zip(steps, trained, strict=True)):
            g = step(place.rise, x, here)
            fine = (jumps[rows] + g[rows]).var(axis=0) <= SEARCH.harmful * jumps[rows].var(axis=0)
            mine[k] = np.where(fine & np.isfinite(g).all(axis=0), sign * g, 0.0)
        mine[..., _off_zero(np.concatenate([mine[k, rows] for k, rows in enumerate(tests)]))] = 0.0
        doubt = _density(place.rise.h, here) * place.doubt(cuts)
        if place.how == "regression":  # h is only like f: a draw may lie between their cuts
            doubt = np.maximum(doubt, points.states / len(x))
        doubt = np.where(mine.any(axis=(0, 1)), doubt, 0.0)
        return cuts, density, place.how if mine.any() else None, doubt

    trained = [points.rows(fold, train=True) for fold in points.folds]
    # of orbits, whose states have their weights, the first is the draw
    tests = [points.rows(fold, train=False)[:: points.states] for fold in points.folds]
    tasks = [lambda j=j: one(j) for j in range(len(wanted))]
    # derivatives are JAX's: they are asked for one output after the other
    found = [task() for task in tasks] if derivatives is not None else side_by_side(tasks, SEARCH.work * len(x))
    columns = Columns(
        np.repeat([one.output for one in wanted], np.diff(start)),
        np.concatenate([cuts for cuts, *_ in found]),
        np.repeat([one.above for one in wanted], np.diff(start)),
    )
    shape = (len(points.folds), chains, states, count)
    density, doubt = (np.concatenate([one[k] for one in found]) for k in (1, 3))
    return Jumps(columns, tuple(one[2] for one in found), base.reshape(shape), density, doubt)


def _off_zero(g: Float[np.ndarray, "n cut"]) -> Bool[np.ndarray, " cut"]:
    """Return of which columns the mean is too far from zero for a control variate, by means over stretches of draws."""
    if len(g) < 4 * SEARCH.batches:
        return np.zeros(g.shape[1], dtype=bool)
    means = np.array([part.mean(axis=0) for part in np.array_split(g, SEARCH.batches)])
    error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    return np.abs(means.mean(axis=0)) > SEARCH.off * error


def _density(h: Float[np.ndarray, " n"], at: Float[np.ndarray, " cut"]) -> Float[np.ndarray, " cut"]:
    """Return the density of h at some places, from as many of its neighbours on either side as the root of all."""
    ordered, n = np.sort(h), len(h)
    place, near = np.searchsorted(ordered, at), max(5, int(np.sqrt(n)))
    low, high = np.clip(place - near, 0, n - 1), np.clip(place + near, 0, n - 1)
    width = ordered[high] - ordered[low]
    return np.divide((high - low) / n, width, out=np.zeros_like(width), where=width > 0)


def plain_density(f: np.ndarray, levels: np.ndarray, errors: np.ndarray | None) -> np.ndarray:
    """Return the density at quantiles by the quantiles a little to either side; `errors`: of the levels."""
    reach = SEARCH.share * np.minimum(levels, 1 - levels)
    if errors is not None:
        reach = np.maximum(reach, SEARCH.nearby * errors)
    low, high = np.maximum(levels - reach, 0.0), np.minimum(levels + reach, 1.0)
    width = np.quantile(f, high) - np.quantile(f, low)
    return np.divide(high - low, width, out=np.zeros_like(width), where=width > 0)


def _search(
    points: Points, place: Place, steps: Sequence[Step], x: np.ndarray, asked: Wanted
) -> tuple[np.ndarray, np.ndarray]:
    """Return where the distribution function with the jump taken out has the wanted levels, and the density there."""
    assert asked.levels is not None
    assert asked.errors is not None
    levels = 1 - asked.levels if place.falls else asked.levels
    tests = [points.rows(fold, train=False) for fold in points.folds]
    weight = np.ones(len(x)) if points.weight is None else points.weight.reshape(-1)
    total = sum(weight[rows].sum() for rows in tests)
    first = place.cut(asked.cuts)
    usual = plain_density(place.rise.h, levels, asked.errors)
    cut, density = first, usual
    farthest = SEARCH.farthest * np.divide(asked.errors, usual, out=np.zeros_like(usual), where=usual > 0)
    for _ in range(SEARCH.rounds):
        reached, rate = np.zeros(len(cut)), np.zeros(len(cut))
        for step, rows in zip(steps, tests, strict=True):
            rise, here = place.rise.part(rows), x[rows]
            reached += weight[rows] @ ((rise.h[:, None] <= cut) + step(rise, here, cut)) / total
            rate += weight[rows] @ step.density(rise, here, cut) / total
        density = np.clip(rate, usual / SEARCH.unlike, usual * SEARCH.unlike)
        move = np.divide(reached - levels, density, out=np.zeros_like(cut), where=density > 0)
        cut = np.clip(cut - move, first - farthest, first + farthest)
    value, slope = place.back(cut)
    return value, np.divide(density, slope, out=np.zeros_like(density), where=slope > 0)
