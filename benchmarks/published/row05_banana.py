"""Row 5 of the published numbers: the banana in 8 dimensions by a random walk, the sum of its coordinates.

    python benchmarks/published/row05_banana.py

Published (Brosse, Durmus, Meyn, Moulines 2018, as run in a public notebook), ratios of spectral variances: zero
variance of degree 1 1.48, of degree 2 2.87; the diffusion's loss of degree 1 1.98, of degree 2 9.57.

Matched: density, dimension, random walk of variance 2 x 0.1, burn-in 1e4, chains of 1e5 draws. Not matched: 24 chains
to test on instead of 100, and their width of the spectral window, which is not known: here the variances of the chains'
means are compared as well. Fitted on one more chain, as they did.
`Auto()` takes six of the chains, each as four of 25,000 draws: the last lines are the plain mean, its own and its
standard error, of a sum whose mean is 0.
Rows that are in the table already are not run again.
"""

import csv
import tempfile
from pathlib import Path

import numpy as np

import steincv as scv
from steincv.families.spectral import window_sums

B, M, DIM, STEP = 0.1, 10.0, 8, 0.1
BURN_IN, DRAWS, TESTS, AUTO_TESTS, WINDOW, SEED = 10_000, 100_000, 24, 6, 5000, 5
OUT = Path(__file__).with_name("row05_banana.csv")
CACHE = Path(tempfile.gettempdir()) / "steincv_bench" / f"row05-{DRAWS}-{TESTS}.npy"
PUBLISHED = {"degree 1": 1.48, "degree 2": 2.87, "degree 1, diffusion": 1.98, "degree 2, diffusion": 9.57}
METHODS = {
    f"degree {degree}{'' if objective == 'variance' else ', ' + objective}": scv.Polynomial(degree, objective=objective)
    for degree in (1, 2, 3)
    for objective in ("variance", "diffusion", "spectral")
}


def log_density(x):
    return -0.5 * (x[:, 0] ** 2 / M + (x[:, 1] + B * x[:, 0] ** 2 - M * B) ** 2 + (x[:, 2:] ** 2).sum(axis=1))


def score(x):
    bend = x[..., 1] + B * x[..., 0] ** 2 - M * B
    return np.concatenate([np.stack([-x[..., 0] * (1 / M + 2 * B * bend), -bend], axis=-1), -x[..., 2:]], axis=-1)


def chains():
    """The chain to fit on and those to test on, `(chain, draw, dim)`."""
    if not CACHE.exists():
        rng = np.random.default_rng(SEED)
        x = rng.normal(size=(TESTS + 1, DIM))
        value, kept = log_density(x), np.empty((DRAWS, TESTS + 1, DIM))
        for t in range(-BURN_IN, DRAWS):
            new = x + np.sqrt(2 * STEP) * rng.normal(size=x.shape)
            there = log_density(new)
            take = np.log(rng.random(len(x))) < there - value
            x, value = np.where(take[:, None], new, x), np.where(take, there, value)
            kept[max(t, 0)] = x
        CACHE.parent.mkdir(exist_ok=True)
        np.save(CACHE, kept.swapaxes(0, 1))
    return np.load(CACHE, mmap_mode="r")


def spectral(series):
    """The spectral variance at zero of `(chain, draw)`, about the known mean of 0."""
    return (window_sums(series[..., None], WINDOW) ** 2).sum() / series.size


def ratios(plain, controlled):
    means = [(series.mean(axis=1) ** 2).mean() for series in (plain, controlled)]
    return spectral(plain) / spectral(controlled), means[0] / means[1]


def main():
    done = {row[0] for row in csv.reader(OUT.open())} if OUT.exists() else set()
    x = chains()
    train = scv.Samples(x[0], score(x[0]))
    f = x[1:].sum(axis=-1)
    with OUT.open("a", newline="") as file:
        write = csv.writer(file).writerow
        if not done:
            write(["method", "published", "spectral variances", "variances of means"])
        for name, method in METHODS.items():
            if name not in done:
                fitted = method.fit(train, x[0].sum(axis=-1)[None])
                g = np.stack([fitted(scv.Samples(chain, score(chain)))[0, :, 0] for chain in x[1:]])
                found = ratios(f, f + g)
                write([name, PUBLISHED.get(name, ""), *(f"{value:.2f}" for value in found)])
                print(name, *found, flush=True)
                file.flush()
        for k in range(1, AUTO_TESTS + 1):
            if f"Auto(), chain {k}" not in done:
                four = np.array(x[k]).reshape(4, -1, DIM)
                result = scv.estimate(scv.Samples(four, score(four)), four.sum(axis=-1))
                own = [float(value) for value in (result.plain.mean, result.mean, result.standard_error)]
                write([f"Auto(), chain {k}", "", *(f"{value:.4f}" for value in own)])
                file.flush()


if __name__ == "__main__":
    main()
