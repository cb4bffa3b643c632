"""Models on data simulated from fixed seeds, some in a centred and a non-centred version of the same posterior."""

import jax
import jax.numpy as jnp
import numpy as np

from .posterior import Blocks, Posterior, bernoulli, normal, standard_normal, two_versions


def random_effects(centred: bool) -> Posterior:
    """Logistic regression with 24 group effects of few observations: mu, log tau and 24 effects."""
    rng = np.random.default_rng(101)
    trials = rng.integers(4, 13, size=24).astype(float)
    logits = -0.4 + 0.7 * rng.normal(size=24)
    successes = rng.binomial(trials.astype(int), 1 / (1 + np.exp(-logits))).astype(float)
    blocks = Blocks(mu=(), log_tau=(), b=(24,))

    def rest(p):
        half_normal = standard_normal(jnp.exp(p["log_tau"])) + p["log_tau"]
        return bernoulli(successes, trials, p["b"]) + normal(p["mu"], 0.0, np.log(2.0)) + half_normal

    def functionals(p):
        chance = jax.nn.sigmoid(p["b"])
        return {
            "mu": p["mu"], "tau": jnp.exp(p["log_tau"]), "log tau": p["log_tau"], "b[0]": p["b"][0],
            "b[7]": p["b"][7], "b[13]": p["b"][13], "b[0]^2": p["b"][0] ** 2, "mu^2": p["mu"] ** 2,
            "P[0]": chance[0], "P[20]": chance[20], "mean P": jnp.mean(chance), "P[3] P[4]": chance[3] * chance[4],
            "(b[7] - mu)^2": (p["b"][7] - p["mu"]) ** 2,
        }  # fmt: skip

    return two_versions("random_effects", blocks, lambda p: (p["mu"], p["log_tau"]), rest, functionals, centred)


def poisson() -> Posterior:
    """Poisson regression with 42 group effects, two counts each: mu, slope, log tau and 42 effects, centred."""
    rng = np.random.default_rng(102)
    covariate = rng.normal(size=(42, 2))
    effects = 0.6 * rng.normal(size=42)
    counts = rng.poisson(np.exp(0.5 + effects[:, None] + 0.3 * covariate)).astype(float)
    blocks = Blocks(mu=(), slope=(), log_tau=(), b=(42,))

    def rest(p):
        rate = p["b"][:, None] + p["slope"] * covariate
        likelihood = jnp.sum(counts * rate - jnp.exp(rate))
        return likelihood + standard_normal(p["mu"], p["slope"], jnp.exp(p["log_tau"])) + p["log_tau"]

    def functionals(p):
        b = p["b"]
        return {
            "mu": p["mu"], "slope": p["slope"], "tau": jnp.exp(p["log_tau"]), "slope^2": p["slope"] ** 2,
            "b[0]": b[0], "b[5]": b[5], "b[30]": b[30], "b[5]^2": b[5] ** 2, "rate[0]": jnp.exp(b[0]),
            "rate[30], x = 1": jnp.exp(b[30] + p["slope"]), "P(none in 5)": jnp.exp(-jnp.exp(b[5])),
            "mean rate": jnp.mean(jnp.exp(b)), "(b[5] - mu)^2": (b[5] - p["mu"]) ** 2,
        }  # fmt: skip

    return two_versions("poisson", blocks, lambda p: (p["mu"], p["log_tau"]), rest, functionals, True)


