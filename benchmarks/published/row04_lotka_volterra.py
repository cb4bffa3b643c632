"""Row 4 of the published numbers: Lotka and Volterra's equations, four parameters, by MALA.

    python benchmarks/published/row04_lotka_volterra.py

Published (Belomestny et al., ESVM, a public notebook), ratios of mean spectral variances for the four parameters:
spectral objective of degree 2 1093, 493, 350, 534; least squares of degree 2 868, 262, 327, 477; spectral objective of
degree 1 15.5, 9.5, 8.5, 11.2.

The notebook's window is flat up to 20 lags and zero from 40 on: what is compared is nearer to the variance of single
draws than to that of means. `as theirs` fits and looks by that window, on one chain and at all others. The other lines
are true gains, of the means of single chains of 1e4 draws.

Matched: equations, the 11 observations of both species that the notebook prints, lognormal noise of 0.25, priors, what
is added within logarithms, MALA with its step per parameter and its start, burn-in, lengths. Not matched: 40 chains to
look at instead of 100, and their solver: adaptive, of tolerance 1e-3, so that their density is rough, and their chains
accept 80 % of the steps. Here it is Runge and Kutta's in equal steps, and scores are those of the density.
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.signal
from common import (
    GAIN,
    Data,
    Interval,
    Line,
    Planned,
    exactly,
    gain,
    keep,
    kept,
    lag_variance,
    ours,
    replicate,
    trapezium,
)

import steincv as scv
from steincv_paper.models.runge_kutta import solve

MEAN, SD, NOISE, ADDED = np.array([1.0, 0.05, 1.0, 0.05]), np.array([0.5, 0.05, 0.5, 0.05]), 0.25, 0.01
START, MODE = np.array([30.0, 4.0]), np.array([0.6467501, 0.02390763, 0.81164578, 0.02461639])
STEP = 5e-6 * np.array([10.0, 0.1, 10.0, 0.1])
BURN_IN, DRAWS, CHAINS, AUTO, LAGS, STEPS, SEED = 1000, 10_000, 40, 12, 20, 20, 4
OBSERVED = np.array([
    [37.52358801, 5.44451059], [49.31015054, 4.44056815], [68.02780239, 7.49382876], [96.31994597, 69.0224216],
    [33.96485552, 119.57915384], [11.19476367, 55.29111344], [7.28510513, 25.46629586], [3.95843583, 11.12542133],
    [12.06748946, 3.71380176], [12.38341447, 6.01556616], [18.28774199, 3.71351383],
])  # fmt: skip
SETTING, SOURCE = "Lotka-Volterra, D = 4, MALA", "Belomestny et al. 2020, ESVM, notebook"
NAMES = ("alpha", "beta", "gamma", "delta")
BEST = "spectral, degree 2"
PUBLISHED = {
    "spectral, degree 1": (15.5, 9.5, 8.5, 11.2),
    "least squares, degree 2": (868, 262, 327, 477),
    BEST: (1093, 493, 350, 534),
}


def log_density(theta):
    def field(x):
        prey, hunters = x
        return jnp.stack([prey * (theta[0] - theta[1] * hunters), hunters * (theta[3] * prey - theta[2])])

    path = jnp.concatenate([START[None], solve(field, jnp.asarray(START), STEPS, 0, len(OBSERVED) - 1)])
    misfit = (jnp.log(OBSERVED + ADDED) - jnp.log(path + ADDED)) / NOISE
    return -0.5 * jnp.sum(misfit**2) - 0.5 * jnp.sum(((theta - MEAN) / SD) ** 2)


def sample():
    """Draws and scores of all chains, `(chain, draw, 4)`; the first one is that which theirs are fitted on."""
    both = jax.vmap(jax.value_and_grad(log_density))

    def move(state, key):
        x, value, slope = state
        noise, chance = jax.random.split(key)
        new = x + STEP * slope + jnp.sqrt(2 * STEP) * jax.random.normal(noise, x.shape)
        there, steep = both(new)
        forth = ((new - x - STEP * slope) ** 2 / (4 * STEP)).sum(axis=1)
        back = ((x - new - STEP * steep) ** 2 / (4 * STEP)).sum(axis=1)
        take = jnp.log(jax.random.uniform(chance, value.shape)) < there - value + forth - back
        moved = take[:, None]
        state = jnp.where(moved, new, x), jnp.where(take, there, value), jnp.where(moved, steep, slope)
        return state, (state[0], state[2])

    with jax.enable_x64(True):
        key = jax.random.key(SEED)
        x = MODE * (1 + jax.random.normal(key, (CHAINS + 1, 4)) / 20)
        _, path = jax.jit(lambda x: jax.lax.scan(move, (x, *both(x)), jax.random.split(key, BURN_IN + DRAWS)))(x)
        draws, scores = (np.asarray(a, dtype=np.float64)[BURN_IN:].swapaxes(0, 1) for a in path)
    return {"draws": draws, "scores": scores}


def data_of(chains):
    def data(r):
        draws, scores = (chains[k][r + 1].reshape(4, -1, 4) for k in ("draws", "scores"))
        return Data(draws, scores, draws)

    return data


def theirs(chains) -> dict[str, np.ndarray]:
    """Ratios of mean spectral variances, by the notebook's window, of what it fits to the first chain."""
    draws, scores = chains["draws"], chains["scores"]
    center, unit = draws[0].mean(axis=0), draws[0].std(axis=0)

    def features(k, degree):  # in other units: the same combinations of features that they have
        return np.concatenate([scores[k], _quadratic(draws[k] - center, scores[k], unit)], axis=1)[
            :, : (4, 14)[degree - 1]
        ]

    weights = trapezium(LAGS)
    smooth = np.concatenate([weights[:0:-1], weights])[:, None]
    found = {}
    for label in PUBLISHED:
        x, f = features(0, int(label[-1])), draws[0] - center
        x0, f0 = x - x.mean(axis=0), f - f.mean(axis=0)
        left = scipy.signal.oaconvolve(x0, smooth, mode="same", axes=0) if label.startswith("spectral") else x0
        coefficients = np.linalg.solve(left.T @ x0, left.T @ f0)
        variances = [
            [lag_variance(y, weights) for y in (draws[k], draws[k] - features(k, int(label[-1])) @ coefficients)]
            for k in range(1, CHAINS + 1)
        ]
        plain, controlled = np.mean(variances, axis=0)
        found[label] = plain / controlled
    return found


