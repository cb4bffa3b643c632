"""Indicators of outputs of f, and for every fold the control variates that take their jumps out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..runtime.threads import side_by_side
from ..runtime.validation import reserve
from ..samples.derivatives import Derivatives
from ..samples.samples import Samples
from .folds import Fold
from .rises import Crossing, Place, find_place, monotone_in
from .steps import Sides, Step, fit_steps


class Search(NamedTuple):
    """Numbers of the search for a quantile; none of them was swept."""

    rounds: int = 3  # of Newton's method on the distribution function with the jump taken out
    farthest: float = 4.0  # plain standard errors that it may go
    near: float = 0.005  # share of that from which on one more round would move the quantile by its square
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

    def labels(self, outputs: Sequence[str]) -> tuple[str, ...]:
        """Return the name of every probability."""
        each = zip(self.output, self.cut, self.above, strict=True)
        return tuple(f"P({outputs[o]} {'>' if above else '<='} {c:g})" for o, c, above in each)


class Points(NamedTuple):
    """States of chains with f at each, as in `families.method.Training`; chains after those of the folds are idle.

    - `again`: where draws have weights of their own, what takes each as often as its weight says.
    """

    draws: Float[np.ndarray, "chain state dim"]
    scores: Float[np.ndarray, "chain state dim"]
    values: Float[np.ndarray, "chain state out"]
    folds: Sequence[Fold]
    states: int
    weight: Float[np.ndarray, "chain state"] | None
    again: Callable[[np.ndarray], np.ndarray] | None = None

    def rows(self, fold: Fold, *, train: bool) -> Int[np.ndarray, " n"]:
        """Return the numbers of the draws that a fold is fitted on, or of all states that it is judged by."""
        number = np.arange(self.draws.shape[0] * self.draws.shape[1]).reshape(self.draws.shape[:2])
        block, own = (fold.train, np.zeros(1, int)) if train else (fold.test, np.arange(self.states))
        found = number[np.ix_(block.chains, (block.draws[:, None] * self.states + own).ravel())].ravel()
        if train and self.again is not None and self.weight is not None:
            return found[self.again(self.weight.reshape(-1)[found])]
        return found


class Wanted(NamedTuple):
    """Of one output: cuts, or levels of quantiles where `levels` is given; the columns are above the cuts or not."""

    output: int
    cuts: Float[np.ndarray, " cut"]
    above: bool = False
    levels: Float[np.ndarray, " cut"] | None = None
    errors: Float[np.ndarray, " cut"] | None = None


class Taken(NamedTuple):
    """What takes the jumps of one output out: its cuts, and for every fold a step, where `kept`.

    - `density`: of f at every cut, where a quantile was asked for.
    - `doubt`: how far each probability may be off because the place of the jump is only known between draws.
    """

    wanted: Wanted
    cuts: Float[np.ndarray, " cut"]
    density: Float[np.ndarray, " cut"]
    doubt: Float[np.ndarray, " cut"]
    kept: Bool[np.ndarray, "fold cut"]
    place: Place | None = None
    steps: Sequence[Step] = ()

    @property
    def how(self) -> str:
        """Along what the output rises."""
        return self.place.how if self.place is not None and self.kept.any() else "unknown"

    def elsewhere(self, fold: int, x: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "n cut"]:
        """Return a fold's base at other points; zero where it is only known at those that it was made for."""
        if self.place is None or self.place.elsewhere is None or not self.kept[fold].any():
            return np.zeros((len(x), len(self.cuts)))
        sides = self.steps[fold].sides(self.place.elsewhere(x, s), x)
        return np.where(self.kept[fold], self.at(sides, self.place.crossings(self.cuts)), 0.0)

    def at(self, sides: Sides, crossings: Sequence[Crossing]) -> Float[np.ndarray, "n cut"]:
        """Return the control variate of a fold, for the columns that were asked for."""
        each = [one.sign * sides(one.at)[0] for one in crossings]
        g = each[0] if len(each) == 1 else np.sum(each, axis=0)
        return -g if self.wanted.above else g


