"""What a default may rely on: scores without outliers, chains that agree, and a gain that no single chain makes."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..judging.status import Code
from ..result import Estimate
from ..samples.samples import Samples


class Limits(NamedTuple):
    """What the checks of this module compare with; benchmarks/regression_calibration.py measures what they keep."""

    # The largest 1 % of squared scores are 1 % of their sum for a Gaussian in many dimensions and about a tenth for a
    # network's posterior. Draws of approximate samplers have more than a quarter there: no variance made of them is
    # known.
    top_share: float = 0.01
    carried: float = 0.25
    # The variance ratio must be below this without any one of the chains.
    stable_ratio: float = 0.9


LIMITS = Limits()


def score_outliers(samples: Samples) -> bool:
    """Tell whether a hundredth of the draws carries much of the sum of squared scores."""
    size = np.sort((samples.scores**2).sum(axis=-1).reshape(-1))
    last = max(1, round(LIMITS.top_share * len(size)))
    return bool(size[-last:].sum() > max(LIMITS.carried, 3 * last / len(size)) * size.sum())


def chains_agree(found: Estimate) -> Bool[np.ndarray, " out"]:
    """Tell for which outputs no split R-hat is too large: chains stuck in different places know one place each."""
    return np.array([all(s.code is not Code.CHAINS_DISAGREE for s in status) for status in found.status])


def stable(values: Float[np.ndarray, "chain draw out"], controlled: np.ndarray) -> Bool[np.ndarray, " out"]:
    """Tell for which outputs the variance ratio stays low when any one chain is left out."""
    chains = len(values)
    if chains < 2:
        return np.ones(values.shape[-1], dtype=bool)
    worst = np.zeros(values.shape[-1])
    for k in range(chains):
        others = np.arange(chains) != k
        before, after = values[others].var(axis=(0, 1)), controlled[others].var(axis=(0, 1))
        worst = np.maximum(worst, np.divide(after, before, out=np.full_like(after, np.inf), where=before > 0))
    return worst < LIMITS.stable_ratio
