"""What every family of control variates is: a way to fit Phi on a standardised problem, fold by fold."""

import abc
import functools
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from ..runtime.threads import Arrays, Team, blas_threads, side_by_side, team
from ..runtime.validation import InputError, whole_number
from ..samples.samples import Samples
from ..stein.coordinates import Coordinates, Standardise
from ..stein.folds import Block, Fold, fewest_fitted, make_folds
from ..stein.learned.coordinates import LearnedCoordinates, SideBySide, learned_coordinates
from .problem import (
    SIZES,
    Control as Control,
    Cost,
    CrossFit as CrossFit,
    Fitted as Fitted,
    FoldProblem as FoldProblem,
    Place as Place,
    Problem as Problem,
    Simpler as Simpler,
    StandardValues,
    Term as Term,
    WeightedSum as WeightedSum,
    as_values as as_values,
    make_problem as make_problem,
    resampled as resampled,
    spaced_sample as spaced_sample,
    standard_values,
)

#: Which coordinates a member is fitted in: whitened by the draws' covariance or scaled one by one; learned from the
#: scores and whitened, or the same without whitening; or affine and learned ones side by side.
Kind = Literal["affine", "scaled", "learned", "unmixed", "both"]


class Method(abc.ABC):
    r"""A family of control variates: a small frozen object whose fields are its hyperparameters.

    **The law.** For every value of the fitted parameters, g is $\nabla\cdot\Phi + \Phi\cdot s$ of some
    smooth $\Phi$ that grows slower than $1/p$, so its mean under $p$ is zero. tests/test_laws.py runs
    this and the other laws on every row of tests/catalogue.py.

    A subclass is a frozen dataclass that implements `solve` and nothing else. It may say

    - `together = False` if every problem given to `solve` is fitted as if it were alone: its folds can then be
      fitted by different workers;
    - `weighted = True` if it looks at the states and weights of a problem; others are given the draws alone.
    """

    together: ClassVar[bool] = True
    weighted: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the name with those fields that differ from their defaults: `Polynomial(degree=3)`."""
        changed = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if not _is_default(self, f)]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(changed)})"

    def cost(self, n: int, dim: int, outputs: int) -> Cost:
        """Return what a fit on n draws costs, as far as it is known; the default leaves out what costs too much."""
        return Cost(0.0, 0.0)

    def sketch(self, states: int = 1) -> "Method":
        """Return a cheaper method for a race with orbits of so many states: this one itself, if there is none."""
        return self

    @abc.abstractmethod
    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        """Fit every problem. They are given together so that a family can fit them in one program."""

    def fit(self, samples: Samples, values: Any, *, seed: int = 0) -> Fitted:
        """Fit g to values of f, `(chain, draw)` or `(chain, draw, out)`, so that f + g varies little."""
        values, seed = as_values(samples, values), whole_number("seed", seed, 0)
        with blas_threads(samples.size * SIZES.work):
            problem, standardise, scale = make_problem(samples, values)
            problem = problem if self.weighted else problem.at_draws()
            return Fitted(standardise, scale, self.solve([problem], seed)[0])

    def cross_fit(
        self, samples: Samples, values: Float[np.ndarray, "chain draw out"], folds: Sequence[Fold], *, seed: int = 0
    ) -> CrossFit:
        """Fit on every fold's training draws, evaluate on its test draws."""
        data = (samples.draws, samples.scores, values, tuple(folds), samples.names, seed, len(samples.draws))
        return self.across(Training(*data))

    def across(self, training: "Training") -> CrossFit:
        """Return the out-of-fold g of a training that is already laid out."""
        return training.fit([Member(self, self.kind(training))])[0]

    def kind(self, training: "Training") -> "Kind":
        """Return the coordinates that this method is fitted in where it is asked for alone."""
        return "learned" if training.coordinates == "learned" else "affine"


class Member(NamedTuple):
    """A method to be fitted in coordinates of a kind, to those `outputs` only if they are given."""

    method: Method
    kind: Kind = "affine"
    outputs: np.ndarray | None = None

    def __str__(self) -> str:
        return f"{self.method}" if self.kind == "affine" else f"{self.method}, {self.kind} coordinates"


# Fits on folds ---------------------------------------------------------------------------------------


class _Answer(NamedTuple):
    """What a fit gives back: g at the test draws of its folds, how each came about, the seconds, and g as functions."""

    g: list[np.ndarray]
    infos: list[Mapping[str, Any]]
    seconds: float
    fitted: list[Fitted]


