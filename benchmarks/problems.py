"""Test problems for the benchmarks and studies: densities, functionals and what is known of their means.

    problem = eight_schools()
    for draws, scores in draw(problem, seed=0, chains=4, draws=1000, replications=20):
        ...                                     # two float64 arrays (chain, draw, dim)
    mean, error = truth(problem)["tau"]         # error is 0 where the mean is known exactly

Every `logdensity` is JAX, of one unconstrained vector, with the log Jacobian inside. Data are simulated from
fixed seeds. How the draws are made, and kept, stands in sampling.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
from sampling import Problem, draw, long_run, nuts_seconds, scores_at, truth, values_at
from scipy.integrate import quad

from steincv.demo import EFFECTS, NAMES, STANDARD_ERRORS, constrain_eight_schools, eight_schools_logdensity

__all__ = [
    "Problem", "banana", "draw", "eight_schools", "funnel", "garch", "gaussian", "logistic", "long_run",
    "lotka_volterra", "mixture", "nuts_seconds", "scores_at", "truth", "values_at",
]  # fmt: skip


def _labels(dim: int) -> tuple[str, ...]:
    return tuple(f"x[{i}]" for i in range(dim))


# Problems with exact draws.


def mixture(dim: int = 10) -> Problem:
    """0.5 N(-1, I) + 0.5 N(1, I) and f = sin(pi/dim sum x), the paper's synthetic problem."""

    def logdensity(x):
        return jnp.logaddexp(-0.5 * jnp.sum((x - 1) ** 2), -0.5 * jnp.sum((x + 1) ** 2))

    def iid(rng, n):
        return rng.normal(size=(n, dim)) + rng.choice([-1.0, 1.0], size=(n, 1))

    functionals = {"sin": lambda x: jnp.sin(jnp.pi / dim * jnp.sum(x))}
    return Problem(f"mixture{dim}", dim, logdensity, functionals, _labels(dim), {"sin": 0.0}, iid)


def banana(dim: int = 4) -> Problem:
    """x0 ~ N(0, 2^2) and x1 | x0 ~ N(0.5 (x0^2 - 4), 1), a twisted Gaussian; the others are N(0, 1).

    The bend has sd 0.5 * 4 * sqrt(2) = 2.8 against 1 for the width, so no Gaussian is close to it.
    """

    def twist(x0):
        return 0.5 * (x0**2 - 4.0)

    def logdensity(x):
        return -0.5 * ((x[0] / 2.0) ** 2 + (x[1] - twist(x[0])) ** 2 + jnp.sum(x[2:] ** 2))

    def iid(rng, n):
        x = rng.normal(size=(n, dim))
        x[:, 0] *= 2.0
        x[:, 1] += twist(x[:, 0])
        return x

    functionals = {
        "x0": lambda x: x[0],
        "x1": lambda x: x[1],
        "x0^2": lambda x: x[0] ** 2,
        "x1^2": lambda x: x[1] ** 2,
        "cos x0": lambda x: jnp.cos(x[0]),
    }
    true = {"x0": 0.0, "x1": 0.0, "x0^2": 4.0, "x1^2": 1.0 + 0.25 * 2 * 16, "cos x0": float(np.exp(-2.0))}
    return Problem(f"banana{dim}", dim, logdensity, functionals, _labels(dim), true, iid)


def gaussian(dim: int = 10) -> Problem:
    """N(m, S): mean 1, standard deviations from 0.5 to 2, correlation 0.7^|i-j|."""
    mean, sd = np.ones(dim), np.geomspace(0.5, 2.0, dim)
    i = np.arange(dim)
    covariance = sd[:, None] * sd * 0.7 ** abs(i[:, None] - i)
    factor, precision = np.linalg.cholesky(covariance), np.linalg.inv(covariance)
    total = covariance.sum()

    functionals = {
        "x0": lambda x: x[0],
        "x0^2": lambda x: x[0] ** 2,
        "mean": jnp.mean,
        "|x|^2": lambda x: jnp.sum(x**2),
        "cos sum": lambda x: jnp.cos(jnp.sum(x) / dim),
    }
    true = {
        "x0": 1.0,
        "x0^2": 1.0 + covariance[0, 0],
        "mean": 1.0,
        "|x|^2": dim + np.trace(covariance),
        "cos sum": np.cos(1.0) * np.exp(-0.5 * total / dim**2),
    }
    return Problem(
        f"gaussian{dim}",
        dim,
        lambda x: -0.5 * (x - mean) @ precision @ (x - mean),
        functionals,
        _labels(dim),
        {name: float(value) for name, value in true.items()},
        lambda rng, n: mean + rng.normal(size=(n, dim)) @ factor.T,
    )


