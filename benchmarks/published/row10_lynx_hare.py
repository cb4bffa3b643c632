"""Row 10: Lotka-Volterra posteriors of lynx and hare, 8 parameters, a few dozen draws of NUTS.

    python benchmarks/published/row10_lynx_hare.py

A task is the posterior given the first year and 15 of the other 20 years; f is the logarithm of the prey's growth rate.
Published (Sun, Oates, Briol, Meta-CV, notebook): mean absolute error over 40 tasks x 10 sets, below. Their n is half
the draws: n to fit and n others, and the plain mean is of all 2n. Meta-CV has learned from 100 other tasks before;
ours has seen nothing else.
"""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from common import ABSOLUTE, DATA, Data, Line, Planned, error, exactly, keep, kept, ours, replicate

import steincv as scv

SIZES = (20, 40, 60, 80)  # 2n, for their n = 10, 20, 30, 40
TASKS, SETS = 20, 5  # theirs: 40 and 10
FEWER, FEWEST = 100, 20
YEARS = 15
CHAINS, DRAWS, BURN_IN, ADAPT = 4, 1000, 300, 600
STEPS = 8  # Runge-Kutta steps per year
SEED = 10
START = np.array([-0.6, -3.6, -0.22, -3.7, 3.5, 1.78, -1.38, -1.38])
PRIOR_MEAN = np.array([0.0, -3.0, 0.0, -3.0, np.log(10), np.log(10), -1.0, -1.0])
PRIOR_SD = np.array([0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0])
PUBLISHED = {
    "plain": (0.0237, 0.0166, 0.0132, 0.0124),
    "Meta-CV": (0.0169, 0.0121, 0.0101, 0.0081),
    "NCV": (0.1198, 0.0898, 0.1096, 0.1358),
}
# the notebook prints the spread of 400 errors beside their mean
SPREAD = {"plain": (0.0175, 0.0138, 0.0115, 0.0101), "Meta-CV": (0.0175, 0.0138, 0.0113, 0.0087)}
SOURCE = "Sun, Oates, Briol, Meta-CV, notebook"

pelts = np.log(np.loadtxt(DATA / "lynx_hare.csv", delimiter=",", skiprows=1)[:, [2, 1]])  # hare, lynx


def path(x):
    """The logarithms of both populations at the end of each year, by Runge-Kutta in logarithms."""
    a, b, c, d = jnp.exp(x[:4])

    def slope(state):
        return jnp.stack([a - b * jnp.exp(state[1]), d * jnp.exp(state[0]) - c])

    def step(state, _):
        h = 1 / STEPS
        k1 = slope(state)
        k2 = slope(state + h / 2 * k1)
        k3 = slope(state + h / 2 * k2)
        k4 = slope(state + h * k3)
        return state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), state

    return jax.lax.scan(step, x[4:6], length=20 * STEPS + 1)[1][::STEPS]


def logdensity(x, seen):
    """The posterior of rates, first populations and noise, all as logarithms; `seen`: 1 for a year that counts."""
    residual = (pelts - path(x)) * jnp.exp(-x[6:])
    likelihood = -0.5 * jnp.sum(seen[:, None] * residual**2) - jnp.sum(seen) * jnp.sum(x[6:])
    return likelihood - 0.5 * jnp.sum(((x - PRIOR_MEAN) / PRIOR_SD) ** 2)


def tasks() -> np.ndarray:
    rng = np.random.default_rng(SEED)
    seen = np.zeros((TASKS, 21))
    seen[:, 0] = 1
    for one in seen:
        one[1 + rng.choice(20, size=YEARS, replace=False)] = 1
    return seen


