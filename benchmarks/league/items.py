"""Published item response models of posteriordb: lsat, grsm_latent_reg_irt on the science data, hier_2pl on sat."""

import jax
import jax.numpy as jnp
import numpy as np

from .posterior import Blocks, Posterior, bernoulli, correlation_pair, load, standard_normal, student_t


def lsat() -> Posterior:
    """Law school test: 1000 persons, 5 questions, one difficulty each and one discrimination; 1006 parameters."""
    data = load("lsat_data")
    persons = np.diff(data["culm"], prepend=0)
    answers = np.repeat(data["response"], persons, axis=0).astype(float)
    blocks = Blocks(alpha=(5,), theta=(1000,), log_beta=())

    def logits(p):
        return jnp.exp(p["log_beta"]) * p["theta"][:, None] - p["alpha"]

    def logdensity(x):
        p = blocks(x)
        prior = standard_normal(p["theta"], p["alpha"] / 100, jnp.exp(p["log_beta"]) / 100) + p["log_beta"]
        return bernoulli(answers, 1.0, logits(p)) + prior

    def functionals(x):
        p = blocks(x)
        alpha, theta = p["alpha"], p["theta"]
        chance = jax.nn.sigmoid(logits(p))
        return {
            "beta": jnp.exp(p["log_beta"]), "alpha[0]": alpha[0], "alpha[2]": alpha[2], "alpha[4]": alpha[4],
            "alpha[2] - mean": alpha[2] - jnp.mean(alpha), "theta[0]": theta[0], "theta[500]": theta[500],
            "theta[0]^2": theta[0] ** 2, "alpha[0]^2": alpha[0] ** 2, "P(0 solves 2)": chance[0, 2],
            "P(999 solves 2)": chance[999, 2], "expected mark of 300": jnp.sum(chance[300]),
            "mean theta^2": jnp.mean(theta**2),
        }  # fmt: skip

    return Posterior("lsat", blocks.names, logdensity, functionals)


def rating_scale() -> Posterior:
    """Attitudes to science: 392 persons rate 7 items in 4 steps, with a discrimination per item; 408 parameters."""
    data = load("science_irt")
    ratings = np.zeros((392, 7), int)
    ratings[data["jj"] - 1, data["ii"] - 1] = data["y"]
    chosen = np.eye(4)[ratings]  # (person, item, step)
    blocks = Blocks(log_alpha=(7,), beta_free=(6,), kappa_free=(2,), theta=(392,), shift=())

    def constrain(p):
        """Discriminations, difficulties and steps; the last two add up to zero."""
        beta = jnp.append(p["beta_free"], -jnp.sum(p["beta_free"]))
        return jnp.exp(p["log_alpha"]), beta, jnp.append(p["kappa_free"], -jnp.sum(p["kappa_free"]))

    def scores_of_steps(p):
        """The logits of the four steps (person, item, step)."""
        alpha, beta, kappa = constrain(p)
        rise = (p["theta"][:, None] * alpha - beta)[..., None] * jnp.arange(4.0)
        return rise - jnp.concatenate([jnp.zeros(1), jnp.cumsum(kappa)])

    def logdensity(x):
        p = blocks(x)
        _, beta, kappa = constrain(p)
        steps = scores_of_steps(p)
        density = jnp.sum(chosen * steps) - jnp.sum(jax.nn.logsumexp(steps, axis=-1))
        density += standard_normal(p["log_alpha"] - 1, beta / 3, kappa / 3, p["theta"] - p["shift"])
        return density + student_t(p["shift"], 3, 0.0, 1.0)

    def functionals(x):
        p = blocks(x)
        alpha, beta, kappa = constrain(p)
        chance = jax.nn.softmax(scores_of_steps(p), axis=-1)
        return {
            "alpha[0]": alpha[0], "alpha[3]": alpha[3], "beta[0]": beta[0], "beta[6]": beta[6], "kappa[0]": kappa[0],
            "kappa[2]": kappa[2], "shift": p["shift"], "theta[0]": p["theta"][0], "theta[200]": p["theta"][200],
            "theta[200]^2": p["theta"][200] ** 2, "P(top) of 0, item 3": chance[0, 3, 3],
            "expected rating of 50": chance[50, 2] @ jnp.arange(4.0), "mean theta^2": jnp.mean(p["theta"] ** 2),
        }  # fmt: skip

    return Posterior("grsm_latent_reg_irt", blocks.names, logdensity, functionals)


def two_parameter() -> Posterior:
    """A test of 32 questions taken by 600 persons: discriminations and difficulties are correlated; 669 parameters."""
    data = load("sat")
    answers = np.zeros((600, 32))
    answers[data["jj"] - 1, data["ii"] - 1] = data["y"]
    blocks = Blocks(theta=(600,), log_alpha=(32,), beta=(32,), mu=(2,), log_tau=(2,), atanh_r=())

    def logits(p):
        return jnp.exp(p["log_alpha"]) * (p["theta"][:, None] - p["beta"])

    def logdensity(x):
        p = blocks(x)
        r, lkj = correlation_pair(p["atanh_r"], 4.0)
        tau = jnp.exp(p["log_tau"])
        first = (p["log_alpha"] - p["mu"][0]) / tau[0]
        second = ((p["beta"] - p["mu"][1]) / tau[1] - r * first) / jnp.sqrt(1 - r**2)
        items = standard_normal(first, second) - 32 * (jnp.sum(p["log_tau"]) + 0.5 * jnp.log1p(-(r**2)))
        priors = standard_normal(p["theta"], p["mu"][0], p["mu"][1] / 5) - 0.1 * jnp.sum(tau) + jnp.sum(p["log_tau"])
        return bernoulli(answers, 1.0, logits(p)) + items + priors + lkj

    def functionals(x):
        p = blocks(x)
        tau, chance = jnp.exp(p["log_tau"]), jax.nn.sigmoid(logits(p))
        return {
            "mu[0]": p["mu"][0], "mu[1]": p["mu"][1], "tau[0]": tau[0], "tau[1]": tau[1], "r": jnp.tanh(p["atanh_r"]),
            "alpha[0]": jnp.exp(p["log_alpha"][0]), "beta[0]": p["beta"][0], "beta[20]": p["beta"][20],
            "theta[0]": p["theta"][0], "theta[300]": p["theta"][300], "theta[300]^2": p["theta"][300] ** 2,
            "P(0 solves 0)": chance[0, 0], "expected mark of 300": jnp.sum(chance[300]),
        }  # fmt: skip

    return Posterior("hier_2pl", blocks.names, logdensity, functionals)