# Problems that need NUTS.


def _eight_schools_means() -> dict[str, float]:
    """Given tau everything is Gaussian, so the posterior means are one-dimensional integrals over log tau."""

    def given(log_tau):
        variance = STANDARD_ERRORS**2 + np.exp(2 * log_tau)  # of y_j given mu and tau
        precision = 1 / 25 + np.sum(1 / variance)
        mu = np.sum(EFFECTS / variance) / precision
        # log p(y | tau), mu integrated out
        loglik = -0.5 * (np.sum(np.log(variance) + EFFECTS**2 / variance) + np.log(precision))
        log_weight = loglik + 0.5 * precision * mu**2 - np.log1p(np.exp(2 * log_tau) / 25) + log_tau
        theta = mu + (1 - STANDARD_ERRORS**2 / variance) * (EFFECTS - mu)
        return np.exp(log_weight + 30.0), np.array([mu, np.exp(log_tau), log_tau, *theta])  # 30: scale only

    def integral(k):
        def integrand(t):
            weight, values = given(t)
            return weight * (1.0 if k is None else values[k])

        pieces = [quad(integrand, a, b, epsabs=0, epsrel=1e-12)[0] for a, b in ((-40, -5), (-5, 2), (2, 12))]
        return sum(pieces)

    names = ("mu", "tau", "log_tau", *(f"theta_{j}" for j in range(1, 9)))
    scale = integral(None)
    return {name: float(integral(k) / scale) for k, name in enumerate(names)}


def eight_schools() -> Problem:
    """The non-centred eight schools of `steincv.demo`, with exact means by quadrature over log tau."""
    functionals = {"mu": lambda x: x[0], "tau": lambda x: jnp.exp(x[1]), "log_tau": lambda x: x[1]}
    for j in range(8):
        functionals[f"theta_{j + 1}"] = lambda x, j=j: constrain_eight_schools(x)["theta"][j]
    means = _eight_schools_means()
    return Problem("eight_schools", 10, eight_schools_logdensity, functionals, NAMES, means, long_run=(64, 20_000))


def logistic(dim: int = 20) -> Problem:
    """Bayesian logistic regression: intercept, dim - 1 correlated features, 10 dim rows, N(0, 1) priors."""
    rng = np.random.default_rng(20)
    i = np.arange(dim - 1)
    factor = np.linalg.cholesky(0.5 ** abs(i[:, None] - i))

    def rows(n):
        return np.column_stack([np.ones(n), rng.normal(size=(n, dim - 1)) @ factor.T])

    features, new = rows(10 * dim), rows(4)
    coefficients = rng.normal(size=dim) / np.sqrt(dim) * 2
    outcomes = (rng.uniform(size=10 * dim) < 1 / (1 + np.exp(-features @ coefficients))).astype(float)

    def logdensity(x):
        logits = features @ x
        return outcomes @ logits - jnp.sum(jax.nn.softplus(logits)) - 0.5 * x @ x

    functionals = {f"beta[{k}]": lambda x, k=k: x[k] for k in range(5)}
    functionals |= {f"p_new[{k}]": lambda x, k=k: jax.nn.sigmoid(new[k] @ x) for k in range(4)}
    functionals |= {f"beta[{k}]^2": lambda x, k=k: x[k] ** 2 for k in range(3)}
    names = tuple(f"beta[{k}]" for k in range(dim))
    return Problem(f"logistic{dim}", dim, logdensity, functionals, names)


def funnel(dim: int = 5) -> Problem:
    """Neal's funnel, v ~ N(0, 3^2) and x_i | v ~ N(0, e^v). NUTS does not mix in its neck: a hard case."""

    def logdensity(x):
        v = x[0]
        return -0.5 * (v / 3) ** 2 - 0.5 * jnp.exp(-v) * jnp.sum(x[1:] ** 2) - 0.5 * (dim - 1) * v

    functionals = {"v": lambda x: x[0], "v^2": lambda x: x[0] ** 2, "x": lambda x: x[1]}
    names = ("v", *(f"x[{k}]" for k in range(dim - 1)))
    return Problem(f"funnel{dim}", dim, logdensity, functionals, names, {"v": 0.0, "v^2": 9.0, "x": 0.0})


