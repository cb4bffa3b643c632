r"""The van der Pol oscillator $x'' = \theta(1 - x^2)x' - x$, x(0) = 0, x'(0) = 2, seen at times 0 to 10 with noise.

$\log\theta \sim N(0, .25^2)$, $\sigma = .1$. One parameter, so quadrature gives the evidence: 10.3559.

Reference: Oates, Papamarkou, Girolami (2016), JASA 111, where it is the example that control variates serve well.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steincv.evidence.bijections import Positive
from steincv.evidence.power_posterior import PowerPosterior

from . import Example
from .runge_kutta import solve

DATA = np.array([-0.06490138, 2.02537948, 1.52346755, 0.4364239, -1.77524756, -1.8770353, -1.05465152, 0.95923282,
                 1.9585506, 1.40655333, -0.15664748])  # fmt: skip
SIGMA, PRIOR_SD = 0.1, 0.25
# Within three prior standard deviations x is right to 1e-5 sigma.
STEPS = 100
EXACT = 10.3559026
POSTERIOR_MEAN = 0.985183


def log_likelihood(p: Any) -> Any:
    theta = p["theta"]

    def field(x: Any) -> Any:
        return jnp.stack([x[1], theta * (1 - x[0] ** 2) * x[1] - x[0]])

    start = jnp.stack([jnp.zeros_like(theta), jnp.full_like(theta, 2.0)])
    path = jnp.concatenate([start[None], solve(field, start, STEPS, 0, len(DATA) - 1)])[:, 0]
    residual = (path.T - DATA) / SIGMA
    return -0.5 * (residual**2).sum(-1) - len(DATA) * np.log(SIGMA * np.sqrt(2 * np.pi))


def log_prior(p: Any) -> Any:
    log_theta = jnp.log(p["theta"])
    return -0.5 * (log_theta / PRIOR_SD) ** 2 - log_theta - np.log(PRIOR_SD * np.sqrt(2 * np.pi))


def draw_prior(key: Any) -> dict[str, Any]:
    return {"theta": jnp.exp(PRIOR_SD * jax.random.normal(key, ()))}


def van_der_pol() -> Example:
    """Return the model with the data of the reference."""
    posterior = PowerPosterior(log_likelihood, log_prior, {"theta": Positive()}, draw_prior, vectorised=True)
    return Example("van der Pol oscillator, 1 parameter, 11 data", posterior, EXACT)
