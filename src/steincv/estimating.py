"""The one verb: draws and scores in, an expectation with an honest error bar out."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from .families.auto import Auto
from .families.method import CrossFit, Method, Simpler, Spaced, Training
from .families.monte_carlo import MonteCarlo
from .families.points import Points, gather
from .judging.diagnostics import Code, Status, stein_status
from .judging.error_bars import Average
from .judging.passing import Choice, Passed, Series, Together, out_of_fold, pass_over
from .judging.quantiles import block_deviation, deviation
from .judging.verdict import Seen, gain_limit, verdict, widened_ratio
from .judging.weighted import Weights
from .result import Estimate
from .runtime.threads import Team, workers
from .runtime.validation import InputError, whole_number
from .samples.samples import Samples
from .samples.source import MemorySource, Source
from .samples.streamed import Streamed
from .samples.values import Functions, Targets, Values, by_name, values_of
from .stein.coordinates import Standardise, check_standard
from .stein.folds import Block, Fold, held_out, make_folds, stretches

if TYPE_CHECKING:
    from .stein.bases import Jumps

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
      of either, names as the table prints them (`"theta"`, `"b[age]"`), or nothing for every parameter.
    - `method`: a family; `Auto()` if not given.
    - `stat`: "mean", or `("mean", "sd")` to have the standard deviation of f under the density as well
      (`result.sd`), its second moment controlled too. Numbers between 0 and 1, as in `("mean", 0.05, 0.5, 0.95)`, are
      quantiles (`result.quantile(0.05)`).
    - `seed`: same seed, same answer.
    - `folds`, `gap`: how many folds, and draws left out around those of one chain (`stein/folds.py`). Each draw is
      controlled by a fit that has not seen it.
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
        result = _from_file(taken, "sd" in stats)
    else:
        result, taken, training = _in_memory(taken, "sd" in stats, bool(levels))
    if not levels:
        return result
    from .distribution import with_file_quantiles, with_quantiles  # which need this module

    if isinstance(taken, FileInputs):
        return with_file_quantiles(result, taken, levels)
    return with_quantiles(result, taken, levels, training)


def _in_memory(taken: "Inputs", sd: bool, again: bool) -> tuple[Estimate, "Inputs", Training | None]:
    """Return the estimate, the inputs with what is known of orbits since, and the training, if it is wanted again."""
    samples, values, weights, method = taken.samples, taken.values, taken.weights, taken.spaced.method
    only_draws = taken.points.values is values.array and weights is None
    step, outputs = 1, len(values.labels)
    own = type(method).cross_fit is not Method.cross_fit
    if only_draws and taken.held is None and not own:
        step = taken.spaced.step(samples.draws.shape, outputs)
    targets = Targets.of(values.array[:, ::step], sd)
    averaged = plain = targets(values.array)
    center, training = taken.center(plain), None
    with workers(taken.executor) as team:
        if step > 1:
            fit = _fit_large(samples, averaged, taken.spaced, step)
        elif only_draws and taken.spaced.coordinates == "auto" and (own or not again):
            fit = method.cross_fit(samples, averaged, taken.plan, seed=taken.spaced.seed)
        else:
            training = replace(taken.training(lambda x: targets(x) - center), like={} if again else None)
            averaged, fit = training.f, method.across(training)
            taken = replace(taken, points=taken.points.judged(values.array, averaged))
    judge = taken.judge(fit, taken.info(fit, team), values.labels, values.shape)
    choices, first, plain = taken.choices(averaged, fit, center), taken.judged(values.array), taken.judged(plain)
    if (judged := taken.judged_weights) is not None:
        plain = judged.draws(judged.w[..., None] * (plain - center), center)
        first = plain[..., :outputs]
    result = judge(taken.seen(first), *(taken.seen(choice[..., :outputs]) for choice in choices))
    if (unit := targets.unit) is not None:
        result = replace(result, sd=judge(*(taken.seen(deviation(unit, x, outputs)) for x in (plain, *choices))))
    return result, taken, training


def _from_file(taken: "FileInputs", sd: bool) -> Estimate:
    """Estimate from more draws than are held: fit on every so many, then pass over all of them."""
    start = time.perf_counter()
    if getattr(taken.spaced.method, "checkpoint", None) is not None:
        raise InputError("`checkpoint` is not for draws in a file. Leave it out.")
    fit, targets, passed = taken.fit(taken.step, lambda _, values: (Targets.of(values.array, sd), None))
    blocks, outputs = passed.blocks, len(passed.labels)
    streamed = {"draws": passed.plain.size, "block": blocks.size, "blocks": blocks.count}
    info = {**fit.info, "seconds": time.perf_counter() - start, "streamed": streamed}
    judge = taken.judge(fit, passed, info, passed.labels, passed.shape)
    every = (passed.plain, *passed.controlled)
    result = judge(*(seen_in(series, passed, slice(0, outputs)) for series in every))
    if (unit := targets.unit) is not None:
        status = functools.partial(passed.value_status, slice(outputs, 2 * outputs))
        sds = judge(*(Seen(*block_deviation(unit, series, outputs), status) for series in every))
        result = replace(result, sd=sds)
    return result


def _fit_large(samples: Samples, targets: Float[np.ndarray, "chain draw out"], spaced: Spaced, step: int) -> CrossFit:
    """Fit on every so many draws, and return g at all of them."""
    chains, draws, _ = samples.draws.shape
    some = Samples.trusted(samples.draws[:, ::step], samples.scores[:, ::step], samples.names)
    fit = spaced.fit(some, targets[:, ::step], draws, step)
    source, parts, outputs = MemorySource.of(samples), stretches(chains, draws, spaced.folds), targets.shape[-1]
    g = out_of_fold(source, parts, fit.fitted, outputs)
    simpler = fit.simpler and fit.simpler._replace(g=out_of_fold(source, parts, fit.simpler.fitted, outputs))
    return CrossFit(g, fit.info, simpler)


# What a verb is given -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Inputs:
    """Checked draws, f and how to fit: everything but what is asked about f."""

    samples: Samples
    f: Any
    values: Values
    spaced: Spaced
    plan: Sequence[Fold]
    guard: bool
    executor: Any
    points: Points
    weights: Weights | None

    @property
    def held(self) -> Block | None:
        """The held-out draws, of which alone the estimate is made, where there is no cross-fit."""
        return self.plan[0].test if len(self.plan) == 1 else None

    def judged(self, array: np.ndarray) -> np.ndarray:
        """Return the part of an array that the estimate is made of."""
        return array if self.held is None else self.held.take(array)

    @functools.cached_property
    def judged_weights(self) -> Weights | None:
        """The weights of the draws that the estimate is made of."""
        return self.weights if self.weights is None or self.held is None else self.weights.part(self.held)

    def center(self, averaged: np.ndarray) -> Float[np.ndarray, " column"]:
        """Return about what draws with weights are fitted: their mean."""
        return np.zeros(averaged.shape[-1]) if self.weights is None else self.weights.mean(averaged)

    def training(self, targets: Callable[[np.ndarray], np.ndarray]) -> Training:
        return self.points.training(targets, self.plan, self.samples.names, self.spaced.seed, self.spaced.coordinates)

    def info(self, fit: CrossFit, team: object, **more: object) -> dict[str, Any]:
        """Return what is told of a fit, with what is told of orbits, workers and weights."""
        ran = {"executor": team.report()} if isinstance(team, Team) else {}
        weighted = {} if self.judged_weights is None else self.judged_weights.info()
        return {**fit.info, **self.points.info, **more, **ran, **weighted}

    def choices(self, averaged: np.ndarray, fit: CrossFit, center: np.ndarray) -> list[np.ndarray]:
        """Return f + g as it is judged, of the fit and of the simpler one that comes with it."""
        found = [self.judged(averaged + one.g) for one in (fit, fit.simpler) if one is not None]
        weights = self.judged_weights
        return found if weights is None else [weights.draws(one, center) for one in found]

    def seen(self, draws: Float[np.ndarray, "chain draw out"], known: Average | None = None) -> Seen:
        """Return draws as they are judged; `known` is their average, if it is."""
        if (weights := self.judged_weights) is None:
            return Seen(draws, known)
        return Seen(draws, known or weights.average(draws), lambda ess: weights.value_status(draws, ess))

    def judge(self, fit: CrossFit, info: Mapping[str, Any], labels: tuple[str, ...], shape: tuple[int, ...]) -> "Judge":
        samples = self.samples if self.held is None else self.samples.select(self.held.chains, self.held.draws)
        weights = self.judged_weights
        alarms = stein_status(samples) if weights is None else weights.stein_status(samples)
        return Judge(str(self.spaced.method), fit.simpler, info, alarms, self.guard, labels, shape)


@dataclass(frozen=True, eq=False)
class FileInputs:
    """The same of draws that stay in their file, of which every `step`-th is fitted on."""

    source: Source
    functions: Functions
    spaced: Spaced
    step: int
    guard: bool

    def some(self, step: int) -> tuple[Samples, Values]:
        """Return every `step`-th draw, and f there."""
        tile = self.source.every(step, self.functions.names)
        return Samples.trusted(tile.draws, tile.scores, self.source.names), self.functions(tile)

    def fit(
        self, step: int, prepare: Callable[[Samples, Values], tuple[Targets, "Jumps | None"]]
    ) -> tuple[CrossFit, Targets, Passed]:
        """Fit on every `step`-th draw, then pass over all of them.

        `prepare` returns what is averaged, and what takes its jumps out beside every g, if it has any.
        """
        chains, draws, _ = self.source.shape
        some, values = self.some(step)
        check_standard(some)
        targets, jumps = prepare(some, values)
        averaged, standardise = targets(values.array), Standardise.of(some)
        fit = self.spaced.fit(some, averaged, draws, step, None if jumps is None else jumps.base)
        found = [one for one in (fit, fit.simpler) if one is not None]
        choices = [
            Choice(
                one.fitted if jumps is None else [Together(g, jumps, k) for k, g in enumerate(one.fitted)],
                targets.variance(averaged + one.g),
            )
            for one in found
        ]
        del some, values, averaged  # their memory is wanted for the tiles
        parts = stretches(chains, draws, self.spaced.folds)
        return fit, targets, pass_over(self.source, self.functions, targets, parts, choices, standardise)

    def judge(
        self, fit: CrossFit, passed: Passed, info: Mapping[str, Any], labels: tuple[str, ...], shape: tuple[int, ...]
    ) -> "Judge":
        alarms = passed.stein_status(self.source)
        return Judge(str(self.spaced.method), fit.simpler, info, alarms, self.guard, labels, shape)


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
    folds, gap, cross_fit, test_fraction = sampling
    spaced = Spaced(method, folds, gap, whole_number("seed", seed, 0), coordinates)
    if isinstance(samples, Streamed):
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
    values = values_of(f, samples)
    f = by_name(f, samples)
    check_standard(samples)  # before any fold is looked at: what cannot be used is named by its place among all draws
    points = gather(samples, f, values.array, orbits, coordinates, plan, spaced.seed)
    weights = None if samples.log_weights is None else Weights.of(samples.log_weights, plan)
    return Inputs(samples, f, values, spaced, plan, guard, executor, points, weights)


def enough(what: str, chains: int, draws: int) -> None:
    if chains * draws < FEWEST_DRAWS or draws < FEWEST_DRAWS_PER_CHAIN:
        raise InputError(
            f"{what} {chains} chains of {draws} draws; an error bar needs at least {FEWEST_DRAWS} draws, "
            f"{FEWEST_DRAWS_PER_CHAIN} in every chain."
        )


def _stats(stat: str | float | Sequence[str | float]) -> tuple[set[str], tuple[float, ...]]:
    """Return the names asked for, and the levels of quantiles in ascending order, each once."""
    given = tuple(stat) if isinstance(stat, list | tuple | set | np.ndarray) else (stat,)
    names = {one for one in given if isinstance(one, str)}
    levels = {float(one) for one in given if isinstance(one, float | np.floating)}
    known = all(isinstance(one, str | float | np.floating) for one in given) and names <= {"mean", "sd"}
    if not given or not known or not all(0 < p < 1 for p in levels):
        raise InputError(
            f'`stat` must be "mean", ("mean", "sd"), or with levels of quantiles between 0 and 1 '
            f'("mean", "sd", 0.05, 0.95), got {stat!r}.'
        )
    if "mean" not in names and not levels:
        raise InputError(f'`stat` must be "mean" or ("mean", "sd"), got {stat!r}.')
    return names, tuple(sorted(levels))


# What is made of draws -----------------------------------------------------------------------------


def seen_in(series: Series, passed: Passed, which: slice) -> Seen:
    """Return some columns of a series."""
    status = functools.partial(passed.value_status, which)
    return Seen(series.means()[..., which], series.average()[which], status, series.largest[which])


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

    def __call__(self, plain: Seen, *choices: Seen) -> Estimate:
        """Judge f beside f + g; the second choice, if there is one, has g of the simpler method."""

        def usable(choice: Seen) -> Seen:
            return choice.where(choice.finite, plain).beside(plain)

        controlled, methods = usable(choices[0]), [self.method] * len(self.labels)
        if self.guard and self.simpler is not None:
            # chains are apart where draws are missing, of which a simpler method has no more
            trusted = widened_ratio(plain.average, controlled.average) < gain_limit(plain.average.ess)
            kept = trusted | controlled.apart
            # whether that is better than the plain mean is judged below
            controlled = controlled.where(kept, usable(choices[1]))
            methods = [self.method if mine else self.simpler.methods[k] for k, mine in enumerate(kept)]
        found, info = verdict(plain, controlled, self.alarms, self.info, guard=self.guard), self.info
        if self.method == str(MonteCarlo()):  # nothing was asked to help, so nothing failed to
            info = {**info, "method": "plain"}
            found = found._replace(statuses=[[s for s in x if s.code is not Code.NO_GAIN] for x in found.statuses])
        return Estimate(
            self.labels,
            self.shape,
            plain.array,
            np.where(found.used, controlled.array, plain.array),
            plain.average.reshape(self.shape),
            found.reported.reshape(self.shape),
            tuple(method if used else "plain" for method, used in zip(methods, found.used, strict=True)),
            tuple(map(tuple, found.statuses)),
            info,
        )
