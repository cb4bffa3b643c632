r"""Normal distributions in coordinates of a posterior: what a bridge goes from, and how far the posterior is from them.

With x = T(z), z standard normal, the proposal has the density q, and the log ratio is

$$ u(x) = \log p(x) + \log|\det J_T(z)| + \tfrac12 |z|^2 + \tfrac D2 \log 2\pi, $$

constant, and equal to the log normalising constant of p, where p is q up to its constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..samples.log_density import LogDensity
from ..samples.samples import Samples
from ..stein.coordinates import LARGEST, LIMITS, Coordinates, Standardise
from ..stein.folds import Fold
from ..stein.learned.coordinates import LearnedCoordinates, learned_coordinates
from ..stein.learned.fitting import robust_metric
from ..stein.learned.layers import Affine


@dataclass(frozen=True, eq=False)
class Proposal:
    """The distribution of T(z) for standard normal z: a last affine map, then coordinates of the library."""

    coordinates: Coordinates
    last: Affine

    @classmethod
    def by_scores(cls, coordinates: Coordinates, samples: Samples) -> "Proposal":
        """Return the proposal with the least Fisher divergence at these draws: of a normal density it is that one."""
        dim = samples.dim
        z, s = coordinates.pull(samples.draws.reshape(-1, dim), samples.scores.reshape(-1, dim))
        found, _ = robust_metric(z, s, len(z) > LIMITS.draws_per_dimension * dim)
        if found.spread.ndim == 1:
            return cls(coordinates, Affine(found.mean + found.spread * found.drift, np.sqrt(found.spread)))
        mean = found.mean + found.spread @ found.drift
        return cls(coordinates, Affine(mean, np.ones(dim), np.linalg.cholesky(found.spread)))

    def ratio_at(
        self, x: Float[np.ndarray, "n dim"], scores: Float[np.ndarray, "n dim"], value: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, " n"]:
        """Return u at draws with this log density."""
        with np.errstate(over="ignore", invalid="ignore"):
            pulled, s = self.coordinates.pull(x, scores)
            z, _ = self.last(pulled, s)
        return value + self._minus_log_normal(z)

    def ratio_from(self, z: Float[np.ndarray, "n dim"], model: LogDensity) -> Float[np.ndarray, " n"]:
        """Return u at proposals; minus infinity where the model has no finite density."""
        with np.errstate(over="ignore", invalid="ignore"):
            x = self.coordinates.inverse(self.last.inverse(z))
            usable = (np.abs(x) < LARGEST).all(axis=1)
            u = np.full(len(z), -np.inf)
            if usable.any():
                u[usable] = model(x[usable]).value
            u += self._minus_log_normal(z)
        return np.where(np.isfinite(u), u, -np.inf)

    def _minus_log_normal(self, z: np.ndarray) -> np.ndarray:
        scale = np.broadcast_to(self.last.scale, z.shape[1])
        last = np.log(scale).sum() + (0.0 if self.last.factor is None else np.log(np.diag(self.last.factor)).sum())
        jacobian = last + self.coordinates.log_jacobian(self.last.inverse(z))
        return jacobian + 0.5 * (z**2).sum(axis=1) + 0.5 * z.shape[1] * np.log(2 * np.pi)


class Family(NamedTuple):
    """Proposals of one kind, one for every fold, with u at all draws from each of them."""

    name: str
    proposals: list[Proposal]
    ratio: Float[np.ndarray, "fold chain draw"]

    def held_out(self, folds: Sequence[Fold]) -> float:
        """Return how far u is from its median, on average, at draws that the proposals have not seen.

        It is 0 where the proposal is the posterior. The mean of u, which is its divergence up to a constant, has more
        noise than proposals differ by.
        """
        parts = [fold.test.take(u) for fold, u in zip(folds, self.ratio, strict=True)]
        return float(np.mean([np.abs(part - np.median(part)).mean() for part in parts]))


def families(samples: Samples, value: Float[np.ndarray, "chain draw"], folds: Sequence[Fold]) -> list[Family]:
    """Return proposals fitted to the training draws of every fold: by moments first, then by scores, then learned."""
    dim, shape = samples.dim, samples.draws.shape[:2]
    flat = samples.draws.reshape(-1, dim), samples.scores.reshape(-1, dim), value.reshape(-1)
    train = [samples.select(fold.train.chains, fold.train.draws) for fold in folds]
    affine = [Standardise.of(some) for some in train]
    learned: list[Coordinates] = []
    for some in train:  # the kind of map is looked for in the first fold only
        learned.append(learned_coordinates(some, samples, learned[0] if learned else None))
    made = {
        "moments": [Proposal(each, Affine(np.zeros(1), np.ones(1))) for each in affine],
        "scores": [Proposal.by_scores(each, some) for each, some in zip(affine, train, strict=True)],
    }
    if any(isinstance(each, LearnedCoordinates) for each in learned):
        made["learned"] = [Proposal.by_scores(each, some) for each, some in zip(learned, train, strict=True)]
    found = []
    for name, proposals in made.items():
        ratio = np.stack([proposal.ratio_at(*flat).reshape(shape) for proposal in proposals])
        if np.isfinite(ratio).all():
            found.append(Family(name, proposals, ratio))
    return found
