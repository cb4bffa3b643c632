"""Derivatives by powers of the prior and the likelihood: are they within their error bars, and what is gained?

Conjugate regressions with known noise and logistic regressions, 4 x 500 independent draws, the means of all
coefficients and of their squares; exact derivatives from the normal posterior, or by quadrature in two dimensions. The
default, `Auto()` and two polynomials; `results/sensitivity.csv`.

    python benchmarks/sensitivity.py [--repeats N] [--first SEED] [--processes N]
"""

import argparse
import functools
import multiprocessing
import time

import numpy as np
from scipy.special import expit, log_expit
from tables import keep

import steincv as scv

REPEATS = 25
SHAPE = (4, 500)
DIMENSIONS = (3, 5, 10)
METHODS = (scv.Polynomial(2), scv.Polynomial(3), scv.Auto(), None)


class Regression:
    """theta ~ N(1, 2 I), y = X theta + N(0, I), four data a coefficient: normal for all powers of both."""

    def __init__(self, dim: int):
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(4 * dim, dim))
        self.y = self.x @ rng.normal(size=dim) + rng.normal(size=4 * dim)
        # precisions, and precisions times means, of what the posterior is the product of
        self.parts = ((np.eye(dim) / 2, np.ones(dim) / 2), (self.x.T @ self.x, self.x.T @ self.y))
        self.spread = np.linalg.inv(sum(p for p, _ in self.parts))
        self.mean = self.spread @ sum(v for _, v in self.parts)

    def exact(self) -> np.ndarray:
        found = []
        for precision, pull in self.parts:
            mean, spread = self.spread @ (pull - precision @ self.mean), -self.spread @ precision @ self.spread
            found += [mean, 2 * self.mean * mean + np.diag(spread)]
        return np.concatenate(found)

    def draws(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return draws and scores."""
        normal = np.random.default_rng(seed).normal(size=(*SHAPE, len(self.mean)))
        x = self.mean + normal @ np.linalg.cholesky(self.spread).T
        return x, -(x - self.mean) @ np.linalg.inv(self.spread)

    def logs(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the logarithms of prior and likelihood."""
        return -0.25 * ((x - 1) ** 2).sum(-1), -0.5 * ((self.y - x @ self.x.T) ** 2).sum(-1)


class Logistic:
    """Few data: theta ~ N(0, 4 I) in two dimensions, y = 1 with probability expit(X theta). Draws by rejection."""

    def __init__(self, data: int):
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(data, 2))
        self.y = np.sign(rng.random(data) - expit(-self.x @ np.array([1.0, -0.5])))
        axis = np.linspace(-14, 14, 1401)
        self.grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        log = sum(self.logs(self.grid))
        self.weight = np.exp(log - log.max())
        self.weight /= self.weight.sum()
        self.mean = self.weight @ self.grid
        self.factor = np.linalg.cholesky(1.2 * (self.weight * (self.grid - self.mean).T) @ (self.grid - self.mean))
        self.most = (log - self._proposal(self.grid)).max() + 0.1

    def logs(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return -0.125 * (x**2).sum(-1), log_expit(self.y * (x @ self.x.T)).sum(-1)

    def exact(self) -> np.ndarray:
        f = np.concatenate([self.grid, self.grid**2], axis=-1)
        f = f - self.weight @ f
        return np.concatenate([(self.weight * log) @ f for log in self.logs(self.grid)])

    def draws(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng, found, n = np.random.default_rng(seed), [], SHAPE[0] * SHAPE[1]
        while sum(map(len, found)) < n:
            t = rng.normal(size=(n, 2)) / np.sqrt(rng.chisquare(5, size=(n, 1)) / 5)
            x = self.mean + t @ self.factor.T
            log = sum(self.logs(x)) - self._proposal(x) - self.most
            found.append(x[np.log(rng.random(n)) < log])
        x = np.concatenate(found)[:n].reshape(*SHAPE, 2)
        return x, -0.25 * x + (self.y * expit(-self.y * (x @ self.x.T))) @ self.x

    def _proposal(self, x: np.ndarray) -> np.ndarray:
        """Return the log density of Student's t on 5 degrees of freedom, up to a constant."""
        z = np.linalg.solve(self.factor, (x - self.mean).T)
        return -3.5 * np.log1p((z**2).sum(axis=0) / 5)


def found(model: Regression | Logistic, method: scv.Method | None, seed: int) -> tuple[np.ndarray, ...]:
    """Return the derivatives, plain and controlled, with errors and intervals, and the seconds."""
    start = time.process_time()
    x, scores = model.draws(seed)
    logs = dict(zip(("log_prior", "log_likelihood"), model.logs(x), strict=True))
    f = np.concatenate([x, x**2], axis=-1)
    result = scv.sensitivity(scv.Samples(x, scores), f, **logs, method=method, seed=seed)
    seconds = time.process_time() - start
    return result.plain.mean, result.mean, result.standard_error, *result.interval(0.95).T, np.full(4, seconds)


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("--repeats", type=int, default=REPEATS)
    ask.add_argument("--first", type=int, default=0, help="the first seed, to choose on some and check on others")
    ask.add_argument("--processes", type=int, default=1)
    given = ask.parse_args()
    seeds = range(given.first, given.first + given.repeats)
    models = {f"conjugate, D = {dim}": Regression(dim) for dim in DIMENSIONS}
    models |= {f"logistic, {data} data": Logistic(data) for data in (10, 30)}
    rows = []
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        for name, model in models.items():
            exact = model.exact()
            for method in METHODS:
                parts = zip(*pool.map(functools.partial(found, model, method), seeds, chunksize=1), strict=True)
                plain, mean, error, low, high, seconds = map(np.array, parts)
                off, plain = mean - exact, plain - exact
                gain = (plain**2).mean(axis=0) / np.maximum((off**2).mean(axis=0), 1e-300)
                gain = gain.reshape(2, 2, -1)
                row = {"model": name, "method": str(method or "default"), "repeats": given.repeats}
                row |= {"within_3": f"{(np.abs(off) <= 3 * error).mean():.3f}"}
                row |= {"covered_95": f"{((low <= exact) & (exact <= high)).mean():.3f}"}
                for k, of in enumerate(("means", "squares")):
                    row |= {f"{of}, median": f"{np.median(gain[:, k]):.3g}", f"{of}, worst": f"{gain[:, k].min():.3g}"}
                rows.append(row | {"cpu_seconds": f"{seconds.mean():.2g}"})
                print(rows[-1], flush=True)
    keep("sensitivity", rows)


if __name__ == "__main__":
    main()
