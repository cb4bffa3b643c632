"""The one verb: draws and scores in, an expectation with an honest error bar out."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .families.auto import Auto
from .families.method import CrossFit, Method, Simpler, Spaced
from .families.points import Points, gather
from .judging.diagnostics import stein_status, value_status
from .judging.error_bars import Average, as_slow_as, average
from .judging.gain import widened_ratio
from .judging.passing import Choice, Passed, out_of_fold, pass_over
from .judging.series import Series, block_deviation, deviation
from .judging.status import Status
from .judging.verdict import gain_limit, verdict
from .judging.weighted import Weights
from .result import Estimate
from .runtime.threads import Team, workers
from .runtime.validation import InputError, whole_number
from .samples.samples import Samples
from .samples.source import MemorySource, Source
from .samples.streamed import Streamed
from .samples.values import Functions, Targets, Values, by_name, values_of
from .stein.coordinates import Standardise, check_standard
from .stein.folds import Fold, held_out, make_folds, stretches

FEWEST_DRAWS = 10
FEWEST_DRAWS_PER_CHAIN = 4


def estimate(
    samples: Samples | Streamed,
    f: Any = None,
    method: Method | None = None,
    *,
    stat: str | float | Sequence[str | float] = "mean",
    seed: int = 0,
    folds: int | None = None,
    gap: int = 0,
    cross_fit: bool = True,
    test_fraction: float = 0.5,
    guard: bool = True,
    executor: Any = None,
    coordinates: Literal["auto", "affine", "learned"] = "auto",
    orbits: int | Literal["auto"] = "auto",
) -> Estimate:
    """Estimate the mean of f with control variates.

    **Arguments:**

    - `samples`: `Samples(...)`, or `Samples.open(path)` for more draws than memory holds.
    - `f`: what to average: a function of the parameters, an array of values `(chain, draw[, out...])`, a dict
      of either, or nothing for every parameter.
    - `method`: a family; `Auto()` if not given.
    - `stat`: "mean", or `("mean", "sd")` to have the standard deviation of f under the density as well
      (`result.sd`), its second moment controlled too. Numbers between 0 and 1, as in `("mean", 0.05, 0.5, 0.95)`, are
      quantiles (`result.quantile(0.05)`).
    - `seed`: same seed, same answer.
    - `folds`, `gap`: see `_folds.make_folds`. Each draw is controlled by a fit that has not seen it.
    - `cross_fit=False`: the paper's protocol instead. Fit on the first part of every chain, report on the last
      `test_fraction` of it only.
    - `guard`: report the plain mean, and say so, where control variates do not help or cannot be trusted.
    - `executor`: any `concurrent.futures.Executor`, to have members and folds fitted by its workers; for a Dask cluster
      `Client(...).get_executor()`. Same answer, to the bit, for any number of workers.
    - `coordinates`: "affine" fits in whitened coordinates, "learned" in coordinates learned from the scores where they
      show a shape (beside the affine ones, for polynomials with few features for their draws). "auto": both kinds for
      `Auto()`, affine ones for any other method.
    - `orbits`: so many leapfrog states around every draw, for one gradient of `samples.log_density` each: g is fitted
      on all of them, and f + g averaged over them. "auto": as many as pay, where the model is known and f is a
      function; 0: none.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 250, 3))
    >>> result = scv.estimate(scv.Samples(x, -x), lambda x: x[0] ** 2, scv.Polynomial(degree=2))
    >>> float(result.mean.round(6)), result.status[0][0].name
    (1.0, 'exact')
    """
    stats, levels = _stats(stat)
    sampling = (folds, gap, cross_fit, test_fraction)
    taken = inputs_of(samples, f, method, seed, sampling, guard, executor, coordinates, orbits)
    if isinstance(taken, FileInputs):
        return _from_file(taken, "sd" in stats, levels)
    samples, f, values, method, plan, seed, _, _, _, points, weights = taken
    spaced = Spaced(method, folds, gap, seed, coordinates)
    only_draws = points.values is values.array and weights is None
    step = 1
    if only_draws and cross_fit and type(method).cross_fit is Method.cross_fit:
        step = spaced.step(samples.draws.shape, values.array.shape[-1])
    targets = Targets.of(values.array[:, ::step], "sd" in stats)
    averaged = targets(values.array)
    center = np.zeros(averaged.shape[-1]) if weights is None else weights.mean(averaged)
    with workers(executor) as team:
        if step > 1:
            fit = _fit_large(samples, averaged, spaced, step)
        elif only_draws and coordinates == "auto":
            fit = method.cross_fit(samples, averaged, plan, seed=seed)
        else:
            training = points.training(lambda x: targets(x) - center, plan, samples.names, seed, coordinates)
            averaged, fit = training.f, method.across(training)
            taken = taken._replace(points=points.judged(values.array, averaged))
    info = {**fit.info, **taken.points.info, **({"executor": team.report()} if isinstance(team, Team) else {})}
    judged = samples
    if not cross_fit:
        judged, values, averaged, fit = _only(plan[0], samples, values, averaged, fit)
        weights = weights and weights.part(plan[0].test)
    alarms = stein_status(judged) if weights is None else weights.stein_status(judged)
    outputs = len(values.labels)
    choices = [averaged + g for g in (fit.g, *([] if fit.simpler is None else [fit.simpler.g]))]
    first, both = values.array, targets(values.array)
    if weights is not None:
        weighted = weights.w[..., None] * (both - center)
        both, *choices = (weights.draws(x, center) for x in (weighted, *choices))
        first = both[..., :outputs]
        info |= weights.info()
    seen = functools.partial(seen_as, weights)
    judge = Judge(str(method), fit.simpler, info, alarms, guard, values.labels, values.shape)
    result = judge(seen(first), *(seen(choice[..., :outputs]) for choice in choices))
    if (unit := targets.unit) is not None:
        plain, *found = (seen(deviation(unit, draws, outputs)) for draws in (both, *choices))
        result = result.with_sd(judge(plain, *(one.where(one.finite, plain) for one in found)))
    if not levels:
        return result
    return _distribution().with_quantiles(result, taken, levels)


class Inputs(NamedTuple):
    """Checked draws, f and how to fit: everything but what is asked about f."""

    samples: Samples
    f: Any
    values: Values
    method: Method
    plan: Sequence[Fold]
    seed: int
    guard: bool
    executor: Any
    coordinates: str
    points: Points
    weights: Weights | None


class FileInputs(NamedTuple):
    """The same of draws that stay in their file, of which every `step`-th is fitted on."""

    source: Source
    functions: Functions
    spaced: Spaced
    step: int
    guard: bool


def inputs_of(
    samples: Samples | Streamed,
    f: Any,
    method: Method | None,
    seed: int,
    sampling: tuple[int | None, int, bool, float],
    guard: bool,
    executor: Any,
    coordinates: Literal["auto", "affine", "learned"],
    orbits: int | Literal["auto"],
) -> Inputs | FileInputs:
    """Check what a verb is given; `sampling`: its folds, gap, cross_fit and test_fraction."""
    if not isinstance(samples, Samples | Streamed):
        raise InputError(f"`samples` must be a steincv.Samples, got {type(samples).__name__}.")
    method = Auto() if method is None else method
    if not isinstance(method, Method):
        raise InputError(f"`method` must be a method such as steincv.Polynomial(), got {method!r}.")
    if coordinates not in ("auto", "affine", "learned"):
        raise InputError(f'`coordinates` must be "auto", "affine" or "learned", got {coordinates!r}.')
    seed = whole_number("seed", seed, 0)
    folds, gap, cross_fit, test_fraction = sampling
    if isinstance(samples, Streamed):
        spaced = Spaced(method, folds, gap, seed, coordinates)
        refused, source = {"cross_fit": not cross_fit, "executor": executor is not None}, samples.source
        if strange := [f"`{name}`" for name, given in refused.items() if given]:
            raise InputError(
                f"{strange[0]} is not for draws in a file. Leave it out, or read the draws into steincv.Samples."
            )
        enough(f"{source.where} holds", *source.shape[:2])
        functions = Functions.of(f, source)
        whole_number("gap", gap, 0)
        step = spaced.step(source.shape, functions.outputs(source))
        if step > 1:
            return FileInputs(source, functions, spaced, step, guard)
        whole = source.every(1, functions.names)
        samples, f = Samples(whole.draws, whole.scores, source.names), functions.in_memory(whole)
    chains, draws, _ = samples.draws.shape
    enough("`samples` holds", chains, draws)
    plan = make_folds(chains, draws, folds, gap) if cross_fit else [held_out(chains, draws, test_fraction)]
    if not cross_fit:
        enough(f"`test_fraction` = {test_fraction} leaves", chains, len(plan[0].test.draws))
    f = by_name(f, samples)
    values = values_of(f, samples)
    check_standard(samples)  # before any fold is looked at: what cannot be used is named by its place among all draws
    points = gather(samples, f, values.array, orbits, coordinates, plan, seed)
    weights = None if samples.log_weights is None else Weights.of(samples, plan)
    return Inputs(samples, f, values, method, plan, seed, guard, executor, coordinates, points, weights)


def _fit_large(samples: Samples, targets: Float[np.ndarray, "chain draw out"], spaced: Spaced, step: int) -> CrossFit:
    """Fit on every so many draws, and return g at all of them."""
    chains, draws, _ = samples.draws.shape
    some = Samples.trusted(samples.draws[:, ::step], samples.scores[:, ::step], samples.names)
    fit = spaced.fit(some, targets[:, ::step], draws, step)
    source, parts, outputs = MemorySource.of(samples), stretches(chains, draws, spaced.folds), targets.shape[-1]
    g = out_of_fold(source, parts, fit.fitted, outputs)
    simpler = fit.simpler and fit.simpler._replace(g=out_of_fold(source, parts, fit.simpler.fitted, outputs))
    return CrossFit(g, fit.info, simpler)


def _from_file(taken: FileInputs, sd: bool, levels: Sequence[float]) -> Estimate:
    """Estimate from more draws than are held: fit on every so many, then pass over all of them."""
    source, functions, spaced, step, guard = taken
    start, method = time.perf_counter(), spaced.method
    if getattr(method, "checkpoint", None) is not None:
        raise InputError("`checkpoint` is not for draws in a file. Leave it out.")
    chains, draws, _ = source.shape
    tile = source.every(step, functions.names)
    some, values = Samples.trusted(tile.draws, tile.scores, source.names), functions(tile)
    check_standard(some)
    standardise = Standardise.of(some)
    targets = Targets.of(values.array, sd)
    averaged = targets(values.array)
    fit = spaced.fit(some, averaged, draws, step)
    found = [one for one in (fit, fit.simpler) if one is not None]
    choices = [Choice(one.fitted, targets.variance(averaged + one.g)) for one in found]
    del tile, some, values, averaged  # their memory is wanted for the tiles
    passed = pass_over(source, functions, targets, stretches(chains, draws, spaced.folds), choices, standardise)
    blocks = passed.blocks
    streamed = {"draws": chains * draws, "block": blocks.size, "blocks": blocks.count}
    info = {**fit.info, "seconds": time.perf_counter() - start, "streamed": streamed}
    judge = Judge(str(method), fit.simpler, info, passed.stein_status(source), guard, passed.labels, passed.shape)
    outputs = len(passed.labels)
    result = judge(*(seen_in(series, passed, slice(0, outputs)) for series in (passed.plain, *passed.controlled)))
    if (unit := targets.unit) is not None:
        status = functools.partial(passed.value_status, slice(outputs, 2 * outputs))
        plain, *better = (
            Seen(*block_deviation(unit, series, outputs), status) for series in (passed.plain, *passed.controlled)
        )
        result = result.with_sd(judge(plain, *(one.where(one.finite, plain) for one in better)))
    if not levels:
        return result
    return _distribution().with_file_quantiles(result, taken, levels)


def _distribution() -> ModuleType:
    from . import distribution  # which needs this module

    return distribution


def seen_in(series: Series, passed: Passed, which: slice) -> "Seen":
    """Return some columns of a series."""
    status = functools.partial(passed.value_status, which)
    return Seen(series.means()[..., which], series.average()[which], status, series.largest[which])


def seen_as(
    weights: Weights | None, array: Float[np.ndarray, "chain draw out"], known: Average | None = None
) -> "Seen":
    """Return draws as they are judged, which have weights or have none; `known` is their average, if it is."""
    if weights is None:
        return Seen(array, known)
    return Seen(array, known or weights.average(array), lambda ess: weights.value_status(array, ess))


def enough(what: str, chains: int, draws: int) -> None:
    if chains * draws < FEWEST_DRAWS or draws < FEWEST_DRAWS_PER_CHAIN:
        raise InputError(
            f"{what} {chains} chains of {draws} draws; an error bar needs at least {FEWEST_DRAWS} draws, "
            f"{FEWEST_DRAWS_PER_CHAIN} in every chain."
        )


def _stats(stat: str | float | Sequence[str | float]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the names asked for, and the levels of quantiles in ascending order, each once."""
    given = tuple(stat) if isinstance(stat, list | tuple | set | np.ndarray) else (stat,)
    names = tuple(one for one in given if isinstance(one, str))
    levels = {float(one) for one in given if isinstance(one, float | np.floating)}
    strange = len(given) > len(names) + sum(isinstance(one, float | np.floating) for one in given)
    if strange or not set(names) <= {"mean", "sd"} or not all(0 < p < 1 for p in levels) or not given:
        raise InputError(
            f'`stat` must be "mean", ("mean", "sd"), or with levels of quantiles between 0 and 1 '
            f'("mean", "sd", 0.05, 0.95), got {stat!r}.'
        )
    if "mean" not in names and not levels:
        raise InputError(f'`stat` must be "mean" or ("mean", "sd"), got {stat!r}.')
    return names, tuple(sorted(levels))


