"""What a default may rely on: scores without outliers, chains that agree, and a gain that every chain proves."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..judging.status import Code
from ..result import Estimate
from ..samples.samples import Samples


class Limits(NamedTuple):
    """What the checks of this module compare with; benchmarks/regression_calibration.py measures what they keep."""

    # The largest 1 % of squared scores are 1 % of their sum for a Gaussian in many dimensions, .25 for converged HMC
    # draws of the paper's classifier given 40 images, and .84 and .50 for pSGLD given 40 and 200: no variance made of
    # those is known.
    top_share: float = 0.01
    carried: float = 0.35
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


def proven(values: Float[np.ndarray, "chain draw out"], controlled: np.ndarray) -> Bool[np.ndarray, " out"]:
    """Tell for which outputs the variance falls clearly on chains that g was not fitted on, whichever is left out.

    Left out one by one, chains also say how uncertain the ratio is (the jackknife): it must be below 1 by twice that.
    A coin flip that every chain tosses has large variances and a ratio that all chains share; an output that one chain
    alone decides has not.
    """
    chains = len(values)
    if chains < 2:
        return np.ones(values.shape[-1], dtype=bool)
    ratios = []
    for k in range(chains):
        others = np.arange(chains) != k
        before, after = values[others].var(axis=(0, 1)), controlled[others].var(axis=(0, 1))
        ratios.append(np.divide(after, before, out=np.full_like(after, np.inf), where=before > 0))
    found = np.stack(ratios)
    finite = np.where(np.isfinite(found), found, 1.0)
    error = np.sqrt((chains - 1) * finite.var(axis=0))
    return (found.max(axis=0) < LIMITS.stable_ratio) & (finite.mean(axis=0) + 2 * error < 1)
