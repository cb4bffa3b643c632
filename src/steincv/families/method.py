"""What every family of control variates is: a way to fit Phi on a standardised problem."""

import abc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..runtime.threads import blas_threads
from ..runtime.validation import InputError, whole_number
from ..runtime.workers import Arrays, team
from ..samples.samples import Samples, finite_array
from ..stein.coordinates import Standardise
from ..stein.folds import Block, Fold

# Evaluation is cut into pieces of this many draws, so that its memory does not grow with them.
PIECE = 50_000
FEWEST_DRAWS = 4
# Operations a draw costs, to an order of magnitude: a fit on 100,000 draws is the smallest for which threads pay.
WORK_A_DRAW = 2e5


@dataclass(frozen=True, eq=False)
class Problem:
    """One fit, in standard coordinates: what a family sees, and all that it sees.

    - `z`, `s`: draws and scores of mean 0 and covariance 1, `(n, dim)`, chain after chain.
    - `y`: the values of f, each output of mean 0 and variance 1, `(n, out)`.
    - `offset`: the mean of f that was taken off, in units of its standard deviation. Only objectives
      without a centre (the paper's NCV) look at it.
    - `chains`: how many equally long chains the n draws are.
    - `place`: where the n draws were taken from, if they are part of a sample.
    """

    z: Float[np.ndarray, "n dim"]
    s: Float[np.ndarray, "n dim"]
    y: Float[np.ndarray, "n out"]
    offset: Float[np.ndarray, " out"]
    chains: int
    place: "Place | None" = None

    def spaced(self, most: int) -> np.ndarray | slice:
        """Rows of about `most` draws a sample, evenly spaced in their chains: the same ones whatever the fold."""
        n = len(self.z)
        place = self.place or Place(n, np.arange(n) % (n // self.chains))
        every = spacing(place.sample, most)
        return slice(None) if every == 1 else np.flatnonzero(place.draw % every == 0)


class Place(NamedTuple):
    """Of the draws of a fit among all draws: the `spaced_sample` they belong to, and each one's number in its chain."""

    sample: int
    draw: Int[np.ndarray, " n"]


def spaced_sample(draws: int, fitted: Sequence[int]) -> int:
    """The size of a sample that draws are spaced for: its own, unless some fold has few to fit on."""
    return min(draws, 4 * min(fitted))


def spacing(sample: int, most: int) -> int:
    """Every so many draws of a sample are `most` of them, or up to twice that."""
    return max(1, sample // most)


@dataclass(frozen=True, eq=False)
class Control:
    """A fitted g in standard coordinates: `evaluate(z, s)` is `(n, out)`; `info` says how it came about."""

    evaluate: Callable[[np.ndarray, np.ndarray], np.ndarray]
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted control variate. `fitted(samples)` is g at every draw, `(chain, draw, out)`."""

    standardise: Standardise
    scale: Float[np.ndarray, " out"]
    control: Control

    @property
    def info(self) -> Mapping[str, Any]:
        return self.control.info

    def __call__(self, samples: Samples) -> Float[np.ndarray, "chain draw out"]:
        if samples.dim != len(self.standardise.mean):
            raise InputError(f"fitted in {len(self.standardise.mean)} dimensions, `samples` has {samples.dim}.")
        with blas_threads(samples.size * WORK_A_DRAW):
            g = np.empty((samples.size, len(self.scale)))
            for rows, z, s in self.standardise.tiles(samples, PIECE):
                np.multiply(self.control.evaluate(z, s), self.scale, out=g[rows])
        return g.reshape(*samples.draws.shape[:2], -1)


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Out-of-fold g `(chain, draw, out)`: at every draw from a fit that has not seen it.

    `simpler` is a second choice, for outputs where g is not trusted.
    """

    g: Float[np.ndarray, "chain draw out"]
    info: Mapping[str, Any]
    simpler: "Simpler | None" = None


class Simpler(NamedTuple):
    """Another out-of-fold g, and the name of the method that each output's is of."""

    g: Float[np.ndarray, "chain draw out"]
    methods: tuple[str, ...]


class Method(abc.ABC):
    r"""A family of control variates: a small frozen object whose fields are its hyperparameters.

    **The law.** For every value of the fitted parameters, g is $\nabla\cdot\Phi + \Phi\cdot s$ of some
    smooth $\Phi$ that grows slower than $1/p$, so its mean under $p$ is zero. tests/test_laws.py runs
    this and the other laws on every row of tests/catalogue.py.

    A subclass is a frozen dataclass that implements `solve` and nothing else. It may say `together = False` if every
    problem given to `solve` is fitted as if it were alone: its folds can then be fitted by different workers.
    """

    together: ClassVar[bool] = True

    def __str__(self) -> str:
        """The name with those fields that differ from their defaults: `Polynomial(degree=3)`."""
        changed = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if not _is_default(self, f)]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(changed)})"

    @abc.abstractmethod
    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        """Fit every problem. They are given together so that a family can fit them in one program."""

    def fit(self, samples: Samples, values: Any, *, seed: int = 0) -> Fitted:
        """Fit g to values of f, `(chain, draw)` or `(chain, draw, out)`, so that f + g varies little."""
        values = as_values(samples, values)
        seed = whole_number("seed", seed, 0)
        with blas_threads(samples.size * WORK_A_DRAW):
            problem, standardise, scale = make_problem(samples, values)
            return Fitted(standardise, scale, self.solve([problem], seed)[0])

    def cross_fit(
        self, samples: Samples, values: Float[np.ndarray, "chain draw out"], folds: Sequence[Fold], *, seed: int = 0
    ) -> CrossFit:
        """Fit on every fold's training draws, evaluate on its test draws."""
        return self.begin(samples, values, folds, seed=seed)()

    def begin(
        self,
        samples: Samples,
        values: Float[np.ndarray, "chain draw out"],
        folds: Sequence[Fold],
        *,
        seed: int = 0,
        outputs: np.ndarray | None = None,
    ) -> Callable[[], CrossFit]:
        """`cross_fit`, of those `outputs` only if they are given, begun by the workers there are; calling ends it."""
        shared = team().share(_arrays(samples, values, folds))
        every = range(len(folds))
        parts = [list(every)] if self.together else [[k] for k in every]
        pending = [team().start(_fit_folds, shared, self, samples.names, part, outputs, seed) for part in parts]

        def finish() -> CrossFit:
            done = [answer() for answer in pending]
            g = np.zeros_like(values if outputs is None else values[..., outputs])
            for fold, (part, _) in zip(folds, (x for answer in done for x in answer.folds), strict=True):
                fold.test.put(g, part)
            infos = [dict(info) for answer in done for _, info in answer.folds]
            return CrossFit(g, {"seconds": sum(answer.seconds for answer in done), "folds": infos})

        return finish


