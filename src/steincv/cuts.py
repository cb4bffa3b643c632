"""Indicators become estimates: thresholds as they are asked for, probabilities and quantiles as they are reported."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .estimating import Judge, Seen
from .judging.error_bars import Average
from .judging.quantiles import in_order
from .judging.status import Code, Status
from .result import Estimate
from .runtime.validation import InputError
from .samples.samples import finite_array
from .samples.values import Values
from .stein.bases import Columns, Jumps, Wanted


class Limits(NamedTuple):
    """When a quantile is not controlled, and how much is fitted on of a file; none of them was swept."""

    beyond: float = 10.0  # effective draws beyond it, on the side that has fewer, at least
    tied: float = 0.02  # share of the draws that are equal to it, at most: f is discrete there
    entries: int = 4_000_000  # indicators of the draws of a file that are fitted on, as long as
    fitted: int = 5000  # draws of a chain are


LIMITS = Limits()


def thresholds(given: Any, upward: bool, values: Values) -> tuple[list[Wanted], tuple[int, ...]]:
    """Return the thresholds of every output that has any, and the shape of the result."""
    name, outputs = "above" if upward else "below", range(len(values.labels))
    if not isinstance(given, Mapping):
        cuts = finite_array(name, given)
        if cuts.ndim > 1:
            raise InputError(f"`{name}` has shape {cuts.shape}, expected a number, a sequence of them, or a dict.")
        return [Wanted(o, np.atleast_1d(cuts), upward) for o in outputs], (*values.shape, *cuts.shape)
    found: dict[int, np.ndarray] = {}
    for key, cuts in given.items():
        which = [o for o, label in enumerate(values.labels) if label == key or label.startswith(f"{key}[")]
        if not which:
            raise InputError(f"`{name}` names {key!r}; the outputs are {', '.join(values.labels)}.")
        found |= {o: np.atleast_1d(finite_array(f"{name}[{key!r}]", cuts)) for o in which}
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
    one = judge(plain, *(choice.where(usable & choice.finite, plain) for choice in choices))
    one = doubted(one, np.divide(doubt, density, out=np.zeros(len(density)), where=density > 0))
    few = [
        Status.of(Code.TIED, share=share)
        if share > 0
        else None
        if fine or not error
        else Status.of(Code.FEW_BEYOND, count=count)
        for fine, error, count, share in zip(usable, plain.average.standard_error, beyond, tied, strict=True)
    ]
    return _said(one, few)


def quantiles_in_order(result: Estimate, levels: Sequence[float], estimates: Sequence[Estimate], how: Any) -> Estimate:
    """Return the result with quantiles that do not cross."""
    means = in_order([e.mean.reshape(-1) for e in estimates], [e.standard_error.reshape(-1) for e in estimates])
    quantiles = dict(zip(levels, map(_moved, estimates, means), strict=True))
    return replace(result, quantiles=quantiles, info={**result.info, "steps": how})


def how_found(jumps: Jumps, labels: Sequence[str]) -> dict[str, list[str]]:
    """Return along what the outputs rise."""
    found: dict[str, list[str]] = {}
    for one in jumps.taken:
        found.setdefault(one.how, []).append(labels[one.wanted.output])
    return found


def sensible(result: Estimate, columns: Columns, least: float) -> Estimate:
    """Return probabilities between 0 and 1 that rise with the threshold, or fall; say so where no draw is beyond it.

    There the error is at least that of the `least` that a draw counts for.
    """
    mean, error = result.mean.reshape(-1).copy(), result.standard_error.reshape(-1)
    for o in np.unique(columns.output):
        mine = np.flatnonzero(columns.output == o)
        mine = mine[np.argsort(columns.cut[mine] * np.where(columns.above[mine], -1, 1), kind="stable")]
        mean[mine] = [m[0] for m in in_order([mean[j : j + 1] for j in mine], [error[j : j + 1] for j in mine])]
    none = np.ptp(result.values, axis=(0, 1)) == 0
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


def without_tails(found: Sequence[Status]) -> list[Status]:
    return [status for status in found if status.code is not Code.HEAVY_TAIL]


def _said(result: Estimate, why: Sequence[Status | None]) -> Estimate:
    """Return the result with why some outputs are plain: it is not that nothing helped there, or that f is constant."""
    other = (Code.NO_GAIN, Code.CONSTANT)
    status = [
        found if reason is None else (reason, *(s for s in found if s.code not in other))
        for found, reason in zip(result.status, why, strict=True)
    ]
    return replace(result, status=tuple(status))
