r"""Thermodynamic integration: $\log p(y) = \int_0^1 E_t[\log p(y|\theta)]\,dt$, each rung with control variates."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..families.auto import Auto
from ..families.method import Method
from ..judging.error_bars import Average, degrees_of_freedom
from ..judging.status import ALARMS, Code, Status
from ..result import Estimate
from ..runtime.progress import bar
from ..runtime.validation import InputError, whole_number
from ..samples.samples import Samples
from .ladder import check_temperatures, rung_name
from .rules import Integral, halved, integral, second_order, trapezoid
from .rung import Bridge, Rung, Use, check_values, mean_of, no_usable_mean
from .spending import carried, spend

LABEL = "log_evidence"


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
    method = Auto() if method is None else method
    if not isinstance(method, Method):
        raise InputError(f"`method` must be a method such as steincv.Polynomial(), got {method!r}.")
    seed = whole_number("seed", seed, 0)
    integral(t, rule, extrapolate)  # refuses a rule that does not exist before any work is done
    trouble = [no_usable_mean(v) for v in values]
    # only from the bottom up: there the gaps are small, and the ratios of neighbouring densities tame
    bridges = next(k for k, why in enumerate([*trouble[:-1], None]) if why is None)
    rungs = _Rungs(t, samples, values, method, seed, bridges)
    rule_weights = integral(t[bridges:], rule, extrapolate)
    pieces, refitted = rungs.fit(rule_weights, progress)
    total = _add_up(pieces, rule_weights, coupled)
    statuses = _statuses(pieces, trouble, t)
    info = {
        "temperatures": t.tolist(),
        "rule": rule,
        "statistical_error": total.statistical,
        "discretisation_error": total.discretisation,
        "coupled": total.coupled,
        "error_if_independent": total.independent,
        "error_if_coupled": total.joint,
        "values_by_rule": _other_rules(pieces, t, bridges),
        "bridged": [
            {"rung": k, "overlap": piece.use.above.overlap} for k, piece in enumerate(pieces) if piece.use.above
        ],
        "refitted": refitted,
        "rungs": [_row(k, piece, t, trouble) for k, piece in enumerate(pieces)],
        "seconds": time.perf_counter() - start,
    }
    used = any(m != "plain" for piece in pieces for m in piece.result.method)
    return Estimate(
        (LABEL,),
        (),
        total.values,
        total.controlled,
        total.plain,
        total.better,
        (str(method) if used else "plain",),
        (tuple(statuses),),
        info,
    )


def _check_rungs(
    samples_per_rung: Sequence[Samples], log_likelihoods: Sequence[object], t: np.ndarray
) -> tuple[list[Samples], list[np.ndarray]]:
    try:
        samples, values = list(samples_per_rung), list(log_likelihoods)
    except TypeError as error:
        raise InputError("`samples_per_rung` and `log_likelihoods` must each hold one entry a rung.") from error
    for name, entries in (("samples_per_rung", samples), ("log_likelihoods", values)):
        if len(entries) != len(t):
            short = len(entries) < len(t)
            which = f"{rung_name(len(entries), t)} has none" if short else f"entry {len(t)} belongs to no rung"
            raise InputError(f"`{name}` has {len(entries)} entries but `temperatures` has {len(t)} rungs: {which}.")
    for k, entry in enumerate(samples):
        if not isinstance(entry, Samples):
            raise InputError(
                f"`samples_per_rung` must hold one steincv.Samples a rung, but {rung_name(k, t)} has a "
                f"{type(entry).__name__}."
            )
        if entry.dim != samples[0].dim:
            raise InputError(
                f"The draws of {rung_name(k, t)} have {entry.dim} dimensions, those of rung 0 have {samples[0].dim}: "
                f"all rungs must be of one model."
            )
    return samples, [check_values(rung_name(k, t), v, s) for k, (v, s) in enumerate(zip(values, samples, strict=True))]


@dataclass(frozen=True, eq=False)
class _Rungs:
    """What is to be fitted on every rung: sides of bridges on the lowest ones, means and variances on the others."""

    t: Float[np.ndarray, " rung"]
    samples: list[Samples]
    values: list[np.ndarray]
    method: Method
    seed: int
    bridges: int

    def fit(self, rule: Integral, progress: bool) -> tuple[list[Rung], list[int]]:
        """Fit every rung; return them, and which of them were fitted a second time with all there is."""
        automatic = isinstance(self.method, Auto)
        plans = [carried(s.size, s.dim) for s in self.samples]
        uses = self._uses()
        pieces: list[Rung] = []
        with bar("control variates", len(self.t), progress) as advance:
            for k, use in enumerate(uses):
                pieces.append(self._one(k, use, plans[k].first if automatic else self.method))
                advance(1)
            if not automatic or not all(plan.everything for plan in plans):
                return pieces, []

            def errors(found: Sequence[Rung]) -> np.ndarray:
                return np.array([float(mean_of(series).standard_error) for _, series in _contributions(found, rule)])

            floor = _discretisation(pieces, rule)
            return pieces, spend(pieces, errors, lambda k: self._one(k, uses[k], self.method), floor)

    def _uses(self) -> list[Use]:
        gaps = np.diff(self.t)
        found = [Bridge.between(float(gaps[k]), *self.values[k : k + 2]) for k in range(self.bridges)]
        return [
            Use(
                k >= self.bridges,
                found[k] if k < self.bridges else None,
                found[k - 1] if 0 < k <= self.bridges else None,
            )
            for k in range(len(self.t))
        ]

    def _one(self, k: int, use: Use, method: Method) -> Rung:
        try:
            return Rung.fit(float(self.t[k]), self.samples[k], self.values[k], use, method, self.seed)
        except InputError as error:
            raise InputError(f"{rung_name(k, self.t)}: {error}") from error


def _contributions(pieces: Sequence[Rung], rule: Integral) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for every rung, draws whose mean is its part of the sum: plain and controlled."""
    below = len(pieces) - len(rule.value.mean)
    mean, variance = (np.concatenate([np.zeros(below), w]) for w in (rule.value.mean, rule.value.variance))
    return [piece.contribution(float(mean[k]), float(variance[k])) for k, piece in enumerate(pieces)]


