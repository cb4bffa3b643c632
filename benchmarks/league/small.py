"""Published posteriors with at most ten parameters, where nothing may be lost: posteriordb and DEM/GBP returns."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from .posterior import (
    Blocks,
    Posterior,
    bernoulli,
    load,
    logit_jacobian,
    normal,
    standard_normal,
    student_t,
    two_versions,
)


def _recursion(first: jax.Array | float, factor: jax.Array, rest: jax.Array) -> jax.Array:
    """e_0 = first and e_t = rest_t + factor e_{t-1}, in log2(T) steps instead of T."""

    def compose(one, two):
        return one[0] * two[0], two[1] + two[0] * one[1]

    power, sums = jax.lax.associative_scan(compose, (jnp.full_like(rest, factor), rest))
    return jnp.concatenate([jnp.reshape(first, (1,)), sums + power * first])


def arma11() -> Posterior:
    """An ARMA(1, 1) model of 200 values."""
    y = load("arma")["y"]
    blocks = Blocks(mu=(), phi=(), theta=(), log_sigma=())

    def errors(p):
        first = y[0] - p["mu"] * (1 + p["phi"])
        return _recursion(first, -p["theta"], y[1:] - p["mu"] - p["phi"] * y[:-1])

    def logdensity(x):
        p = blocks(x)
        density = normal(errors(p), 0.0, p["log_sigma"]) + student_t(jnp.exp(p["log_sigma"]), 1, 0.0, 2.5)
        return density + p["log_sigma"] + standard_normal(p["mu"] / 10, p["phi"] / 2, p["theta"] / 2)

    def functionals(x):
        p = blocks(x)
        sigma, next_one = jnp.exp(p["log_sigma"]), p["mu"] + p["phi"] * y[-1] + p["theta"] * errors(p)[-1]
        return {
            "mu": p["mu"], "phi": p["phi"], "theta": p["theta"], "sigma": sigma, "phi^2": p["phi"] ** 2,
            "phi theta": p["phi"] * p["theta"], "next": next_one, "P(next > 1)": norm.cdf((next_one - 1) / sigma),
            "sigma^2": sigma**2, "exp(next)": jnp.exp(next_one),
        }  # fmt: skip

    start = blocks.point(phi=0.5, log_sigma=-1.0)
    return Posterior("arma11", blocks.names, logdensity, functionals, start, dense=True, jitter=0.1)


def _linear(name, features, y, new, prior_sd, flat_sigma=True) -> Posterior:
    """Linear regression with N(0, prior_sd^2) coefficients (flat if infinite) and a flat or half-normal noise."""
    k = features.shape[1]
    blocks = Blocks(beta=(k,), log_sigma=())

    def logdensity(x):
        p = blocks(x)
        density = (
            normal(y, features @ p["beta"], p["log_sigma"]) + p["log_sigma"] + standard_normal(p["beta"] / prior_sd)
        )
        return density if flat_sigma else density + standard_normal(jnp.exp(p["log_sigma"]) / prior_sd)

    def functionals(x):
        p = blocks(x)
        beta, sigma = p["beta"], jnp.exp(p["log_sigma"])
        residual = (new @ beta - np.median(y)) / sigma
        found = {f"beta[{j}]": beta[j] for j in range(k)} | {"sigma": sigma, "sigma^2": sigma**2}
        found |= {"beta[1]^2": beta[1] ** 2, "beta[1] beta[2]": beta[1] * beta[2], "prediction": new @ beta}
        return found | {"P(above the median)": norm.cdf(residual)}

    best = np.linalg.lstsq(features, y, rcond=None)[0]
    start = blocks.point(beta=best, log_sigma=np.log(np.std(y - features @ best)))
    return Posterior(name, blocks.names, logdensity, functionals, start, dense=True)


def blr() -> Posterior:
    """Linear regression of 100 rows on 5 strongly correlated columns."""
    data = load("sblrc")
    return _linear("blr", data["X"], data["y"], data["X"].mean(0), 10.0, flat_sigma=False)


def kidscore() -> Posterior:
    """Scores of 434 children on their mothers' schooling, IQ and both."""
    data = load("kidiq_with_mom_work")
    school, iq = data["mom_hs"] - data["mom_hs"].mean(), data["mom_iq"] - data["mom_iq"].mean()
    features = np.column_stack([np.ones(iq.size), school, iq, school * iq])
    return _linear("kidscore_interaction_c", features, data["kid_score"].astype(float), features[5], np.inf)


