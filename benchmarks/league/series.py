"""Published curves and series of posteriordb: accelerations of a helmet, votes by state and year."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from .posterior import Blocks, Posterior, load, logit_jacobian, normal, standard_normal, student_t


def _accelerations(name, blocks, curve, spread, priors, scales, start) -> Posterior:
    """A curve and a curve for the log noise fitted to 133 accelerations of a helmet in a crash."""
    y = load("mcycle_gp")["Y"]

    def logdensity(x):
        p = blocks(x)
        density = student_t(p["intercept"], 3, -13.0, 36.0) + student_t(p["intercept_noise"], 3, 0.0, 10.0)
        return density + priors(p) + normal(y, curve(p), spread(p))

    def functionals(x):
        p = blocks(x)
        mean, noise = curve(p), jnp.exp(spread(p))
        found = {"intercept": p["intercept"], "intercept_noise": p["intercept_noise"]}
        found |= {name[4:]: jnp.exp(p[name]) for name in scales}
        found |= {f"curve[{i}]": mean[i] for i in (20, 60)} | {f"noise[{i}]": noise[i] for i in (5, 60)}
        found |= {"P(y[60] < -100)": norm.cdf((-100 - mean[60]) / noise[60]), "curve[60]^2": mean[60] ** 2}
        return found | {"z[3]": p["z"][3], "z_noise[2]^2": p["z_noise"][2] ** 2, "lowest": jnp.min(mean)}

    return Posterior(name, blocks.names, logdensity, functionals, start, acceptance=0.95, jitter=0.1)


def accel_gp() -> Posterior:
    """Both curves Gaussian processes in a basis of 40 and 20 functions; 66 parameters."""
    data = load("mcycle_gp")
    basis, noise_basis = data["Xgp_1"], data["Xgp_sigma_1"]
    frequency, noise_frequency = data["slambda_1"][:, 0], data["slambda_sigma_1"][:, 0]
    blocks = Blocks(
        intercept=(), log_sd=(), log_length=(), z=(40,),
        intercept_noise=(), log_sd_noise=(), log_length_noise=(), z_noise=(20,),
    )  # fmt: skip

    def process(basis, frequency, log_sd, log_length, z):
        """The square root of the squared exponential kernel's spectral density times z, in the basis."""
        log_spectrum = 0.5 * (0.5 * np.log(2 * np.pi) + log_length) - 0.25 * (jnp.exp(log_length) * frequency) ** 2
        return basis @ (jnp.exp(log_sd + log_spectrum) * z)

    def curve(p):
        return p["intercept"] + process(basis, frequency, p["log_sd"], p["log_length"], p["z"])

    def spread(p):
        scaled = process(noise_basis, noise_frequency, p["log_sd_noise"], p["log_length_noise"], p["z_noise"])
        return p["intercept_noise"] + scaled

    def priors(p):
        density = standard_normal(p["z"], p["z_noise"])
        for end in ("", "_noise"):
            log_sd, log_length = p["log_sd" + end], p["log_length" + end]
            density += student_t(jnp.exp(log_sd), 3, 0.0, 36.0) + log_sd
            density += -1.124909 * log_length - 0.0177 * jnp.exp(-log_length)  # inverse gamma, with the Jacobian
        return density

    scales = ("log_sd", "log_length", "log_sd_noise", "log_length_noise")
    start = blocks.point(intercept=-20.0, log_sd=3.5, log_length=-2.0, intercept_noise=2.5, log_length_noise=-1.5)
    return _accelerations("accel_gp", blocks, curve, spread, priors, scales, start)


def accel_splines() -> Posterior:
    """Both curves splines: a slope and 38 coefficients with their own scale; 82 parameters."""
    data = load("mcycle_splines")
    line, basis = data["Xs"][:, 0], data["Zs_1_1"]
    noise_line, noise_basis = data["Xs_sigma"][:, 0], data["Zs_sigma_1_1"]
    blocks = Blocks(
        intercept=(), slope=(), z=(38,), log_sd=(),
        intercept_noise=(), slope_noise=(), z_noise=(38,), log_sd_noise=(),
    )  # fmt: skip

    def curve(p):
        return p["intercept"] + p["slope"] * line + basis @ (jnp.exp(p["log_sd"]) * p["z"])

    def spread(p):
        scaled = noise_basis @ (jnp.exp(p["log_sd_noise"]) * p["z_noise"])
        return p["intercept_noise"] + p["slope_noise"] * noise_line + scaled

    def priors(p):
        density = standard_normal(p["z"], p["z_noise"]) + p["log_sd"] + p["log_sd_noise"]
        return density + sum(student_t(jnp.exp(p[k]), 3, 0.0, 36.0) for k in ("log_sd", "log_sd_noise"))

    start = blocks.point(intercept=-20.0, log_sd=4.0, intercept_noise=2.5)
    return _accelerations("accel_splines", blocks, curve, spread, priors, ("log_sd", "log_sd_noise"), start)


