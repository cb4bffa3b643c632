"""Means over the first draws of every chain, with intervals: how an estimate settles."""

from typing import NamedTuple

import numpy as np

from ..judging.error_bars import average
from ..result import Estimate


class Running(NamedTuple):
    """`mean`, `low` and `high` after `draws` draws, counted over all chains."""

    draws: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def running(estimate: Estimate, k: int) -> tuple[Running, Running]:
    """Return the plain and the controlled running mean of output k with 95 % intervals.

    The control variate is the final one throughout: fitted on draws of the other folds.
    """
    chains, length, _ = estimate.values.shape
    # 80 points of a curve; before ten draws per chain an interval means nothing
    ends = np.unique(np.linspace(min(10, length), length, 80).astype(int))
    found = []
    for series in (estimate.values, estimate.controlled):
        averages = [average(series[:, :end, [k]]) for end in ends]
        low, high = np.array([a.interval(0.95)[0] for a in averages]).T
        found.append(Running(chains * ends, np.array([a.mean[0] for a in averages]), low, high))
    return found[0], found[1]


def window(plain: Running, controlled: Running) -> tuple[float, float]:
    """Return the values to show: where the means go, and the plain interval from a tenth of the draws on."""
    late = slice(len(plain.draws) // 10, None)
    low = min(plain.mean.min(), plain.low[late].min(), controlled.mean.min())
    high = max(plain.mean.max(), plain.high[late].max(), controlled.mean.max())
    margin = 0.05 * (high - low) or max(1e-12, 1e-6 * abs(high))
    return float(low - margin), float(high + margin)


def typical(estimate: Estimate) -> int:
    """Return the output whose gain is the median one: neither the best nor the worst to show."""
    gain = np.asarray(estimate.gain).reshape(-1)
    varies = np.flatnonzero(estimate.plain.standard_error.reshape(-1) > 0)
    if not len(varies):
        return 0
    order = varies[np.argsort(-gain[varies], kind="stable")]
    return int(order[len(order) // 2])