def sample() -> dict[str, np.ndarray]:
    """Return NUTS draws and scores (task, chain, draw, 8), one step size and mass matrix for all tasks."""
    with jax.enable_x64(True):
        key, adapt_key = jax.random.split(jax.random.key(SEED))
        whole = jnp.ones(21)
        adapt = blackjax.window_adaptation(
            blackjax.nuts, lambda x: logdensity(x, whole), is_mass_matrix_diagonal=False, target_acceptance_rate=0.9
        )
        found = adapt.run(adapt_key, jnp.asarray(START), ADAPT)[0].parameters

        def chain(key, seen):
            nuts = blackjax.nuts(lambda x: logdensity(x, seen), max_num_doublings=6, **found)

            def move(state, key):
                state, info = nuts.step(key, state)
                return state, (state.position, state.logdensity_grad, info.is_divergent)

            keys = jax.random.split(key, BURN_IN + DRAWS)
            return jax.lax.scan(move, nuts.init(jnp.asarray(START)), keys)[1]

        every = jnp.repeat(jnp.asarray(tasks()), CHAINS, axis=0)
        draws, scores, divergent = jax.jit(jax.vmap(chain))(jax.random.split(key, len(every)), every)
    print(f"{int(divergent[:, BURN_IN:].sum())} divergences")
    shape = (TASKS, CHAINS, DRAWS, 8)
    draws, scores = (np.asarray(a)[:, BURN_IN:].reshape(shape) for a in (draws, scores))
    return {"draws": draws, "scores": scores}


def data_of(n, made):
    def data(r):
        task = r % TASKS
        which = np.random.default_rng([SEED, n, r]).choice(CHAINS * DRAWS, size=n, replace=False)
        x, s = (made[k][task].reshape(-1, 8)[which][None] for k in ("draws", "scores"))
        return Data(x, s, x[..., :1])

    return data


METHODS = {
    "plain": Planned(lambda data, seed: data.values.mean(), TASKS * SETS),
    "NCV(), as theirs": Planned(ours(scv.NCV(), guard=False), FEWEST),
    "Polynomial(1)": Planned(ours(scv.Polynomial(1)), TASKS * SETS),
    "Polynomial(2)": Planned(ours(scv.Polynomial(2)), TASKS * SETS),
    "Polynomial(2), learned": Planned(ours(scv.Polynomial(2), "learned"), TASKS * SETS),
    "Kernel()": Planned(ours(scv.Kernel()), TASKS * SETS),
    "CNCV()": Planned(ours(scv.CNCV()), FEWEST),
    "Auto()": Planned(ours(scv.Auto()), FEWER),
}


def published(name, i):
    value = PUBLISHED[name][i]
    if name not in SPREAD:
        return exactly(value)
    half = 1.96 * SPREAD[name][i] / np.sqrt(400)
    return exactly(value)._replace(low=value - half, high=value + half)


def reference(made) -> np.ndarray:
    """Return the mean of every task, from all of its draws with a cubic control variate."""
    means = []
    for draws, scores in zip(made["draws"], made["scores"], strict=True):
        found = scv.estimate(scv.Samples(draws, scores), draws[..., :1], scv.Polynomial(3))
        means.append(found.mean[0])
        print(f"{found.mean[0]:.4f} +- {found.standard_error[0]:.5f}, plain +- {found.plain.standard_error[0]:.5f}")
    return np.array(means)


def main() -> None:
    made = kept("row10-draws", sample)
    true = reference(made)
    same = "data, model, priors, tasks of 15 years, f, NUTS, number of draws"
    other = {"Meta-CV": "which 15 years; 20 tasks; Meta-CV has seen 100 other tasks"}
    lines = []
    for i, n in enumerate(SIZES):
        found = replicate(f"row10-{n}", data_of(n, made), METHODS)
        errors = {label: e[:, 0] - true[np.arange(len(e)) % TASKS] for label, e in found.items()}
        for label, mine in errors.items():
            beside = {"plain": "plain", "NCV(), as theirs": "NCV"}.get(label, "Meta-CV")
            lines.append(
                Line(10, "Lotka-Volterra, D = 8", f"log alpha, {n} draws", label, ABSOLUTE, beside,
                     published(beside, i), error(mine, ABSOLUTE), len(mine), same,
                     other.get(beside, "which 15 years; 20 tasks; repeats"), SOURCE)
            )  # fmt: skip
            share = np.abs(mine).mean() / np.abs(errors["plain"][: len(mine)]).mean()
            print(f"{n} draws, {label}: {share:.2f} of the plain error on the same draws")
    keep(lines, "row10")


if __name__ == "__main__":
    main()
