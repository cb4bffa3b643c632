r"""Eight schools, the model behind the bundled demonstration draws (Rubin 1981; Gelman et al., BDA, 5.5).

$$\mu \sim N(0, 5^2), \quad \tau \sim \mathrm{HalfCauchy}(5), \quad \eta_j \sim N(0, 1), \quad
\theta_j = \mu + \tau \eta_j, \quad y_j \sim N(\theta_j, \sigma_j^2).$$

Non-centred, in unconstrained coordinates `x = (mu, log_tau, eta[0], ..., eta[7])`.
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    import jax

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
STANDARD_ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
NAMES = ("mu", "log_tau", *(f"eta[{j}]" for j in range(8)))


def eight_schools_parameters(draws: Float[np.ndarray, "chain draw 10"]) -> dict[str, np.ndarray]:
    """Return the parameters a reader of the model knows, at every draw, without JAX."""
    mu, tau = draws[..., 0], np.exp(draws[..., 1])
    return {"mu": mu, "tau": tau, "theta": mu[..., None] + tau[..., None] * draws[..., 2:]}


def constrain_eight_schools(x: "jax.Array") -> "dict[str, jax.Array]":
    """Return the same parameters from one unconstrained vector, as `Samples(..., constrain=)` wants it."""
    import jax.numpy as jnp

    mu, tau = x[0], jnp.exp(x[1])
    return {"mu": mu, "tau": tau, "theta": mu + tau * x[2:]}


def eight_schools_logdensity(x: "jax.Array") -> "jax.Array":
    """Return the log posterior density at one unconstrained vector, up to a constant."""
    import jax.numpy as jnp

    mu, log_tau, eta = x[0], x[1], x[2:]
    theta = constrain_eight_schools(x)["theta"]
    # The last term is the log Jacobian of tau = exp(log_tau); without it Stein's identity is false.
    prior_tau = -jnp.log1p((jnp.exp(log_tau) / 5.0) ** 2) + log_tau
    prior = -0.5 * (mu / 5.0) ** 2 + prior_tau - 0.5 * jnp.sum(eta**2)
    return prior - 0.5 * jnp.sum(((EFFECTS - theta) / STANDARD_ERRORS) ** 2)
