"""Probabilities and quantiles: the jump of an indicator is taken out before anything is fitted to what is left."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from .estimating import FileInputs, Inputs, Judge, inputs_of, seen_in
from .families.method import Method, Training
from .families.problem import resampled
from .judging.diagnostics import Code, Status, value_status
from .judging.error_bars import Average
from .judging.passing import Passed
from .judging.quantiles import in_order, indicator_draws, plain_quantiles, quantile_draws, weighted_quantile
from .judging.verdict import Seen
from .result import Estimate, called
from .runtime.threads import workers
from .runtime.validation import InputError
from .samples.derivatives import Derivatives
from .samples.samples import Samples, finite_array
from .samples.streamed import Streamed
from .samples.values import Targets, Values
from .stein.bases import Columns, Jumps, Points as Cloud, Wanted, find_jumps
from .stein.folds import make_folds

# What judges outputs of these labels and this shape.
Judging = Callable[[tuple[str, ...], tuple[int, ...]], Judge]


class Limits(NamedTuple):
    """When a quantile is not controlled, and how much is fitted on of a file; none of them was swept."""

    beyond: float = 10.0  # effective draws beyond it, on the side that has fewer, at least
    tied: float = 0.02  # share of the draws that are equal to it, at most: f is discrete there
    entries: int = 4_000_000  # indicators of the draws of a file that are fitted on, as long as
    fitted: int = 5000  # draws of a chain are


LIMITS = Limits()


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
        values = taken.some(taken.step)[1]
        wanted, shape = thresholds(cuts, upward, values)
        jumps, _, passed, judge, _ = filed = _fit_on_file(taken, wanted)
        one = np.ones(len(jumps.columns.cut))
        seen, counted, level = filed.seen(slice(None), 0 * one, one), float(passed.plain.size), 0 * one > 0
    else:
        values, weights = taken.values, taken.weights
        wanted, shape = thresholds(cuts, upward, values)
        jumps, choices, judge, _ = _fit(taken, wanted)
        plain = indicator_draws(taken.judged(jumps.columns(values.array)), taken.judged_weights)
        seen = [_bounded(taken, draws) for draws in (plain, *choices)]
        counted = taken.samples.size if weights is None else weights.ess
        level = np.ptp(values.array, axis=(0, 1))[jumps.columns.output] == 0
    result = judge(jumps.columns.labels(values.labels), shape)(*seen)
    return sensible(doubted(result, jumps.doubt), jumps.columns, np.where(level, 0.0, 1 / counted))


def with_quantiles(result: Estimate, taken: Inputs, levels: Sequence[float], training: Training | None) -> Estimate:
    """Return the result with an `Estimate` of the quantiles at each of the levels; `training`: that of the means."""
    values, weights = taken.values, taken.judged_weights
    seen = taken.judged(values.array)
    plain = plain_quantiles(seen, levels) if weights is None else [weighted_quantile(seen, p, weights) for p in levels]
    found = _fit(taken, at_levels(plain, levels), training)
    judge, estimates = found.judge(values.labels, values.shape), []
    for k, (level, average) in enumerate(zip(levels, plain, strict=True)):
        pick = slice(k, None, len(levels))
        density, cut = found.jumps.density[pick], found.jumps.columns.cut[pick]
        below = indicator_draws(1.0 * (seen <= average.mean), weights)
        before = quantile_draws(below, average.mean, level, density)
        before += average.mean - before.mean(axis=(0, 1))
        tied = indicator_draws(1.0 * (seen == average.mean), weights).mean(axis=(0, 1))
        choices = [_bounded(taken, quantile_draws(x[..., pick], cut, level, density)) for x in found.choices]
        beside = _bounded(taken, before, average)
        estimates.append(quantile(judge, level, beside, choices, density, found.jumps.doubt[pick], tied))
    return quantiles_in_order(result, levels, estimates, found.how)


class Found(NamedTuple):
    """Indicators of the outputs of f: what takes their jumps out, and the controlled ones of every choice."""

    jumps: Jumps
    choices: list[np.ndarray]
    judge: Judging
    how: Mapping[str, Sequence[str]]


def _fit(taken: Inputs, wanted: Sequence[Wanted], before: Training | None = None) -> Found:
    """Take the jumps out, and fit the method to what is left; `before`: another fit to the same draws, if there is."""
    points, samples = taken.points, taken.samples
    draws = points.draws.reshape(-1, samples.dim)
    again = None if taken.weights is None else resampled
    cloud = Cloud(points.draws, points.scores, points.values, taken.plan, points.states, points.weight, again)
    f_there = points.values.reshape(len(draws), -1)
    jumps = find_jumps(cloud, wanted, lambda: Derivatives.of(taken.f, samples, draws, f_there))
    center = taken.center(jumps.columns(points.values))
    if before is None:
        training = replace(taken.training(lambda x: jumps.columns(x) - center), base=jumps.base)
    else:
        training = before.again(jumps.columns(points.values) - center, jumps.base)
    with workers(taken.executor) as team:
        fit = taken.spaced.method.across(training)
    how = how_found(jumps, taken.values.labels)
    judge = functools.partial(taken.judge, fit, taken.info(fit, team, steps=how))
    return Found(jumps, taken.choices(training.f, fit, center), judge, how)


def _bounded(taken: Inputs, draws: np.ndarray, known: Average | None = None) -> Seen:
    """Return draws as they are judged. Indicators are bounded: of their tails only that of weights counts."""
    seen = taken.seen(draws, known)
    if taken.weights is None:  # asked for without control only, where there are two values
        return replace(seen, status=functools.partial(value_status, draws, two_valued=True))
    tails = Code.HEAVY_TAIL
    return replace(seen, status=lambda ess: [[s for s in one if s.code is not tails] for one in seen.statuses(ess)])


# Draws in a file --------------------------------------------------------------------------------------


class Filed(NamedTuple):
    """Indicators of all draws of a file, as means over blocks of them."""

    jumps: Jumps
    values: Values  # of f, at the draws that were fitted on
    passed: Passed
    judge: Judging
    how: Mapping[str, Sequence[str]]

    def seen(self, pick: slice, shift: np.ndarray, scale: np.ndarray) -> list[Seen]:
        """Return some columns, plain and controlled, times a scale and shifted."""
        found = []
        for series in (self.passed.plain, *self.passed.controlled):
            one = seen_in(series, self.passed, pick)
            mean, error = shift + scale * one.average.mean, np.abs(scale) * one.average.standard_error
            average, array = replace(one.average, mean=mean, standard_error=error), shift + scale * one.array
            found.append(Seen(array, average, one.status, np.abs(array).max(axis=(0, 1))))
        return found


def _fit_on_file(taken: FileInputs, wanted: Sequence[Wanted]) -> Filed:
    """Take jumps out and fit on every so many draws: where f jumps is known of coordinates and linear functions."""
    chains, draws, _ = taken.source.shape
    columns = sum(len(one.cuts) for one in wanted)
    few = max(1, -(-chains * draws * columns // (LIMITS.entries * taken.step)))
    step = min(taken.step * few, max(taken.step, draws // LIMITS.fitted))
    plan = make_folds(chains, draws, taken.spaced.folds, taken.spaced.gap, step)
    kept: list[tuple[Jumps, Values]] = []

    def prepare(some: Samples, values: Values) -> tuple[Targets, Jumps]:
        jumps = find_jumps(Cloud(some.draws, some.scores, values.array, plan, 1, None), wanted, lambda: None)
        kept.append((jumps, values))
        return Targets(None, jumps.columns.__call__), jumps

    fit, _, passed = taken.fit(step, prepare)
    jumps, values = kept[0]
    how = how_found(jumps, values.labels)
    judge = functools.partial(taken.judge, fit, passed, {**fit.info, "steps": how})
    return Filed(jumps, values, passed, judge, how)


def with_file_quantiles(result: Estimate, taken: FileInputs, levels: Sequence[float]) -> Estimate:
    """Return the result with quantiles: a Newton step of all draws from where those that are fitted on have them."""
    plain = plain_quantiles(taken.some(taken.step)[1].array, levels)
    filed = _fit_on_file(taken, at_levels(plain, levels))
    jumps, values = filed.jumps, filed.values
    judge, estimates = filed.judge(values.labels, values.shape), []
    for k, level in enumerate(levels):
        pick = slice(k, None, len(levels))
        density, cut = jumps.density[pick], jumps.columns.cut[pick]
        slope = np.divide(1.0, density, out=np.zeros(len(density)), where=density > 0)
        before, *choices = filed.seen(pick, cut + level * slope, -slope)
        tied = (values.array == np.quantile(values.array, level, axis=(0, 1))).mean(axis=(0, 1))
        estimates.append(quantile(judge, level, before, choices, density, jumps.doubt[pick], tied))
    return quantiles_in_order(result, levels, estimates, filed.how)


# What is asked for, and what is reported ----------------------------------------------------------------


def how_found(jumps: Jumps, labels: Sequence[str]) -> dict[str, list[str]]:
    """Return along what the outputs rise."""
    found: dict[str, list[str]] = {}
    for one in jumps.taken:
        found.setdefault(one.how, []).append(labels[one.wanted.output])
    return found


def threshold(name: str, given: Any) -> np.ndarray:
    """Return thresholds as numbers."""
    try:
        numbers = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        numbers = np.zeros(0)  # what is wrong with it is said below
    if len(bad := numbers[~np.isfinite(numbers)]):
        raise InputError(f"`{name}` holds {bad[0]}, and a threshold is a finite number. Leave it out.")
    return finite_array(name, given)


def thresholds(given: Any, upward: bool, values: Values) -> tuple[list[Wanted], tuple[int, ...]]:
    """Return the thresholds of every output that has any, and the shape of the result."""
    name, outputs = "above" if upward else "below", range(len(values.labels))
    if not isinstance(given, Mapping):
        cuts = threshold(name, given)
        if cuts.ndim > 1:
            raise InputError(f"`{name}` has shape {cuts.shape}, expected a number, a sequence of them, or a dict.")
        return [Wanted(o, np.atleast_1d(cuts), upward) for o in outputs], (*values.shape, *cuts.shape)
    found: dict[int, np.ndarray] = {}
    for key, cuts in given.items():
        which = called(key, values.labels)
        if not which:
            raise InputError(f"`{name}` names {key!r}; the outputs are {', '.join(values.labels)}.")
        found |= {o: np.atleast_1d(threshold(f"{name}[{key!r}]", cuts)) for o in which}
    total = sum(len(cuts) for cuts in found.values())
    if not total:
        raise InputError(f"`{name}` is an empty dict: there is nothing to estimate.")
    return [Wanted(o, found[o], upward) for o in outputs if o in found and len(found[o])], (total,)


def at_levels(plain: Sequence[Average], levels: Sequence[float]) -> list[Wanted]:
    """Return what is wanted of every output: the quantiles near the plain ones."""
    p = np.array(levels)
    ess, cuts = (np.array([getattr(one, name) for one in plain]).T for name in ("ess", "mean"))
    errors = np.sqrt(p * (1 - p) / np.maximum(ess, 1.0))
    return [Wanted(o, cuts[o], levels=p, errors=errors[o]) for o in range(len(cuts))]


def quantile(
    judge: Judge,
    level: float,
    plain: Seen,
    choices: Sequence[Seen],
    density: np.ndarray,
    doubt: np.ndarray,
    tied: np.ndarray,
) -> Estimate:
    """Judge the quantiles at one level; `tied`: the share of draws that are equal to each."""
    beyond = min(level, 1 - level) * plain.average.ess
    tied = np.where((tied > LIMITS.tied) & (tied < 1), tied, 0.0)
    usable = (beyond >= LIMITS.beyond) & (density > 0) & (tied == 0)
    one = judge(plain, *(choice.where(usable, plain) for choice in choices))
    one = doubted(one, np.divide(doubt, density, out=np.zeros(len(density)), where=density > 0))
    why: list[Status | None] = [None] * len(usable)
    for k, error in enumerate(plain.average.standard_error):
        if tied[k] > 0:
            why[k] = Status.of(Code.TIED, share=tied[k])
        elif error and not usable[k]:
            why[k] = Status.of(Code.FEW_BEYOND, count=beyond[k])
    return _said(one, why)


def quantiles_in_order(result: Estimate, levels: Sequence[float], estimates: Sequence[Estimate], how: Any) -> Estimate:
    """Return the result with quantiles that do not cross."""
    means = in_order([e.mean.reshape(-1) for e in estimates], [e.standard_error.reshape(-1) for e in estimates])
    quantiles = dict(zip(levels, map(_moved, estimates, means), strict=True))
    return replace(result, quantiles=quantiles, info={**result.info, "steps": how})


def sensible(result: Estimate, columns: Columns, least: np.ndarray) -> Estimate:
    """Return probabilities between 0 and 1 that rise with the threshold, or fall; say so where no draw is beyond it.

    There the error is at least that of the `least` that a draw counts for; nothing where f is constant.
    """
    mean, error = result.mean.reshape(-1).copy(), result.standard_error.reshape(-1)
    for o in np.unique(columns.output):
        mine = np.flatnonzero(columns.output == o)
        mine = mine[np.argsort(columns.cut[mine] * np.where(columns.above[mine], -1, 1), kind="stable")]
        mean[mine] = [m[0] for m in in_order([mean[j : j + 1] for j in mine], [error[j : j + 1] for j in mine])]
    none = (np.ptp(result.values, axis=(0, 1)) == 0) & (least > 0)
    result = _moved(result, np.clip(mean, 0.0, 1.0))
    if not none.any():
        return result
    floor = np.where(none, least, 0.0).reshape(result.shape)

    def wider(a: Average) -> Average:
        return replace(a, standard_error=np.maximum(a.standard_error, floor))

    result = replace(result, plain=wider(result.plain), _average=wider(result._average))
    return _said(result, [Status.of(Code.FEW_BEYOND, count=0.0) if constant else None for constant in none])


def doubted(result: Estimate, doubt: np.ndarray) -> Estimate:
    """Return the result with wider error bars where it is controlled, and is nothing exact beyond the doubt."""
    controlled = np.array([method != "plain" for method in result.method])
    doubt = np.where(controlled, doubt, 0.0)
    error = result.standard_error.reshape(-1)
    beyond = doubt > error
    status = tuple(
        tuple(s for s in found if not (more and s.code is Code.EXACT))
        for found, more in zip(result.status, beyond, strict=True)
    )
    wider = np.hypot(error, doubt).reshape(result.shape)
    return replace(result, status=status, _average=replace(result._average, standard_error=wider))


def _moved(result: Estimate, mean: np.ndarray) -> Estimate:
    """Return the result with other means, its controlled draws moved along."""
    shift = mean - result.mean.reshape(-1)
    if not shift.any():
        return result
    average = replace(result._average, mean=mean.reshape(result.shape))
    return replace(result, controlled=result.controlled + shift, _average=average)


def _said(result: Estimate, why: Sequence[Status | None]) -> Estimate:
    """Return the result with why some outputs are plain: it is not that nothing helped there, or that f is constant."""
    other = (Code.NO_GAIN, Code.CONSTANT)
    status = [
        found if reason is None else (reason, *(s for s in found if s.code not in other))
        for found, reason in zip(result.status, why, strict=True)
    ]
    return replace(result, status=tuple(status))
