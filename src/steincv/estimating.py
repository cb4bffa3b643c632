"""The one verb: draws and scores in, an expectation with an honest error bar out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .families.auto import Auto
from .families.method import CrossFit, Method, Simpler
from .judging.diagnostics import rare_draws_status, stein_status, value_status
from .judging.error_bars import ROUND_OFF, Average, average
from .judging.status import Code, Status
from .result import Estimate
from .runtime.validation import InputError, whole_number
from .runtime.workers import Team, workers
from .samples.samples import Samples, Streamed
from .samples.values import Values, values_of
from .stein.coordinates import check_standard
from .stein.folds import Fold, held_out, make_folds

FEWEST_DRAWS = 10
FEWEST_DRAWS_PER_CHAIN = 4
AVERAGED = ("mean", "standard_error", "ess", "error_ess")


def estimate(
    samples: Samples | Streamed,
    f: Any = None,
    method: Method | None = None,
    *,
    stat: str | Sequence[str] = "mean",
    seed: int = 0,
    folds: int | None = None,
    gap: int = 0,
    cross_fit: bool = True,
    test_fraction: float = 0.5,
    guard: bool = True,
    executor: Any = None,
) -> Estimate:
    """Estimate the mean of f with control variates.

    **Arguments:**

    - `samples`: `Samples(...)`, or `Samples.open(path)` for more draws than memory holds.
    - `f`: what to average: a function of the parameters, an array of values `(chain, draw[, out...])`, a dict
      of either, or nothing for every parameter.
    - `method`: a family; `Auto()` if not given.
    - `stat`: "mean", or `("mean", "sd")` to have the standard deviation of f under the density as well
      (`result.sd`), its second moment controlled too.
    - `seed`: same seed, same answer.
    - `folds`, `gap`: see `_folds.make_folds`. Each draw is controlled by a fit that has not seen it.
    - `cross_fit=False`: the paper's protocol instead. Fit on the first part of every chain, report on the last
      `test_fraction` of it only.
    - `guard`: report the plain mean, and say so, where control variates do not help or cannot be trusted.
    - `executor`: any `concurrent.futures.Executor`, to have members and folds fitted by its workers; for a Dask cluster
      `Client(...).get_executor()`. Same answer, to the bit, for any number of workers.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 250, 3))
    >>> result = scv.estimate(scv.Samples(x, -x), lambda x: x[0] ** 2, scv.Polynomial(degree=2))
    >>> float(result.mean.round(6)), result.status[0][0].name
    (1.0, 'exact')
    """
    if isinstance(samples, Streamed):
        settings = {"stat": _stats(stat), "seed": seed, "folds": folds, "gap": gap}
        return samples.estimate(f, method, cross_fit=cross_fit, guard=guard, executor=executor, **settings)
    if not isinstance(samples, Samples):
        raise InputError(f"`samples` must be a steincv.Samples, got {type(samples).__name__}.")
    method = Auto() if method is None else method
    if not isinstance(method, Method):
        raise InputError(f"`method` must be a method such as steincv.Polynomial(), got {method!r}.")
    stats = _stats(stat)
    seed = whole_number("seed", seed, 0)
    chains, draws, _ = samples.draws.shape
    enough("`samples` holds", chains, draws)
    plan: Sequence[Fold]
    if cross_fit:
        plan = make_folds(chains, draws, folds, gap)
    else:
        plan = [held_out(chains, draws, test_fraction)]
        enough(f"`test_fraction` = {test_fraction} leaves", chains, len(plan[0].test.draws))
    values = values_of(f, samples)
    unit = _Unit.of(values.array)
    targets = values.array
    if "sd" in stats:
        targets = np.concatenate([targets, unit(targets) ** 2], axis=-1)
    check_standard(samples)  # before any fold is looked at: what cannot be used is named by its place among all draws
    with workers(executor) as team:
        fit = method.cross_fit(samples, targets, plan, seed=seed)
    if isinstance(team, Team):
        fit = replace(fit, info={**fit.info, "executor": team.report()})
    judged: Samples = samples
    if not cross_fit:
        judged, values, targets, fit = _only(plan[0], samples, values, targets, fit)
    alarms = stein_status(judged)
    outputs = len(values.labels)
    controlled = targets + fit.g
    result = _judge(values, controlled[..., :outputs], str(method), fit, alarms, guard)
    if "sd" not in stats:
        return result
    return result.with_sd(_deviation(values, unit, targets, controlled, str(method), fit, alarms, guard))


def enough(what: str, chains: int, draws: int) -> None:
    if chains * draws < FEWEST_DRAWS or draws < FEWEST_DRAWS_PER_CHAIN:
        raise InputError(
            f"{what} {chains} chains of {draws} draws; an error bar needs at least {FEWEST_DRAWS} draws, "
            f"{FEWEST_DRAWS_PER_CHAIN} in every chain."
        )


def _stats(stat: str | Sequence[str]) -> tuple[str, ...]:
    stats = tuple(stat) if isinstance(stat, list | tuple | set) else (stat,)
    if "mean" not in stats or not set(stats) <= {"mean", "sd"}:
        raise InputError(f'`stat` must be "mean" or ("mean", "sd"), got {stat!r}.')
    return stats


def _only(fold: Fold, samples: Samples, values: Values, targets: np.ndarray, fit: CrossFit) -> tuple:
    """Everything on the held-out draws alone."""
    part = fold.test
    return (
        samples.select(part.chains, part.draws),
        Values(part.take(values.array), values.labels, values.shape),
        part.take(targets),
        replace(
            fit, g=part.take(fit.g), simpler=fit.simpler and Simpler(part.take(fit.simpler.g), fit.simpler.methods)
        ),
    )


@dataclass(frozen=True, eq=False)
class _Unit:
    """f about its plain mean, in [-1, 1]: a raw second moment loses the digits that matter, or overflows."""

    center: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, array: np.ndarray) -> "_Unit":
        center = array.mean(axis=(0, 1))
        largest = np.abs(array - center).max(axis=(0, 1))
        return cls(center, np.where(largest > 0, largest, 1.0))

    def __call__(self, array: np.ndarray) -> np.ndarray:
        return (array - self.center) / self.scale


def _judge(
    values: Values, controlled: np.ndarray, method: str, fit: CrossFit, alarms: list[Status], guard: bool
) -> Estimate:
    """Error bars, statuses, and the fall-back to the plain mean where that is the better answer."""
    plain, better = average(values.array), average(controlled)
    methods = [method] * len(values.labels)
    if guard and fit.simpler is not None:
        doubted = np.flatnonzero(widened_ratio(plain, better) >= gain_limit(plain.ess))
        controlled, better, methods = _simpler_where(doubted, values, controlled, better, methods, fit.simpler)
    statuses = value_status(values.array, np.minimum(plain.ess, better.ess))
    size = np.abs(values.array).max(axis=(0, 1))
    return verdict(values, controlled, plain, better, size, statuses, methods, fit.info, alarms, guard)


def _simpler_where(
    doubted: np.ndarray, values: Values, controlled: np.ndarray, better: Average, methods: list[str], simpler: Simpler
) -> tuple[np.ndarray, Average, list[str]]:
    """The second choice for some outputs. Whether that is better than the plain mean is judged later."""
    if not len(doubted):
        return controlled, better, methods
    controlled, methods = controlled.copy(), methods.copy()
    controlled[..., doubted] = values.array[..., doubted] + simpler.g[..., doubted]
    other = average(controlled[..., doubted])
    fields = {x: np.array(getattr(better, x)) for x in AVERAGED}
    for x, array in fields.items():
        array[doubted] = getattr(other, x)
    for k in doubted:
        methods[k] = simpler.methods[k]
    return controlled, Average(*fields.values()), methods


def verdict(
    values: Values,
    controlled: np.ndarray,
    plain: Average,
    better: Average,
    size: np.ndarray,
    statuses: list[list[Status]],
    methods: Sequence[str],
    info: Mapping[str, Any],
    alarms: list[Status],
    guard: bool,
) -> Estimate:
    """Which of the two means is reported for every output, and why. `size`: the largest value of f, in size."""
    controlled, methods = controlled.copy(), list(methods)
    deviation, left = (a.standard_error * np.sqrt(a.ess) for a in (plain, better))
    widened = widened_ratio(plain, better)
    features, fitted_on = _features(info)
    for k, found in enumerate(statuses):
        if deviation[k] <= 4 * np.finfo(float).eps * size[k]:
            found[:] = [Status.of(Code.CONSTANT)]
            methods[k] = "plain"
            continue
        found += alarms
        if left[k] <= max(ROUND_OFF * deviation[k], 64 * np.finfo(float).eps * size[k]) and not alarms:
            found[:] = [s for s in found if s.code is not Code.LOW_ESS]
            found.append(Status.of(Code.EXACT, spread=left[k] / deviation[k]))
        elif guard and (alarms or widened[k] >= gain_limit(plain.ess[k])):
            methods[k] = "plain"
            if not alarms:
                found.append(Status.of(Code.NO_GAIN, ratio=widened[k]))
            found += rare_draws_status(plain, k)
        else:
            found += rare_draws_status(better, k)
        if features > fitted_on:
            found.append(Status.of(Code.TOO_MANY_FEATURES, features=features, draws=fitted_on))
    fallen_back = np.array([m == "plain" for m in methods])
    controlled[..., fallen_back] = values.array[..., fallen_back]
    reported = Average(*(np.where(fallen_back, getattr(plain, x), getattr(better, x)) for x in AVERAGED))
    return Estimate.of(values, controlled, plain, reported, methods, statuses, info)


def gain_limit(ess: Any) -> Any:
    """The variance ratio that counts as a gain: below 1 by more than its own noise at this many effective draws."""
    return np.maximum(0.2, 1 - 2 / np.sqrt(np.maximum(ess, 1.0)))


def widened_ratio(plain: Average, better: Average) -> np.ndarray:
    """The variance ratio, times the square of how many more standard errors an interval of `better` has, if more.

    Few draws may carry its error bar.
    """
    old = plain.standard_error
    ratio = np.divide(better.standard_error, old, out=np.ones_like(old), where=old > 0) ** 2
    return ratio * np.maximum(better.half_width() / plain.half_width(), 1.0) ** 2


def _features(info: Mapping[str, Any]) -> tuple[int, int]:
    counts = [(i["features"], i["draws"]) for i in info.get("folds", []) if "features" in i and "draws" in i]
    return max((c[0] for c in counts), default=0), min((c[1] for c in counts), default=0)


def _deviation(
    values: Values,
    unit: _Unit,
    targets: np.ndarray,
    controlled: np.ndarray,
    method: str,
    fit: CrossFit,
    alarms: list[Status],
    guard: bool,
) -> Estimate:
    r"""The standard deviation of f, by the delta method.

    With $u = (f - c)/r$ for constants $c$ and $r$, $\sigma^2/r^2 = E[u^2] - (E u)^2$, and the draws
    $\hat\sigma + (v_i - \bar v)\,r^2 / 2\hat\sigma$, $v = u^2 - 2 \bar u u$ (both controlled), have mean
    $\hat\sigma$ and its standard error.
    """
    outputs = len(values.labels)
    plain_draws = unit.scale * _sd_draws(unit(targets[..., :outputs]), targets[..., outputs:])
    draws = unit.scale * _sd_draws(unit(controlled[..., :outputs]), controlled[..., outputs:])
    draws = np.where(np.isfinite(draws).all(axis=(0, 1)), draws, plain_draws)
    sd_values = Values(plain_draws, values.labels, values.shape)
    return _judge(sd_values, draws, method, fit, alarms, guard)


def _sd_draws(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    mean = first.mean(axis=(0, 1))
    variance = second.mean(axis=(0, 1)) - mean**2
    sd = np.sqrt(np.where(variance > 0, variance, np.nan))
    v = second - 2 * mean * first
    with np.errstate(invalid="ignore"):
        draws = sd + (v - v.mean(axis=(0, 1))) / (2 * sd)
    return np.where(second.max(axis=(0, 1)) > 0, draws, 0.0)
