r"""Coordinates of streamed draws: provisional ones from a part of them, and those of every fold from its sums."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..runtime.validation import InputError
from ..samples.samples import Samples
from ..stein.coordinates import LARGEST, Standardise
from .moments import Sums


@dataclass(frozen=True, eq=False)
class Provisional:
    """Standard coordinates t of a part of the draws: near enough to those of all to add up products in."""

    standardise: Standardise
    factor: Float[np.ndarray, "dim dim"]
    inverse: Float[np.ndarray, "dim dim"]
    to_draws: Float[np.ndarray, "dim dim"]
    to_scores: Float[np.ndarray, "dim dim"]

    @classmethod
    def of(cls, samples: Samples) -> "Provisional":
        standardise = Standardise.of(samples)
        factor = np.eye(samples.dim) if standardise.factor is None else standardise.factor
        inverse, scale = np.linalg.inv(factor), standardise.scale
        return cls(standardise, factor, inverse, inverse / scale, factor.T * scale)

    def __call__(
        self, draws: Float[np.ndarray, "m dim"], scores: Float[np.ndarray, "m dim"], where: str, chain: int, start: int
    ) -> tuple[Float[np.ndarray, "dim m"], Float[np.ndarray, "dim m"]]:
        """Draws and scores, coordinates first. What is not finite or far too large is refused with its place."""
        with np.errstate(over="ignore", invalid="ignore"):
            t = self.to_draws @ (draws - self.standardise.mean).T
            s = self.to_scores @ scores.T
            # NaN is not below anything, so it is found too
            for name, raw, standard in (("draws", draws, t), ("scores", scores, s)):
                if not (np.abs(standard).max() < LARGEST):
                    row = int(np.argmin((np.abs(standard) < LARGEST).all(axis=0)))
                    bad = raw[row][~(np.abs(raw[row]) < 1e300)]
                    value = bad[0] if len(bad) else raw[row][np.argmax(np.abs(raw[row]))]
                    raise not_finite(where, name, value, chain, start + row)
        return t, s


def not_finite(where: str, name: str, value: float, chain: int, draw: int) -> InputError:
    return InputError(
        f"{where}: the {name} hold {value:.3g} at chain {chain}, draw {draw}: not finite, or too large for its "
        f"coordinate. Remove that draw."
    )


@dataclass(frozen=True, eq=False)
class FoldMap:
    r"""$z = A(t - \mu)$, $s_z = A^{-T}s$: standard coordinates of the draws that `sums` are of."""

    a: Float[np.ndarray, "dim dim"]
    b: Float[np.ndarray, "dim dim"]
    center: Float[np.ndarray, " dim"]

    @classmethod
    def of(cls, sums: Sums, provisional: Provisional, names: tuple[str, ...]) -> "FoldMap":
        center = sums.first(scores=False) / sums.count
        covariance = sums.second(scores=False) / sums.count - np.outer(center, center)
        mixed = provisional.factor @ covariance @ provisional.factor.T
        variance = mixed.diagonal()
        if not (variance > 1e-26).all():
            i = int(np.argmin(variance))
            raise InputError(
                f"Coordinate {i} ({names[i]}) does not move in the draws of a fold: it is not random. Leave it out."
            )
        d = np.sqrt(variance)
        try:
            factor = np.linalg.cholesky(mixed / np.outer(d, d))
        except np.linalg.LinAlgError as error:
            raise InputError(
                "The coordinates are linearly dependent in the draws of a fold. Leave out the redundant one."
            ) from error
        a = np.linalg.solve(factor, provisional.factor / d[:, None])
        b = factor.T @ (d[:, None] * provisional.inverse.T)
        return cls(a, b, center)

    def __call__(self, t: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """z and its scores, coordinates first."""
        return self.a @ (t - self.center[:, None]), self.b @ s
