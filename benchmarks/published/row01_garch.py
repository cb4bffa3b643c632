"""Row 1: GARCH(1,1) of 750 daily DEM/GBP returns, random walks in the parameters as they are.

    python benchmarks/published/row01_garch.py

r_t ~ N(0, h_t), h_t = w1 + w2 r_{t-1}^2 + w3 h_{t-1}, normal priors cut off at zero, f = w1, w2, w3.
Published (Mira, Solgi, Imparato 2013, Table 1): 95 % intervals of the gain over 100 repeats, below. Theirs is run on a
walk that is equally wide in all three parameters, with which their figures come out (row01_variants.py); ours on one
with the posterior's covariance. NUTS walks in log w, as every probabilistic programming language does: there
polynomials meet another density.
"""

import jax
import jax.numpy as jnp
import numpy as np
from common import (
    DATA,
    GAIN,
    Data,
    Line,
    Planned,
    agree,
    between,
    gain,
    keep,
    kept,
    ours,
    random_walk,
    replicate,
    scores_of,
)  # fmt: skip
from sampling import Problem, draw
from variants import fitted_raw

import steincv as scv

REPEATS, FEWER, FEWEST, NUTS_REPEATS = 40, 20, 4, 10  # theirs: 100
FIT, ESTIMATE = 2000, 10_000
THEIR_WIDTH, THIN = 0.02, 20  # found by trying; 2000 draws to fit are every 20th of 40,000
BURN_IN = 3000
EVERY = 5  # our methods see every fifth of the 10,000 draws: as many as theirs are fitted on
PRIOR_SD = 10.0
USED = 750  # of the returns
SEED = 1
START, WIDTH = np.array([0.02, 0.25, 0.65]), np.array([0.006, 0.05, 0.05])
NAMES = ("w1", "w2", "w3")
PUBLISHED = {
    1: ((8, 18), (13, 28), (12, 27)),
    2: ((1200, 2700), (6100, 13_500), (6200, 13_800)),
    3: ((21_000, 47_000), (48_000, 107_000), (26_000, 58_000)),
}
SOURCE = "Mira, Solgi, Imparato 2013, Table 1"

returns = np.loadtxt(DATA / "dem2gbp.csv", skiprows=1)


def posterior(returns, prior_sd=PRIOR_SD, first="variance"):
    """Return the log density of w given some returns, minus infinity where a parameter is not positive.

    `first`: what the first h is, the variance of the returns, their first square or the h of equilibrium.
    """
    squares = returns**2

    def logdensity(w):
        def forward(h, square):
            return w[0] + w[1] * square + w[2] * h, h

        begin = {"variance": np.var(returns), "square": squares[0], "equilibrium": w[0] / (1 - w[1] - w[2])}[first]
        h = jax.lax.scan(forward, begin * jnp.ones(()), squares)[1]
        density = -0.5 * jnp.sum(jnp.log(h) + squares / h) - 0.5 * jnp.sum((w / prior_sd) ** 2)
        return jnp.where(jnp.all(w > 0) & (h[0] > 0), density, -jnp.inf)

    return logdensity


logdensity = posterior(returns[:USED])


def walk(logdensity=logdensity) -> dict[str, np.ndarray]:
    """Return chains (repeat, draw, 3) with their scores."""
    start = START + 0.1 * WIDTH * np.random.default_rng(SEED).normal(size=(REPEATS, 3))
    draws = random_walk(logdensity, start, WIDTH, FIT + ESTIMATE, SEED)
    return {"draws": draws, "scores": scores_of(logdensity, draws)}


def equal_walk() -> dict[str, np.ndarray]:
    """Return chains (repeat, draw, 3) of a walk as wide in every parameter: FIT draws of THIN steps, then others."""
    start = START + 0.1 * WIDTH * np.random.default_rng(SEED).normal(size=(REPEATS, 3))
    steps = BURN_IN + FIT * THIN + ESTIMATE
    path = random_walk(logdensity, start, np.full(3, THEIR_WIDTH), steps, SEED, adapt=False)[:, BURN_IN:]
    draws = np.concatenate([path[:, : FIT * THIN : THIN], path[:, FIT * THIN :: EVERY]], axis=1)
    return {"draws": draws, "scores": scores_of(logdensity, draws)}


def plain(data, seed):
    return data.values.mean(axis=(0, 1))


THEIRS = {
    "plain": Planned(plain, REPEATS),
    **{f"ZV degree {k}, as theirs": Planned(fitted_raw(k), REPEATS) for k in PUBLISHED},
}
OURS = {
    "plain": Planned(plain, REPEATS),
    "Polynomial(2)": Planned(ours(scv.Polynomial(2)), REPEATS),
    "Polynomial(2), learned": Planned(ours(scv.Polynomial(2), "learned"), FEWER),
    "Polynomial(3)": Planned(ours(scv.Polynomial(3)), REPEATS),
    "Kernel()": Planned(ours(scv.Kernel()), FEWER),
    "CNCV()": Planned(ours(scv.CNCV()), FEWEST),
    "Auto()": Planned(ours(scv.Auto()), FEWER),
}
NUTS = {
    k: OURS[k]._replace(repeats=NUTS_REPEATS) for k in ("plain", "Polynomial(2)", "Polynomial(2), learned", "Auto()")
}


def apart(made):
    """Return the draws of a repeat as theirs were used: some to fit, all others to estimate."""

    def data(r):
        x, s = made["draws"][r][None], made["scores"][r][None]
        return Data(x[:, FIT:], s[:, FIT:], x[:, FIT:], Data(x[:, :FIT], s[:, :FIT], x[:, :FIT]))

    return data


def main() -> None:
    made, theirs = kept("row01-draws", walk), kept("row01-equal-draws", equal_walk)

    def thinned(r):
        x, s = made["draws"][r][None, FIT::EVERY], made["scores"][r][None, FIT::EVERY]
        return Data(x, s, x)

    def log_density(z):
        return logdensity(jnp.exp(z)) + jnp.sum(z)

    problem = Problem("published-garch", 3, log_density, {}, NAMES, start=lambda key: jnp.log(START))
    sets = draw(problem, seed=0, chains=4, draws=500, replications=NUTS_REPEATS)

    def nuts(r):
        return Data(*sets[r], np.exp(sets[r][0]))

    model = "data, model, f"
    runs = {
        "": (replicate("row01-equal", apart(theirs), THEIRS),
             f"{model}, random walk, 2000 draws to fit, 10,000 to estimate",
             "not stated: walk (sd .02 in every parameter here, a draw to fit every 20), prior sd, first h; repeats"),
        ", every 5th": (replicate("row01-ours", thinned, OURS), f"{model}, random walk in w",
                        "2000 of the 10,000 draws, none only to fit; prior sd, first h, repeats"),
        ", NUTS in log w": (replicate("row01-nuts", nuts, NUTS), model,
                            "NUTS 4 x 500 in log w; prior sd, first h, repeats"),
    }  # fmt: skip
    lines = []
    for where, (estimates, matched, other) in runs.items():
        agree(estimates, NAMES)
        for label in list(estimates)[1:]:
            degree = int(label.split()[2].rstrip(",")) if label.endswith("as theirs") else 3
            for k, f in enumerate(NAMES):
                mine = estimates[label][:, k]
                lines.append(
                    Line(1, "GARCH(1,1), DEM/GBP", f, label + where, GAIN, f"ZV degree {degree}",
                         between(*PUBLISHED[degree][k]), gain(estimates["plain"][:, k], mine), len(mine), matched,
                         other, SOURCE)
                )  # fmt: skip
    keep(lines, "row01")


if __name__ == "__main__":
    main()