def _only(
    fold: Fold, samples: Samples, values: Values, averaged: np.ndarray, fit: CrossFit
) -> tuple[Samples, Values, np.ndarray, CrossFit]:
    """Return everything on the held-out draws alone."""
    part = fold.test
    simpler = fit.simpler and Simpler(part.take(fit.simpler.g), fit.simpler.methods)
    return (
        samples.select(part.chains, part.draws),
        Values(part.take(values.array), values.labels, values.shape),
        part.take(averaged),
        replace(fit, g=part.take(fit.g), simpler=simpler),
    )


@dataclass(frozen=True, eq=False)
class Seen:
    """Draws of every output, or means over blocks of draws, with their average and what their values say."""

    array: Float[np.ndarray, "chain draw out"]
    known: Average | None = None
    status: Callable[[np.ndarray], list[list[Status]]] | None = None
    largest: Float[np.ndarray, " out"] | None = None

    @functools.cached_property
    def average(self) -> Average:
        return average(self.array) if self.known is None else self.known

    @property
    def size(self) -> Float[np.ndarray, " out"]:
        """The largest value in size."""
        return np.abs(self.array).max(axis=(0, 1)) if self.largest is None else self.largest

    @property
    def finite(self) -> Bool[np.ndarray, " out"]:
        return np.isfinite(self.array).all(axis=(0, 1))

    def statuses(self, ess: np.ndarray) -> list[list[Status]]:
        return value_status(self.array, ess) if self.status is None else self.status(ess)

    def beside(self, plain: "Seen") -> "Seen":
        """Return these draws of f + g with intervals that know of the tail of f too, and how slowly it moves."""
        return replace(self, known=as_slow_as(plain.average, self.average, self.array))

    def where(self, mine: Bool[np.ndarray, " out"], other: "Seen") -> "Seen":
        """Return this one for the outputs where `mine` is true, the other one elsewhere."""
        if mine.all():
            return self
        return Seen(np.where(mine, self.array, other.array), self.average.where(mine, other.average))


