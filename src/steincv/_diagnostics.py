"""Checks of the input that the answer rests on: are the scores those of the draws, have the chains mixed."""

from dataclasses import dataclass

import numpy as np
import scipy.special

from ._error_bars import Average, average, degrees_of_freedom, split_rhat, tail_index
from ._samples import Samples
from ._status import Code, Status
from ._stein import Standardise

LOW_ESS = 200
RHAT_LIMIT = 1.1
TAIL_LIMIT = 0.5
# Where fewer draws than this, and than this share of the effective ones, carry the error bar, it is a matter of luck.
FEW_CARRIERS, FEW_SHARE = 10.0, 1 / 40
# Among 2 dim + 1 z values of correct input the largest is beyond this once in ten thousand for dim = 100.
STEIN_LIMIT = 5.0


@dataclass(frozen=True, eq=False)
class SteinCheck:
    r"""z values of means that are zero for correct draws and scores.

    In standard coordinates: $E[s_i] = 0$, $E[z_i s_i] = -1$, and the sum of the latter, which is the one that
    sees a score of the wrong size.
    """

    labels: tuple[str, ...]
    mean: np.ndarray
    z: np.ndarray

    @property
    def worst(self) -> int:
        return int(np.argmax(np.abs(self.z)))


def stein_check(samples: Samples) -> SteinCheck:
    """Stein means of constant and linear trial functions with their z values."""
    z, s = Standardise.of(samples)(samples)
    product = z * s + 1
    columns = np.concatenate([s, product, product.sum(axis=1, keepdims=True)], axis=1)
    means = average(columns.reshape(*samples.draws.shape[:2], -1))
    numbers = [f"coordinate {i}" for i in range(samples.dim)]
    labels = (
        *(f"score of standard {c}" for c in numbers),
        *(f"z s + 1 of standard {c}" for c in numbers),
        "z . s + dim",
    )
    error = np.where(means.standard_error > 0, means.standard_error, np.inf)
    constant = (means.standard_error == 0) & (np.abs(means.mean) > 1e-8)
    # Standardising by the same draws moves the means of z s + 1 by about dim / ESS even for correct input.
    products = np.repeat([0.0, 1.0, samples.dim], [samples.dim, samples.dim, 1])
    beyond = np.maximum(np.abs(means.mean) - products * (samples.dim + 1) / means.ess, 0.0)
    z = np.sign(means.mean) * _as_normal(beyond / error, means.ess)
    return SteinCheck(labels, means.mean, np.where(constant, np.inf, z))


def _as_normal(t: np.ndarray, ess: np.ndarray) -> np.ndarray:
    """Student's t on the degrees of freedom of an error bar, as the z value at the edge of alarm that is as rare."""
    tail = scipy.special.ndtr(-STEIN_LIMIT)
    return t * STEIN_LIMIT / -scipy.special.stdtrit(degrees_of_freedom(ess), tail)


def stein_status(samples: Samples) -> list[Status]:
    """An alarm if any Stein mean is too far from zero for correct input."""
    check = stein_check(samples)
    if abs(check.z[check.worst]) <= STEIN_LIMIT:
        return []
    return [Status.of(Code.STEIN_MEAN, worst=check.labels[check.worst], z=check.z[check.worst])]


def value_status(values: np.ndarray, ess: np.ndarray) -> list[list[Status]]:
    """What the values of f themselves say, for every output of `(chain, draw, out)`."""
    rhat, khat = split_rhat(values), tail_index(values)
    statuses: list[list[Status]] = [[] for _ in range(values.shape[-1])]
    for k, found in enumerate(statuses):
        if ess[k] < LOW_ESS:
            found.append(Status.of(Code.LOW_ESS, ess=ess[k]))
        if rhat[k] > RHAT_LIMIT:
            found.append(Status.of(Code.CHAINS_DISAGREE, rhat=rhat[k], limit=RHAT_LIMIT))
        if khat[k] > TAIL_LIMIT:
            found.append(Status.of(Code.HEAVY_TAIL, khat=khat[k], limit=TAIL_LIMIT))
    return statuses


def rare_draws_status(mean: Average, k: int) -> list[Status]:
    """Whether a handful of draws carries the error bar of output k."""
    carriers = mean.error_ess[k] / 2
    if carriers >= min(FEW_CARRIERS, FEW_SHARE * mean.ess[k]):
        return []
    return [Status.of(Code.RARE_DRAWS, carriers=max(carriers, 1.0))]
