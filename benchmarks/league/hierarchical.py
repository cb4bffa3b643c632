"""Published hierarchical models: pilots, dogs, seeds, election88, GLMM1 of posteriordb; hospitals and rats of BUGS."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from .posterior import (
    Blocks,
    Posterior,
    bernoulli,
    correlation_pair,
    load,
    logit_jacobian,
    normal,
    standard_normal,
    student_t,
    two_versions,
)


def _below(u: jax.Array, bound: float) -> jax.Array:
    """The parameter between 0 and `bound` with the logit u."""
    return bound * jax.nn.sigmoid(u)


def _log_below(u: jax.Array, bound: float) -> jax.Array:
    return jnp.log(bound) + jax.nn.log_sigmoid(u)


def pilots() -> Posterior:
    """Flight simulator: 5 groups of pilots crossed with 8 scenarios, effects centred, scales uniform on (0, 100)."""
    data = load("pilots")
    group, scenario, y, top = data["group_id"] - 1, data["scenario_id"] - 1, data["y"], 100.0
    blocks = Blocks(a=(5,), b=(8,), mu_a=(), mu_b=(), logit_sigma_a=(), logit_sigma_b=(), logit_sigma_y=())

    def logdensity(x):
        p = blocks(x)
        scales = [p[f"logit_sigma_{k}"] for k in "aby"]
        density = standard_normal(p["mu_a"], p["mu_b"]) + sum(logit_jacobian(u) for u in scales)
        density += normal(p["a"], 10 * p["mu_a"], _log_below(scales[0], top))
        density += normal(p["b"], 10 * p["mu_b"], _log_below(scales[1], top))
        return density + normal(y, p["a"][group] + p["b"][scenario], _log_below(scales[2], top))

    def functionals(x):
        p = blocks(x)
        sigma = {k: _below(p[f"logit_sigma_{k}"], top) for k in "aby"}
        cell = p["a"][1] + p["b"][3]
        return {
            "sigma_a": sigma["a"], "sigma_b": sigma["b"], "sigma_y": sigma["y"],
            "mu_a": p["mu_a"], "mu_b": p["mu_b"], "a[0]": p["a"][0], "a[3]": p["a"][3], "b[0]": p["b"][0],
            "b[5]": p["b"][5], "a[1] + b[3]": cell, "P(y > .5)": norm.cdf((cell - 0.5) / sigma["y"]),
            "(b[0] - b[1])^2": (p["b"][0] - p["b"][1]) ** 2,
        }  # fmt: skip

    start = blocks.point(logit_sigma_a=-5.0, logit_sigma_b=-5.0, logit_sigma_y=-6.0, a=0.2, b=0.2)
    return Posterior("pilots", blocks.names, logdensity, functionals, start, dense=True, acceptance=0.98, jitter=0.1)


def dogs() -> Posterior:
    """30 dogs learn to avoid shocks over 25 trials: each has two retentions, correlated, in non-centred form.

    P(shock) = a^(shocks before) b^(avoidances before). The first trial is a shock for every dog, with probability 1.
    """
    y = load("dogs")["y"].astype(float)
    before = np.cumsum(y, axis=1) - y
    shocks, avoided = before[:, 1:], np.arange(1, y.shape[1]) - before[:, 1:]
    y = y[:, 1:]
    blocks = Blocks(mu=(2,), log_sigma=(2,), atanh_r=(), z=(30, 2))

    def retentions(p):
        """log a and log b of every dog."""
        sigma, (r, _) = jnp.exp(p["log_sigma"]), correlation_pair(p["atanh_r"], 2.0)
        logit_a = p["mu"][0] + sigma[0] * p["z"][:, 0] + sigma[1] * r * p["z"][:, 1]
        logit_b = p["mu"][1] + sigma[1] * jnp.sqrt(1 - r**2) * p["z"][:, 1]
        return jax.nn.log_sigmoid(logit_a), jax.nn.log_sigmoid(logit_b)

    def logdensity(x):
        p = blocks(x)
        log_a, log_b = retentions(p)
        log_p = shocks * log_a[:, None] + avoided * log_b[:, None]
        density = jnp.sum(y * log_p + (1 - y) * jnp.log(-jnp.expm1(log_p)))
        density += logit_jacobian(p["mu"])  # the logistic density
        density += standard_normal(jnp.exp(p["log_sigma"]), p["z"]) + jnp.sum(p["log_sigma"])
        return density + correlation_pair(p["atanh_r"], 2.0)[1]

    def functionals(x):
        p = blocks(x)
        log_a, log_b = retentions(p)
        sigma = jnp.exp(p["log_sigma"])
        return {
            "mu[0]": p["mu"][0], "mu[1]": p["mu"][1], "sigma[0]": sigma[0], "sigma[1]": sigma[1],
            "r": jnp.tanh(p["atanh_r"]), "a[0]": jnp.exp(log_a[0]), "b[0]": jnp.exp(log_b[0]),
            "a[17]": jnp.exp(log_a[17]), "b[17]": jnp.exp(log_b[17]), "z[4,0]": p["z"][4, 0],
            "P(shock 11 of dog 5)": jnp.exp(5 * log_a[5] + 5 * log_b[5]), "mu[0]^2": p["mu"][0] ** 2,
            "mean a": jnp.mean(jnp.exp(log_a)),
        }  # fmt: skip

    return Posterior("dogs_nonhierarchical", blocks.names, logdensity, functionals, blocks.point(mu=2.0))


def election88() -> Posterior:
    """Votes of 1988: logistic regression of 11,566 answers with effects of age, education, both, state and region.

    All covariates take few values, so the answers are counted in a table (state, age, education, female, black).
    """
    data, top = load("election88"), 100.0
    cell = (data["state"] - 1, data["age"] - 1, data["edu"] - 1, data["female"].astype(int), data["black"].astype(int))
    shape = (51, 4, 4, 2, 2)
    trials, votes = np.zeros(shape), np.zeros(shape)
    np.add.at(trials, cell, 1.0)
    np.add.at(votes, cell, data["y"].astype(float))
    region, previous = np.zeros(51, int), np.zeros(51)  # two states have no answers, so theirs do not matter
    region[cell[0]], previous[cell[0]] = data["region_full"] - 1, data["v_prev_full"]
    female, black = np.arange(2.0)[:, None], np.arange(2.0)
    scales = {f"logit_sigma_{k}": () for k in "abcde"}
    blocks = Blocks(a=(4,), b=(4,), c=(4, 4), d=(51,), e=(5,), beta=(5,), **scales)

    def logits(p):
        beta = p["beta"]
        state = beta[0] + beta[3] * previous + p["d"] + p["e"][region]
        person = beta[1] * black + beta[2] * female + beta[4] * female * black
        schooling = p["a"][:, None] + p["b"] + p["c"]
        return state[:, None, None, None, None] + schooling[:, :, None, None] + person

    def logdensity(x):
        p = blocks(x)
        density = bernoulli(votes, trials, logits(p)) + normal(p["beta"], 0.0, np.log(100.0))
        for k in "abcde":
            u = p[f"logit_sigma_{k}"]
            density += normal(p[k], 0.0, _log_below(u, top)) + logit_jacobian(u)
        return density

    def functionals(x):
        p = blocks(x)
        chance = jax.nn.sigmoid(logits(p))
        found = {f"sigma_{k}": _below(p[f"logit_sigma_{k}"], top) for k in "abcde"}
        found |= {"beta[1]": p["beta"][1], "beta[3]": p["beta"][3], "a[0]": p["a"][0], "d[4]": p["d"][4]}
        found |= {"d[1], no data": p["d"][1], "e[2]": p["e"][2], "c[1,2]": p["c"][1, 2]}
        found |= {"P(vote) of a cell": chance[4, 2, 1, 1, 0], "state's share": jnp.mean(chance[32, :, :, :, 0])}
        return found | {"d[4]^2": p["d"][4] ** 2}

    start = blocks.point(**dict.fromkeys(scales, -6.0))
    return Posterior("election88_full", blocks.names, logdensity, functionals, start, acceptance=0.95)


def glmm1(centred: bool) -> Posterior:
    """Counts of birds: Poisson, 235 sites with effects around one mean, scale uniform on (0, 5); published centred."""
    data, top = load("GLMM_data"), 5.0
    site = data["obssite"] - 1
    years = np.bincount(site, minlength=235).astype(float)
    counts = np.bincount(site, weights=data["obs"], minlength=235)
    blocks = Blocks(b=(235,), mu=(), logit_sd=())

    def rest(p):
        likelihood = jnp.sum(counts * p["b"] - years * jnp.exp(p["b"]))
        return likelihood + normal(p["mu"], 0.0, np.log(10.0)) + logit_jacobian(p["logit_sd"])

    empty, full = int(np.argmin(counts)), int(np.argmax(counts))

    def functionals(p):
        b = p["b"]
        return {
            "mu": p["mu"], "sd": _below(p["logit_sd"], top), "mu^2": p["mu"] ** 2, "b[0]": b[0], "b[100]": b[100],
            "b, no birds": b[empty], "b, most birds": b[full], "rate[0]": jnp.exp(b[0]),
            "rate, no birds": jnp.exp(b[empty]), "total rate": jnp.sum(jnp.exp(b)),
            "P(none at 100)": jnp.exp(-jnp.exp(b[100])), "mean b": jnp.mean(b), "(b[7] - mu)^2": (b[7] - p["mu"]) ** 2,
        }  # fmt: skip

    def effects(p):
        return p["mu"], _log_below(p["logit_sd"], top)

    near = np.log((counts + 0.5) / (years + 0.1)) if centred else 0.0
    return two_versions("GLMM1", blocks, effects, rest, functionals, centred, blocks.point(b=near, mu=2.0), better=True)


def seeds(centred: bool) -> Posterior:
    """Seeds that germinate on 21 plates, two kinds and two extracts (BUGS, and seeds of posteriordb); 26 parameters."""
    data = load("seeds")
    kind, extract = data["x1"], data["x2"]
    design = np.column_stack([np.ones(21), kind, extract, kind * extract])
    blocks = Blocks(alpha=(4,), log_tau=(), b=(21,))

    def rest(p):
        half_cauchy = student_t(jnp.exp(p["log_tau"]), 1, 0.0, 1.0) + p["log_tau"]
        return bernoulli(data["n"], data["N"], p["b"]) + standard_normal(p["alpha"]) + half_cauchy

    def functionals(p):
        b, alpha = p["b"], p["alpha"]
        chance = jax.nn.sigmoid(b)
        return {
            "alpha[0]": alpha[0], "alpha[1]": alpha[1], "alpha[2]": alpha[2], "alpha[3]": alpha[3],
            "tau": jnp.exp(p["log_tau"]), "log tau": p["log_tau"], "b[0]": b[0], "b[15]": b[15], "b[3]^2": b[3] ** 2,
            "alpha[2]^2": alpha[2] ** 2, "P[3]": chance[3], "P[15]": chance[15],
            "P of a new plate": jax.nn.sigmoid(alpha[0] + alpha[2]),
        }  # fmt: skip

    def effects(p):
        return design @ p["alpha"], p["log_tau"]

    return two_versions("seeds", blocks, effects, rest, functionals, centred, better=False)


def rats() -> Posterior:
    """Weights of 30 rats in 5 weeks (BUGS), in units of 100 g: each has a level and a slope, centred; 65 parameters."""
    y = load("rats")["Y"] / 100.0
    week = np.arange(5.0) - 2.0
    blocks = Blocks(mu=(2,), log_tau=(2,), log_sigma=(), level=(30,), slope=(30,))

    def logdensity(x):
        p = blocks(x)
        density = normal(p["level"], p["mu"][0], p["log_tau"][0]) + normal(p["slope"], p["mu"][1], p["log_tau"][1])
        density += normal(y, p["level"][:, None] + p["slope"][:, None] * week, p["log_sigma"])
        scales = jnp.append(p["log_tau"], p["log_sigma"])
        return density + standard_normal(p["mu"] / 5, jnp.exp(scales)) + jnp.sum(scales)

    def functionals(x):
        p = blocks(x)
        level, slope = p["level"], p["slope"]
        return {
            "mu[0]": p["mu"][0], "mu[1]": p["mu"][1], "tau[0]": jnp.exp(p["log_tau"][0]),
            "tau[1]": jnp.exp(p["log_tau"][1]), "sigma": jnp.exp(p["log_sigma"]), "level[3]": level[3],
            "slope[3]": slope[3], "slope[20]": slope[20], "slope[3]^2": slope[3] ** 2,
            "week 4 of 12": level[12] + 4 * slope[12], "exp of week 2 of 5": jnp.exp(level[5] + 2 * slope[5]),
            "level at birth^2": (p["mu"][0] - 22 / 7 * p["mu"][1]) ** 2,
        }  # fmt: skip

    slopes = y @ week / 10
    start = blocks.point(mu=[2.4, 0.43], log_tau=[-2.0, -2.5], log_sigma=-2.5, level=y.mean(1), slope=slopes)
    return Posterior("rats", blocks.names, logdensity, functionals, start)


def hospitals() -> Posterior:
    """Deaths after heart surgery of babies in 12 hospitals (BUGS, surgical): random effects, centred."""
    trials = np.array([47, 148, 119, 810, 211, 196, 148, 215, 207, 97, 256, 360.0])
    deaths = np.array([0, 18, 8, 46, 8, 13, 9, 31, 14, 8, 29, 24.0])
    blocks = Blocks(mu=(), log_tau=(), b=(12,))

    def logdensity(x):
        p = blocks(x)
        prior = normal(p["mu"], 0.0, np.log(5.0)) + standard_normal(jnp.exp(p["log_tau"])) + p["log_tau"]
        return bernoulli(deaths, trials, p["b"]) + normal(p["b"], p["mu"], p["log_tau"]) + prior

    def functionals(x):
        p = blocks(x)
        rates = jax.nn.sigmoid(p["b"])
        found = {"mu": p["mu"], "tau": jnp.exp(p["log_tau"]), "mu^2": p["mu"] ** 2}
        found |= {f"b[{j}]": p["b"][j] for j in (0, 3, 7)} | {f"rate[{j}]": rates[j] for j in (0, 3, 7, 9)}
        return found | {"b[0]^2": p["b"][0] ** 2, "rate[7] - mean": rates[7] - jnp.mean(rates)}

    return Posterior("hospitals", blocks.names, logdensity, functionals, blocks.point(mu=-2.5, b=-2.5, log_tau=-1.0))
