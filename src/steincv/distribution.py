"""Probabilities and quantiles: the jump of an indicator is taken out before anything is fitted to what is left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from .estimating import Judge, Seen, enough
from .families.auto import Auto
from .families.method import CrossFit, Method, Training
from .families.points import Points, gather
from .judging.diagnostics import stein_status
from .judging.error_bars import Average
from .judging.quantiles import in_order, plain_quantile, quantile_draws
from .judging.status import Code, Status
from .result import Estimate
from .runtime.threads import Team, workers
from .runtime.validation import InputError, whole_number
from .samples.derivatives import Derivatives
from .samples.samples import Samples, finite_array
from .samples.streamed import Streamed
from .samples.values import Values, by_name, values_of
from .stein.bases import Columns, Points as Cloud, Wanted, find_jumps
from .stein.coordinates import check_standard
from .stein.folds import Fold, held_out, make_folds


class Limits(NamedTuple):
    """When a quantile is not controlled; neither number was swept."""

    beyond: float = 10.0  # effective draws beyond it, on the side that has fewer, at least
    tied: float = 0.02  # share of the draws that are equal to it, at most: f is discrete there


LIMITS = Limits()


def probability(
    samples: Samples,
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
    if isinstance(samples, Streamed):
        raise InputError("`probability` is not for draws in a file. Read them into steincv.Samples.")
    if not isinstance(samples, Samples):
        raise InputError(f"`samples` must be a steincv.Samples, got {type(samples).__name__}.")
    samples.unweighted()
    method = Auto() if method is None else method
    if not isinstance(method, Method):
        raise InputError(f"`method` must be a method such as steincv.Polynomial(), got {method!r}.")
    if coordinates not in ("auto", "affine", "learned"):
        raise InputError(f'`coordinates` must be "auto", "affine" or "learned", got {coordinates!r}.')
    seed = whole_number("seed", seed, 0)
    chains, draws, _ = samples.draws.shape
    enough("`samples` holds", chains, draws)
    plan = make_folds(chains, draws, folds, gap) if cross_fit else [held_out(chains, draws, test_fraction)]
    if not cross_fit:
        enough(f"`test_fraction` = {test_fraction} leaves", chains, len(plan[0].test.draws))
    f = by_name(f, samples)
    values = values_of(f, samples)
    upward = above is not None
    thresholds, shape = _thresholds("above", above, values) if upward else _thresholds("below", below, values)
    check_standard(samples)
    points = gather(samples, f, values.array, orbits, coordinates, plan, seed)
    setting = Setting(samples, f, values, method, plan, seed, guard, executor, coordinates, points)
    wanted = [Wanted(o, cuts, upward) for o, cuts in enumerate(thresholds) if len(cuts)]
    found = setting.fit(wanted)
    columns = found.columns
    sign = ">" if upward else "<="
    labels = tuple(f"P({values.labels[o]} {sign} {c:g})" for o, c in zip(columns.output, columns.cut, strict=True))
    plain = Seen(setting.judged(columns(values.array)))
    judge = setting.judge(found, labels, shape)
    usable = (Seen(choice).where(np.isfinite(choice).all(axis=(0, 1)), plain) for choice in found.choices)
    return _sensible(_doubted(judge(plain, *usable), found.doubt), columns)


def with_quantiles(result: Estimate, setting: "Setting", levels: Sequence[float]) -> Estimate:
    """Return the result with an `Estimate` of the quantiles at each of the levels, which ascend."""
    values = setting.values
    seen = setting.judged(values.array)
    plain = [plain_quantile(seen, level) for level in levels]
    p = np.array(levels)
    wanted = []
    for o in range(len(values.labels)):
        ess = np.array([one.ess[o] for one in plain])
        errors = np.sqrt(p * (1 - p) / np.maximum(ess, 1.0))
        wanted.append(Wanted(o, np.array([one.mean[o] for one in plain]), levels=p, errors=errors))
    found = setting.fit(wanted)
    judge = setting.judge(found, values.labels, values.shape)
    estimates = []
    for k, (level, average) in enumerate(zip(levels, plain, strict=True)):
        pick = slice(k, None, len(levels))
        density, cut = found.density[pick], found.columns.cut[pick]
        before = quantile_draws(1.0 * (seen <= average.mean), average.mean, level, density)
        before += average.mean - before.mean(axis=(0, 1))
        beyond = min(level, 1 - level) * average.ess
        tied = (seen == average.mean).mean(axis=(0, 1))
        tied = np.where((tied > LIMITS.tied) & (tied < 1), tied, 0.0)
        usable = (beyond >= LIMITS.beyond) & (density > 0) & (tied == 0)
        mine = Seen(before, average)
        choices = (Seen(quantile_draws(g[..., pick], cut, level, density)) for g in found.choices)
        one = judge(mine, *(choice.where(usable & choice.finite, mine) for choice in choices))
        one = _doubted(one, np.divide(found.doubt[pick], density, out=np.zeros(len(density)), where=density > 0))
        few = [
            Status.of(Code.TIED, share=share)
            if share > 0
            else None
            if fine or not error
            else Status.of(Code.FEW_BEYOND, count=count)
            for fine, error, count, share in zip(usable, average.standard_error, beyond, tied, strict=True)
        ]
        estimates.append(_said(one, few))
    means = in_order([e.mean.reshape(-1) for e in estimates], [e.standard_error.reshape(-1) for e in estimates])
    quantiles = dict(zip(levels, map(_moved, estimates, means), strict=True))
    return replace(result, quantiles=quantiles, info={**result.info, "steps": found.info["steps"]})


class Found(NamedTuple):
    """Indicators of the outputs of f: their columns, the controlled ones of every choice, and densities at the cuts."""

    columns: Columns
    choices: list[Float[np.ndarray, "chain draw column"]]
    density: Float[np.ndarray, " column"]
    doubt: Float[np.ndarray, " column"]
    fit: CrossFit
    info: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Setting:
    """Samples, f and how to fit: everything but what is asked about the distribution of f."""

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

    def fit(self, wanted: Sequence[Wanted]) -> Found:
        """Take the jumps out, and fit the method to what is left."""
        points = self.points
        draws = points.draws.reshape(-1, self.samples.dim)
        values = points.values.reshape(len(draws), -1)
        cloud = Cloud(points.draws, points.scores, points.values, self.plan, points.states, points.weight)
        jumps = find_jumps(cloud, wanted, lambda: Derivatives.of(self.f, self.samples, draws, values))
        data = (points.draws, points.scores, jumps.columns(points.values), tuple(self.plan), self.samples.names)
        more = (self.seed, points.chains, self.coordinates, points.states, points.weight)
        training = Training(*data, *more, base=jumps.base)
        with workers(self.executor) as team:
            fit = self.method.across(training)
        how: dict[str, list[str]] = {}
        for one, name in zip(wanted, jumps.how, strict=True):
            how.setdefault(name or "unknown", []).append(self.values.labels[one.output])
        info = {**fit.info, **points.info, "steps": how}
        if isinstance(team, Team):
            info["executor"] = team.report()
        each = [fit.g, *([] if fit.simpler is None else [fit.simpler.g])]
        return Found(jumps.columns, [self.judged(training.f + g) for g in each], jumps.density, jumps.doubt, fit, info)

    def judged(self, array: np.ndarray) -> np.ndarray:
        """Return the part of an array that the estimate is made of: the held-out draws, where there is no cross-fit."""
        return self.plan[0].test.take(array) if len(self.plan) == 1 else array

    def judge(self, found: Found, labels: tuple[str, ...], shape: tuple[int, ...]) -> Judge:
        test = self.plan[0].test
        samples = self.samples.select(test.chains, test.draws) if len(self.plan) == 1 else self.samples
        return Judge(str(self.method), found.fit.simpler, found.info, stein_status(samples), self.guard, labels, shape)


def _thresholds(name: str, given: Any, values: Values) -> tuple[list[np.ndarray], tuple[int, ...]]:
    """Return the thresholds of every output, and the shape of the result."""
    if not isinstance(given, Mapping):
        cuts = finite_array(name, given)
        if cuts.ndim > 1:
            raise InputError(f"`{name}` has shape {cuts.shape}, expected a number, a sequence of them, or a dict.")
        return [np.atleast_1d(cuts)] * len(values.labels), (*values.shape, *cuts.shape)
    found: list[np.ndarray] = [np.empty(0)] * len(values.labels)
    for key, cuts in given.items():
        which = [o for o, label in enumerate(values.labels) if label == key or label.startswith(f"{key}[")]
        if not which:
            raise InputError(f"`{name}` names {key!r}; the outputs are {', '.join(values.labels)}.")
        for o in which:
            found[o] = np.atleast_1d(finite_array(f"{name}[{key!r}]", cuts))
    total = sum(map(len, found))
    if not total:
        raise InputError(f"`{name}` is an empty dict: there is nothing to estimate.")
    return found, (total,)


def _sensible(result: Estimate, columns: Columns) -> Estimate:
    """Return probabilities between 0 and 1 that rise with the threshold, or fall; say so where no draw is beyond it."""
    mean, error = result.mean.reshape(-1).copy(), result.standard_error.reshape(-1)
    for o in np.unique(columns.output):
        mine = np.flatnonzero(columns.output == o)
        mine = mine[np.argsort(columns.cut[mine] * np.where(columns.above[mine], -1, 1), kind="stable")]
        mean[mine] = [m[0] for m in in_order([mean[j : j + 1] for j in mine], [error[j : j + 1] for j in mine])]
    none = np.ptp(result.values, axis=(0, 1)) == 0
    result = _moved(result, np.clip(mean, 0.0, 1.0))
    if not none.any():
        return result
    floor = np.where(none, 1 / result.values[..., 0].size, 0.0).reshape(result.shape)

    def wider(a: Average) -> Average:
        return replace(a, standard_error=np.maximum(a.standard_error, floor))

    result = replace(result, plain=wider(result.plain), _average=wider(result._average))
    return _said(result, [Status.of(Code.FEW_BEYOND, count=0.0) if constant else None for constant in none])


def _doubted(result: Estimate, doubt: np.ndarray) -> Estimate:
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