def logmesquite() -> Posterior:
    """Log weights of 46 mesquite bushes on the logs of five sizes and a group."""
    data = load("mesquite")
    sizes = ("diam1", "diam2", "canopy_height", "total_height", "density")
    columns = [np.ones(46), *(np.log(data[name]) for name in sizes), data["group"]]
    features = np.column_stack(columns).astype(float)
    return _linear("logmesquite", features, np.log(data["weight"]), features[7], np.inf)


def wells() -> Posterior:
    """Whether 3020 households changed their well: logistic regression with interactions."""
    data = load("wells_data")
    dist, arsenic, educ = ((data[k] - data[k].mean()) / s for k, s in (("dist", 100), ("arsenic", 1), ("educ", 4)))
    features = np.column_stack([np.ones(3020), dist, arsenic, educ, dist * arsenic, dist * educ, arsenic * educ])
    switched = data["switched"].astype(float)
    blocks = Blocks(alpha=(), beta=(6,))

    def functionals(x):
        p = blocks(x)
        chance = jax.nn.sigmoid(features[:200] @ x)
        found = {"alpha": p["alpha"]} | {f"beta[{j}]": p["beta"][j] for j in range(6)}
        found |= {"alpha^2": p["alpha"] ** 2, "beta[0]^2": p["beta"][0] ** 2, "odds": jnp.exp(p["beta"][1])}
        return found | {"P[0]": chance[0], "P[50]": chance[50], "mean P": jnp.mean(chance)}

    def logdensity(x):
        return bernoulli(switched, 1.0, features @ x)

    return Posterior("wells_dae_inter", blocks.names, logdensity, functionals, dense=True)


def dugongs() -> Posterior:
    """Lengths of 27 sea cows by age, a curve that saturates: alpha - beta lambda^age."""
    data = load("dugongs_data")
    age, length, tiny = data["x"], data["Y"], 1e-4
    blocks = Blocks(alpha=(), beta=(), logit_lambda=(), log_tau=())

    def constrain(p):
        return 0.5 + 0.5 * jax.nn.sigmoid(p["logit_lambda"])

    def curve(p, at):
        return p["alpha"] - p["beta"] * constrain(p) ** at

    def logdensity(x):
        p = blocks(x)
        density = normal(length, curve(p, age), -0.5 * p["log_tau"]) + logit_jacobian(p["logit_lambda"])
        density += tiny * p["log_tau"] - tiny * jnp.exp(p["log_tau"])  # gamma(tiny, tiny), with the Jacobian
        return density + standard_normal(p["alpha"] / 1000, p["beta"] / 1000)

    def functionals(x):
        p = blocks(x)
        sigma = jnp.exp(-0.5 * p["log_tau"])
        return {
            "alpha": p["alpha"], "beta": p["beta"], "lambda": constrain(p), "tau": jnp.exp(p["log_tau"]),
            "sigma": sigma, "curve(5)": curve(p, 5.0), "curve(40)": curve(p, 40.0), "alpha^2": p["alpha"] ** 2,
            "P(longer than 2.5 at 12)": norm.cdf((curve(p, 12.0) - 2.5) / sigma),
            "half-life": -np.log(2.0) / jnp.log(constrain(p)),
        }  # fmt: skip

    start = blocks.point(alpha=2.6, beta=1.0, logit_lambda=1.0, log_tau=4.0)
    return Posterior("dugongs", blocks.names, logdensity, functionals, start, dense=True, acceptance=0.95)


