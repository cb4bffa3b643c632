r"""Orbits of a regression network's other weights, once the last layer is integrated out.

Given the other weights v the outputs at the training inputs are $o + Hd$, and the last layer d is Gaussian with
precision $\Lambda = \Lambda_0 + H^TH/\sigma^2$ and mean $m = \Lambda^{-1}H^T(y - o)/\sigma^2$. So v has the density

$$ \log p(v) = -\tfrac12 v^T\Lambda_v v - \tfrac12\log|\Lambda|
   - \tfrac12\big(|y - o|^2/\sigma^2 - m^T\Lambda m\big) $$

and $E[f \mid v]$ is known: $f(v, m)$ for the mean of y. The steepest directions of the posterior are those of the last
layer. Without them leapfrog steps are several times as long as NUTS takes with all weights (cars .06 and .018, curve
.13 and .0036): a few states around every draw lie far apart, and the mean of $E[f \mid v]$ over them varies little.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..families.points import TRIAL_DRAWS, seconds_per_gradient
from ..runtime.rows import over_rows
from ..runtime.validation import InputError
from ..samples.log_density import LogDensity
from ..samples.samples import Samples
from ..stein.coordinates import Standardise
from ..stein.orbits import find_step, orbits
from .full_gradient import over_chains
from .model import Array


class Price(NamedTuple):
    """How long orbits are, and for which draws.

    16, 32 and 64 states leave .060, .040 and .027 of the variance of f on the curve of docs/networks.md, and .28, .17
    and .092 on the cars, where NUTS took 1023 and 255 gradients a draw.
    """

    states: int = 64
    # With so many states they leave no more than Gauss-Newton steps, as dear as hundreds of gradients a draw.
    alone: int = 16
    # Seconds that their gradients may take, by a few that are timed: what Gauss-Newton steps take for 3,000 draws.
    seconds: float = 300.0
    probed: int = 64
    # Numbers of a batch of orbits.
    numbers: int = 1 << 22
    # The scores of draws are the model's own if they differ by no more than this share of their length, which is far
    # more than single precision rounds.
    same: float = 1e-3
    # Step sizes in units of the prior's deviations, and states of the orbits on which one is looked for: those of 64
    # then have an effective share of .74 to .87, instead of .9.
    steps: tuple[float, float] = (1e-3, 1.5)
    trial: int = 16


PRICE = Price()


class Layer(NamedTuple):
    """What the last layer is given the other weights: its mean, its precision's Cholesky factor, and log p(v)."""

    mean: jax.Array
    factor: jax.Array
    log_density: jax.Array