def votes() -> Posterior:
    """Votes of 50 states in 11 years: effects and Gaussian processes by state and region; 933 parameters."""
    data = load("state_wide_presidential_votes")
    state, region, year = data["state_ind"] - 1, data["region_ind"] - 1, data["year_ind"] - 1
    home, y = data["state_region_ind"] - 1, data["y"]
    squares = (np.arange(14.0)[:, None] - np.arange(14.0)) ** 2
    lengths = ("region_long", "state_long", "region_short", "state_short")
    blocks = Blocks(
        z_region=(14, 10), z_state=(14, 50), year=(11,), state=(50,), region=(10,), log_total=(), stick=(16,), mu=(),
        **{f"log_length_{name}": () for name in lengths},
    )  # fmt: skip
    left = np.arange(16, 0, -1.0)  # sticks still to be broken, so that stick = 0 means equal shares

    def shares(stick):
        """The 17 shares of the variance by breaking sticks, and the log Jacobian with the Dirichlet(2) density."""
        u = stick - np.log(left)
        log_rest = jnp.concatenate([jnp.zeros(1), jnp.cumsum(jax.nn.log_sigmoid(-u))])
        log_share = jnp.append(jax.nn.log_sigmoid(u) + log_rest[:-1], log_rest[-1])
        return log_share, logit_jacobian(u) + jnp.sum(log_rest[:-1]) + jnp.sum(log_share)

    def constrain(p):
        """Standard deviations (17) and the predicted votes (14 years, 50 states)."""
        log_share, _ = shares(p["stick"])
        sd = jnp.exp(0.5 * (np.log(17.0) + log_share + p["log_total"]))
        length = {name: jnp.exp(p[f"log_length_{name}"]) for name in lengths}

        def process(kind, long, short, z):
            long_term = sd[long] ** 2 * jnp.exp(-0.5 * squares / length[f"{kind}_long"] ** 2)
            short_term = sd[short] ** 2 * jnp.exp(-0.5 * squares / length[f"{kind}_short"] ** 2)
            return jnp.linalg.cholesky(long_term + short_term + 1e-6 * np.eye(14)) @ z

        by_region = process("region", 12, 14, p["z_region"]) + sd[1] * p["region"]
        by_state = process("state", 13, 15, p["z_state"]) + sd[2:12][home] * p["state"]
        by_year = jnp.concatenate([sd[0] * p["year"], jnp.zeros(3)])
        return sd, p["mu"] + by_year[:, None] + by_region[:, home] + by_state

    def logdensity(x):
        p = blocks(x)
        sd, mean = constrain(p)
        density = normal(y, mean[year, state], jnp.log(sd[16])) + shares(p["stick"])[1]
        density += standard_normal(
            p["z_region"], p["z_state"], p["year"], p["state"], p["region"], (p["mu"] - 0.5) / 0.5
        )
        density += 3 * p["log_total"] - 3 * jnp.exp(p["log_total"])  # gamma(3, 3), with the Jacobian
        for name in lengths:  # Weibull(30, 8) and (30, 3), with the Jacobian
            log_ratio = p[f"log_length_{name}"] - np.log(8.0 if name.endswith("long") else 3.0)
            density += 30 * log_ratio - jnp.exp(30 * log_ratio)
        return density

    if not np.array_equal(home[state], region):
        raise ValueError("A state has votes in a region that is not its own.")

    def functionals(x):
        p = blocks(x)
        sd, mean = constrain(p)
        return {
            "mu": p["mu"], "total variance": jnp.exp(p["log_total"]), "sd of years": sd[0], "sd of regions": sd[1],
            "sd of noise": sd[16], "sd of states, long": sd[13],
            "length region_long": jnp.exp(p["log_length_region_long"]),
            "votes[4,10]": mean[4, 10], "votes[13,10], future": mean[13, 10],
            "P(majority) in 8, 32": norm.cdf((mean[8, 32] - 0.5) / sd[16]), "z_state[3,3]": p["z_state"][3, 3],
            "state[7]^2": p["state"][7] ** 2, "year[5]": p["year"][5],
        }  # fmt: skip

    start = blocks.point(
        mu=0.5, log_total=-3.5, **{f"log_length_{k}": np.log(8.0 if "long" in k else 3.0) for k in lengths}
    )
    return Posterior("hierarchical_gp", blocks.names, logdensity, functionals, start)
