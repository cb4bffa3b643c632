r"""Orbits: a few leapfrog states around every draw, for the price of a gradient each.

A draw x of p, a fresh Gaussian momentum, and b backward and K - 1 - b forward leapfrog steps, b uniform. All K states
of that orbit could have been the one it was started from, so weights $w_i \propto e^{-H_i}$ make
$E \sum_i w_i f(x_i) = E f(x)$, whatever the step size. An orbit with a state that is not finite counts as its draw
alone: so it would, started from any of its other states.

Reference: Neal (2011), Handbook of MCMC, 5.5.2 (windows); Betancourt (2017), arXiv:1701.02434 (multinomial weights).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..runtime.validation import InputError
from ..samples.log_density import LogDensity
from .coordinates import LARGEST, Coordinates


class Settings(NamedTuple):
    """How orbits are made. Their number of states is the user's."""

    # The effective number of states of an orbit, over all: smaller steps move less, larger ones waste states.
    effective: float = 0.9
    # The step size is found on this many draws, in so many rounds of halving an interval of its logarithm.
    trial_draws: int = 48
    rounds: int = 6
    # In whitened coordinates of a Gaussian leapfrog is stable up to 2, and the energy error grows with dim^(1/4).
    steps: tuple[float, float] = (0.02, 1.5)
    # Points that the model is asked for at a time.
    batch: int = 4096
    # Gradients and scores agree to this share of their size, and values with gradients along a line to the other.
    same_scores: float = 1e-5
    same_values: float = 1e-2


SETTINGS = Settings()


@dataclass(frozen=True, eq=False)
class Orbits:
    """States around every draw, the draw itself first, with their scores and weights."""

    draws: Float[np.ndarray, "n state dim"]
    scores: Float[np.ndarray, "n state dim"]
    weight: Float[np.ndarray, "n state"]

    @property
    def effective(self) -> Float[np.ndarray, " n"]:
        """The effective number of states of every orbit."""
        return 1 / (self.weight**2).sum(axis=1)


def orbits(
    x: Float[np.ndarray, "n dim"],
    scores: Float[np.ndarray, "n dim"],
    model: LogDensity,
    coordinates: Coordinates,
    states: int,
    step: float,
    rng: np.random.Generator,
) -> Orbits:
    """Run an orbit of so many states from every draw, in the given coordinates."""
    n, dim = x.shape
    if n > SETTINGS.batch:
        some = [slice(i, i + SETTINGS.batch) for i in range(0, n, SETTINGS.batch)]
        parts = [vars(orbits(x[i], scores[i], model, coordinates, states, step, rng)).values() for i in some]
        return Orbits(*map(np.concatenate, zip(*parts, strict=True)))
    backward = rng.integers(states, size=n)
    momentum = rng.standard_normal((n, dim))
    draws, gradients = np.repeat(x[:, None], states, axis=1), np.repeat(scores[:, None], states, axis=1)
    energy = np.full((n, states), np.inf)
    start, slope = coordinates.pull(x, scores)
    energy[:, 0] = 0.5 * (momentum**2).sum(axis=1) - model(x).value - coordinates.log_jacobian(start)
    place = np.ones(n, dtype=int)
    # One direction, then the other; the two are the same map with the momentum turned round.
    for sign, lengths in ((1.0, states - 1 - backward), (-1.0, backward)):
        z, s, p = start.copy(), slope.copy(), sign * momentum
        for k in range(states - 1):
            on = np.flatnonzero(lengths > k)
            if not len(on):
                break
            with np.errstate(all="ignore"):
                half = p[on] + 0.5 * step * s[on]
                z[on] += step * half
                at = coordinates.inverse(z[on])
                usable = (np.abs(at) < LARGEST).all(axis=1)
                value, gradient = np.full(len(on), -np.inf), np.full(at.shape, np.nan)
                if usable.any():
                    value[usable], gradient[usable] = model(at[usable])
                _, s[on] = coordinates.pull(at, gradient)
                p[on] = half + 0.5 * step * s[on]
                found = 0.5 * (p[on] ** 2).sum(axis=1) - value - coordinates.log_jacobian(z[on])
            draws[on, place[on]], gradients[on, place[on]], energy[on, place[on]] = at, gradient, found
            place[on] += 1
    lost = ~(np.isfinite(energy) & (np.abs(gradients) < LARGEST).all(axis=2)).all(axis=1)
    if lost.any():
        draws[lost], gradients[lost] = x[lost, None], scores[lost, None]
        energy[lost], energy[lost, 0] = np.inf, 0.0
    weight = np.exp(energy.min(axis=1, keepdims=True) - energy)
    return Orbits(draws, gradients, weight / weight.sum(axis=1, keepdims=True))


def find_step(
    x: Float[np.ndarray, "n dim"],
    scores: Float[np.ndarray, "n dim"],
    model: LogDensity,
    coordinates: Coordinates,
    states: int,
    seed: int,
    steps: tuple[float, float] = SETTINGS.steps,
) -> float:
    """Return the largest step size that leaves orbits the effective number of states they should have."""
    some = np.linspace(0, len(x) - 1, min(SETTINGS.trial_draws, len(x))).astype(int)
    low, high = np.log(steps)
    for _ in range(SETTINGS.rounds):
        middle = 0.5 * (low + high)
        rng = np.random.default_rng(seed)  # the same momenta each time: the answers differ by the step alone
        found = orbits(x[some], scores[some], model, coordinates, states, float(np.exp(middle)), rng)
        if found.effective.mean() < SETTINGS.effective * states:
            high = middle
        else:
            low = middle
    return float(np.exp(low))


def check_model(
    x: Float[np.ndarray, "n dim"], scores: Float[np.ndarray, "n dim"], model: LogDensity, scale: np.ndarray
) -> None:
    """Refuse a model that is not the one the draws and scores are of; `scale` is that of the coordinates."""
    some = np.linspace(0, len(x) - 1, min(8, len(x))).astype(int)
    value, gradient = model(x[some])
    if not np.isfinite(value).all():
        raise InputError("`log_density` is not finite at some of the draws: it is not the density they are of.")
    off = np.abs((gradient - scores[some]) * scale).max(axis=1)
    size = np.abs(scores[some] * scale).max(axis=1) + 1.0
    if (off > SETTINGS.same_scores * size).any():
        worst = int(np.argmax(off / size))
        raise InputError(
            f"the gradient of `log_density` differs from `scores` by {off[worst] / size[worst]:.1e} of its size at "
            f"draw {some[worst]}: it is another density, or in other coordinates."
        )
    # along the line between two points the values must change as the gradients say
    along = 1e-3 * scale * np.sign(gradient)
    ahead, behind = model(x[some] + along).value, model(x[some] - along).value
    said = 2 * (gradient * along).sum(axis=1)
    wrong = np.abs(ahead - behind - said) > SETTINGS.same_values * np.abs(said) + 1e-6 * np.abs(value)
    if wrong.sum() > len(some) // 2:
        k = int(np.argmax(np.abs(ahead - behind - said)))
        raise InputError(
            f"`log_density` changes by {ahead[k] - behind[k]:.3g} along a line where its gradient says {said[k]:.3g}: "
            f"values and gradient are not of the same function."
        )