@dataclass(frozen=True, eq=False)
class Judge:
    """Error bars, statuses, and the fall-back to a simpler method or the plain mean where that is the better answer."""

    method: str
    simpler: Simpler | None
    info: Mapping[str, Any]
    alarms: list[Status]
    guard: bool
    labels: tuple[str, ...]
    shape: tuple[int, ...]

    def __call__(self, plain: Seen, controlled: Seen, simpler: Seen | None = None) -> Estimate:
        methods = [self.method] * len(self.labels)
        controlled = controlled.beside(plain)
        if self.guard and self.simpler is not None and simpler is not None:
            simpler = simpler.beside(plain)
            trusted = widened_ratio(plain.average, controlled.average) < gain_limit(plain.average.ess)
            # whether that is better than the plain mean is judged below
            controlled = controlled.where(trusted, simpler)
            methods = [self.method if mine else self.simpler.methods[k] for k, mine in enumerate(trusted)]
        statuses = plain.statuses(np.minimum(plain.average.ess, controlled.average.ess))
        features, fitted_on = feature_counts(self.info)
        found = verdict(
            plain.average,
            controlled.average,
            plain.size,
            statuses,
            self.alarms,
            guard=self.guard,
            features=features,
            fitted_on=fitted_on,
            draws=plain.array.shape[0] * plain.array.shape[1],
        )
        return Estimate(
            self.labels,
            self.shape,
            plain.array,
            np.where(found.used, controlled.array, plain.array),
            plain.average.reshape(self.shape),
            found.reported.reshape(self.shape),
            tuple(method if used else "plain" for method, used in zip(methods, found.used, strict=True)),
            tuple(map(tuple, found.statuses)),
            self.info,
        )


def feature_counts(info: Mapping[str, Any]) -> tuple[int, int]:
    """Return the features of the largest regression and the draws of the smallest, as the folds report them."""
    counts = [(i["features"], i["draws"]) for i in info.get("folds", []) if "features" in i and "draws" in i]
    return max((c[0] for c in counts), default=0), min((c[1] for c in counts), default=0)
