"""Weighted draws: do 95 % intervals cover, and what is gained? On a mixture and a banana, in two dimensions.

Importance sampling from t distributions, 4 batches x 500 draws, and tempered sequential Monte Carlo from a wide normal,
4 runs x 500 particles with random-walk moves, whose last particles are weighted; its evidence as well. Repeats are
independent; `Polynomial(2)` and `Polynomial(4)`; `results/weighted.csv`.

    python benchmarks/weighted.py [repeats]
"""

import csv
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.stats

import steincv as scv

REPEATS = 300
SHAPE = (4, 500)
DIM, BEND, FREEDOM, WIDE = 2, 0.3, 5, 3.0
LADDER = np.array([0.0, 0.03, 0.1, 0.25, 0.5, 1.0])
MOVES = 12
OUT = Path(__file__).parent / "results" / "weighted.csv"


class Target(NamedTuple):
    """A normalised log density with its score, the scale of proposals, and the means of x0, x1 and x1^2."""

    density: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    scale: np.ndarray
    truth: np.ndarray


def mixture(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Half and half of N(1, .5) and N(-1, .5)."""
    a, b = (-((x - c) ** 2).sum(axis=-1) for c in (1.0, -1.0))
    share = 1 / (1 + np.exp(b - a))[..., None]
    return np.logaddexp(a, b) - np.log(2 * np.pi), 2 * (2 * share - 1 - x)


def banana(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x0 ~ N(0, 1), x1 ~ N(.3 (x0^2 - 1), 1)."""
    u = x[..., 1] - BEND * (x[..., 0] ** 2 - 1)
    score = np.stack([-x[..., 0] + 2 * BEND * u * x[..., 0], -u], axis=-1)
    return -0.5 * x[..., 0] ** 2 - 0.5 * u**2 - np.log(2 * np.pi), score


TARGETS = {
    "mixture": Target(mixture, np.array([2.0, 2.0]), np.array([0.0, 0.0, 1.5])),
    "banana": Target(banana, np.array([1.3, 1.6]), np.array([0.0, 0.0, 1 + 2 * BEND**2])),
}


def functions(x: np.ndarray) -> np.ndarray:
    return np.stack([x[..., 0], x[..., 1], x[..., 1] ** 2], axis=-1)


def importance(target: Target, seed: int) -> scv.Samples:
    x = target.scale * np.random.default_rng([1, seed]).standard_t(FREEDOM, size=(*SHAPE, DIM))
    log, score = target.density(x)
    proposed = (scipy.stats.t.logpdf(x / target.scale, FREEDOM) - np.log(target.scale)).sum(axis=-1)
    return scv.Samples(x, score, log_weights=log - proposed)


class Particles(NamedTuple):
    """Samples and log likelihoods of every step, and the last particles weighted as draws of the target."""

    steps: list[scv.Samples]
    values: list[np.ndarray]
    last: scv.Samples


def sequential(target: Target, seed: int) -> Particles:
    """Tempered SMC: the target is prior times likelihood, the prior a wide normal."""
    rng = np.random.default_rng([2, seed])

    def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        log, score = target.density(x)
        prior = (-0.5 * (x / WIDE) ** 2 - np.log(WIDE) - 0.5 * np.log(2 * np.pi)).sum(axis=-1)
        return prior, log - prior, -x / WIDE**2, score + x / WIDE**2

    x = WIDE * rng.normal(size=(*SHAPE, DIM))
    steps, values = [], []
    for t, ahead in pairwise(LADDER):
        if t > 0:
            prior, value, *_ = parts(x)
            for _ in range(MOVES):
                y = x + 1.2 * (1 / (t + 0.15)) ** 0.5 * 0.8 * rng.normal(size=x.shape)
                new_prior, new_value, *_ = parts(y)
                change = new_prior - prior + t * (new_value - value)
                taken = np.log(rng.uniform(size=change.shape)) < change
                x = np.where(taken[..., None], y, x)
                prior, value = np.where(taken, new_prior, prior), np.where(taken, new_value, value)
        _, value, by_prior, by_value = parts(x)
        steps.append(scv.Samples(x, by_prior + t * by_value))
        values.append(value)
        weighted = scv.Samples(x, by_prior + ahead * by_value, log_weights=(ahead - t) * value)
        weight = np.exp((ahead - t) * value - ((ahead - t) * value).max(axis=1, keepdims=True))
        total = np.cumsum(weight, axis=1)
        even = (np.arange(SHAPE[1]) + rng.uniform(size=(SHAPE[0], 1))) / SHAPE[1]
        rows = np.array([np.searchsorted(c, e * c[-1]) for c, e in zip(total, even, strict=True)])
        x = np.take_along_axis(x, np.minimum(rows, SHAPE[1] - 1)[..., None], axis=1)
    return Particles(steps, values, weighted)


def row(name: str, what: str, method: scv.Method, found: list[scv.Estimate], truth: np.ndarray) -> dict[str, object]:
    mean = np.array([np.atleast_1d(r.mean) for r in found]) - truth
    plain = np.array([np.atleast_1d(r.plain.mean) for r in found]) - truth
    ends = np.array([np.atleast_2d(r.interval(0.95)) for r in found]) - truth[:, None]
    covered = ((ends[..., 0] <= 0) & (ends[..., 1] >= 0)).mean(axis=0)
    gain = (plain**2).mean(axis=0) / (mean**2).mean(axis=0)
    shown = {"target": name, "what": what, "method": str(method), "repeats": len(found)}
    shown |= {"covered_95": " ".join(f"{c:.3f}" for c in covered)}
    return shown | {"true_gain": " ".join(f"{g:.3g}" for g in gain)}


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    rows = []
    for name, target in TARGETS.items():
        particles = [sequential(target, k) for k in range(repeats)]
        draws = {
            "importance sampling": [importance(target, k) for k in range(repeats)],
            "last particles of SMC": [p.last for p in particles],
        }
        for method in (scv.Polynomial(2), scv.Polynomial(4)):
            for what, sets in draws.items():
                found = [scv.estimate(s, functions(s.draws), method, seed=k) for k, s in enumerate(sets)]
                rows.append(row(name, what, method, found, target.truth))
                print(rows[-1], flush=True)
            found = [scv.smc_evidence(p.steps, p.values, LADDER, method, k) for k, p in enumerate(particles)]
            rows.append(row(name, "evidence of SMC", method, found, np.zeros(1)))
            print(rows[-1], flush=True)
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
