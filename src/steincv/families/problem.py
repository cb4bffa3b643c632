"""One fit in standard coordinates, and what comes of it: all that a family sees, and all that it gives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..runtime.threads import blas_threads
from ..runtime.validation import InputError
from ..samples.samples import Samples, finite_array, spread_about
from ..stein.coordinates import Bilinear, Coordinates, Evaluator, Standardise


class Cost(NamedTuple):
    """Floating-point operations of one fit with its evaluation at as many draws, and bytes at its peak.

    One core does about 1e10 operations of this kind in a second; within a factor of two on common machines.
    """

    operations: float
    bytes: float


class Sizes(NamedTuple):
    """Draws that are evaluated at a time, the fewest that are fitted on, and the work that a draw is.

    - `piece`: so that the memory of an evaluation does not grow with the draws.
    - `work`: operations per draw, to an order of magnitude: a fit on 100,000 draws is the smallest for which BLAS
      threads pay.
    """

    piece: int = 50_000
    fewest: int = 4
    work: float = 2e5


SIZES = Sizes()


@dataclass(frozen=True, eq=False)
class Problem:
    """One fit, in standard coordinates: what a family sees, and all that it sees.

    - `z`, `s`: draws and scores of mean 0 and covariance 1, `(n, dim)`, chain after chain.
    - `y`: the values of f, each output of mean 0 and variance 1, `(n, out)`.
    - `offset`: the mean of f that was taken off, in units of its standard deviation. Only objectives
      without a centre (the paper's NCV) look at it.
    - `chains`: how many equally long chains the n draws are.
    - `states`: how many draws in a row are the states of one orbit, the draw itself first; 1 where there are no orbits.
    - `weight`: of every state in its orbit, summing to one there, or, where there are no orbits, of every draw, with
      mean one; None where all are alike.
    - `parts`: how many systems of coordinates z and s hold side by side. Products across them have no mean of zero.
    - `place`: where the n draws were taken from, if they are part of a sample.
    - `kept`: what a family made of z and s alone, where another f is to be fitted at the same draws; None elsewhere.
    """

    z: Float[np.ndarray, "n dim"]
    s: Float[np.ndarray, "n dim"]
    y: Float[np.ndarray, "n out"]
    offset: Float[np.ndarray, " out"]
    chains: int
    states: int = 1
    weight: Float[np.ndarray, " n"] | None = None
    place: "Place | None" = None
    parts: int = 1
    kept: dict[Any, Any] | None = None

    def select(self, outputs: np.ndarray | None) -> "Problem":
        """Return the problem of some of the outputs."""
        return self if outputs is None else replace(self, y=self.y[:, outputs], offset=self.offset[outputs])

    def at_draws(self) -> "Problem":
        """Return the problem at the draws alone, without the other states of their orbits, and without weights.

        Draws of another distribution (`states` is 1, and there are weights) are resampled.
        """
        if self.weight is None:  # so are orbits never
            return self
        rows = resampled(self.weight) if self.states == 1 else slice(None, None, self.states)
        z, s, y = (x[rows] for x in (self.z, self.s, self.y))
        return Problem(z, s, y, self.offset, self.chains, parts=self.parts)

    def views(self) -> "list[Problem]":
        """Return one problem per system of coordinates."""
        return [replace(self, z=z, s=s, parts=1) for z, s in systems(self.z, self.s, self.parts)]

    def spaced(self, most: int) -> np.ndarray | slice:
        """Return rows of about `most` draws of a sample, evenly spaced in their chains: the same whatever the fold."""
        n = len(self.z)
        place = self.place or Place(n, np.arange(n) % (n // self.chains))
        every = spacing(place.sample, most)
        return slice(None) if every == 1 else np.flatnonzero(place.draw % every == 0)


def systems(z: np.ndarray, s: np.ndarray, parts: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the draws and scores of every system of coordinates that z and s hold side by side."""
    return list(zip(*(np.split(array, parts, axis=1) for array in (z, s)), strict=True))


def resampled(weight: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Return as many rows as there are weights, in order, each as often as its weight says: systematic resampling."""
    total = np.cumsum(weight)
    return np.searchsorted(total, (np.arange(len(weight)) + 0.5) * (total[-1] / len(weight)))


class Place(NamedTuple):
    """Where the draws of a fit come from: the size of their `spaced_sample`, and each one's number in its chain."""

    sample: int
    draw: Int[np.ndarray, " n"]


def spaced_sample(draws: int, fitted: Sequence[int]) -> int:
    """Return the size of a sample that draws are spaced for: its own, unless some fold has few to fit on."""
    return min(draws, 4 * min(fitted))


def spacing(sample: int, most: int) -> int:
    """Return the step at which `most` draws of a sample, or up to twice as many, are taken."""
    return max(1, sample // most)


@dataclass(frozen=True, eq=False)
class Control:
    """A fitted g in standard coordinates: `evaluate(z, s)` is `(n, out)`; `info` says how it came about.

    `form` is the same to round-off, where g is such a function: quicker for very many draws.
    """

    evaluate: Callable[[np.ndarray, np.ndarray], np.ndarray]
    info: Mapping[str, Any] = field(default_factory=dict)
    form: Bilinear | None = field(default=None, kw_only=True)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted control variate. `fitted(samples)` is g at every draw, `(chain, draw, out)`."""

    standardise: Coordinates
    scale: Float[np.ndarray, " out"]
    control: Control

    @property
    def info(self) -> Mapping[str, Any]:
        return self.control.info

    def __call__(self, samples: Samples) -> Float[np.ndarray, "chain draw out"]:
        chains, draws, dim = samples.draws.shape
        if dim != len(self.standardise.mean):
            raise InputError(f"fitted in {len(self.standardise.mean)} dimensions, `samples` has {dim}.")
        with blas_threads(chains * draws * SIZES.work):
            g = np.empty((chains * draws, len(self.scale)))
            for rows, z, s in self.standardise.tiles(samples, SIZES.piece):
                np.multiply(self.control.evaluate(z, s), self.scale, out=g[rows])
        return g.reshape(chains, draws, -1)

    def form(self, scaled: Standardise) -> Bilinear | None:
        if self.control.form is None or not isinstance(self.standardise, Standardise):
            return None
        found = self.control.form.seen_from(scaled, self.standardise)
        return Bilinear(self.scale[:, None, None] * found.matrix)


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Out-of-fold g `(chain, draw, out)`: at every draw from a fit that has not seen it.

    - `simpler`: a second choice, for outputs where g is not trusted.
    - `fitted`: of every fold its g as a function, where the training keeps them.
    """

    g: Float[np.ndarray, "chain draw out"]
    info: Mapping[str, Any]
    simpler: "Simpler | None" = None
    fitted: Sequence[Evaluator] = ()


class Simpler(NamedTuple):
    """Another out-of-fold g, and the name of the method that each output's is of."""

    g: Float[np.ndarray, "chain draw out"]
    methods: tuple[str, ...]
    fitted: Sequence[Evaluator] = ()


class Term(NamedTuple):
    """A fitted g with the outputs it is of, all of them if None, and the weight of each."""

    fitted: Evaluator
    weight: Float[np.ndarray, " out"]
    outputs: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """A sum of fitted control variates; those of no weight are not evaluated."""

    terms: Sequence[Term]
    outputs: int

    def __call__(self, samples: Samples) -> Float[np.ndarray, "chain draw out"]:
        g = np.zeros((*samples.draws.shape[:2], self.outputs))
        for fitted, weight, outputs in self.terms:
            if weight.any():
                g[..., slice(None) if outputs is None else outputs] += weight * fitted(samples)
        return g

    def form(self, scaled: Standardise) -> Bilinear | None:
        size = 1 + len(scaled.mean)
        total = np.zeros((self.outputs, size, size))
        for fitted, weight, outputs in self.terms:
            if weight.any():
                found = fitted.form(scaled)
                if found is None:
                    return None
                total[slice(None) if outputs is None else outputs] += weight[:, None, None] * found.matrix
        return Bilinear(total)


class FoldProblem(NamedTuple):
    """A fold's problem, the map to its coordinates, and the scale of each output."""

    problem: Problem
    coordinates: Coordinates
    scale: np.ndarray


def as_values(samples: Samples, values: Any) -> Float[np.ndarray, "chain draw out"]:
    """Check values of f against the samples and give them one flat axis of outputs."""
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


def make_problem(samples: Samples, values: np.ndarray) -> FoldProblem:
    """Return the fit in standard coordinates, the map to them, and the scale of each output."""
    if samples.size < SIZES.fewest:
        raise InputError(f"`samples` holds {samples.size} draws to fit on; at least {SIZES.fewest} are needed.")
    standardise = Standardise.of(samples)
    z, s = standardise(samples)
    y, offset, scale = standard_values(values.reshape(len(z), -1))
    weight = None
    if samples.log_weights is not None:
        weight = np.exp(samples.log_weights - samples.log_weights.max()).reshape(-1)
        weight /= weight.mean()
    return FoldProblem(Problem(z, s, y, offset, len(samples.draws), weight=weight), standardise, scale)


class StandardValues(NamedTuple):
    """Values of f of mean 0 and variance 1, their mean in units of the deviation, and the deviation."""

    y: Float[np.ndarray, "n out"]
    offset: Float[np.ndarray, " out"]
    scale: Float[np.ndarray, " out"]


def standard_values(
    values: Float[np.ndarray, "n out"], like: Float[np.ndarray, "m out"] | None = None
) -> StandardValues:
    """Put values of f into standard form; mean and deviation are those of `like`, if given."""
    part = values if like is None else like
    first = part[0]
    spread = spread_about(part, first, leading=1, least=1e-14)  # a constant f has nothing to fit
    unit = values - first
    unit /= spread
    own = unit if like is None else (part - first) / spread
    center = own.mean(axis=0)
    unit -= center
    if like is not None:
        own -= center
    deviation = np.sqrt(np.einsum("no,no->o", own, own) / len(own))
    deviation = np.where(deviation > 0, deviation, 1.0)
    unit /= deviation
    return StandardValues(unit, (first / spread + center) / deviation, spread * deviation)
