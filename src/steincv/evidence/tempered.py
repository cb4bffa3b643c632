"""What tempering gives: draws of every rung with scores, and how well the chains have mixed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..judging.error_bars import effective_draws, split_rhat
from ..runtime.validation import InputError
from ..samples.samples import Samples, unit_range
from .ladder import rung_name
from .power_posterior import PowerPosterior

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Tempered:
    """Draws of all power posteriors; replicas are the chains.

    - `samples`: one per rung, with the scores of its power posterior. `log_likelihoods`: `(replica, draw)` each.
    - `acceptance`, `rejected`: of every rung, the acceptance rate and the number of proposals without finite likelihood
      (for NUTS divergences too). `swaps`: the acceptance rate of each pair of neighbours.
    - `round_trips`: of every replica, how often a state went from t = 0 to t = 1 and back.
    - `rhat`, `ess`: of every rung, the worst over the coordinates and the log likelihood.
    """

    temperatures: Float[np.ndarray, " rung"]
    samples: tuple[Samples, ...]
    log_likelihoods: tuple[np.ndarray, ...]
    acceptance: Float[np.ndarray, " rung"]
    rejected: np.ndarray
    swaps: Float[np.ndarray, " pair"]
    round_trips: np.ndarray
    rhat: Float[np.ndarray, " rung"]
    ess: Float[np.ndarray, " rung"]
    iterations: int
    kernel: str
    seconds: float = 0.0

    @classmethod
    def of(
        cls,
        model: PowerPosterior,
        t: np.ndarray,
        x: Float[np.ndarray, "replica rung draw dim"],
        likelihood: Float[np.ndarray, "replica rung draw"],
        state: Any,
        kernel: str,
    ) -> "Tempered":
        samples = []
        for k in range(len(t)):
            try:
                samples.append(model.samples(x[:, k], float(t[k])))
            except InputError as error:
                raise InputError(f"{rung_name(k, t)}: {error}") from error
        rhat, ess = _mixing(x, likelihood)
        tally = state.tally
        iterations = int(tally.iterations)
        likelihoods = tuple(np.ascontiguousarray(likelihood[:, k]) for k in range(len(t)))
        acceptance, swaps = (sums / max(iterations, 1) for sums in (tally.acceptance, tally.swaps))
        trips = np.asarray(state.walkers.trips)
        return cls(
            t, tuple(samples), likelihoods, acceptance, tally.rejected, swaps, trips, rhat, ess, iterations, kernel
        )

    def table(self) -> "pandas.DataFrame":
        """Return a row for every rung."""
        import pandas

        kept = ("acceptance", "swap_up", "rhat", "ess", "not_finite")
        found = {"swap_up": [*self.swaps, np.nan], **self.diagnostics()}
        columns = {"temperature": self.temperatures, **{name: found[name] for name in kept}}
        return pandas.DataFrame(columns).rename_axis("rung")

    def diagnostics(self) -> dict[str, Any]:
        """Return what is known of the rungs and the round trips, in JSON's types."""
        found = {"kernel": self.kernel, "iterations": self.iterations, "seconds": self.seconds}
        names = ("acceptance", "swaps", "round_trips", "rhat", "ess")
        return found | {n: getattr(self, n).tolist() for n in names} | {"not_finite": self.rejected.tolist()}

    def __repr__(self) -> str:
        replicas, draws = self.log_likelihoods[0].shape
        return (
            f"Tempered({len(self.temperatures)} rungs x {replicas} replicas x {draws} draws by {self.kernel}: "
            f"swap rates {self.swaps.min():.2f} to {self.swaps.max():.2f}, {int(self.round_trips.sum())} round trips, "
            f"worst R-hat {self.rhat.max():.3f}, least ESS {self.ess.min():.0f})"
        )


def _mixing(x: np.ndarray, likelihood: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the worst R-hat and the least ESS of every rung; NaN for fewer than four draws."""
    rungs, draws = x.shape[1:3]
    if draws < 4:
        return np.full(rungs, np.nan), np.full(rungs, np.nan)
    rhat, ess = np.empty(rungs), np.empty(rungs)
    for k in range(rungs):
        series = np.concatenate([x[:, k], likelihood[:, k, :, None]], axis=-1)
        rhat[k] = split_rhat(series).max()
        unit = unit_range(series).unit
        moving = unit.any(axis=(0, 1))
        ess[k] = effective_draws(unit[..., moving]).min() if moving.any() else 1.0
    return rhat, ess
