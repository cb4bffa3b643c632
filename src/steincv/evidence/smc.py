r"""The log evidence of sequential Monte Carlo: the sum of its increments, each with control variates.

$$ \log p(y) = \sum_k \log E_{k}\left[e^{(t_{k+1} - t_k)\,l}\right], $$

with $E_k$ the mean over particles of the power posterior $p(y|\theta)^{t_k} p(\theta)$ and l the log likelihood. The
scores of that power posterior are known, so every increment is an expectation as any other.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float

from ..estimating import estimate
from ..families.auto import Auto
from ..families.method import Method
from ..judging.error_bars import Average, average
from ..judging.status import ALARMS, Code, Status
from ..result import Estimate
from ..runtime.validation import InputError, whole_number
from ..samples.samples import Samples
from .ladder import check_temperatures
from .rung import check_values, log_mean
from .thermodynamic import LABEL, _independent, _named


class Runs(NamedTuple):
    """When independent runs differ by more than their error bars say."""

    fewest: int = 4
    sure: float = 0.99  # of the distribution that the squared ratio of the two errors has by chance


RUNS = Runs()


class _Step(NamedTuple):
    """An increment: draws whose mean it is, without and with control variates, and how they came about."""

    plain: Float[np.ndarray, "chain draw"]
    controlled: Float[np.ndarray, "chain draw"]
    result: Estimate


def smc_evidence(
    samples_per_step: Sequence[Samples],
    log_likelihoods: Sequence[object],
    temperatures: object,
    method: Method | None = None,
    seed: int = 0,
) -> Estimate:
    r"""Return the log evidence from the particles of tempered sequential Monte Carlo.

    **Arguments:**

    - `samples_per_step`: the particles at every temperature but the last, after they were moved there, with the scores
      of the power posterior of *that* temperature; those at the last one may be given too, and are not needed.
      Particles that were not resampled have `log_weights`. Independent runs are chains.
    - `log_likelihoods`: at every particle, `(chain, draw)` each.
    - `temperatures`: increasing from 0 to 1.
    - `method`: a family, used on every increment; `Auto()` if not given.
    - `seed`: same seed, same answer.

    Siblings of a resampled particle should be neighbours, as systematic and stratified resampling leave them: how alike
    they still are is then part of the error bar, as in a chain. With four or more runs the error bar is at least what
    the runs differ by, where that is larger than by chance.

    >>> import numpy as np, steincv as scv
    >>> t, rng = np.linspace(0, 1, 6), np.random.default_rng(0)
    >>> x = [rng.normal(size=(4, 100, 1)) / np.sqrt(1 + u) for u in t]  # prior N(0, 1), log likelihood -x^2 / 2
    >>> samples = [scv.Samples(a, -(1 + u) * a) for a, u in zip(x, t)]
    >>> result = scv.smc_evidence(samples, [-0.5 * a[..., 0] ** 2 for a in x], t)
    >>> bool(abs(result.mean + 0.5 * np.log(2)) < 1e-3)
    True

    Reference: Del Moral, Doucet, Jasra (2006), JRSS B 68.
    """
    start = time.perf_counter()
    t = check_temperatures(temperatures)
    method = Auto() if method is None else method
    if not isinstance(method, Method):
        raise InputError(f"`method` must be a method such as steincv.Polynomial(), got {method!r}.")
    seed = whole_number("seed", seed, 0)
    samples, values = _checked(samples_per_step, log_likelihoods, t)
    gaps = np.diff(t)
    steps = [_step(k, gap, s, v, method, seed) for k, (gap, s, v) in enumerate(zip(gaps, samples, values, strict=True))]
    both = [step.plain for step in steps], [step.controlled for step in steps]
    plain, better = map(_total, both)
    aligned = len({step.plain.shape for step in steps}) == 1
    # where steps have different numbers of particles, no draws of the sum exist; its value stands for them
    joined = [
        np.sum(series, axis=0) if aligned else np.full((1, 1), found.average.mean)
        for series, found in zip(both, (plain, better), strict=True)
    ]
    used = any(m != "plain" for step in steps for m in step.result.method)
    info = {
        "temperatures": t.tolist(),
        "between_runs": better.between_runs,
        "steps": [_row(k, step, t) for k, step in enumerate(steps)],
        "seconds": time.perf_counter() - start,
    }
    return Estimate(
        (LABEL,),
        (),
        joined[0][..., None],
        joined[1][..., None],
        plain.average,
        better.average,
        (str(method) if used else "plain",),
        (tuple(_statuses(steps, t)),),
        info,
    )


def _checked(
    samples_per_step: Sequence[Samples], log_likelihoods: Sequence[object], t: np.ndarray
) -> tuple[list[Samples], list[np.ndarray]]:
    try:
        samples, values = list(samples_per_step), list(log_likelihoods)
    except TypeError as error:
        raise InputError("`samples_per_step` and `log_likelihoods` must each hold one entry a step.") from error
    steps = len(t) - 1
    for name, entries in (("samples_per_step", samples), ("log_likelihoods", values)):
        if len(entries) not in (steps, steps + 1):
            raise InputError(
                f"`{name}` has {len(entries)} entries but `temperatures` has {len(t)}: expected {steps}, one at every "
                f"temperature but the last."
            )
    samples, values = samples[:steps], values[:steps]
    for k, entry in enumerate(samples):
        if not isinstance(entry, Samples):
            raise InputError(
                f"`samples_per_step` must hold one steincv.Samples a step, but step {k} has a {type(entry).__name__}."
            )
        if entry.dim != samples[0].dim:
            raise InputError(
                f"The particles of step {k} have {entry.dim} dimensions, those of step 0 have {samples[0].dim}: all "
                f"steps must be of one model."
            )
    return samples, [check_values(f"step {k}", v, s) for k, (v, s) in enumerate(zip(values, samples, strict=True))]


def _step(k: int, gap: float, samples: Samples, values: np.ndarray, method: Method, seed: int) -> _Step:
    known = Samples.trusted(samples.draws, samples.scores, samples.names, samples.log_weights)
    largest = float((gap * values).max())
    try:
        result = estimate(known, np.exp(gap * values - largest), method, seed=seed)
    except InputError as error:
        raise InputError(f"step {k} (t = {gap:.3g} ahead): {error}") from error
    plain = result.values[..., 0]
    return _Step(largest + log_mean(plain, plain), largest + log_mean(result.controlled[..., 0], plain), result)


class _Total(NamedTuple):
    average: Average
    between_runs: float | None


def _total(series: Sequence[np.ndarray]) -> _Total:
    """Return the sum of all increments, with the error of independent steps, or that between runs if it is larger."""
    found = _independent(series)
    chains = {s.shape[0] for s in series}
    if len(chains) > 1 or (runs := chains.pop()) < RUNS.fewest:
        return _Total(found, None)
    totals = np.sum([s.mean(axis=1) for s in series], axis=0)
    error = float(totals.std(ddof=1) / np.sqrt(runs))
    by_chance = scipy.stats.f.ppf(RUNS.sure, runs - 1, float(found.degrees_of_freedom))
    if error**2 <= by_chance * float(found.standard_error) ** 2:
        return _Total(found, error)
    return _Total(Average(found.mean, np.asarray(error), found.ess, degrees_of_freedom=np.asarray(runs - 1.0)), error)


def _statuses(steps: Sequence[_Step], t: np.ndarray) -> list[Status]:
    """Return one status per kind, naming its steps, with the message of the first of them."""
    kinds = {*ALARMS, Code.LOW_ESS, Code.HEAVY_TAIL, Code.UNEVEN_WEIGHTS, Code.TOO_MANY_FEATURES}
    found: dict[Code, list[tuple[int, str]]] = {}
    for k, step in enumerate(steps):
        for status in step.result.status[0]:
            if status.code in kinds:
                found.setdefault(status.code, []).append((k, status.message))
    result = [
        Status(code, f"at {_named([k for k, _ in entries], t)}: {entries[0][1]}") for code, entries in found.items()
    ]
    if all(Code.NO_GAIN in {s.code for s in step.result.status[0]} for step in steps):
        result.append(Status(Code.NO_GAIN, "control variates did not help at any step, so plain means are used."))
    return result


def _row(k: int, step: _Step, t: np.ndarray) -> dict[str, Any]:
    """Return what a table shows of a step."""
    plain, better = (average(series[..., None]) for series in (step.plain, step.controlled))
    old, new = float(plain.standard_error[0]), float(better.standard_error[0])
    return {
        "step": k,
        "temperature": float(t[k]),
        "next": float(t[k + 1]),
        "plain_increment": float(plain.mean[0]),
        "plain_error": old,
        "increment": float(better.mean[0]),
        "error": new,
        "variance_ratio": (new / old) ** 2 if old > 0 else 1.0,
        "method": step.result.method[0],
        "status": [s.name for s in step.result.status[0]],
    }
