"""Derivatives by powers of the prior and the likelihood: are they within their error bars, and what is gained?

Conjugate regressions with known noise, 4 x 500 independent draws, the means of all coefficients and of their squares;
exact derivatives from the normal posterior. The default and two polynomials; `results/sensitivity.csv`.

    python benchmarks/sensitivity.py [repeats]
"""

import sys
import time

import numpy as np
from tables import keep

import steincv as scv

REPEATS = 25
SHAPE = (4, 500)
DIMENSIONS = (3, 10)
METHODS = (scv.Polynomial(2), scv.Polynomial(3), scv.Auto())


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

    def found(self, method: scv.Method, seed: int) -> scv.Estimate:
        normal = np.random.default_rng(seed).normal(size=(*SHAPE, len(self.mean)))
        x = self.mean + normal @ np.linalg.cholesky(self.spread).T
        samples = scv.Samples(x, -(x - self.mean) @ np.linalg.inv(self.spread))
        prior, likelihood = -0.25 * ((x - 1) ** 2).sum(-1), -0.5 * ((self.y - x @ self.x.T) ** 2).sum(-1)
        f = np.concatenate([x, x**2], axis=-1)
        return scv.sensitivity(samples, f, log_prior=prior, log_likelihood=likelihood, method=method, seed=seed)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    rows = []
    for dim in DIMENSIONS:
        model = Regression(dim)
        exact = model.exact()
        for method in METHODS:
            start = time.process_time()
            results = [model.found(method, k) for k in range(repeats)]
            seconds = (time.process_time() - start) / repeats
            off = np.array([r.mean for r in results]) - exact
            plain = np.array([r.plain.mean for r in results]) - exact
            inside = np.abs(off) <= 3 * np.array([r.standard_error for r in results])
            ends = np.array([r.interval(0.95) for r in results]) - exact[:, None]
            covered = (ends[..., 0] <= 0) & (ends[..., 1] >= 0)
            gain = ((plain**2).mean(axis=0) / np.maximum((off**2).mean(axis=0), 1e-300)).reshape(2, 2, dim)
            row = {"dim": dim, "method": str(method), "repeats": repeats, "within_3": f"{inside.mean():.3f}"}
            row |= {"covered_95": f"{covered.mean():.3f}"}
            for k, name in enumerate(("means", "squares")):
                row |= {f"{name}, median": f"{np.median(gain[:, k]):.3g}", f"{name}, worst": f"{gain[:, k].min():.3g}"}
            rows.append(row | {"cpu_seconds": f"{seconds:.2g}"})
            print(rows[-1], flush=True)
    keep("sensitivity", rows)


if __name__ == "__main__":
    main()
