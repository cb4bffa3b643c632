r"""Thermodynamic integration: $\log p(y) = \int_0^1 E_t[\log p(y|\theta)]\,dt$, each rung with control variates."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..families.method import Method
from ..judging.diagnostics import ALARMS, Code, Status
from ..judging.error_bars import Average
from ..result import Estimate
from ..runtime.validation import InputError, StrPath
from ..samples.samples import Samples
from . import parts
from .ladder import Integral, check_temperatures, halved, integral, rung_name, second_order, trapezoid
from .moves import RANDOM_WALK
from .power_posterior import PowerPosterior
from .rung import Rung, contributions, discretisation, fit_rungs, no_usable_mean
from .tempering import temper


def log_evidence(
    samples_per_rung: Sequence[Samples],
    log_likelihoods: Sequence[object],
    temperatures: object,
    method: Method | None = None,
    rule: str = "second-order",
    seed: int = 0,
    *,
    extrapolate: bool = True,
    coupled: bool | None = None,
    progress: bool = False,
) -> Estimate:
    r"""Return the log evidence of a model from draws of its power posteriors $p(y|\theta)^t p(\theta)$.

    $$ \log p(y) \approx \sum_i \frac{\Delta_i}{2}(E_i + E_{i+1}) - \frac{\Delta_i^2}{12}(V_{i+1} - V_i) $$

    with $E_i$, $V_i$ the mean and variance of $\log p(y|\theta)$ at rung i, both with control variates.

    **Arguments:**

    - `samples_per_rung`: one `Samples` per rung; the scores are those of *its* power posterior.
    - `log_likelihoods`: at every draw of every rung, `(chain, draw)` each.
    - `temperatures`: increasing from 0 to 1; see `temperature_ladder`.
    - `method`: a family, used on every rung. `Auto()`, the default, fits polynomials on all rungs and everything it
      has on those that carry the error.
    - `rule`: "second-order" as above, or "trapezoid", without the variances.
    - `extrapolate`: take off the error of the second-order rule that halving the ladder shows.
    - `coupled`: whether draw i of chain c of all rungs belongs together, as in parallel tempering, where swaps
      correlate the rungs. The error bar is then that of the sum over rungs. `False`: rungs are independent and their
      squared errors add up. By default it is decided by whether the error bar of the sum is clearly larger.

    The standard error holds the statistical error and what is left of the discretisation error; `info` has the two
    apart, the other rules, and a row for every rung. `ess` is that of the sum over rungs where they are coupled, and
    that of the rung with the fewest effective draws where they are independent. A rung without a usable mean (t = 0
    often) is reported, and the interval above it computed from bounded functions of the log likelihood instead (see
    `rung.Bridge`).

    >>> import numpy as np, steincv as scv
    >>> t, rng = scv.temperature_ladder(20), np.random.default_rng(0)
    >>> x = [rng.normal(size=(4, 50, 1)) / np.sqrt(1 + u) for u in t]  # prior N(0, 1), log likelihood -x^2 / 2
    >>> samples = [scv.Samples(a, -(1 + u) * a) for a, u in zip(x, t)]
    >>> result = scv.log_evidence(samples, [-0.5 * a[..., 0] ** 2 for a in x], t)
    >>> bool(abs(result.mean + 0.5 * np.log(2)) < 1e-4)
    True

    Reference: Friel, Hurn, Wyse (2014), Statistics and Computing 24; Oates, Papamarkou, Girolami (2016), JASA 111.
    """
    start = time.perf_counter()
    t = check_temperatures(temperatures)
    samples, values = _check_rungs(samples_per_rung, log_likelihoods, t)
    method, seed = parts.method_and_seed(method, seed)
    integral(t, rule, extrapolate)  # refuses a rule that does not exist before any work is done
    trouble = [no_usable_mean(v) for v in values]
    # only from the bottom up: there the gaps are small, and the ratios of neighbouring densities tame
    bridges = next(k for k, why in enumerate([*trouble[:-1], None]) if why is None)
    weights = integral(t[bridges:], rule, extrapolate)
    rungs, refitted = fit_rungs(t, samples, values, bridges, weights, method, seed, progress)
    draws, averages, errors = _add_up(rungs, weights, coupled)
    results = [rung.result for rung in rungs]
    info = {
        "temperatures": t.tolist(),
        "rule": rule,
        **errors,
        "values_by_rule": _other_rules(rungs, t[bridges:]),
        "bridged": [{"rung": k, "overlap": rung.above.overlap} for k, rung in enumerate(rungs) if rung.above],
        "refitted": refitted,
        "rungs": [_row(k, rung, t, trouble) for k, rung in enumerate(rungs)],
        "seconds": time.perf_counter() - start,
    }
    statuses = parts.statuses_of("rung", _said(rungs, trouble), results, t)
    return parts.log_evidence_of(draws, averages, parts.method_used(method, results), statuses, info)


def model_evidence(
    model: PowerPosterior,
    temperatures: object = None,
    method: Method | None = None,
    rule: str = "second-order",
    *,
    draws: int = 1000,
    replicas: int = 4,
    warmup: int = 2000,
    thin: int | None = None,
    kernel: str = RANDOM_WALK,
    seed: int = 0,
    extrapolate: bool = True,
    checkpoint: StrPath | None = None,
    progress: bool = False,
) -> Estimate:
    """Return the log evidence of a model: `temper`, then `log_evidence` with replicas as chains.

    Swaps correlate the rungs of a replica but not the replicas, so the error bar is that of the sum over rungs.
    `info["tempering"]` has the acceptance and swap rates, round trips, R-hat and effective sizes.

    >>> from steincv_paper.models.regression import regression
    >>> example = regression(dim=2)
    >>> result = model_evidence(example.posterior, draws=100, warmup=500)
    >>> bool(abs(result.mean - example.exact) < 0.05)
    True
    """
    tempered = temper(
        model,
        temperatures,
        draws=draws,
        replicas=replicas,
        warmup=warmup,
        thin=thin,
        kernel=kernel,
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
    )
    result = log_evidence(
        tempered.samples,
        tempered.log_likelihoods,
        tempered.temperatures,
        method,
        rule,
        seed,
        extrapolate=extrapolate,
        coupled=True,
        progress=progress,
    )
    return replace(result, info={**result.info, "tempering": tempered.diagnostics()})


def _check_rungs(
    samples_per_rung: Sequence[Samples], log_likelihoods: Sequence[object], t: np.ndarray
) -> tuple[list[Samples], list[np.ndarray]]:
    samples, values = parts.as_lists("rung", samples_per_rung, log_likelihoods)
    for name, entries in (("samples_per_rung", samples), ("log_likelihoods", values)):
        if len(entries) != len(t):
            short = len(entries) < len(t)
            which = f"{rung_name(len(entries), t)} has none" if short else f"entry {len(t)} belongs to no rung"
            raise InputError(f"`{name}` has {len(entries)} entries but `temperatures` has {len(t)} rungs: {which}.")
    names = [rung_name(k, t) for k in range(len(t))]
    return samples, parts.checked_values("rung", "draws", names, samples, values)


def _add_up(
    rungs: Sequence[Rung], rule: Integral, coupled: bool | None
) -> tuple[list[np.ndarray], list[Average], dict[str, Any]]:
    """Return draws and averages of the sum, plain and controlled, and what `info` says of its error."""
    both = list(zip(*contributions(rungs, rule), strict=True))  # of all rungs the plain series, and the controlled ones
    shapes = {series.shape for series in both[0]}
    aligned = len(shapes) == 1
    if coupled and not aligned:
        raise InputError(
            f"`coupled` = True needs the same chains and draws at every rung; there are {len(shapes)} different shapes."
        )
    apart = [parts.independent(series) for series in both]
    draws = [parts.draws_of_sum(series, found.mean) for series, found in zip(both, apart, strict=True)]
    together = list(map(parts.mean_of, draws)) if aligned else []
    if coupled is None:
        coupled = aligned and _clearly_coupled(apart[1], together[1])
    used, left = together if coupled else apart, discretisation(rungs, rule)
    info = {
        "statistical_error": float(used[1].standard_error),
        "discretisation_error": left,
        "coupled": bool(coupled),
        "error_if_independent": float(apart[1].standard_error),
        "error_if_coupled": float(together[1].standard_error) if together else None,
    }
    return draws, [_widened(found, left) for found in used], info


def _clearly_coupled(apart: Average, together: Average) -> bool:
    """Tell whether the error bar of the sum is larger by more than a fifth, and by more than its own noise."""
    noise = 2 / np.sqrt(max(float(together.ess), 1.0))
    return bool(together.standard_error > max(1.2, 1 + 2 * noise) * apart.standard_error)


def _widened(a: Average, discretisation: float) -> Average:
    """Return the average with the discretisation error in its error bar; that part has no noise of its own."""
    square = float(a.standard_error) ** 2
    total = square + discretisation**2
    freedom = a.degrees_of_freedom
    if square > 0:
        freedom = np.asarray(min(float(freedom) * (total / square) ** 2, 1e9))
    return Average(a.mean, np.asarray(np.sqrt(total)), a.ess, degrees_of_freedom=freedom)


def _said(rungs: Sequence[Rung], trouble: Sequence[str | None]) -> Iterator[tuple[int, Status]]:
    """Yield what is to be said of every rung."""
    for k, why in enumerate(trouble):
        if why is None:
            continue
        bridge = rungs[k].above
        remedy = (
            "The interval above it is computed from bounded functions instead, which need no such mean; the rungs "
            f"at its ends overlap by {bridge.overlap:.1%}."
            if bridge
            else "The result rests on it and is not to be trusted: use a ladder with more rungs there."
        )
        message = f"the log likelihood has no usable mean ({why}): no estimate of it can be trusted. {remedy}"
        yield k, Status(Code.HEAVY_TAIL, message)
    kinds = {*ALARMS, Code.LOW_ESS, Code.TOO_MANY_FEATURES}
    for k, rung in enumerate(rungs):
        yield from ((k, status) for status in rung.result.status[0] if status.code in kinds)


def _other_rules(rungs: Sequence[Rung], t: np.ndarray) -> dict[str, Any]:
    """Return what the bare rules and the halved ladder give, plain and controlled; `t`: the ladder above bridges."""
    rules = {"trapezoid": trapezoid(t), "second-order": second_order(t)}
    if len(t) > 2:
        rules["second-order, every second rung"] = halved(t)
    rules["second-order, extrapolated"] = integral(t, "second-order").value
    below = [sum(float(rung.bridges[i].mean()) for rung in rungs) for i in (0, 1)]
    above = [rung for rung in rungs if not rung.bridged]
    means, variances = ([[getattr(r, name)[i].mean for r in above] for i in (0, 1)] for name in ("mean", "variance"))
    return {
        name: {
            kind: below[i] + weights(np.array(means[i]), np.array(variances[i]))
            for i, kind in enumerate(("plain", "controlled"))
        }
        for name, weights in rules.items()
    }


def _row(k: int, rung: Rung, t: np.ndarray, trouble: Sequence[str | None]) -> dict[str, Any]:
    """Return what a table and a figure show of a rung."""
    plain, better = rung.mean
    old, new = float(plain.standard_error), float(better.standard_error)
    row: dict[str, Any] = {"rung": k, "temperature": float(t[k]), "no_usable_mean": trouble[k]}
    row |= {"bridged": rung.bridged, "plain_mean": float(plain.mean), "plain_error": old}
    if not rung.bridged:
        spread = rung.variance[1]
        row |= {"mean": float(better.mean), "error": new, "variance_ratio": parts.ratio(new, old)}
        row |= {"variance": float(spread.mean), "variance_error": float(spread.standard_error)}
    else:
        row |= dict.fromkeys(("mean", "error", "variance_ratio", "variance", "variance_error"))
    row |= {"ess": float(plain.ess), "method": rung.result.method[0]}
    row["status"] = [s.name for s in rung.result.status[0]]
    return row
