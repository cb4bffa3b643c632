"""The one verb: draws and scores in, an expectation with an honest error bar out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from .families.auto import Auto
from .families.method import CrossFit, Method, Simpler
from .families.points import gather
from .judging.diagnostics import stein_status, value_status
from .judging.error_bars import Average, average
from .judging.status import Status
from .judging.verdict import Verdict, gain_limit, verdict, widened_ratio
from .result import Estimate
from .runtime.validation import InputError, whole_number
from .runtime.workers import Team, workers
from .samples.samples import Samples, Streamed
from .samples.values import Values, values_of
from .stein.coordinates import check_standard
from .stein.folds import Fold, held_out, make_folds

FEWEST_DRAWS = 10
FEWEST_DRAWS_PER_CHAIN = 4


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
      (`result.sd`), its second moment controlled too.
    - `seed`: same seed, same answer.
    - `folds`, `gap`: see `_folds.make_folds`. Each draw is controlled by a fit that has not seen it.
    - `cross_fit=False`: the paper's protocol instead. Fit on the first part of every chain, report on the last
      `test_fraction` of it only.
    - `guard`: report the plain mean, and say so, where control variates do not help or cannot be trusted.
    - `executor`: any `concurrent.futures.Executor`, to have members and folds fitted by its workers; for a Dask cluster
      `Client(...).get_executor()`. Same answer, to the bit, for any number of workers.
    - `coordinates`: "affine" fits in whitened coordinates, "learned" in coordinates learned from the scores where they
      show a shape. "auto": both kinds for `Auto()`, affine ones for any other method.
    - `orbits`: so many leapfrog states around every draw, for one gradient of `samples.log_density` each: g is fitted
      on all of them, and f + g averaged over them. "auto": as many as pay, where the model is known and f is a
      function; 0: none.

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
    if coordinates not in ("auto", "affine", "learned"):
        raise InputError(f'`coordinates` must be "auto", "affine" or "learned", got {coordinates!r}.')
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
    targets = Targets.of(values.array, "sd" in stats)
    check_standard(samples)  # before any fold is looked at: what cannot be used is named by its place among all draws
    points = gather(samples, f, values.array, orbits, coordinates, plan, seed)
    with workers(executor) as team:
        if points.values is values.array and coordinates == "auto":
            averaged = targets(values.array)
            fit = method.cross_fit(samples, averaged, plan, seed=seed)
        else:
            training = points.training(targets, plan, samples.names, seed, coordinates)
            averaged, fit = training.f, method.across(training)
    info = {**fit.info, **points.info, **({"executor": team.report()} if isinstance(team, Team) else {})}
    judged = samples
    if not cross_fit:
        judged, values, averaged, fit = _only(plan[0], samples, values, averaged, fit)
    alarms = stein_status(judged)
    outputs = len(values.labels)
    controlled = averaged + fit.g
    simpler = None if fit.simpler is None else averaged + fit.simpler.g
    judge = _Judge(str(method), fit.simpler, info, alarms, guard)
    result = judge(values, controlled[..., :outputs], None if simpler is None else simpler[..., :outputs])
    if (unit := targets.unit) is None:
        return result
    plain = _deviation(unit, targets(values.array), outputs)

    def deviation(draws: np.ndarray) -> np.ndarray:
        found = _deviation(unit, draws, outputs)
        return np.where(np.isfinite(found).all(axis=(0, 1)), found, plain)

    second = None if simpler is None else deviation(simpler)
    return result.with_sd(judge(Values(plain, values.labels, values.shape), deviation(controlled), second))


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


@dataclass(frozen=True, eq=False)
class Targets:
    """What control variates are fitted to: f, and its square about the mean where a standard deviation is asked for."""

    unit: _Unit | None

    @classmethod
    def of(cls, array: np.ndarray, sd: bool) -> "Targets":
        return cls(_Unit.of(array) if sd else None)

    def __call__(self, array: np.ndarray) -> np.ndarray:
        return array if self.unit is None else np.concatenate([array, self.unit(array) ** 2], axis=-1)


@dataclass(frozen=True, eq=False)
class _Judge:
    """Error bars, statuses, and the fall-back to a simpler method or the plain mean where that is the better answer."""

    method: str
    simpler: Simpler | None
    info: Mapping[str, Any]
    alarms: list[Status]
    guard: bool

    def __call__(self, values: Values, controlled: np.ndarray, simpler: np.ndarray | None) -> Estimate:
        plain, better = average(values.array), average(controlled)
        methods = [self.method] * len(values.labels)
        if self.guard and self.simpler is not None and simpler is not None:
            doubted = np.flatnonzero(widened_ratio(plain, better) >= gain_limit(plain.ess))
            if len(doubted):
                controlled, methods = controlled.copy(), methods.copy()
                # whether that is better than the plain mean is judged below
                controlled[..., doubted] = simpler[..., doubted]
                better = average(controlled)
                for k in doubted:
                    methods[k] = self.simpler.methods[k]
        statuses = value_status(values.array, np.minimum(plain.ess, better.ess))
        size = np.abs(values.array).max(axis=(0, 1))
        features, fitted_on = feature_counts(self.info)
        found = verdict(
            plain, better, size, statuses, self.alarms, guard=self.guard, features=features, fitted_on=fitted_on
        )
        return report(values, controlled, plain, found, methods, self.info)


def report(
    values: Values, controlled: np.ndarray, plain: Average, found: Verdict, methods: Sequence[str], info: Mapping
) -> Estimate:
    """Return the estimate that a verdict says: plain draws, mean and name where control variates are not used."""
    shape = values.shape
    return Estimate(
        values.labels,
        shape,
        values.array,
        np.where(found.used, controlled, values.array),
        plain.reshape(shape),
        found.reported.reshape(shape),
        tuple(method if used else "plain" for method, used in zip(methods, found.used, strict=True)),
        tuple(map(tuple, found.statuses)),
        info,
    )


def feature_counts(info: Mapping[str, Any]) -> tuple[int, int]:
    """Return the features of the largest regression and the draws of the smallest, as the folds report them."""
    counts = [(i["features"], i["draws"]) for i in info.get("folds", []) if "features" in i and "draws" in i]
    return max((c[0] for c in counts), default=0), min((c[1] for c in counts), default=0)


def _deviation(unit: _Unit, targets: np.ndarray, outputs: int) -> np.ndarray:
    r"""Return draws whose mean is the standard deviation of f, by the delta method.

    With $u = (f - c)/r$ for constants $c$ and $r$, $\sigma^2/r^2 = E[u^2] - (E u)^2$, and the draws
    $\hat\sigma + (v_i - \bar v)\,r^2 / 2\hat\sigma$, $v = u^2 - 2 \bar u u$ (both controlled or both plain), have mean
    $\hat\sigma$ and its standard error. `targets` holds the draws of f and then those of $u^2$.
    """
    first, second = unit(targets[..., :outputs]), targets[..., outputs:]
    mean = first.mean(axis=(0, 1))
    variance = second.mean(axis=(0, 1)) - mean**2
    sd = np.sqrt(np.where(variance > 0, variance, np.nan))
    v = second - 2 * mean * first
    with np.errstate(invalid="ignore"):
        draws = sd + (v - v.mean(axis=(0, 1))) / (2 * sd)
    return unit.scale * np.where(second.max(axis=(0, 1)) > 0, draws, 0.0)
