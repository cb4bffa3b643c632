"""Row 5 of the published numbers: the banana in 8 dimensions by a random walk, the sum of its coordinates.

    python benchmarks/published/row05_banana.py

Published (the methods of Brosse, Durmus, Meyn, Moulines, Radhakrishnan 2018, as run in a public notebook), means over
100 chains of ratios of spectral variances: zero variance of degree 1 1.48, of degree 2 2.87; the diffusion's loss of
degree 1 1.98, of degree 2 9.57.

The notebook fits on every chain and looks at the same chain, by Tukey and Hanning's window of 316 lags, the root of the
1e5 draws; some 280 draws count as one. `as theirs` does the same. All other lines are true gains: squared errors of the
estimates from single chains of 1e5 draws, whose mean is 0. Ours takes each chain as four of 25,000 draws.
"""

import numpy as np
from common import (
    GAIN,
    Data,
    Interval,
    Line,
    Planned,
    exactly,
    folder,
    gain,
    keep,
    lag_variance,
    of_mean,
    ours,
    replicate,
    tukey_hanning,
)
from numpy.lib.format import open_memmap

import steincv as scv
from steincv.families.polynomial.polynomial import hermite_basis, stein_features

B, M, DIM, STEP = 0.1, 10.0, 8, 0.1
BURN_IN, DRAWS, CHAINS, FEWER, AUTO, SEED = 10_000, 100_000, 100, 20, 20, 5
SETTING = "banana, D = 8, random walk"
SOURCE = "Brosse et al. 2018, as run in a public notebook"
BEST = "diffusion, degree 2"
PUBLISHED = {"ZV degree 1": 1.48, "diffusion, degree 1": 1.98, "ZV degree 2": 2.87, BEST: 9.57}


def log_density(x):
    return -0.5 * (x[:, 0] ** 2 / M + (x[:, 1] + B * x[:, 0] ** 2 - M * B) ** 2 + (x[:, 2:] ** 2).sum(axis=1))


def score(x):
    bend = x[..., 1] + B * x[..., 0] ** 2 - M * B
    return np.concatenate([np.stack([-x[..., 0] * (1 / M + 2 * B * bend), -bend], axis=-1), -x[..., 2:]], axis=-1)


def chains():
    """All chains, `(draw, chain, dim)`."""
    path = folder() / f"row05-{DRAWS}-{CHAINS}.npy"
    if not path.exists():
        rng = np.random.default_rng(SEED)
        x = 2 * rng.normal(size=(CHAINS, DIM))
        part = path.with_suffix(".part")
        value, found = log_density(x), open_memmap(part, "w+", shape=(DRAWS, CHAINS, DIM))
        for t in range(-BURN_IN, DRAWS):
            new = x + np.sqrt(2 * STEP) * rng.normal(size=x.shape)
            there = log_density(new)
            take = np.log(rng.random(CHAINS)) < there - value
            x, value = np.where(take[:, None], new, x), np.where(take, there, value)
            found[max(t, 0)] = x
        part.replace(path)
    return np.load(path, mmap_mode="r")


def data(r):
    four = np.array(chains()[:, r]).reshape(4, -1, DIM)
    return Data(four, score(four), four.sum(axis=-1, keepdims=True))


def theirs(data, seed):
    """Ratios of spectral variances of the published methods, and their means, all on the chain they are fitted to."""
    x, f = data.draws.reshape(-1, DIM), data.values.reshape(-1)
    features, basis = stein_features(x, score(x), 2), hermite_basis(x, 2)
    a, p = features - features.mean(axis=0), basis - basis.mean(axis=0)
    series = [f]
    for k in (DIM, features.shape[1]):
        gram = np.eye(k) * -len(f) if k == DIM else p[:, :k].T @ a[:, :k]  # with degree 1 they put its mean
        for left, right in ((a[:, :k].T @ a[:, :k], a), (gram, p)):
            series.append(f - features[:, :k] @ np.linalg.solve(left, right[:, :k].T @ (f - f.mean())))
    series = np.stack(series, axis=1)
    variance = lag_variance(series, tukey_hanning(int(np.sqrt(DRAWS))))
    return np.concatenate([variance[0] / variance[1:], series.mean(axis=0)[1:]])


METHODS = {
    "plain": Planned(lambda data, seed: data.values.mean(), CHAINS),
    "all as theirs": Planned(theirs, CHAINS),
    "Polynomial(2)": Planned(ours(scv.Polynomial(2)), FEWER),
    "Polynomial(2), diffusion": Planned(ours(scv.Polynomial(2, objective="diffusion")), FEWER),
    "Polynomial(2), spectral": Planned(ours(scv.Polynomial(2, objective="spectral")), FEWER),
    "Polynomial(3), diffusion": Planned(ours(scv.Polynomial(3, objective="diffusion")), FEWER),
    "Polynomial(2), learned": Planned(ours(scv.Polynomial(2), "learned"), FEWER),
    "Polynomial(2), diffusion, learned": Planned(ours(scv.Polynomial(2, objective="diffusion"), "learned"), FEWER),
    "Auto()": Planned(ours(scv.Auto()), AUTO),
}


def line(method, published, found: Interval, repeats, matched, apart) -> Line:
    said, f = exactly(PUBLISHED[published]), "sum of all coordinates"
    return Line(5, SETTING, f, method, GAIN, published, said, found, repeats, matched, apart, SOURCE)


def main() -> None:
    found = replicate("row05", data, METHODS)
    plain, own = found.pop("plain"), found.pop("all as theirs")
    same = "density, f, random walk, burn-in, 100 chains of 1e5 draws"
    lines = []
    for k, label in enumerate(PUBLISHED):
        matched = f"{same}, window, fitted to the chain itself"
        lines.append(line(f"{label}, as theirs", label, of_mean(own[:, k]), CHAINS, matched, "seeds"))
        apart = "true gain, not a ratio of spectral variances"
        lines.append(line(f"{label}, in sample", label, gain(plain, own[:, 4 + k]), CHAINS, same, apart))
    for label, estimates in found.items():
        apart = "true gain; each chain as four; cross-fitted; repeats"
        matched = "density, f, random walk, burn-in, length"
        lines.append(line(label, BEST, gain(plain, estimates), len(estimates), matched, apart))
    keep(lines, "row05")


if __name__ == "__main__":
    main()
