r"""The Goodwin oscillator, g species in a loop in which the last inhibits the first.

$$ x_1' = \frac{a_1}{1 + a_2 x_g^\rho} - \alpha x_1, \qquad x_j' = k_{j-1} x_{j-1} - \alpha x_j, \qquad x(0) = 0, $$

$\rho = 10$, seen at times 41 to 80 with noise $\sigma = .1$, $\Gamma(2, 1)$ priors on all g + 2 parameters.

Public versions of this problem differ. `observed="all"` and `integrator="ode"` are what the text says;
`observed="first-two"` with `integrator="euler"`, steps of 1, is one co-author's code.

Reference: Oates, Papamarkou, Girolami (2016), JASA 111; Wan, Zhong, Xiong, Zhu (2019), ECML PKDD.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from steincv.evidence.bijections import Positive
from steincv.evidence.power_posterior import PowerPosterior
from steincv.runtime.double import in_double, program
from steincv.runtime.validation import InputError, whole_number
from steincv.samples.samples import Samples

from . import Example
from .runge_kutta import euler, solve

RHO, SIGMA = 10, 0.1
BEFORE, TIMES = 40, 40
# Steps per unit of time. See `docs/evidence.md` for the error against diffrax: below 1e-3 sigma.
STEPS = 32
OBSERVED, INTEGRATORS, COORDINATES = ("all", "first-two"), ("ode", "euler"), ("log", "raw")


def true_parameters(species: int) -> dict[str, Any]:
    """Return the parameters that the data are made from."""
    return {"alpha": 0.5, "a": np.array([1.0, 3.0]), "k": np.array([2.0] + [1.0] * (species - 2))}


def field(p: Any) -> Any:
    """Return dx/ds as a function of x `(species, ...)`; parameters may have further, last axes."""
    alpha, (a1, a2), k = p["alpha"], p["a"], p["k"]

    def slope(x: Any) -> Any:
        square = x[-1] * x[-1]
        fourth = square * square
        inhibited = a1 / (1 + a2 * (fourth * fourth * square))
        return jnp.concatenate([inhibited[None], k * x[:-1]]) - alpha * x

    return slope


def path(p: Any, integrator: str = "ode", steps: int = STEPS) -> Any:
    """Return x at times 41 to 80, `(time, species, ...)`."""
    species = p["k"].shape[0] + 1
    start = jnp.zeros((species, *jnp.shape(p["alpha"])), jnp.result_type(p["alpha"]))
    if integrator == "euler":
        return euler(field(p), start, BEFORE, TIMES)
    return solve(field(p), start, steps, BEFORE, TIMES)


@dataclass(frozen=True, eq=False)
class Goodwin:
    """The data, `(time, observed species)`, and how they are modelled."""

    species: int
    data: Float[np.ndarray, "time seen"]
    integrator: str

    @classmethod
    def simulate(cls, species: int = 3, observed: str = "all", integrator: str = "ode", seed: int = 0) -> "Goodwin":
        species = whole_number("species", species, 3)
        for name, value, allowed in (("observed", observed, OBSERVED), ("integrator", integrator, INTEGRATORS)):
            if value not in allowed:
                raise InputError(f"`{name}` must be one of {', '.join(map(repr, allowed))}, got {value!r}.")
        p = jax.tree.map(np.asarray, true_parameters(species))
        truth = in_double(program(lambda p: path(p, integrator), p), p)
        noise = np.random.default_rng([seed, species]).normal(size=truth.shape)
        data = truth + SIGMA * noise
        return cls(species, data if observed == "all" else data[:, :2], integrator)

    def log_likelihood(self, p: Any) -> Any:
        x = path(p, self.integrator)[:, : self.data.shape[1]]
        residual = (x - self.data.reshape(self.data.shape + (1,) * (x.ndim - 2))) / SIGMA
        constant = self.data.size * np.log(SIGMA * np.sqrt(2 * np.pi))
        return -0.5 * (residual**2).sum((0, 1)) - constant

    @staticmethod
    def log_prior(p: Any) -> Any:
        every = jnp.concatenate([p["alpha"][None], p["a"], p["k"]])
        return (jnp.log(every) - every).sum(0)

    def draw_prior(self, key: Any) -> dict[str, Any]:
        gamma = jax.random.exponential(key, (2, self.species + 2)).sum(0)  # Gamma(2, 1), and quick
        return {"alpha": gamma[0], "a": gamma[1:3], "k": gamma[3:]}

    @property
    def posterior(self) -> PowerPosterior:
        parameters = {"alpha": Positive(), "a": Positive((2,)), "k": Positive((self.species - 1,))}
        return PowerPosterior(self.log_likelihood, self.log_prior, parameters, self.draw_prior, vectorised=True)


def raw_coordinates(samples: Samples) -> Samples:
    r"""Return draws of log parameters as draws of the parameters themselves, with *their* scores.

    $\log p(x) = \log p(\theta) + \sum x$ for $x = \log\theta$, so $s_\theta = (s_x - 1)/\theta$. The density of a
    $\Gamma(2, 1)$ prior goes to zero at the edge $\theta = 0$, so Stein's identity holds, but only just: the second
    moment of the score, $E[(1/\theta - 1)^2]$, is infinite.
    """
    theta = np.exp(samples.draws)
    return Samples(theta, (samples.scores - 1) / theta, samples.names)


def goodwin(species: int = 3, observed: str = "all", integrator: str = "ode", seed: int = 0) -> Example:
    """Return the model with data simulated from the known parameters."""
    data = Goodwin.simulate(species, observed, integrator, seed)
    title = f"Goodwin oscillator, {species} species, {data.data.size} data, observed: {observed}, by {integrator}"
    return Example(title, data.posterior)