def hidden_markov() -> Posterior:
    """Two hidden states with means 3 and 10 or so, 100 values; the forward sums are products of 2 x 2 matrices."""
    y = load("hmm_example")["y"]
    blocks = Blocks(logit_stay=(), logit_leave=(), log_mu=(), log_step=())

    def constrain(p):
        first = jnp.exp(p["log_mu"])
        rows = jax.nn.sigmoid(jnp.stack([p["logit_stay"], p["logit_leave"]]))
        return jnp.stack([first, first + jnp.exp(p["log_step"])]), jnp.stack([rows, 1 - rows], axis=1)

    def logdensity(x):
        p = blocks(x)
        mu, move = constrain(p)
        emission = -0.5 * (y[:, None] - mu) ** 2

        def forward(log_alpha, log_emission):
            return jax.nn.logsumexp(log_alpha[:, None] + jnp.log(move), axis=0) + log_emission, None

        last, _ = jax.lax.scan(forward, emission[0], emission[1:])
        density = jax.nn.logsumexp(last) - 0.5 * (mu[0] - 3) ** 2 - 0.5 * (mu[1] - 10) ** 2
        return (
            density + p["log_mu"] + p["log_step"] + logit_jacobian(p["logit_stay"]) + logit_jacobian(p["logit_leave"])
        )

    def functionals(x):
        mu, move = constrain(blocks(x))
        stationary = move[1, 0] / (move[0, 1] + move[1, 0])
        return {
            "mu[0]": mu[0], "mu[1]": mu[1], "stay in 0": move[0, 0], "stay in 1": move[1, 1], "mu[0]^2": mu[0] ** 2,
            "mu[1] - mu[0]": mu[1] - mu[0], "share of 0": stationary, "stay twice": move[0, 0] ** 2,
            "long mean": stationary * mu[0] + (1 - stationary) * mu[1], "length of stay": 1 / move[1, 0],
        }  # fmt: skip

    start = blocks.point(log_mu=1.1, log_step=1.9, logit_leave=-1.0)
    return Posterior("hmm_example", blocks.names, logdensity, functionals, start, dense=True)


def garch_returns() -> Posterior:
    """GARCH(1, 1) of 750 daily DEM/GBP returns in log parameters: h_t = w0 + w1 r_{t-1}^2 + w2 h_{t-1}.

    Priors: normals with standard deviation 10 on the positive parameters (Mira, Solgi, Imparato 2013, section 6).
    """
    returns = load("dem2gbp_returns")["returns"]
    blocks = Blocks(log_w=(3,))
    squares, first = returns**2, np.var(returns)

    def variances(w):
        return _recursion(first, w[2], w[0] + w[1] * squares[:-1])

    def logdensity(x):
        w, h = jnp.exp(x), variances(jnp.exp(x))
        return -0.5 * jnp.sum(jnp.log(h) + squares / h) + standard_normal(w / 10) + jnp.sum(x)

    def functionals(x):
        w = jnp.exp(x)
        h = variances(w)
        found = {f"w[{k}]": w[k] for k in range(3)} | {f"log w[{k}]": x[k] for k in range(3)}
        found |= {"w[1]^2": w[1] ** 2, "w[1] w[2]": w[1] * w[2], "persistence": w[1] + w[2]}
        tomorrow = w[0] + w[1] * squares[-1] + w[2] * h[-1]
        return found | {"next variance": tomorrow, "P(next > 1)": norm.cdf(-1 / jnp.sqrt(tomorrow))}

    start = np.log([0.02, 0.2, 0.7])
    return Posterior("garch_dem2gbp", blocks.names, logdensity, functionals, start, dense=True)


def eight_schools() -> Posterior:
    """Coaching in eight schools (Rubin 1981; posteriordb), non-centred: mu, log tau and eight deviations."""
    effects, errors = np.array([28, 8, -3, 7, -1, 1, 18, 12.0]), np.array([15, 10, 16, 11, 9, 11, 10, 18.0])
    blocks = Blocks(mu=(), log_tau=(), b=(8,))

    def rest(p):
        scale = student_t(jnp.exp(p["log_tau"]), 1, 0.0, 5.0) + p["log_tau"]
        return normal(effects, p["b"], np.log(errors)) + standard_normal(p["mu"] / 5) + scale

    def functionals(p):
        b, tau = p["b"], jnp.exp(p["log_tau"])
        return {
            "mu": p["mu"], "tau": tau, "log tau": p["log_tau"], "b[0]": b[0], "b[2]": b[2], "b[6]": b[6],
            "b[0]^2": b[0] ** 2, "b[0] - b[2]": b[0] - b[2], "mean b": jnp.mean(b),
            "shrinkage of 0": errors[0] ** 2 / (errors[0] ** 2 + tau**2), "P(new school > 0)": norm.cdf(p["mu"] / tau),
        }  # fmt: skip

    def law(p):
        return p["mu"], p["log_tau"]

    return two_versions("eight_schools", blocks, law, rest, functionals, False, blocks.point(mu=4.0, log_tau=1.0))
