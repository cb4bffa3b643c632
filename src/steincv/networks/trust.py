"""What a default may rely on: scores without outliers, chains that agree, and a gain that no single chain makes."""

import numpy as np
from jaxtyping import Bool, Float

from ..judging.status import Code
from ..result import Estimate
from ..samples.samples import Samples

# Of a Gaussian in many dimensions the largest 1 % of squared scores are 1 % of their sum, of a network's posterior
# about a tenth. Draws of approximate samplers have more than a quarter there: no variance made of them is known.
TOP, CARRIED = 0.01, 0.25
# Without any one of the chains the variance ratio must still be below this.
STABLE = 0.9


def score_outliers(samples: Samples) -> bool:
    """Whether a hundredth of the draws carries much of the sum of squared scores."""
    size = np.sort((samples.scores**2).sum(axis=-1).reshape(-1))
    last = max(1, round(TOP * len(size)))
    return bool(size[-last:].sum() > max(CARRIED, 3 * last / len(size)) * size.sum())


def chains_agree(found: Estimate) -> Bool[np.ndarray, " out"]:
    """Where no split R-hat is too large: chains stuck in different places tell nothing about the other places."""
    return np.array([all(s.code is not Code.CHAINS_DISAGREE for s in status) for status in found.status])


def stable(values: Float[np.ndarray, "chain draw out"], controlled: np.ndarray) -> Bool[np.ndarray, " out"]:
    """Where the variance ratio stays low when any one chain is left out."""
    chains = len(values)
    if chains < 2:
        return np.ones(values.shape[-1], dtype=bool)
    worst = np.zeros(values.shape[-1])
    for k in range(chains):
        others = np.arange(chains) != k
        before, after = values[others].var(axis=(0, 1)), controlled[others].var(axis=(0, 1))
        worst = np.maximum(worst, np.divide(after, before, out=np.full_like(after, np.inf), where=before > 0))
    return worst < STABLE
