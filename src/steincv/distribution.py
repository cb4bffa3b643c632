"""Probabilities and quantiles: the jump of an indicator is taken out before anything is fitted to what is left."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from .cuts import (
    LIMITS,
    at_levels,
    doubted,
    how_found,
    quantile,
    quantiles_in_order,
    sensible,
    thresholds,
    without_tails,
)
from .estimating import FileInputs, Inputs, Judge, Seen, inputs_of, seen_as, seen_in
from .families.method import CrossFit, Method, Training
from .families.problem import resampled
from .judging.diagnostics import stein_status
from .judging.error_bars import Average
from .judging.passing import Choice, Passed, pass_over
from .judging.quantiles import indicator_draws, plain_quantiles, quantile_draws, weighted_quantile
from .judging.weighted import Weights
from .result import Estimate
from .runtime.threads import Team, workers
from .runtime.validation import InputError
from .samples.derivatives import Derivatives
from .samples.samples import Samples
from .samples.streamed import Streamed
from .samples.values import Targets, Values
from .stein.bases import Columns, Jumps, Points as Cloud, Wanted, find_jumps
from .stein.coordinates import Bilinear, Evaluator, Standardise, check_standard
from .stein.folds import make_folds, stretches


def probability(
    samples: Samples | Streamed,
    f: Any = None,
    method: Method | None = None,
    *,
    above: Any = None,
    below: Any = None,
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
    """Estimate the probability that f is above a threshold, or that it is not.

    An indicator jumps, and no smooth control variate can follow it. So the jump is taken out first (`stein/steps.py`),
    and the method is fitted to the smooth rest.

    **Arguments:**

    - `above` or `below`: P(f > c) or P(f <= c). A number; several of them, and the result has one axis more; or a dict
      of either by the names of outputs.
    - `samples`, `f`, `method` and all others: as for `estimate`. The place of the jump is known where f is a
      coordinate, rises or falls with one, is linear, or is a function that JAX can differentiate. Of other arrays of
      values a regression finds what it can (`result.info["steps"]`): give the function instead.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 250, 3))
    >>> result = scv.probability(scv.Samples(x, -x), above=0.0, method=scv.Polynomial(degree=2))
    >>> result.labels[0], bool(result.variance_ratio[0] < 1e-3)
    ('P(x[0] > 0)', True)
    """
    if (above is None) == (below is None):
        raise InputError("give one threshold, `above` or `below`: scv.probability(samples, f, above=0.0).")
    sampling = (folds, gap, cross_fit, test_fraction)
    taken = inputs_of(samples, f, method, seed, sampling, guard, executor, coordinates, orbits)
    cuts, upward = (below, False) if above is None else (above, True)
    if isinstance(taken, FileInputs):
        return _file_probability(OnFile(*taken), cuts, upward)
    setting, values, weights = Setting(*taken), taken.values, taken.weights
    wanted, shape = thresholds(cuts, upward, values)
    found = setting.fit(wanted)
    columns = found.columns
    plain = setting.seen(indicator_draws(setting.judged(columns(values.array)), setting.judged_weights))
    judge = setting.judge(found, columns.labels(values.labels), shape)
    usable = (setting.seen(choice).where(np.isfinite(choice).all(axis=(0, 1)), plain) for choice in found.choices)
    counted = taken.samples.size if weights is None else weights.ess
    return sensible(doubted(judge(plain, *usable), found.doubt), columns, 1 / counted)


def with_quantiles(result: Estimate, taken: Inputs, levels: Sequence[float]) -> Estimate:
    """Return the result with an `Estimate` of the quantiles at each of the levels."""
    setting = Setting(*taken)
    values = setting.values
    seen = setting.judged(values.array)
    weights = setting.judged_weights
    plain = plain_quantiles(seen, levels) if weights is None else [weighted_quantile(seen, p, weights) for p in levels]
    found = setting.fit(at_levels(plain, levels))
    judge = setting.judge(found, values.labels, values.shape)
    estimates = []
    for k, (level, average) in enumerate(zip(levels, plain, strict=True)):
        pick = slice(k, None, len(levels))
        density, cut = found.density[pick], found.columns.cut[pick]
        below = indicator_draws(1.0 * (seen <= average.mean), weights)
        before = quantile_draws(below, average.mean, level, density)
        before += average.mean - before.mean(axis=(0, 1))
        tied = indicator_draws(1.0 * (seen == average.mean), weights).mean(axis=(0, 1))
        choices = [setting.seen(quantile_draws(g[..., pick], cut, level, density)) for g in found.choices]
        estimates.append(
            quantile(judge, level, setting.seen(before, average), choices, density, found.doubt[pick], tied)
        )
    return quantiles_in_order(result, levels, estimates, found.info["steps"])


class Found(NamedTuple):
    """Indicators of the outputs of f: their columns, the controlled ones of every choice, and densities at the cuts."""

    columns: Columns
    choices: list[Float[np.ndarray, "chain draw column"]]
    density: Float[np.ndarray, " column"]
    doubt: Float[np.ndarray, " column"]
    fit: CrossFit
    info: Mapping[str, Any]


class Setting(Inputs):
    """What is known of samples and f, and how indicators of f are fitted and judged."""

    __slots__ = ()

    def fit(self, wanted: Sequence[Wanted]) -> Found:
        """Take the jumps out, and fit the method to what is left."""
        points = self.points
        draws = points.draws.reshape(-1, self.samples.dim)
        values = points.values.reshape(len(draws), -1)
        again = None if self.weights is None else resampled
        cloud = Cloud(points.draws, points.scores, points.values, self.plan, points.states, points.weight, again)
        jumps = find_jumps(cloud, wanted, lambda: Derivatives.of(self.f, self.samples, draws, values))
        indicators = jumps.columns(points.values)
        center = np.zeros(indicators.shape[-1]) if self.weights is None else self.weights.mean(indicators)
        data = (points.draws, points.scores, indicators - center, tuple(self.plan), self.samples.names)
        more = (self.seed, points.chains, self.coordinates, points.states, points.weight)
        training = Training(*data, *more, base=jumps.base)
        with workers(self.executor) as team:
            fit = self.method.across(training)
        info = {**fit.info, **points.info, "steps": how_found(jumps, self.values.labels)}
        if isinstance(team, Team):
            info["executor"] = team.report()
        each = [self.judged(training.f + g) for g in (fit.g, *([] if fit.simpler is None else [fit.simpler.g]))]
        if (weights := self.judged_weights) is not None:
            each, info = [weights.draws(one, center) for one in each], {**info, **weights.info()}
        return Found(jumps.columns, each, jumps.density, jumps.doubt, fit, info)

    @property
    def judged_weights(self) -> Weights | None:
        """The weights of the draws that the estimate is made of."""
        return self.weights and self.weights.part(self.plan[0].test) if len(self.plan) == 1 else self.weights

    def seen(self, draws: np.ndarray, known: Average | None = None) -> Seen:
        """Return draws as they are judged. Indicators are bounded: of their tails only that of weights counts."""
        found = seen_as(self.judged_weights, draws, known)
        if self.weights is None:
            return found
        return replace(found, status=lambda ess: [without_tails(one) for one in found.statuses(ess)])

    def judged(self, array: np.ndarray) -> np.ndarray:
        """Return the part of an array that the estimate is made of: the held-out draws, where there is no cross-fit."""
        return self.plan[0].test.take(array) if len(self.plan) == 1 else array

    def judge(self, found: Found, labels: tuple[str, ...], shape: tuple[int, ...]) -> Judge:
        test = self.plan[0].test
        samples = self.samples.select(test.chains, test.draws) if len(self.plan) == 1 else self.samples
        weights = self.judged_weights
        alarms = stein_status(samples) if weights is None else weights.stein_status(samples)
        return Judge(str(self.method), found.fit.simpler, found.info, alarms, self.guard, labels, shape)


# Draws in a file --------------------------------------------------------------------------------------


class OnFile(FileInputs):
    """Draws that stay in their file: where f jumps is known of coordinates and linear functions."""

    __slots__ = ()

    def fit(self, ask: Callable[[Values], list[Wanted]]) -> "Filed":
        """Take jumps out and fit on every so many draws, then pass over all of them."""
        chains, draws, _ = self.source.shape
        wanted = ask(self._some(self.step)[1])
        columns = sum(len(one.cuts) for one in wanted)
        few = max(1, -(-chains * draws * columns // (LIMITS.entries * self.step)))
        step = min(self.step * few, max(self.step, draws // LIMITS.fitted))
        some, values = self._some(step)
        check_standard(some)
        standardise = Standardise.of(some)
        plan = make_folds(chains, draws, self.spaced.folds, self.spaced.gap, step)
        jumps = find_jumps(Cloud(some.draws, some.scores, values.array, plan, 1, None), wanted, lambda: None)
        targets = Targets(None, jumps.columns.__call__)
        averaged = targets(values.array)
        fit = self.spaced.fit(some, averaged, draws, step, jumps.base)
        choices = [
            Choice([_Together(g, functools.partial(jumps.elsewhere, k)) for k, g in enumerate(one.fitted)], variance)
            for one in (fit, fit.simpler)
            if one is not None
            for variance in [targets.variance(averaged + one.g)]
        ]
        parts = stretches(chains, draws, self.spaced.folds)
        passed = pass_over(self.source, self.functions, targets, parts, choices, standardise)
        info = {**fit.info, "steps": how_found(jumps, values.labels)}
        judge = functools.partial(
            Judge, str(self.spaced.method), fit.simpler, info, passed.stein_status(self.source), self.guard
        )
        return Filed(jumps, values, passed, judge)

    def _some(self, step: int) -> tuple[Samples, Values]:
        tile = self.source.every(step, self.functions.names)
        return Samples.trusted(tile.draws, tile.scores, self.source.names), self.functions(tile)


class Filed(NamedTuple):
    """Indicators of all draws of a file, as means over blocks of them."""

    jumps: Jumps
    values: Values  # of f, at the draws that were fitted on
    passed: Passed
    judge: Callable[[tuple[str, ...], tuple[int, ...]], Judge]

    def seen(self, pick: slice, shift: np.ndarray, scale: np.ndarray) -> list[Seen]:
        """Return some columns, plain and controlled, times a scale and shifted."""
        found = []
        for series in (self.passed.plain, *self.passed.controlled):
            one = seen_in(series, self.passed, pick)
            mean, error = shift + scale * one.average.mean, np.abs(scale) * one.average.standard_error
            average, array = replace(one.average, mean=mean, standard_error=error), shift + scale * one.array
            found.append(Seen(array, average, one.status, np.abs(array).max(axis=(0, 1))))
        return found


class _Together(NamedTuple):
    """A fitted g with what takes the jump out beside it."""

    one: Evaluator
    base: Callable[[Samples], np.ndarray]

    def __call__(self, samples: Samples) -> np.ndarray:
        return self.one(samples) + self.base(samples)

    def form(self, scaled: Standardise) -> Bilinear | None:
        return None


def _file_probability(setting: OnFile, cuts: Any, upward: bool) -> Estimate:
    filed = setting.fit(lambda values: thresholds(cuts, upward, values)[0])
    columns, shape = filed.jumps.columns, thresholds(cuts, upward, filed.values)[1]
    one = np.ones(len(columns.cut))
    plain, *choices = filed.seen(slice(None), 0 * one, one)
    judge = filed.judge(columns.labels(filed.values.labels), shape)
    result = judge(plain, *(choice.where(choice.finite, plain) for choice in choices))
    return sensible(doubted(result, filed.jumps.doubt), columns, 1 / filed.passed.plain.size)


def with_file_quantiles(result: Estimate, taken: FileInputs, levels: Sequence[float]) -> Estimate:
    """Return the result with quantiles: a Newton step of all draws from where those that are fitted on have them."""
    filed = OnFile(*taken).fit(lambda values: at_levels(plain_quantiles(values.array, levels), levels))
    jumps, values = filed.jumps, filed.values
    judge = filed.judge(values.labels, values.shape)
    estimates = []
    for k, level in enumerate(levels):
        pick = slice(k, None, len(levels))
        density, cut = jumps.density[pick], jumps.columns.cut[pick]
        slope = np.divide(1.0, density, out=np.zeros(len(density)), where=density > 0)
        plain, *choices = filed.seen(pick, cut + level * slope, -slope)
        tied = (values.array == np.quantile(values.array, level, axis=(0, 1))).mean(axis=(0, 1))
        estimates.append(quantile(judge, level, plain, choices, density, jumps.doubt[pick], tied))
    return quantiles_in_order(result, levels, estimates, how_found(jumps, values.labels))