@dataclass(frozen=True, eq=False)
class Collapsed:
    """The density of the other weights of a `Network` with noise and N(0, 1) priors, and the means of f given them.

    `predict(theta, inputs)` is f; `of(mean, variance)` its mean where the outputs are normal.
    """

    model: Any  # a `Network`
    predict: Callable[[Array, Array], Array]
    of: Callable[[Array, Array], Array]

    @cached_property
    def rest(self) -> np.ndarray:
        return np.setdiff1d(np.arange(self.model.dim), self.model.last)

    def outputs(self, v: Array, d: Array, inputs: Array) -> Array:
        """Return the outputs at some inputs, leaf by leaf: what one d has in common with others is computed once."""
        model, last, rest = self.model, self.model.last, self.rest
        of = [(d, last) if place.start in last else (v, rest) for place in model.places]
        leaves = [
            part[np.searchsorted(where, np.arange(place.start, place.stop))].reshape(shape)
            for (part, where), place, shape in zip(of, model.places, model.shapes, strict=True)
        ]
        return model.apply(jax.tree.unflatten(model.structure, leaves), inputs).reshape(-1)

    def linear(self, v: Array, inputs: Array) -> tuple[Array, Array]:
        """Return the outputs where the last layer is 0, and their derivatives along it, `(n, last)`."""

        def at(d: Array) -> Array:
            return self.outputs(v, d, inputs)

        zero = jnp.zeros(len(self.model.last))
        return at(zero), jax.jacfwd(at)(zero)

    def layer(self, v: Array) -> Layer:
        model = self.model
        train, targets = model.data
        o, rows = self.linear(v, train)
        left, rows = (targets - o) / model.noise, rows / model.noise
        factor = jnp.linalg.cholesky(jnp.diag(model.precision[model.last]) + rows.T @ rows)
        mean = jax.scipy.linalg.cho_solve((factor, True), rows.T @ left)
        squares = (v**2 * model.precision[self.rest]).sum() + left @ left - mean @ (rows.T @ left)
        return Layer(mean, factor, -0.5 * squares - jnp.log(jnp.diag(factor)).sum())

    def expected(self, v: Array, inputs: Array) -> Array:
        """Return the mean of f at every input, given the other weights."""
        layer, (o, rows) = self.layer(v), self.linear(v, inputs)
        spread = jax.scipy.linalg.solve_triangular(layer.factor, rows.T, lower=True)
        return self.of(o + rows @ layer.mean, (spread**2).sum(0))

    def averages(
        self, samples: Samples, inputs: np.ndarray, states: int | Literal["auto"], seed: int, step: float | None = None
    ) -> tuple[Float[np.ndarray, "chain draw out 2"], dict[str, Any]] | None:
        """Return what f is changed by, draw by draw: by the mean given the other weights, by that over an orbit.

        What was done is told beside it. With `states="auto"` there is nothing where `PRICE` does not allow of two
        states, and for draws whose scores are those of another density, tempered or of other noise.
        """
        start, draws = time.perf_counter(), samples.draws.reshape(-1, samples.dim)
        if not self._own(draws, samples.scores.reshape(-1, samples.dim)):
            if states == "auto":
                return None
            raise InputError(
                "`orbits` are for draws with the scores of the network's own posterior; these have others."
            )
        v, dim = draws[:, self.rest], len(self.rest)
        density = LogDensity(_at_rows(jax.value_and_grad(lambda v: self.layer(v).log_density)))
        states = _affordable(density, v, samples.gradients) if states == "auto" else states
        if states < 2:
            return None

        def changes(theta: Array, orbit: Array, weight: Array) -> Array:
            f = over_chains(lambda v: self.expected(v, inputs), orbit)
            return jnp.stack([f[0] - self.predict(theta, inputs), weight @ f - f[0]], -1)

        over = _at_rows(changes)
        unit = Standardise(np.zeros(dim), self.model.precision[self.rest] ** -0.5, None)
        scores, rng = density(v).gradient, np.random.default_rng(seed)
        if step is None:
            step = find_step(v, scores, density, unit, min(states, PRICE.trial), seed, PRICE.steps)
        rows, found, effective = max(1, PRICE.numbers // (states * dim)), [], []
        for part in (slice(i, i + rows) for i in range(0, len(v), rows)):
            around = orbits(v[part], scores[part], density, unit, states, step, rng)
            found.append(over(draws[part], around.draws, around.weight))
            effective.append(around.effective)
        info = {
            "states": states,
            "step": step,
            "effective": float(np.concatenate(effective).mean()),
            "gradients": density.spent[0],
            "sampler": samples.gradients,
            "seconds": time.perf_counter() - start,
        }
        return np.concatenate(found).reshape(*samples.draws.shape[:2], len(inputs), 2), info

    def _own(self, draws: Float[np.ndarray, "n dim"], scores: Float[np.ndarray, "n dim"]) -> bool:
        """Return whether the scores are the model's own, at some of the draws."""
        some = np.linspace(0, len(draws) - 1, min(PRICE.probed, len(draws))).astype(int)
        own = _at_rows(jax.grad(self.model.log_posterior))(draws[some])
        return bool((((own - scores[some]) ** 2).sum(1) <= PRICE.same**2 * (own**2).sum(1)).all())


def _at_rows(f: Callable) -> Callable:
    """Return f at many rows of its arguments."""
    compiled = over_rows(lambda rows: over_chains(f, *rows))
    return lambda *rows: compiled(rows)


def _affordable(density: LogDensity, v: np.ndarray, sampler: int | None) -> int:
    """Return how many states every orbit has."""
    states = PRICE.states
    if sampler is not None:  # no more gradients than the sampler took, those that look for the step among them
        states = min(states, (sampler - 3 * PRICE.probed) // (len(v) + TRIAL_DRAWS))
    if states < 2:
        return 1
    each, _ = seconds_per_gradient(density, v[: PRICE.probed])
    return min(states, 1 + int(PRICE.seconds / (each * len(v))))
