"""What the runs come to: gains that are true because they compare independent sets, beside those that were reported."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .draws import CHAINS, KEPT, kept_sets, path_of, reference
from .runs import Line

EXACT = 1e9  # gains are cut here: beyond, round-off is what is left
ENOUGH_SETS = 5  # with fewer, the chains are compared instead of the sets
SURE = 3.5  # standard errors from the reference, beyond which a mean is called wrong


@dataclass(frozen=True)
class Score:
    """How a method did on a posterior; arrays have an entry per functional."""

    sets: int
    gain: np.ndarray
    reported_over_true: np.ndarray
    together_over_true: np.ndarray
    coverage: float
    wrong: int
    seconds: float
    failed: str = ""

    @property
    def median(self) -> float:
        return float(np.median(self.gain)) if self.gain.size else 1.0

    @property
    def worst(self) -> float:
        return float(self.gain.min()) if self.gain.size else 1.0


@lru_cache
def plain_variance(name: str) -> np.ndarray:
    """The variance of the plain mean of one set, from all chains of all sets and what they did later.

    A set's mean is that of four independent chains of KEPT segments, so its variance is that of the mean of KEPT
    segments in a row over four. There are up to 360 such stretches, so this is known far better than from ten means.
    """
    stretches = []
    for r in kept_sets(name):
        with np.load(path_of(name, r)) as file:
            values, later = file["values"], file["later"]
        stretches.append(values.mean(axis=1))
        whole = later.shape[1] // KEPT
        if whole:
            parts = later[:, : whole * KEPT].reshape(CHAINS, whole, KEPT, -1).mean(axis=2)
            stretches.append(parts.reshape(-1, parts.shape[-1]))
    return np.concatenate(stretches).var(axis=0, ddof=1) / CHAINS


@lru_cache
def plain_means(name: str) -> dict[int, np.ndarray]:
    """The plain means of the chains of every set, (chain, functional)."""
    found = {}
    for r in kept_sets(name):
        with np.load(path_of(name, r)) as file:
            found[r] = file["values"].mean(axis=1)
    return found


def _variance(means: np.ndarray, ordinary: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """The variance of controlled means over sets, with the plain means of the same sets as control variate.

    The variance of those is known, so where both move together chance can be taken out: with squared correlation
    rho^2, Cov(s_c^2, s_p^2) / Var(s_p^2) = rho^2 s_c^2 / s_p^2. A method that returns plain means then has a gain of
    exactly one. What chance is left is that of (R - 1) / (1 - rho^4) degrees of freedom; half of all such estimates
    are to be too large and half too small, by Wilson and Hilferty's median of chi square.
    """
    controlled, plain = (a - a.mean(axis=0) for a in (means, ordinary))
    s_c, s_p = (np.sum(a**2, axis=0) / (len(means) - 1) for a in (controlled, plain))
    product = np.sum(controlled * plain, axis=0) / (len(means) - 1)
    rho_squared = np.divide(product**2, s_c * s_p, out=np.zeros_like(s_c), where=s_c * s_p > 0)
    median = (1 - 2 * (1 - rho_squared**2) / (9 * (len(means) - 1))) ** 3
    return s_c * (1 + rho_squared * (usual / s_p - 1)) / median


def covered(means: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Whether the intervals of half `widths` of every set hold the mean of the other sets, (set, functional).

    The others are weighted by their intervals, and the half-width of their mean is added in squares: 95 % for honest
    intervals, however many sets there are and however different. (In the bare mean of all sets one with a far draw,
    whose interval is wide and says so, moves what the others are held against, by many times their own error.)
    """
    weight = 1 / np.maximum(widths, np.finfo(float).tiny ** 0.25) ** 2
    others = weight.sum(axis=0) - weight
    away = np.abs(means - ((weight * means).sum(axis=0) - weight * means) / others)
    return away <= np.sqrt(widths**2 + 1 / others)


def score(name: str, lines: Sequence[Line]) -> Score | None:
    """Judge a method by its runs on the sets of one posterior; nothing where there are none.

    - gain: the variance of the plain mean over that of the controlled means of the sets about their own mean. With few
      sets, of the chains: each is controlled by fits to the others, so these are nearly independent.
    - reported over true: of the set in the middle; together: of the mean squared error bar of all sets. Where some sets
      have a far draw and say so, the first is large though every set is honest; a gain over all sets is theirs.
    - coverage: see `covered`.
    - wrong: functionals whose mean over the sets is not that of the reference, which the first two would not notice.
    """
    if not lines:
        return None
    failed = [line["failed"] for line in lines if "failed" in line]
    seconds = float(np.median([line["seconds"] for line in lines]))
    if failed:
        return Score(len(lines), np.array([]), np.array([]), np.array([]), np.nan, 0, seconds, failed[0])
    if not np.all(plain_variance(name) > 0):
        raise ValueError(f"{name}: a functional is constant, so there is nothing to gain.")
    means, errors, widths, plain = (
        np.array([line[key] for line in lines]) for key in ("mean", "error", "half width", "plain error")
    )
    r = len(means)
    truth, usual = reference(name), plain_variance(name)
    if r >= ENOUGH_SETS:
        ordinary = np.array([plain_means(name)[line["set"]].mean(axis=0) for line in lines])
        variance = _variance(means, ordinary, usual)
    else:
        apart = [line for line in lines if "chains" in line]
        if not apart:
            return None
        chains, ordinary = (
            np.concatenate(each)
            for each in ([line["chains"] for line in apart], [plain_means(name)[line["set"]] for line in apart])
        )
        variance = _variance(chains, ordinary, CHAINS * usual) / CHAINS
    variance = np.maximum(variance, usual / EXACT)
    gain = usual / variance
    reported = np.median((plain / np.maximum(errors, np.sqrt(usual / EXACT))) ** 2, axis=0)
    together = (plain**2).mean(axis=0) / np.maximum((errors**2).mean(axis=0), usual / EXACT)
    inside = covered(means, widths)
    open_question = (gain < EXACT) & (r >= ENOUGH_SETS)
    off = np.abs(means.mean(0) - truth.mean) / np.sqrt(truth.error**2 + variance / r)
    return Score(
        sets=r,
        gain=gain,
        reported_over_true=reported / gain,
        together_over_true=together / gain,
        coverage=float(inside[:, open_question].mean()) if open_question.any() else np.nan,
        wrong=int(np.sum(off > SURE)) if r >= ENOUGH_SETS else 0,
        seconds=seconds,
    )


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if len(values) else np.nan
