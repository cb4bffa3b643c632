"""A log evidence as a sum of parts along a ladder: the checks of its input, the sum, and what is said of the parts."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..families.auto import Auto
from ..families.method import Method
from ..judging.diagnostics import Code, Status
from ..judging.error_bars import Average, average, degrees_of_freedom
from ..result import Estimate
from ..runtime.validation import InputError, listed, whole_number
from ..samples.samples import Samples, finite_array
from .ladder import rung_name

LABEL = "log_evidence"


# Input ---------------------------------------------------------------------------------------------------


def method_and_seed(method: object, seed: object) -> tuple[Method, int]:
    """Return both, checked; the default method where none is given."""
    method = Auto() if method is None else method
    if not isinstance(method, Method):
        raise InputError(f"`method` must be a method such as steincv.Polynomial(), got {method!r}.")
    return method, whole_number("seed", seed, 0)


def as_lists(part: str, samples: Iterable[Samples], values: Iterable[object]) -> tuple[list[Samples], list[object]]:
    """Return what is given for every `part`, a rung or a step, as lists."""
    try:
        return list(samples), list(values)
    except TypeError as error:
        raise InputError(f"`samples_per_{part}` and `log_likelihoods` must each hold one entry a {part}.") from error


def checked_values(
    part: str, kind: str, names: Sequence[str], samples: Sequence[Samples], values: Sequence[object]
) -> list[Float[np.ndarray, "chain draw"]]:
    """Return the log likelihoods, checked against the samples, which must be of one model."""
    found = []
    for name, entry, value in zip(names, samples, values, strict=True):
        if not isinstance(entry, Samples):
            raise InputError(
                f"`samples_per_{part}` must hold one steincv.Samples a {part}, but {name} has a {type(entry).__name__}."
            )
        if entry.dim != samples[0].dim:
            raise InputError(
                f"The {kind} of {name} have {entry.dim} dimensions, those of {part} 0 have {samples[0].dim}: all "
                f"{part}s must be of one model."
            )
        array = finite_array(f"log_likelihoods of {name}", value)
        chains, draws, _ = entry.draws.shape
        if chains == 1 and array.shape == (draws,):
            array = array[None]
        if array.shape != (chains, draws):
            raise InputError(
                f"`log_likelihoods` of {name} has shape {array.shape}, expected ({chains}, {draws}): one number for "
                f"every draw of that rung."
            )
        found.append(array)
    return found


# The sum -------------------------------------------------------------------------------------------------


def mean_of(series: Float[np.ndarray, "chain draw"]) -> Average:
    """Return the mean of draws with its error bar."""
    return average(series[..., None]).reshape(())


def log_mean(series: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """Return draws whose mean is the log of the mean of a positive function, with its standard error (delta method)."""
    series = series if series.mean() > 0 else plain  # a control variate may have carried it below zero
    return np.log(series.mean()) + series / series.mean() - 1


def independent(series: Sequence[np.ndarray]) -> Average:
    """Return the sum of independent means, with Welch's degrees of freedom and the smallest of the effective sizes."""
    parts = list(map(mean_of, series))
    squares = np.array([float(p.standard_error) ** 2 for p in parts])
    mean = np.asarray(sum(float(p.mean) for p in parts))
    least = np.asarray(min(float(p.ess) for p in parts))
    if squares.sum() == 0:
        freedom = degrees_of_freedom(np.asarray(float(sum(s.size for s in series))))
    else:
        share = squares / squares.sum()
        freedom = np.asarray(1 / (share**2 / np.array([float(p.degrees_of_freedom) for p in parts])).sum())
    return Average(mean, np.asarray(np.sqrt(squares.sum())), least, degrees_of_freedom=freedom)


def draws_of_sum(series: Sequence[np.ndarray], mean: np.ndarray) -> Float[np.ndarray, "chain draw"]:
    """Return the sum draw by draw; parts of different numbers of draws have none, and its value stands for them."""
    aligned = len({s.shape for s in series}) == 1
    return np.sum(series, axis=0) if aligned else np.full((1, 1), mean)


def ratio(new: float, old: float) -> float:
    """Return the variance ratio of two standard errors."""
    return (new / old) ** 2 if old > 0 else 1.0


def log_evidence_of(
    series: Sequence[Float[np.ndarray, "chain draw"]],
    averages: Sequence[Average],
    method: str,
    statuses: Sequence[Status],
    info: dict[str, Any],
) -> Estimate:
    """Return the result of draws and averages, both plain and controlled."""
    (values, controlled), (plain, better) = (a[..., None] for a in series), averages
    return Estimate((LABEL,), (), values, controlled, plain, better, (method,), (tuple(statuses),), info)


# What is said of the parts -------------------------------------------------------------------------------


def method_used(method: Method, results: Iterable[Estimate]) -> str:
    """Return the name of the method, or "plain" where no part has a control variate."""
    return str(method) if any(m != "plain" for result in results for m in result.method) else "plain"


def statuses_of(
    part: str, said: Iterable[tuple[int, Status]], results: Iterable[Estimate], t: np.ndarray
) -> list[Status]:
    """Return one status per kind, naming its rungs, with the message of the first of them."""
    found: dict[Code, list[tuple[int, str]]] = {}
    for k, status in said:
        found.setdefault(status.code, []).append((k, status.message))
    made = [
        Status(code, f"at {_named([k for k, _ in entries], t)}: {entries[0][1]}") for code, entries in found.items()
    ]
    if all(Code.NO_GAIN in {s.code for s in result.status[0]} for result in results):
        message = f"control variates did not help at any {part}, so plain means are used."
        made.append(Status(Code.NO_GAIN, message))
    return made


def _named(rungs: Sequence[int], t: np.ndarray) -> str:
    if len(rungs) == 1:
        return rung_name(rungs[0], t)
    return f"rungs {listed([*map(str, rungs)], 6)} of {len(t)}, first of all {rung_name(rungs[0], t)}"