@dataclass(frozen=True, eq=False)
class Jumps:
    """What was found: the columns, what takes the jumps of every output out, and the base of every fold."""

    columns: Columns
    taken: Sequence[Taken]
    base: Float[np.ndarray, "fold chain state column"]

    @property
    def density(self) -> Float[np.ndarray, " column"]:
        return np.concatenate([one.density for one in self.taken])

    @property
    def doubt(self) -> Float[np.ndarray, " column"]:
        return np.concatenate([one.doubt for one in self.taken])

    def elsewhere(self, fold: int, samples: Samples) -> Float[np.ndarray, "chain draw column"]:
        """Return a fold's base at other draws."""
        x, s = (a.reshape(-1, samples.dim) for a in (samples.draws, samples.scores))
        found = np.concatenate([one.elsewhere(fold, x, s) for one in self.taken], axis=1)
        return found.reshape(*samples.draws.shape[:2], -1)


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
    like, own = f, np.ones((len(x), 1))  # f as often as weights of draws say, and these weights
    if points.again is not None and points.weight is not None:
        like, own = f[points.again(points.weight.reshape(-1))], points.weight.reshape(-1, 1)
    base = np.zeros((len(points.folds), len(x), count))
    start = np.cumsum([0, *(len(one.cuts) for one in wanted)])

    def one(j: int) -> Taken:
        asked, values = wanted[j], f[:, wanted[j].output]
        place = find_place(asked.output, x, s, values, coordinate[asked.output], derivatives)
        density = np.zeros(len(asked.cuts))
        if asked.levels is not None:
            density = plain_density(like[:, asked.output], asked.levels, asked.errors)
        kept = np.zeros((len(points.folds), len(asked.cuts)), dtype=bool)
        found = Taken(asked, asked.cuts, density, np.zeros(len(asked.cuts)), kept, place)
        if place is None:
            return found
        if place.within is None:
            places, steps = [place] * len(trained), fit_steps(place.rise, x, trained)
        else:
            places = [place.within(rows) for rows in trained]
            steps = [fit_steps(each.rise, x, [rows])[0] for each, rows in zip(places, trained, strict=True)]
        found = found._replace(steps=steps)
        sides = [step.sides(each.rise, x) for step, each in zip(steps, places, strict=True)]
        if asked.levels is not None and place.how != "regression":
            cuts, density = _search(points, places, sides, values, density, asked)
            found = found._replace(cuts=cuts, density=density)
        jumps = 1.0 * (values[:, None] <= found.cuts)
        sign, crossings = -1.0 if asked.above else 1.0, _crossings(places, found.cuts)
        mine = base[:, :, start[j] : start[j + 1]]
        for k, rows in enumerate(trained):
            mine[k] = found.at(sides[k], crossings[k])
            before = jumps[rows]
            left, share = before + sign * mine[k, rows], before.mean(axis=0)
            left -= left.mean(axis=0)
            harmless = np.einsum("nc,nc->c", left, left) <= SEARCH.harmful * len(left) * share * (1 - share)
            kept[k] = harmless & np.isfinite(mine[k]).all(axis=0)
        if not kept.all():
            mine[~np.broadcast_to(kept[:, None], mine.shape)] = 0.0
        off = _off_zero(np.concatenate([own[rows] * mine[k, rows] for k, rows in enumerate(tests)]))
        mine[..., off], kept[:, off] = 0.0, False
        doubt = _density(place.rise.h, place.cut(found.cuts)) * place.doubt(found.cuts)
        if place.how == "regression":  # h is only like f: a draw may lie between their cuts
            doubt = np.maximum(doubt, points.states / len(x))
        return found._replace(doubt=np.where(kept.any(axis=0), doubt, 0.0))

    trained = [points.rows(fold, train=True) for fold in points.folds]
    # of orbits, whose states have their weights, the first is the draw
    tests = [points.rows(fold, train=False)[:: points.states] for fold in points.folds]
    tasks = [lambda j=j: one(j) for j in range(len(wanted))]
    # derivatives are JAX's: they are asked for one output after the other
    taken = [task() for task in tasks] if derivatives is not None else side_by_side(tasks, SEARCH.work * len(x))
    columns = Columns(
        np.repeat([one.output for one in wanted], np.diff(start)),
        np.concatenate([one.cuts for one in taken]),
        np.repeat([one.above for one in wanted], np.diff(start)),
    )
    return Jumps(columns, taken, base.reshape(len(points.folds), chains, states, count))


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


def _crossings(places: Sequence[Place], cuts: np.ndarray) -> list[list[Crossing]]:
    """Return the crossings of every fold's place; of one that they share they are looked for once."""
    first = places[0].crossings(cuts)
    return [first if place is places[0] else place.crossings(cuts) for place in places]


def _search(
    points: Points,
    places: Sequence[Place],
    sides: Sequence[Sides],
    f: np.ndarray,
    usual: np.ndarray,
    asked: Wanted,
) -> tuple[np.ndarray, np.ndarray]:
    """Return where the distribution function with the jump taken out has the wanted levels, and the density there."""
    assert asked.levels is not None
    assert asked.errors is not None
    place = places[0]
    if place.knots is not None:  # in units of h, along which f may be level
        levels = 1 - asked.levels if place.falls else asked.levels
        instead = asked._replace(cuts=place.cut(asked.cuts), levels=levels)
        like = plain_density(place.rise.h, levels, asked.errors)
        itself = Place(place.rise, place.how)
        cut, density = _search(points, [itself] * len(places), sides, place.rise.h, like, instead)
        value, slope = place.back(cut)
        return value, np.divide(density, slope, out=np.zeros_like(density), where=slope > 0)
    tests = [points.rows(fold, train=False) for fold in points.folds]
    weight = np.ones(len(f)) if points.weight is None else points.weight.reshape(-1)
    total = sum(weight[rows].sum() for rows in tests)
    controls = [one.part(rows) for one, rows in zip(sides, tests, strict=True)]
    cut, density = asked.cuts, usual
    farthest = SEARCH.farthest * np.divide(asked.errors, usual, out=np.zeros_like(usual), where=usual > 0)
    for _ in range(SEARCH.rounds):
        reached, rate = np.zeros(len(cut)), np.zeros(len(cut))
        for control, rows, crossings in zip(controls, tests, _crossings(places, cut), strict=True):
            reached += weight[rows] @ (1.0 * (f[rows, None] <= cut)) / total
            for at, sign, moves in (one.part(rows) for one in crossings):
                g, slope = control(at, rate=True)
                reached += weight[rows] @ (sign * g) / total
                rate += weight[rows] @ (moves * slope) / total
        density = np.clip(rate, usual / SEARCH.unlike, usual * SEARCH.unlike)
        move = np.divide(reached - asked.levels, density, out=np.zeros_like(cut), where=density > 0)
        cut = np.clip(cut - move, asked.cuts - farthest, asked.cuts + farthest)
        if (np.abs(move) <= SEARCH.near * farthest).all():
            break
    return cut, density