def counties(centred: bool) -> Posterior:
    """Linear regression like that of radon in houses: 85 counties with a covariate, 1 to 12 houses each; D = 90."""
    rng = np.random.default_rng(103)
    houses = np.minimum(rng.geometric(0.2, size=85), 12)
    county, soil = np.repeat(np.arange(85), houses), rng.normal(size=85)
    floor = (rng.uniform(size=county.size) < 0.3).astype(float)
    intercepts = 1.4 + 0.6 * soil + 0.35 * rng.normal(size=85)
    y = intercepts[county] - 0.7 * floor + 0.75 * rng.normal(size=county.size)
    # Sums by county are all that the likelihood needs.
    member = np.zeros((85, county.size))
    member[county, np.arange(county.size)] = 1.0
    n, sum_y, sum_floor = member.sum(1), member @ y, member @ floor
    sum_yy, sum_yf, sum_ff = np.sum(y**2), np.sum(y * floor), np.sum(floor)
    blocks = Blocks(gamma=(2,), slope=(), log_tau=(), log_sigma=(), b=(85,))

    def rest(p):
        b, slope = p["b"], p["slope"]
        squares = sum_yy + jnp.sum(n * b**2) + slope**2 * sum_ff
        squares += -2 * b @ sum_y - 2 * slope * sum_yf + 2 * slope * b @ sum_floor
        likelihood = -0.5 * squares * jnp.exp(-2 * p["log_sigma"]) - y.size * p["log_sigma"]
        scales = jnp.exp(jnp.stack([p["log_tau"], p["log_sigma"]]))
        return likelihood + standard_normal(p["gamma"] / 5, slope / 5, scales) + p["log_tau"] + p["log_sigma"]

    def functionals(p):
        b, sigma = p["b"], jnp.exp(p["log_sigma"])
        one, many = int(np.argmin(n)), int(np.argmax(n))
        return {
            "gamma[0]": p["gamma"][0], "gamma[1]": p["gamma"][1], "slope": p["slope"], "tau": jnp.exp(p["log_tau"]),
            "sigma": sigma, "b, one house": b[one], "b, most houses": b[many], "b[40]": b[40],
            "slope^2": p["slope"] ** 2, "b[40]^2": b[40] ** 2, "exp(b[7] + sigma^2/2)": jnp.exp(b[7] + sigma**2 / 2),
            "P(y > 2), county 7": jax.nn.sigmoid(1.7 * (b[7] - 2.0) / sigma), "largest b": jnp.max(b),
        }  # fmt: skip

    def effects(p):
        return p["gamma"][0] + p["gamma"][1] * soil, p["log_tau"]

    return two_versions("counties", blocks, effects, rest, functionals, centred)


def rasch() -> Posterior:
    """Item response: 122 persons answer 20 items; abilities, difficulties and the two parameters of their law."""
    rng = np.random.default_rng(105)
    ability, difficulty = rng.normal(size=122), 0.3 + 0.9 * rng.normal(size=20)
    answers = (rng.uniform(size=(122, 20)) < 1 / (1 + np.exp(-(ability[:, None] - difficulty)))).astype(float)
    blocks = Blocks(mu=(), log_tau=(), difficulty=(20,), ability=(122,))

    def logdensity(x):
        p = blocks(x)
        density = bernoulli(answers, 1.0, p["ability"][:, None] - p["difficulty"])
        density += normal(p["difficulty"], p["mu"], p["log_tau"])
        return density + standard_normal(p["ability"], p["mu"] / 2, jnp.exp(p["log_tau"])) + p["log_tau"]

    def functionals(x):
        p = blocks(x)
        a, d = p["ability"], p["difficulty"]
        return {
            "mu": p["mu"], "tau": jnp.exp(p["log_tau"]), "difficulty[0]": d[0], "difficulty[9]": d[9],
            "ability[0]": a[0], "ability[60]": a[60], "ability[60]^2": a[60] ** 2,
            "P(0 solves 0)": jax.nn.sigmoid(a[0] - d[0]), "P(60 solves 9)": jax.nn.sigmoid(a[60] - d[9]),
            "best ability": jnp.max(a), "d[0] - d[1]": d[0] - d[1],
            "sd of abilities": jnp.std(a), "expected mark of 5": jnp.sum(jax.nn.sigmoid(a[5] - d)),
        }  # fmt: skip

    return Posterior("rasch", blocks.names, logdensity, functionals)


def logistic(dim: int) -> Posterior:
    """Logistic regression: intercept, dim - 1 correlated features, 10 dim rows, N(0, 1) priors."""
    rng = np.random.default_rng(106)
    i = np.arange(dim - 1)
    factor = np.linalg.cholesky(0.5 ** abs(i[:, None] - i))

    def rows(n: int) -> np.ndarray:
        return np.column_stack([np.ones(n), rng.normal(size=(n, dim - 1)) @ factor.T])

    features, new = rows(10 * dim), rows(4)
    coefficients = 2 * rng.normal(size=dim) / np.sqrt(dim)
    outcomes = (rng.uniform(size=10 * dim) < 1 / (1 + np.exp(-features @ coefficients))).astype(float)
    blocks = Blocks(beta=(dim,))

    def logdensity(x):
        return bernoulli(outcomes, 1.0, features @ x) + standard_normal(x)

    def functionals(x):
        found = {f"beta[{k}]": x[k] for k in (0, 1, 2, 3, 4)} | {f"beta[{k}]^2": x[k] ** 2 for k in (0, 1, 2)}
        return found | {f"P[{k}]": jax.nn.sigmoid(new[k] @ x) for k in range(4)} | {"|beta|^2": x @ x}

    return Posterior(f"logistic{dim}", blocks.names, logdensity, functionals)