def _means(pieces: Sequence[Rung], which: int) -> tuple[np.ndarray, np.ndarray]:
    """Return E and V of the rungs above the bridges, plain (0) or controlled (1)."""
    rungs = [piece for piece in pieces if piece.use.moments]
    return np.array([r.mean[which].mean for r in rungs]), np.array([r.variance[which].mean for r in rungs])


def _discretisation(pieces: Sequence[Rung], rule: Integral) -> float:
    """Return the largest of the rule's probes, each beyond what the noise of the draws puts into it."""
    rungs = [piece for piece in pieces if piece.use.moments]
    largest = 0.0
    for probe in rule.probes:
        parts = [r.moments(float(w), float(v))[1] for r, w, v in zip(rungs, probe.mean, probe.variance, strict=True)]
        found = _independent(parts)
        largest = max(largest, float(found.mean) ** 2 - float(found.standard_error) ** 2)
    return float(np.sqrt(largest))


@dataclass(frozen=True, eq=False)
class _Total:
    plain: Average
    better: Average
    values: np.ndarray
    controlled: np.ndarray
    statistical: float
    discretisation: float
    coupled: bool
    independent: float
    joint: float | None


def _add_up(pieces: Sequence[Rung], rule: Integral, coupled: bool | None) -> _Total:
    contributions = _contributions(pieces, rule)
    shapes = {plain.shape for plain, _ in contributions}
    aligned = len(shapes) == 1
    if coupled and not aligned:
        raise InputError(
            f"`coupled` = True needs the same chains and draws at every rung; there are {len(shapes)} different shapes."
        )
    discretisation = _discretisation(pieces, rule)
    apart = [_independent([pair[i] for pair in contributions]) for i in (0, 1)]
    together: list[Average] = []
    if aligned:
        joined = [np.sum([pair[i] for pair in contributions], axis=0) for i in (0, 1)]
        together = list(map(mean_of, joined))
    else:  # no draws of the sum exist; its value stands for them
        joined = [np.full((1, 1), a.mean) for a in apart]
    if coupled is None:
        coupled = aligned and _clearly_coupled(apart[1], together[1])
    plain, better = (_widened(a, discretisation) for a in (together if coupled else apart))
    return _Total(
        plain,
        better,
        joined[0][..., None],
        joined[1][..., None],
        float((together if coupled else apart)[1].standard_error),
        discretisation,
        bool(coupled),
        float(apart[1].standard_error),
        float(together[1].standard_error) if together else None,
    )


