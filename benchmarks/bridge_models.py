"""Is the log evidence from one run right on posteriors that are not normal? Against quadrature, by independent runs.

Van der Pol from the rung t = 1 alone, eight schools (non-centred) and a logistic regression in three dimensions, each
from 4 chains x 500 draws of Hamiltonian Monte Carlo (the first: independent draws); `results/bridge_models.csv`.

    python benchmarks/bridge_models.py [runs]
"""

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import scipy.integrate
import scipy.special
import scipy.stats

import steincv as scv
from steincv.samples.log_density import LogDensity
from steincv_paper.models.van_der_pol import EXACT, van_der_pol

RUNS = 40
CHAINS, DRAWS = 4, 500
OUT = Path(__file__).parent / "results" / "bridge_models.csv"
EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
Density = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Problem(NamedTuple):
    density: Density
    exact: float
    draws: Callable[[int], np.ndarray]


def normal(x: np.ndarray, sd: float | np.ndarray = 1.0) -> np.ndarray:
    return -0.5 * (x / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)


def hamiltonian(density: Density, scale: np.ndarray, runs: int, step: float = 0.35, steps: int = 8) -> np.ndarray:
    """Return draws of all runs at once, `(run, chain, draw, dim)`: leapfrog, after 500 of warm-up."""
    rng = np.random.default_rng(5)
    z = 0.1 * rng.normal(size=(runs * CHAINS, len(scale)))
    kept = []

    def at(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = density(z * scale)
        return value, slope * scale

    value, slope = at(z)
    for k in range(500 + DRAWS):
        p = rng.normal(size=z.shape)
        h = step * rng.uniform(0.7, 1.3, size=(len(z), 1))
        y, s, q = z, slope, p
        for _ in range(steps):
            q = q + 0.5 * h * s
            y = y + h * q
            new, s = at(y)
            q = q + 0.5 * h * s
        with np.errstate(over="ignore", invalid="ignore"):
            accept = np.log(rng.uniform(size=len(z))) < new - value + 0.5 * (p**2 - q**2).sum(axis=1)
        z, slope, value = (
            np.where(accept[:, None], y, z),
            np.where(accept[:, None], s, slope),
            np.where(accept, new, value),
        )
        if k >= 500:
            kept.append(z * scale)
    return np.stack(kept, axis=1).reshape(runs, CHAINS, DRAWS, -1)


def eight_schools(runs: int) -> Problem:
    def density(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mu, log_tau, eta = x[:, :1], x[:, 1:2], x[:, 2:]
        tau = np.exp(log_tau)
        away = (EFFECT - mu - tau * eta) / ERROR
        value = normal(mu, 5.0)[:, 0] + np.log(2) + normal(tau, 5.0)[:, 0] + log_tau[:, 0] + normal(eta).sum(axis=1)
        value += (-0.5 * away**2 - np.log(ERROR) - 0.5 * np.log(2 * np.pi)).sum(axis=1)
        pull = away / ERROR
        by_tau = -(tau**2) / 25 + 1 + (pull * tau * eta).sum(axis=1, keepdims=True)
        return value, np.concatenate([-mu / 25 + pull.sum(axis=1, keepdims=True), by_tau, -eta + tau * pull], axis=1)

    def given(tau: float) -> float:
        spread = np.diag(ERROR**2 + tau**2) + 25.0
        return scipy.stats.multivariate_normal(np.zeros(8), spread).pdf(EFFECT) * 2 * scipy.stats.norm(0, 5).pdf(tau)

    draws = hamiltonian(density, np.array([3.3, 1.0, *[1.0] * 8]), runs)
    return Problem(density, float(np.log(scipy.integrate.quad(given, 0, 60)[0])), lambda k: draws[k])


def logistic(runs: int) -> Problem:
    rng = np.random.default_rng(2)
    x = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    y = rng.uniform(size=40) < scipy.special.expit(x @ np.array([0.5, 1.5, -1.0]))
    signs = np.where(y, 1.0, -1.0)

    def density(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        margin = signs * (b @ x.T)
        value = -np.logaddexp(0, -margin).sum(axis=1) + normal(b, 2.0).sum(axis=1)
        return value, (scipy.special.expit(-margin) * signs) @ x - b / 4

    # the trapezoid rule on a fine grid is right to many digits for a function that vanishes at its ends
    axis = np.linspace(-6, 8, 141)
    grid = np.stack(np.meshgrid(axis, axis, axis - 3, indexing="ij"), axis=-1).reshape(-1, 3)
    values = np.concatenate([density(part)[0] for part in np.array_split(grid, 50)])
    exact = scipy.special.logsumexp(values) + 3 * np.log(axis[1] - axis[0])
    draws = hamiltonian(density, np.array([0.45, 0.55, 0.5]), runs)
    return Problem(density, float(exact), lambda k: draws[k])


def van_der_pol_alone(runs: int) -> Problem:
    model = van_der_pol().posterior

    def total(x: np.ndarray) -> jax.Array:
        likelihood, prior = model.parts(x)
        return (likelihood + prior).sum()

    both = jax.jit(lambda x: (sum(model.parts(x)), jax.grad(total)(x)))

    def density(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            value, slope = both(x)
            return np.asarray(value), np.asarray(slope)

    grid = np.linspace(-0.4, 0.4, 40_001)
    log = density(grid[:, None])[0]
    cumulated = np.cumsum(np.exp(log - log.max()))
    cumulated /= cumulated[-1]

    def draws(k: int) -> np.ndarray:
        u = np.random.default_rng([3, k]).uniform(size=(CHAINS, DRAWS))
        return np.interp(u, cumulated, grid)[..., None]

    return Problem(density, EXACT, draws)


PROBLEMS = {"van der Pol, t = 1 alone": van_der_pol_alone, "eight schools": eight_schools, "logistic": logistic}


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    rows = []
    for name, make in PROBLEMS.items():
        problem = make(runs)
        found = []
        for k in range(runs):
            x = problem.draws(k)
            scores = problem.density(x.reshape(-1, x.shape[-1]))[1].reshape(x.shape)
            samples = scv.Samples(x, scores, log_density=LogDensity(problem.density))
            result = scv.bridge(samples, seed=k, method=scv.Polynomial(2))
            low, high = result.interval(0.95)
            plain = result.plain
            found.append(
                (result.mean, result.standard_error, low <= problem.exact <= high, plain.mean, plain.standard_error)
            )
        mean, error, covered, plain, plain_error = np.array(found, dtype=float).T
        off, plain_off = mean - problem.exact, plain - problem.exact
        row = {"posterior": name, "runs": runs, "exact": f"{problem.exact:.6f}", "mean": f"{mean.mean():.6f}"}
        row |= {"rmse": f"{np.sqrt((off**2).mean()):.3g}", "mean_error": f"{error.mean():.3g}"}
        row |= {"within_3": f"{(np.abs(off) <= 3 * error).mean():.3f}", "covered_95": f"{covered.mean():.3f}"}
        row |= {"plain_rmse": f"{np.sqrt((plain_off**2).mean()):.3g}"}
        row |= {"plain_within_3": f"{(np.abs(plain_off) <= 3 * plain_error).mean():.3f}"}
        rows.append(row | {"variance_factor": f"{(plain_off**2).mean() / (off**2).mean():.3g}"})
        print(rows[-1], flush=True)
        with OUT.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
