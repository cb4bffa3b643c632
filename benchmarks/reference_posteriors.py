"""Do controlled means agree with a run 100 times longer, for every parameter of six posteriors?

    OPENBLAS_NUM_THREADS=1 python benchmarks/reference_posteriors.py [NAME ...]

Eight schools, a logistic regression, a GARCH model, Lotka-Volterra, a hierarchical Poisson and a Gaussian process.
4 chains of 500 draws of NUTS against 64 chains of 3125, with the standard errors of both. Long runs and draws are kept
in the cache of the benchmarks, finished posteriors in results/reference_posteriors.csv: a run that was stopped goes on.
Some ten minutes on one core.
"""

import csv
import dataclasses
import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
from problems import Problem, draw, eight_schools, garch, logistic, long_run, lotka_volterra, values_at
from tables import RESULTS, keep, show

from steincv import Auto, Code, Polynomial, Samples, estimate

CHAINS, DRAWS = 4, 500
LONG = (64, 3125)  # 100 times as many
LIMIT = 4.0
METHODS = (Polynomial(2), Auto())


def poisson() -> Problem:
    """Ten pumps: y_i ~ Poisson(rate_i t_i), rate_i ~ Gamma(a, b), a ~ Exponential(1), b ~ Gamma(0.1, 1).

    Gaver and O'Muircheartaigh (1987), the data of many textbooks. In logarithms, with their Jacobian.
    """
    failures = np.array([5.0, 1, 5, 14, 3, 19, 1, 1, 4, 22])
    hours = np.array([94.32, 15.72, 62.88, 125.76, 5.24, 31.44, 1.048, 1.048, 2.096, 10.48])

    def logdensity(x):
        a, b, rate = jnp.exp(x[0]), jnp.exp(x[1]), jnp.exp(x[2:])
        likelihood = failures @ x[2:] - hours @ rate
        rates = jnp.sum((a - 1) * x[2:] - b * rate + a * x[1] - jax.scipy.special.gammaln(a))
        return likelihood + rates - a + (0.1 - 1) * x[1] - b + jnp.sum(x)

    names = ("log_a", "log_b", *(f"log_rate[{i}]" for i in range(10)))
    functionals = {name.removeprefix("log_"): lambda x, k=k: jnp.exp(x[k]) for k, name in enumerate(names)}
    return Problem("poisson", 12, logdensity, functionals, names)


def gaussian_process() -> Problem:
    """Length scale, amplitude and noise of a Gaussian process seen at 25 points, each lognormal; f integrated out.

    Its value at a new place, given these, is a fourth functional.
    """
    rng = np.random.default_rng(8)
    at = np.sort(rng.uniform(-3, 3, 25))
    seen = np.sin(1.5 * at) + 0.3 * rng.normal(size=25)
    square = (at[:, None] - at) ** 2
    new = (0.5 - at) ** 2
    center, width = np.log([1.0, 1.0, 0.3]), np.array([0.5, 0.5, 0.5])

    def kernel(x, square):
        return jnp.exp(2 * x[1] - 0.5 * square * jnp.exp(-2 * x[0]))

    def logdensity(x):
        root = jnp.linalg.cholesky(kernel(x, square) + jnp.exp(2 * x[2]) * jnp.eye(25))
        white = jax.scipy.linalg.solve_triangular(root, seen, lower=True)
        return -0.5 * white @ white - jnp.sum(jnp.log(jnp.diag(root))) - 0.5 * jnp.sum(((x - center) / width) ** 2)

    def prediction(x):
        return kernel(x, new) @ jnp.linalg.solve(kernel(x, square) + jnp.exp(2 * x[2]) * jnp.eye(25), seen)

    labels = ("length", "amplitude", "noise")
    functionals = {name: lambda x, k=k: jnp.exp(x[k]) for k, name in enumerate(labels)} | {"f(0.5)": prediction}
    return Problem("gaussian_process", 3, logdensity, functionals, tuple(f"log_{name}" for name in labels))


def every_coefficient() -> Problem:
    problem = logistic(10)
    return dataclasses.replace(problem, functionals={f"beta[{k}]": lambda x, k=k: x[k] for k in range(10)})


POSTERIORS = {
    "eight schools": eight_schools,
    "logistic regression": every_coefficient,
    "GARCH(1,1)": garch,
    "hierarchical Poisson": poisson,
    "Gaussian process": gaussian_process,
    "Lotka-Volterra": lotka_volterra,
}


def study(name):
    """One row a parameter and method."""
    problem = dataclasses.replace(POSTERIORS[name](), truth=None, long_run=LONG)
    start = time.perf_counter()
    known = long_run(problem)
    sampled = time.perf_counter() - start
    [(x, s)] = draw(problem, 4, CHAINS, DRAWS)
    samples, values = Samples(x, s, problem.names), values_at(problem, x)
    rows = []
    for method in METHODS:
        result = estimate(samples, values, method)
        for k, label in enumerate(result.labels):
            reference, own = known[label]
            plain = result.plain
            rows.append(
                {
                    "posterior": name,
                    "parameter": label,
                    "method": str(method),
                    "reference": reference,
                    "its se": own,
                    "mean": float(result.mean[k]),
                    "se": float(result.standard_error[k]),
                    "z": float((result.mean[k] - reference) / np.hypot(result.standard_error[k], own)),
                    "z of the plain mean": float((plain.mean[k] - reference) / np.hypot(plain.standard_error[k], own)),
                    "variance reduction": float(1 / result.variance_ratio[k]),
                    "status": "; ".join(s.name for s in result.status[k]),
                    "alarm": "yes" if any(s.code is Code.STEIN_MEAN for s in result.status[k]) else "",
                }
            )
    print(f"{name}: long run {sampled:.0f} s, all {time.perf_counter() - start:.0f} s", flush=True)
    return rows


def main():
    path = RESULTS / "reference_posteriors.csv"
    rows = []
    if path.exists():
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    for name in sys.argv[1:] or POSTERIORS:
        if any(row["posterior"] == name for row in rows):
            continue
        rows += study(name)
        keep("reference_posteriors", rows)
    order = list(POSTERIORS)
    rows.sort(key=lambda row: order.index(row["posterior"]))
    show("controlled means against runs 100 times longer", rows)
    for method in METHODS:
        mine = [row for row in rows if row["method"] == str(method)]
        z = np.abs([float(row["z"]) for row in mine])
        print(f"{method}: {len(mine)} parameters, {np.sum(z > LIMIT)} beyond {LIMIT} errors, largest {z.max():.2f}")


if __name__ == "__main__":
    main()
