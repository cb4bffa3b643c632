r"""Self-normalised importance weighting: means, error bars and checks of draws that carry weights.

With weights of mean one, $\hat\mu = \overline{w(f+g)}$, and the draws $\hat\mu + w_i(f_i + g_i - \hat\mu)$ have that
mean and, by the delta method, its standard error. Everything that judges a series of draws judges these.

Reference: Owen (2013), Monte Carlo theory, methods and examples, 9; Vehtari et al. (2024), JMLR 25, for Pareto k.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..runtime.validation import InputError
from ..samples.samples import Samples
from ..stein.coordinates import Standardise
from ..stein.folds import Block, Fold
from .diagnostics import Code, Status, stein_alarm, stein_columns, stein_z, value_status
from .error_bars import Average, average, pareto_index


class Limits(NamedTuple):
    """When weights are too uneven, and when they are nothing."""

    pareto_k: float = 0.7  # as in Vehtari et al. (2024)
    fewest: int = 100  # draws that a tail is fitted to
    least: float = 1e-8  # of the mean weight: what is divided by less than that is round-off


LIMITS = Limits()


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights `w` at every draw: of mean one over all of a sample, but not over a part of it."""

    w: Float[np.ndarray, "chain draw"]

    @classmethod
    def of(cls, log_weights: Float[np.ndarray, "chain draw"], folds: Sequence[Fold]) -> "Weights":
        """Return weights from their logarithms; each fold must have some to fit on."""
        w = np.exp(log_weights - log_weights.max())
        for fold in folds:
            if not fold.train.take(w).any():
                raise InputError(
                    f"`log_weights` leave nothing to fit on: all the weight is in chain "
                    f"{', '.join(map(str, fold.test.chains))}. Weights of one run belong in one chain."
                )
        return cls(w / w.mean())

    def part(self, block: Block) -> "Weights":
        """Return the weights of some of the draws."""
        w = block.take(self.w)
        if not w.any():
            raise InputError("`log_weights` leave nothing to average over: the held-out draws have no weight.")
        return Weights(w)

    @property
    def ess(self) -> float:
        """Kish's effective sample size."""
        return float(self.w.sum() ** 2 / (self.w**2).sum())

    @property
    def pareto_k(self) -> float:
        """The tail index of the weights; 0 of too few draws to have one."""
        positive = self.w[self.w > 0]
        k = pareto_index(positive, "right") if len(positive) >= LIMITS.fewest else np.nan
        return k if np.isfinite(k) else 0.0  # weights may tie

    def mean(self, values: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, " out"]:
        """Return weighted means."""
        return np.einsum("cd,cdo->o", self.w, values) / self.w.sum()

    def draws(
        self, weighted: Float[np.ndarray, "chain draw out"], center: Float[np.ndarray, " out"]
    ) -> Float[np.ndarray, "chain draw out"]:
        """Return draws with the mean and the error of the weighted mean, from w (f - center)."""
        size = self.w.mean()
        shift = weighted.mean(axis=(0, 1)) / size
        return center + shift + (weighted - shift * self.w[..., None]) / size

    def average(self, draws: Float[np.ndarray, "chain draw out"]) -> Average:
        """Return the average of what `draws` made; its ess is how many independent draws of the density do as well."""
        found = average(draws)
        away = (draws - found.mean) ** 2
        w = self.w[..., None] / self.w.mean()
        variance = np.divide(away, w, out=np.zeros_like(away), where=w > LIMITS.least).mean(axis=(0, 1))
        error = found.standard_error
        ess = np.divide(variance, error**2, out=np.full(len(error), self.ess), where=error > 0)
        return Average(found.mean, error, ess, found.error_ess, found.degrees_of_freedom)

    def stein_status(self, samples: Samples) -> list[Status]:
        r"""Return an alarm if a weighted mean of $s_i$ or of $z_is_i + 1$ is too far from zero for correct input."""
        z, s = Standardise.of(samples)(samples)
        w = self.w.reshape(-1, 1) / self.w.mean()
        z = z - (w * z).mean(axis=0)
        columns = w * stein_columns(z, s)
        means = average(columns.reshape(*self.w.shape, -1))
        # where few draws carry an error bar it is mostly too small: they count, not the others
        fewer = np.minimum(np.minimum(means.ess, means.error_ess), self.ess)
        off = stein_z(Average(means.mean, means.standard_error, fewer), samples.dim, whitened=True)
        return stein_alarm(off, samples.dim, means.mean[2 * samples.dim])

    def value_status(self, draws: Float[np.ndarray, "chain draw out"], ess: np.ndarray) -> list[list[Status]]:
        """Return what the weights and the weighted values say, for every output."""
        k = self.pareto_k
        uneven = [Status.of(Code.UNEVEN_WEIGHTS, khat=k, limit=LIMITS.pareto_k, ess=self.ess)] * (k > LIMITS.pareto_k)
        return [[*uneven, *found] for found in value_status(draws, ess)]

    def info(self) -> dict[str, Any]:
        return {"weights": {"ess": self.ess, "pareto_k": self.pareto_k}}