@dataclass(frozen=True, eq=False)
class Training:
    """Draws, scores and values of f with the folds they are cut into: a fold's problem is made once for all members.

    - `folds`: of the first `chains` chains, which are averaged over. Chains after them are only fitted on.
    - `states`, `weight`: every draw is this many states in a row, an orbit, or one with a weight; as in `Problem`.
    - `base`: for every fold a control variate whose parameters come from its training draws, at all states. Members
      are fitted to f with it, and have it in their g: what takes a jump out of f before any family sees it.
    - `keep`: g of every fold, without the base, is kept as a function, to be evaluated at other draws. Everything is
      then fitted in this process, for functions do not travel.
    - `like`: problems that were made of the same draws and folds for another f, or an empty dict where one is to come.
    """

    draws: Float[np.ndarray, "chain state dim"]
    scores: Float[np.ndarray, "chain state dim"]
    values: Float[np.ndarray, "chain state out"]
    folds: tuple[Fold, ...]
    names: tuple[str, ...]
    seed: int
    chains: int
    coordinates: str = "auto"
    states: int = 1
    weight: Float[np.ndarray, "chain state"] | None = None
    keep: bool = False
    base: Float[np.ndarray, "fold chain state out"] | None = None
    like: Mapping[tuple[int, str], FoldProblem] | None = None
    _made: dict[tuple[int, str], FoldProblem] = field(default_factory=dict)
    _values: dict[int, StandardValues] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @functools.cached_property
    def f(self) -> Float[np.ndarray, "chain draw out"]:
        """What is averaged over the draws: f, or its mean over each draw's orbit."""
        states = Block(np.arange(self.chains), np.arange(self.values.shape[1]))
        return self._over_orbits(states, states.take(self.values))

    def _over_orbits(self, states: Block, part: np.ndarray) -> np.ndarray:
        """Return what is known at a block of states, averaged over each draw's orbit."""
        if self.weight is None:
            return part
        weighted = part * states.take(self.weight)[..., None]
        return weighted.reshape(len(states.chains), -1, self.states, part.shape[-1]).sum(axis=2)

    def _of_states(self, block: Block) -> Block:
        if self.states == 1:
            return block
        return Block(block.chains, (block.draws[:, None] * self.states + np.arange(self.states)).ravel())

    def again(self, values: Float[np.ndarray, "chain state out"], base: np.ndarray | None) -> "Training":
        """Return the same for another f: what was made of draws and scores alone is not made again."""
        return replace(self, values=values, base=base, like=self._made, _made={}, _values={}, _lock=threading.Lock())

    @property
    def fewest(self) -> int:
        """The draws that the smallest fold is fitted on."""
        return min(fold.train.size for fold in self.folds)

    def fit(self, members: Sequence[Member], only: Sequence[Sequence[int]] | None = None) -> list[CrossFit]:
        """Return the out-of-fold g of every member, all members and folds side by side.

        With `only`, of the folds of these numbers, a list per member: g is zero at the test draws of all others.
        """
        every = [range(len(self.folds))] * len(members) if only is None else only
        jobs = [
            (m, which)
            for m, member in enumerate(members)
            for which in ([tuple(every[m])] if member.method.together else [(k,) for k in every[m]])
        ]
        answers = self._answers([(members[m], which) for m, which in jobs])
        fits = []
        for m, member in enumerate(members):
            mine = [answer for (which, _), answer in zip(jobs, answers, strict=True) if which == m]
            outputs = self.f.shape[-1] if member.outputs is None else len(member.outputs)
            g = np.zeros((*self.f.shape[:2], outputs))  # takes memory only where a fold fills it
            for k, part in zip(every[m], (part for answer in mine for part in answer.g), strict=True):
                self.folds[k].test.put(g, part)
            for answer in mine:
                answer.g.clear()  # of thousands of outputs the parts are as large as the whole
            infos = [dict(info) for answer in mine for info in answer.infos]
            info = {"seconds": sum(answer.seconds for answer in mine), "folds": infos}
            fits.append(CrossFit(g, info, fitted=[one for answer in mine for one in answer.fitted]))
        return fits

    def _answers(self, jobs: list[tuple[Member, tuple[int, ...]]]) -> list[_Answer]:
        crew = team()
        if isinstance(crew, Team) and not self.keep:
            shared = crew.share(self._arrays())
            layout = (self.names, self.seed, self.chains, self.coordinates, self.states, len(self.folds))
            return [ask() for ask in [crew.start(_fit_elsewhere, shared, layout, job) for job in jobs]]
        # one quick member: the problem of a fold is made for it and dropped, for all of them together are large
        quick = self.keep and all(member is jobs[0][0] for member, _ in jobs)
        once = quick and all(member.kind == "affine" and not member.method.together for member, _ in jobs)
        if not once:
            self.prepare({member.kind for member, _ in jobs})
        # members come cheapest first: the dearest begin, so that none of them is what all others wait for
        tasks = [functools.partial(self.run, *job, once=once) for job in jobs[::-1]]
        return side_by_side(tasks, self._work, here=[member.method.together for member, _ in jobs[::-1]])[::-1]

    @property
    def _work(self) -> float:
        return self.draws.shape[0] * self.draws.shape[1] * SIZES.work

    def prepare(self, kinds: Collection[Kind]) -> None:
        """Make the problems of all folds in coordinates of these kinds, side by side."""
        every = range(len(self.folds))
        needs: dict[Kind, tuple[Kind, ...]] = {"unmixed": ("learned", "scaled"), "both": ("affine", "learned")}
        wanted = {kind for asked in kinds for kind in (asked, *needs.get(asked, ()))}
        rounds = [
            [(k, kind) for kind in ("learned", "affine", "scaled") for k in every if kind != "learned" or k == 0],
            [(k, "learned") for k in every],
            [(k, kind) for kind in needs for k in every],
        ]
        for some in rounds:
            tasks = [(k, kind) for k, kind in some if kind in wanted and (k, kind) not in self._made]
            side_by_side([functools.partial(self.problem, *at) for at in tasks], self._work)

    def problem(self, k: int, kind: Kind) -> FoldProblem:
        """Return fold k's problem in coordinates of a kind; it is made when first asked for."""
        if (k, kind) not in self._made:
            made = self._make(k, kind)
            with self._lock:
                self._made.setdefault((k, kind), made)
        return self._made[k, kind]

    def _make(self, k: int, kind: Kind, keep: bool = True) -> FoldProblem:
        """Make fold k's problem; its standard values are the same in all coordinates, and kept unless told not to."""
        train = self.folds[k].train
        own = Block(train.chains, train.draws * self.states)  # an orbit begins with its draw
        weighted = self.states == 1 and self.weight is not None
        rows = resampled(own.take(self.weight).reshape(-1)) if weighted and self.weight is not None else slice(None)

        def like_draws(array: np.ndarray) -> np.ndarray:
            part = own.take(array)
            return part.reshape(own.size, -1)[rows].reshape(part.shape) if weighted else part

        draws = Samples.trusted(like_draws(self.draws), like_draws(self.scores), self.names)
        before = (self.like or {}).get((k, kind))
        coordinates = self._coordinates(k, kind, draws) if before is None else before.coordinates
        all_ = self._of_states(Block(np.append(train.chains, np.arange(self.chains, len(self.draws))), train.draws))
        alike = all_.size == own.size and not weighted
        samples = draws if alike else Samples.trusted(all_.take(self.draws), all_.take(self.scores), self.names)

        def flat(array: np.ndarray) -> np.ndarray:
            return array.reshape(-1, array.shape[-1])

        if (found := self._values.get(k)) is None:
            values = self.values if self.base is None else self.values + self.base[k]
            found = standard_values(flat(all_.take(values)), None if alike else flat(like_draws(values)))
            found = self._values.setdefault(k, found) if keep else found
        if before is not None:
            return FoldProblem(replace(before.problem, y=found.y, offset=found.offset), coordinates, found.scale)
        z, s = coordinates(samples)
        weight = None if self.weight is None else all_.take(self.weight).reshape(-1)
        if weighted and weight is not None:  # penalties are judged by squared weights, which is their variance
            weight = weight / weight.mean()
        size = spaced_sample(self.draws.shape[0] * self.draws.shape[1], [fold.train.size for fold in self.folds])
        place = Place(size, np.tile(train.draws, len(train.chains))) if all_.size == own.size else None
        parts, kept = 2 if isinstance(coordinates, SideBySide) else 1, None if self.like is None else dict[Any, Any]()
        problem = Problem(z, s, found.y, found.offset, len(samples.draws), self.states, weight, place, parts, kept)
        return FoldProblem(problem, coordinates, found.scale)

    def _coordinates(self, k: int, kind: Kind, draws: Samples) -> Coordinates:
        """Return fold k's coordinates of a kind, fitted to its training draws; the kind of map is fold 0's."""
        if kind in ("affine", "scaled"):
            affine = Standardise.of(draws)
            return affine if kind == "affine" else replace(affine, factor=None)
        if kind == "learned":
            first = None if k == 0 else self.problem(0, "learned").coordinates
            return learned_coordinates(draws, Samples.trusted(self.draws, self.scores, self.names), first)
        learned = self.problem(k, "learned").coordinates
        if kind == "both":
            usual = self.problem(k, "affine").coordinates
            return learned.beside(usual, draws) if isinstance(learned, LearnedCoordinates) else usual
        if isinstance(learned, LearnedCoordinates):
            return learned.unmixed(draws)
        return self.problem(k, "scaled").coordinates

    def run(self, member: Member, which: tuple[int, ...], once: bool = False) -> _Answer:
        """Fit a member on the folds called `which` and evaluate it at their test draws; `once`: keep no problem."""
        start = time.perf_counter()
        method, kind, outputs = member
        made = [self._make(k, kind, keep=False) if once else self.problem(k, kind) for k in which]
        problems = [m.problem.select(outputs) for m in made]
        controls = method.solve([p if method.weighted else p.at_draws() for p in problems], self.seed)
        found, kept = [], []
        for k, (_, coordinates, scale), control in zip(which, made, controls, strict=True):
            test = self._of_states(self.folds[k].test)
            if self.keep and control.form is not None:
                control = replace(control, evaluate=control.form)
            fitted = Fitted(coordinates, scale if outputs is None else scale[outputs], control)
            kept += [fitted] * self.keep
            g = fitted(Samples.trusted(test.take(self.draws), test.take(self.scores), self.names))
            if self.base is not None:
                g = g + test.take(self.base[k])[..., slice(None) if outputs is None else outputs]
            found.append(self._over_orbits(test, g))
        return _Answer(found, [dict(control.info) for control in controls], time.perf_counter() - start, kept)

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return all that a fit looks at, to be sent elsewhere."""
        arrays = {"draws": self.draws, "scores": self.scores, "values": self.values}
        arrays |= {name: a for name in ("weight", "base") if (a := getattr(self, name)) is not None}
        for k, fold in enumerate(self.folds):
            for name, block in (("train", fold.train), ("test", fold.test)):
                arrays[f"{k} {name} chains"], arrays[f"{k} {name} draws"] = block.chains, block.draws
        return arrays


def _fit_elsewhere(arrays: Arrays, layout: tuple, job: tuple[Member, tuple[int, ...]]) -> _Answer:
    """Run one job of a training that was sent as arrays."""
    names, seed, chains, coordinates, states, count = layout

    def block(k: int, name: str) -> Block:
        return Block(arrays[f"{k} {name} chains"], arrays[f"{k} {name} draws"])

    folds = tuple(Fold(block(k, "train"), block(k, "test")) for k in range(count))
    data = (arrays["draws"], arrays["scores"], arrays["values"], folds)
    training = Training(*data, names, seed, chains, coordinates, states, arrays.get("weight"), base=arrays.get("base"))
    with blas_threads(training._work):
        return training.run(*job)


def _is_default(method: Method, f: "Field[Any]") -> bool:
    return bool(getattr(method, f.name) == (f.default_factory() if f.default_factory is not MISSING else f.default))


# More draws than are held or fitted on -------------------------------------------------------------


class LargeSamples(NamedTuple):
    """What a fit looks at, of larger samples: so many draws, or up to twice as many, evenly spaced.

    With p features fitted on m draws the variance is 1 + p/m times the least possible: at m = 200,000 there is about a
    thousandth left to gain for a quadratic in 20 dimensions, and more draws would be most of the time. All draws count
    in the mean.
    """

    draws: int = 200_000
    # Draws, scores and values of f together, while there are this many draws per dimension.
    bytes: int = 256 << 20
    per_dimension: int = 50


LARGE = LargeSamples()


class Spaced(NamedTuple):
    """A method that is fitted to evenly spaced draws of a large sample, and keeps g of every fold as a function."""

    method: Method
    folds: int | None
    gap: int
    seed: int
    coordinates: str

    def step(self, shape: tuple[int, ...], outputs: int) -> int:
        """Return the step at which draws `(chain, draw, dim)` are fitted on: 1 where all of them are."""
        chains, draws, dim = shape
        held = max(LARGE.bytes // (8 * (2 * dim + outputs)), LARGE.per_dimension * dim)
        # a wide gap may leave few draws to some fold: it is then to look at most of them
        wanted = min(chains * draws, 4 * fewest_fitted(chains, draws, self.folds, self.gap))
        return max(1, wanted // LARGE.draws, chains * draws // held)

    def fit(
        self, samples: Samples, targets: np.ndarray, draws: int, step: int, base: np.ndarray | None = None
    ) -> CrossFit:
        """Return a fit on every `step`-th of so many draws per chain, which the samples are.

        `base`: of every fold a control variate that members are fitted beside, as in `Training`; their g is without it.
        """
        folds = tuple(make_folds(len(samples.draws), draws, self.folds, self.gap, step))
        data = (samples.draws, samples.scores, targets, folds, samples.names, self.seed, len(samples.draws))
        fit = self.method.across(Training(*data, self.coordinates, keep=True, base=base))
        if len(fit.fitted) != len(folds):
            raise InputError(f"{self.method} cannot be evaluated at draws it was not given. Use fewer draws.")
        return fit