def _quadratic(x, s, unit):
    """Stein features of all products of two coordinates, for gradients in the coordinates as they are."""
    i, j = np.triu_indices(4)
    return (x[:, i] * s[:, j] + x[:, j] * s[:, i] + 2.0 * (i == j)) / (unit[i] / unit[j] + unit[j] / unit[i])


METHODS = {
    "plain": Planned(lambda data, seed: data.values.mean(axis=(0, 1)), CHAINS),
    "Polynomial(2)": Planned(ours(scv.Polynomial(2)), CHAINS),
    "Polynomial(2), diffusion": Planned(ours(scv.Polynomial(2, objective="diffusion")), CHAINS),
    "Polynomial(2), spectral": Planned(ours(scv.Polynomial(2, objective="spectral")), CHAINS),
    "Polynomial(3), diffusion": Planned(ours(scv.Polynomial(3, objective="diffusion")), CHAINS),
    "Polynomial(2), learned": Planned(ours(scv.Polynomial(2), "learned"), AUTO),
    "Polynomial(2), diffusion, learned": Planned(ours(scv.Polynomial(2, objective="diffusion"), "learned"), AUTO),
    "Auto()": Planned(ours(scv.Auto()), AUTO),
}


def main() -> None:
    chains = kept("row04", sample)
    accepted = (np.diff(chains["draws"], axis=1) != 0).any(axis=-1).mean()
    print(f"accepted: {accepted:.2f}")
    found = replicate("row04", data_of(chains), METHODS)
    plain = found.pop("plain")
    same = "equations, data, noise, priors, f, MALA, its steps, lengths"
    lines = []

    def add(method, published, k, value: Interval, repeats, matched, apart):
        said = exactly(PUBLISHED[published][k])
        lines.append(Line(4, SETTING, NAMES[k], method, GAIN, published, said, value, repeats, matched, apart, SOURCE))

    for label, ratios in theirs(chains).items():
        for k, value in enumerate(ratios):
            add(f"{label}, as theirs", label, k, exactly(value), CHAINS, f"{same}, window", "their solver; repeats")
    for label, estimates in found.items():
        for k in range(4):
            value = gain(plain[:, k], estimates[:, k])
            apart = "true gain; each chain as four; cross-fitted; their solver; repeats"
            add(label, BEST, k, value, len(estimates), same, apart)
    keep(lines, "row04")


if __name__ == "__main__":
    main()
