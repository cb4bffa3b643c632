"""Is the log evidence of `scv.bridge` where its error bar says, and how far below plain bridge sampling is its error?

Conjugate regressions with known evidence, 4 x 500 independent draws. With the noise known the posterior is normal; with
its logarithm as a parameter it is not. The posterior side has a polynomial, or with `auto` the default, on fewer
replications. With `--correlation` draws are chains that are autocorrelated so much: of .9 a hundred effective draws, of
.97 thirty. A row of `results/bridge.csv` that is there is not run again.

    python benchmarks/bridge.py [auto] [dim ...] [--correlation R] [--processes N] [--first SEED] [--path FILE]
"""

import argparse
import csv
import functools
import multiprocessing
import time
from pathlib import Path

import numpy as np
from scipy.special import gammaincinv, gammaln, ndtr

import steincv as scv
from steincv.samples.log_density import LogDensity

REPLICATIONS, OF_AUTO = 100, 25
SHAPE = (4, 500)
DIMENSIONS = (2, 10, 50, 200)
OUT = Path(__file__).parent / "results" / "bridge.csv"
SHAPE_PRIOR, RATE_PRIOR = 2.0, 2.0


class Regression:
    """y = X b + noise of variance v, b ~ N(0, v), four data a coefficient; v = 1, or inverse gamma and unknown."""

    def __init__(self, dim: int, known: bool):
        rng = np.random.default_rng(1)
        self.dim, self.n, self.known = dim, 4 * dim + 10, known
        self.x = rng.normal(size=(self.n, dim))
        self.y = self.x @ rng.normal(size=dim) + rng.normal(size=self.n)
        precision = self.x.T @ self.x + np.eye(dim)
        self.mean = np.linalg.solve(precision, self.x.T @ self.y)
        self.factor = np.linalg.cholesky(np.linalg.inv(precision))
        least = 0.5 * (self.y @ self.y - self.mean @ precision @ self.mean)
        self.exact = -0.5 * self.n * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]
        self.a, self.b = SHAPE_PRIOR + self.n / 2, RATE_PRIOR + least
        if known:
            self.exact -= least
        else:
            self.exact += (
                SHAPE_PRIOR * np.log(RATE_PRIOR) - self.a * np.log(self.b) + gammaln(self.a) - gammaln(SHAPE_PRIOR)
            )

    def samples(self, seed: int, correlation: float = 0.0) -> scv.Samples:
        rng = np.random.default_rng(seed)
        w = rng.normal(size=(*SHAPE, self.dim + 1))
        if correlation:
            w[:, 1:] *= np.sqrt(1 - correlation**2)
            for k in range(1, SHAPE[1]):
                w[:, k] += correlation * w[:, k - 1]
        variance = np.ones(SHAPE) if self.known else self.b / gammaincinv(self.a, ndtr(w[..., -1]))
        x = self.mean + np.sqrt(variance)[..., None] * (w[..., :-1] @ self.factor.T)
        x = x if self.known else np.concatenate([x, np.log(variance)[..., None]], axis=-1)
        scores = self.density(x.reshape(-1, x.shape[-1]))[1].reshape(x.shape)
        return scv.Samples(x, scores, log_density=LogDensity(self.density))

    def density(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        beta, log_variance = theta[:, : self.dim], 0.0 if self.known else theta[:, self.dim]
        residual, e = self.y - beta @ self.x.T, np.exp(-log_variance) * np.ones(len(theta))
        square, count = (residual**2).sum(axis=1) + (beta**2).sum(axis=1), self.n + self.dim
        value = -0.5 * count * (np.log(2 * np.pi) + log_variance) - 0.5 * e * square
        by_beta = e[:, None] * (residual @ self.x - beta)
        if self.known:
            return value, by_beta
        value += SHAPE_PRIOR * (np.log(RATE_PRIOR) - log_variance) - gammaln(SHAPE_PRIOR) - RATE_PRIOR * e
        return value, np.column_stack([by_beta, -0.5 * count + 0.5 * e * square - SHAPE_PRIOR + RATE_PRIOR * e])


def one(model: Regression, method: scv.Method, correlation: float, seed: int) -> tuple[float, ...]:
    start = time.process_time()
    result = scv.bridge(model.samples(1000 + seed, correlation), seed=seed, method=method)
    low, high = result.interval(0.95)
    plain_low, plain_high = result.plain.interval(0.95)
    return (
        result.mean - model.exact,
        result.standard_error,
        low <= model.exact <= high,
        result.plain.mean - model.exact,
        result.plain.standard_error,
        plain_low <= model.exact <= plain_high,
        result.info["overlap"],
        result.info["classic_overlap"],
        time.process_time() - start,
    )


def row(
    dim: int, known: bool, method: scv.Method, correlation: float, seeds: range, processes: int
) -> dict[str, object]:
    ask = functools.partial(one, Regression(dim, known), method, correlation)
    if processes == 1:
        found = [ask(seed) for seed in seeds]
    else:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            found = pool.map(ask, seeds, chunksize=1)
    off, error, covered, plain, plain_error, plain_covered, overlap, classic, seconds = np.array(found, dtype=float).T
    return {
        "dim": dim,
        "noise": "known" if known else "unknown",
        "method": str(method),
        "correlation": correlation,
        "replications": len(seeds),
        "rmse": f"{np.sqrt((off**2).mean()):.3g}",
        "mean_error": f"{error.mean():.3g}",
        "within_3": f"{(np.abs(off) <= 3 * error).mean():.3f}",
        "covered_95": f"{covered.mean():.3f}",
        "plain_rmse": f"{np.sqrt((plain**2).mean()):.3g}",
        "plain_within_3": f"{(np.abs(plain) <= 3 * plain_error).mean():.3f}",
        "plain_covered_95": f"{plain_covered.mean():.3f}",
        "variance_factor": f"{(plain**2).mean() / (off**2).mean():.3g}",
        "overlap": f"{overlap.mean():.3f}",
        "classic_overlap": f"{classic.mean():.3f}",
        "cpu_seconds": f"{seconds.mean():.2g}",
    }


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("what", nargs="*", help="auto, dimensions")
    ask.add_argument("--correlation", type=float, default=0.0, help="of neighbouring draws; 0: independent ones")
    ask.add_argument("--processes", type=int, default=1)
    ask.add_argument("--first", type=int, default=0, help="the first seed, to choose on some and check on others")
    ask.add_argument("--path", type=Path, default=OUT)
    given = ask.parse_args()
    auto, correlation = "auto" in given.what, given.correlation
    dimensions = [int(a) for a in given.what if a.isdecimal()] or DIMENSIONS
    rows = list(csv.DictReader(given.path.open())) if given.path.exists() else []
    for dim in dimensions:
        for known in (False,) if auto else (True, False):
            small = dim <= 10 or (known and dim <= 50)  # a quadratic in 50 dimensions is slow
            method = scv.Auto() if auto else scv.Polynomial(2 if small else 1)
            key = (str(dim), "known" if known else "unknown", str(method), str(correlation))
            if any((r["dim"], r["noise"], r["method"], r["correlation"]) == key for r in rows):
                continue
            seeds = range(given.first, given.first + (OF_AUTO if auto else REPLICATIONS))
            found = row(dim, known, method, correlation, seeds, given.processes)
            rows.append({k: str(v) for k, v in found.items()})
            rows.sort(key=lambda r: (r["correlation"], r["noise"], r["method"] == "Auto()", int(r["dim"])))
            print(rows[-1], found, flush=True)
            with given.path.open("w", newline="") as file:
                writer = csv.DictWriter(file, rows[0], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main()