def garch() -> Problem:
    """GARCH(1,1) on 200 simulated returns, h_t = omega + alpha (y_{t-1} - mu)^2 + beta h_{t-1}.

    Priors: mu ~ N(0, 1), omega ~ Exponential(1), (alpha, beta) uniform on alpha + beta < 1.
    Coordinates: mu, log omega, logit alpha, logit of beta / (1 - alpha).
    """
    rng = np.random.default_rng(11)
    mu, omega, alpha, beta, h, returns = 0.2, 0.3, 0.25, 0.5, 1.2, []
    for _ in range(200):
        returns.append(mu + np.sqrt(h) * rng.normal())
        h = omega + alpha * (returns[-1] - mu) ** 2 + beta * h
    returns = np.array(returns)

    def constrain(x):
        alpha = jax.nn.sigmoid(x[2])
        return x[0], jnp.exp(x[1]), alpha, (1 - alpha) * jax.nn.sigmoid(x[3])

    def logdensity(x):
        mu, omega, alpha, beta = constrain(x)
        shocks = omega + alpha * (returns[:-1] - mu) ** 2

        # h_t = shock_t + beta h_{t-1} is linear, so it is solved in log2(200) steps instead of 200.
        def compose(first, second):
            return first[0] * second[0], second[1] + second[0] * first[1]

        decay, h = jax.lax.associative_scan(compose, (jnp.full_like(shocks, beta), shocks))
        h = jnp.concatenate([jnp.ones(1) * 1.2, h + decay * 1.2])
        loglik = -0.5 * jnp.sum(jnp.log(h) + (returns - mu) ** 2 / h)
        # d(omega)/dx1 = omega, d(alpha)/dx2 = alpha (1 - alpha), d(beta)/dx3 = (1 - alpha) u (1 - u)
        jacobian = x[1] + 2 * jax.nn.log_sigmoid(-x[2]) + jax.nn.log_sigmoid(x[2])
        jacobian += jax.nn.log_sigmoid(x[3]) + jax.nn.log_sigmoid(-x[3])
        return loglik - 0.5 * mu**2 - omega + jacobian

    labels = ("mu", "omega", "alpha", "beta")
    functionals = {name: lambda x, k=k: constrain(x)[k] for k, name in enumerate(labels)}
    names = ("mu", "log_omega", "logit_alpha", "logit_beta_share")
    return Problem("garch", 4, logdensity, functionals, names)


def lotka_volterra() -> Problem:
    """Predator and prey at 20 times, lognormal noise; 4 rates and the noise, in logs; RK4, 10 steps each."""
    rng = np.random.default_rng(5)
    true = np.log([0.55, 0.028, 0.80, 0.024, 0.25])
    first, step = np.array([30.0, 5.0]), 0.1

    def field(state, a, b, c, d):
        prey, predator = jnp.exp(state[0]), jnp.exp(state[1])  # the logs of both populations
        return jnp.stack([a - b * predator, -c + d * prey])

    def path(x):
        rates = jnp.exp(x[:4])

        def rk4(state, _):
            k1 = field(state, *rates)
            k2 = field(state + 0.5 * step * k1, *rates)
            k3 = field(state + 0.5 * step * k2, *rates)
            k4 = field(state + step * k3, *rates)
            return state + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        def observe(state, _):
            state, _ = jax.lax.scan(rk4, state, length=10)
            return state, state

        return jax.lax.scan(observe, jnp.log(first) + 0 * x[:2], length=20)[1]

    with jax.enable_x64(True):
        data = np.asarray(path(jnp.asarray(true))) + 0.25 * rng.normal(size=(20, 2))
    center, width = np.log([1.0, 0.05, 1.0, 0.05, 0.4]), np.array([0.5, 0.5, 0.5, 0.5, 1.0])

    def logdensity(x):
        residual = (data - path(x)) * jnp.exp(-x[4])
        return -0.5 * jnp.sum(residual**2) - data.size * x[4] - 0.5 * jnp.sum(((x - center) / width) ** 2)

    labels = ("alpha", "beta", "gamma", "delta", "sigma")
    functionals = {name: lambda x, k=k: jnp.exp(x[k]) for k, name in enumerate(labels)}

    # Far from the data the orbit's period is wrong and the density has spurious modes; start near.
    def start(key):
        return true + 0.1 * jax.random.normal(key, (5,))

    names = tuple("log_" + name for name in labels)
    return Problem("lotka_volterra", 5, logdensity, functionals, names, start=start, long_run=(64, 2000))