def _independent(series: Sequence[np.ndarray]) -> Average:
    """Return the sum of independent means, with Welch's degrees of freedom and the smallest of the effective sizes."""
    parts = list(map(mean_of, series))
    squares = np.array([float(p.standard_error) ** 2 for p in parts])
    mean = np.asarray(sum(float(p.mean) for p in parts))
    least = np.asarray(min(float(p.ess) for p in parts))
    if squares.sum() == 0:
        freedom = degrees_of_freedom(np.asarray(float(sum(s.size for s in series))))
        return Average(mean, np.asarray(0.0), least, degrees_of_freedom=freedom)
    share = squares / squares.sum()
    freedom = 1 / (share**2 / np.array([float(p.degrees_of_freedom) for p in parts])).sum()
    return Average(mean, np.asarray(np.sqrt(squares.sum())), least, degrees_of_freedom=np.asarray(freedom))


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


def _statuses(pieces: Sequence[Rung], trouble: Sequence[str | None], t: np.ndarray) -> list[Status]:
    """Return one status per kind, naming its rungs, with the message of the first of them."""
    found: dict[Code, list[tuple[int, str]]] = {}
    for k, why in enumerate(trouble):
        if why is not None:
            bridge = pieces[k].use.above
            remedy = (
                "The interval above it is computed from bounded functions instead, which need no such mean; the rungs "
                f"at its ends overlap by {bridge.overlap:.1%}."
                if bridge
                else "The result rests on it and is not to be trusted: use a ladder with more rungs there."
            )
            message = f"the log likelihood has no usable mean ({why}): no estimate of it can be trusted. {remedy}"
            found.setdefault(Code.HEAVY_TAIL, []).append((k, message))
    kinds = {*ALARMS, Code.LOW_ESS, Code.TOO_MANY_FEATURES}
    for k, piece in enumerate(pieces):
        for status in piece.result.status[0]:
            if status.code in kinds:
                found.setdefault(status.code, []).append((k, status.message))
    result = [
        Status(code, f"at {_named([k for k, _ in entries], t)}: {entries[0][1]}") for code, entries in found.items()
    ]
    codes = [{s.code for s in piece.result.status[0]} for piece in pieces]
    if all(Code.NO_GAIN in c for c in codes):
        result.append(Status(Code.NO_GAIN, "control variates did not help at any rung, so plain means are used."))
    return result


def _named(rungs: Sequence[int], t: np.ndarray) -> str:
    if len(rungs) == 1:
        return rung_name(rungs[0], t)
    shown = ", ".join(map(str, rungs[:6])) + (f" and {len(rungs) - 6} more" if len(rungs) > 6 else "")
    return f"rungs {shown} of {len(t)}, first of all {rung_name(rungs[0], t)}"


def _other_rules(pieces: Sequence[Rung], t: np.ndarray, bridges: int) -> dict[str, Any]:
    """Return what the bare rules and the halved ladder give, plain and controlled, with the bridges added."""
    upper = t[bridges:]
    rules = {"trapezoid": trapezoid(upper), "second-order": second_order(upper)}
    if len(upper) > 2:
        rules["second-order, every second rung"] = halved(upper)
    rules["second-order, extrapolated"] = integral(upper, "second-order").value
    below = [sum(float(p.bridges[i].mean()) for p in pieces) for i in (0, 1)]
    return {
        name: {kind: below[i] + weights(*_means(pieces, i)) for i, kind in enumerate(("plain", "controlled"))}
        for name, weights in rules.items()
    }


def _row(k: int, piece: Rung, t: np.ndarray, trouble: Sequence[str | None]) -> dict[str, Any]:
    """Return what a table and a figure show of a rung."""
    plain, better = piece.mean
    old, new = float(plain.standard_error), float(better.standard_error)
    row: dict[str, Any] = {"rung": k, "temperature": float(t[k]), "no_usable_mean": trouble[k]}
    row |= {"bridged": not piece.use.moments, "plain_mean": float(plain.mean), "plain_error": old}
    if piece.use.moments:
        spread = piece.variance[1]
        row |= {"mean": float(better.mean), "error": new, "variance_ratio": (new / old) ** 2 if old > 0 else 1.0}
        row |= {"variance": float(spread.mean), "variance_error": float(spread.standard_error)}
    else:
        row |= dict.fromkeys(("mean", "error", "variance_ratio", "variance", "variance_error"))
    row |= {"ess": float(plain.ess), "method": piece.result.method[0]}
    row["status"] = [s.name for s in piece.result.status[0]]
    return row
