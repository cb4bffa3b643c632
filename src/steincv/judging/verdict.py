"""Which of two means is reported, the plain one or the controlled one, and why: one verdict for every verb."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .diagnostics import rare_draws_status
from .error_bars import ROUND_OFF, SLOW, Average
from .gain import widened_ratio
from .status import Code, Status


class Verdict(NamedTuple):
    """For every output: whether control variates are used, the mean that is reported, and what happened."""

    used: Bool[np.ndarray, " out"]
    reported: Average
    statuses: list[list[Status]]


def verdict(
    plain: Average,
    better: Average,
    size: Float[np.ndarray, " out"],
    statuses: Sequence[Sequence[Status]],
    alarms: Sequence[Status],
    *,
    guard: bool,
    features: int = 0,
    fitted_on: int = 0,
    draws: int = 0,
) -> Verdict:
    """Judge every output.

    - `size`: the largest value of f, in size; what is below its round-off is constant or exact.
    - `statuses`: what the values of f themselves say. `alarms`: what draws and scores say, for all outputs.
    - `features`, `fitted_on`: of the regression with the most features, and the fewest draws.
    - `draws`: how many there are, where they are a chain's own; 0 if that is not known.
    """
    deviation, left = (a.standard_error * np.sqrt(a.ess) for a in (plain, better))
    widened = widened_ratio(plain, better)
    used = np.ones(len(widened), dtype=bool)
    said: list[list[Status]] = []
    for k, about in enumerate(statuses):
        found = list(about)
        said.append(found)
        if deviation[k] <= 4 * np.finfo(float).eps * size[k]:
            found[:] = [Status.of(Code.CONSTANT)]
            used[k] = False
            continue
        found += alarms
        if left[k] <= max(ROUND_OFF * deviation[k], 64 * np.finfo(float).eps * size[k]) and not alarms:
            found[:] = [s for s in found if s.code is not Code.LOW_ESS]
            found.append(Status.of(Code.EXACT, spread=left[k] / deviation[k]))
        elif guard and (alarms or widened[k] >= gain_limit(plain.ess[k])):
            used[k] = False
            if not alarms:
                found.append(Status.of(Code.NO_GAIN, ratio=widened[k]))
            found += rare_draws_status(plain, k)
        else:
            found += rare_draws_status(better, k) + _slow_status(plain, better, draws, k)
        if features > fitted_on:
            found.append(Status.of(Code.TOO_MANY_FEATURES, features=features, draws=fitted_on))
    return Verdict(used, better.where(used, plain), said)


def _slow_status(plain: Average, better: Average, draws: int, k: int) -> list[Status]:
    """Whether the gain of output k is more than a slow chain can know.

    Among m effective draws a place of probability 1/m may be missing, and what f + g is there is not known. Draws that
    are nearly independent show by their tails how f + g goes on; a slow chain is there for long, or not at all.
    """
    gain = (plain.standard_error[k] / better.standard_error[k]) ** 2 if better.standard_error[k] > 0 else np.inf
    each = draws / plain.ess[k]
    if each < SLOW or gain <= plain.ess[k]:
        return []
    return [Status.of(Code.SLOW_CHAINS, draws=each, gain=gain, ess=plain.ess[k])]


def gain_limit(ess: np.ndarray | float) -> np.ndarray:
    """Return the variance ratio that counts as a gain: below 1 by more than its noise at this many effective draws."""
    return np.asarray(np.maximum(0.2, 1 - 2 / np.sqrt(np.maximum(ess, 1.0))))