class _Folds(NamedTuple):
    """What a worker gives back: g at the test draws of its folds with how it came about, and the seconds it took."""

    folds: list[tuple[np.ndarray, Mapping[str, Any]]]
    seconds: float


def _arrays(samples: Samples, values: np.ndarray, folds: Sequence[Fold]) -> dict[str, np.ndarray]:
    """All that a fit looks at."""
    arrays = {"draws": samples.draws, "scores": samples.scores, "values": values}
    for k, fold in enumerate(folds):
        for name, block in (("train", fold.train), ("test", fold.test)):
            arrays[f"{k} {name} chains"], arrays[f"{k} {name} draws"] = block.chains, block.draws
    return arrays


def _fit_folds(
    arrays: Arrays, method: Method, names: tuple[str, ...], which: list[int], outputs: np.ndarray | None, seed: int
) -> _Folds:
    """The folds called `which`, from start to end: one task."""
    start = time.perf_counter()
    samples = Samples.trusted(arrays["draws"], arrays["scores"], names)
    values = arrays["values"] if outputs is None else arrays["values"][..., outputs]

    def block(k: int, name: str) -> Block:
        return Block(arrays[f"{k} {name} chains"], arrays[f"{k} {name} draws"])

    with blas_threads(samples.size * WORK_A_DRAW):
        trains = [block(k, "train") for k in which]
        folds = [block(k, "train") for k in range(len(arrays) // 4)]
        spaced = spaced_sample(samples.size, [len(b.chains) * len(b.draws) for b in folds])
        made = [
            make_problem(
                samples.select(b.chains, b.draws), b.take(values), Place(spaced, np.tile(b.draws, len(b.chains)))
            )
            for b in trains
        ]
        controls = method.solve([problem for problem, _, _ in made], seed)
    found: list[tuple[np.ndarray, Mapping[str, Any]]] = []
    for k, (_, standardise, scale), control in zip(which, made, controls, strict=True):
        test = block(k, "test")
        fitted = Fitted(standardise, scale, control)
        found.append((fitted(samples.select(test.chains, test.draws)), dict(control.info)))
    return _Folds(found, time.perf_counter() - start)


def _is_default(method: Method, f: Any) -> bool:
    default = f.default_factory() if f.default_factory is not MISSING else f.default
    return bool(getattr(method, f.name) == default)


def as_values(samples: Samples, values: Any) -> Float[np.ndarray, "chain draw out"]:
    """Values of f, checked against the samples and given one flat axis of outputs."""
    values = finite_array("values", values, copy=False)
    chains, draws, _ = samples.draws.shape
    if values.shape[:1] == (draws,) and chains == 1 and values.shape[:2] != (1, draws):
        values = values[None]
    if values.shape[:2] != (chains, draws):
        raise InputError(
            f"`values` has shape {values.shape}, expected ({chains}, {draws}) or ({chains}, {draws}, outputs...): "
            f"one value of f at every draw."
        )
    return values.reshape(chains, draws, -1)


def make_problem(
    samples: Samples, values: np.ndarray, place: Place | None = None
) -> tuple[Problem, Standardise, np.ndarray]:
    """The fit in standard coordinates, the map to them, and the scale of each output."""
    if samples.size < FEWEST_DRAWS:
        raise InputError(f"`samples` holds {samples.size} draws to fit on; at least {FEWEST_DRAWS} are needed.")
    standardise = Standardise.of(samples)
    z, s = standardise(samples)
    flat = values.reshape(samples.size, -1)
    first = flat[0]
    spread = np.maximum(flat.max(axis=0) - first, first - flat.min(axis=0))
    spread = np.where(spread > 1e-14 * np.abs(first), spread, 1.0)  # a constant f has nothing to fit
    unit = flat - first
    unit /= spread
    center = unit.mean(axis=0)
    unit -= center
    deviation = np.sqrt(np.einsum("no,no->o", unit, unit) / len(unit))
    deviation = np.where(deviation > 0, deviation, 1.0)
    unit /= deviation
    scale = spread * deviation
    offset = (first / spread + center) / deviation
    return Problem(z, s, unit, offset, samples.chains, place), standardise, scale
