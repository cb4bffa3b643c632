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
from ..families.method import Method
from ..judging.diagnostics import ALARMS, Code
from ..judging.error_bars import Average
from ..result import Estimate
from ..runtime.validation import InputError
from ..samples.samples import Samples
from . import parts
from .ladder import check_temperatures


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
    method, seed = parts.method_and_seed(method, seed)
    samples, values = _check_steps(samples_per_step, log_likelihoods, t)
    gaps = np.diff(t)
    steps = [_step(k, gaps[k], s, v, method, seed) for k, (s, v) in enumerate(zip(samples, values, strict=True))]
    both = [step.plain for step in steps], [step.controlled for step in steps]
    averages, between_runs = zip(*map(_add_up, both), strict=True)
    draws = [parts.draws_of_sum(series, found.mean) for series, found in zip(both, averages, strict=True)]
    results = [step.result for step in steps]
    kinds = {*ALARMS, Code.LOW_ESS, Code.HEAVY_TAIL, Code.UNEVEN_WEIGHTS, Code.TOO_MANY_FEATURES}
    said = ((k, s) for k, result in enumerate(results) for s in result.status[0] if s.code in kinds)
    info = {
        "temperatures": t.tolist(),
        "between_runs": between_runs[1],
        "steps": [_row(k, step, t) for k, step in enumerate(steps)],
        "seconds": time.perf_counter() - start,
    }
    statuses = parts.statuses_of("step", said, results, t)
    return parts.log_evidence_of(draws, averages, parts.method_used(method, results), statuses, info)


def _check_steps(
    samples_per_step: Sequence[Samples], log_likelihoods: Sequence[object], t: np.ndarray
) -> tuple[list[Samples], list[np.ndarray]]:
    samples, values = parts.as_lists("step", samples_per_step, log_likelihoods)
    steps = len(t) - 1
    for name, entries in (("samples_per_step", samples), ("log_likelihoods", values)):
        if len(entries) not in (steps, steps + 1):
            raise InputError(
                f"`{name}` has {len(entries)} entries but `temperatures` has {len(t)}: expected {steps}, one at every "
                f"temperature but the last."
            )
    names = [f"step {k}" for k in range(steps)]
    return samples[:steps], parts.checked_values("step", "particles", names, samples[:steps], values[:steps])


def _step(k: int, gap: float, samples: Samples, values: np.ndarray, method: Method, seed: int) -> _Step:
    known = Samples.trusted(samples.draws, samples.scores, samples.names, samples.log_weights)
    largest = float((gap * values).max())
    try:
        result = estimate(known, np.exp(gap * values - largest), method, seed=seed)
    except InputError as error:
        raise InputError(f"step {k} (t = {gap:.3g} ahead): {error}") from error
    plain, controlled = result.values[..., 0], result.controlled[..., 0]
    return _Step(largest + parts.log_mean(plain, plain), largest + parts.log_mean(controlled, plain), result)


def _add_up(series: Sequence[np.ndarray]) -> tuple[Average, float | None]:
    """Return the sum of all increments, with the error of independent steps, or that between runs if it is larger.

    And the error between runs, where there are enough of them.
    """
    found = parts.independent(series)
    chains = {s.shape[0] for s in series}
    if len(chains) > 1 or (runs := chains.pop()) < RUNS.fewest:
        return found, None
    totals = np.sum([s.mean(axis=1) for s in series], axis=0)
    error = float(totals.std(ddof=1) / np.sqrt(runs))
    by_chance = scipy.stats.f.ppf(RUNS.sure, runs - 1, float(found.degrees_of_freedom))
    if error**2 <= by_chance * float(found.standard_error) ** 2:
        return found, error
    return Average(found.mean, np.asarray(error), found.ess, degrees_of_freedom=np.asarray(runs - 1.0)), error


def _row(k: int, step: _Step, t: np.ndarray) -> dict[str, Any]:
    """Return what a table shows of a step."""
    plain, better = parts.mean_of(step.plain), parts.mean_of(step.controlled)
    old, new = float(plain.standard_error), float(better.standard_error)
    return {
        "step": k,
        "temperature": float(t[k]),
        "next": float(t[k + 1]),
        "plain_increment": float(plain.mean),
        "plain_error": old,
        "increment": float(better.mean),
        "error": new,
        "variance_ratio": parts.ratio(new, old),
        "method": step.result.method[0],
        "status": [s.name for s in step.result.status[0]],
    }
