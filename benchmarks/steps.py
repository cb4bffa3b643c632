"""Probabilities and quantiles of eight schools, whose truth is known: how much is gained, and do intervals cover it?

    python benchmarks/steps.py [RUNS] [auto | polynomial]

Each run adds its rows to results/steps_eight_schools.csv; runs that are there are not made again. Errors are against
the exact distribution: given tau everything is Gaussian, so it is an integral over log tau.
"""

import csv
import functools
import sys
import time
from pathlib import Path

import numpy as np
from problems import draw, eight_schools
from scipy.optimize import brentq
from scipy.special import ndtr

import steincv as scv
from steincv.demo import EFFECTS, NAMES, STANDARD_ERRORS, constrain_eight_schools

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
METHODS = {"auto": scv.Auto, "polynomial": lambda: scv.Polynomial(2)}
PATH = Path(__file__).parent / "results" / "steps_eight_schools.csv"
COLUMNS = ("method", "run", "kind", "output", "level", "plain", "controlled", "plain_error", "error", "covered",
           "status", "seconds")  # fmt: skip


@functools.cache
def _given_tau():
    """Weights over a grid of log tau, and mean and deviation of mu and of every theta given it."""
    log_tau = np.linspace(-25, 8, 60_001)
    variance = STANDARD_ERRORS**2 + np.exp(2 * log_tau)[:, None]
    precision = 1 / 25 + (1 / variance).sum(axis=1)
    mu = (EFFECTS / variance).sum(axis=1) / precision
    log = -0.5 * ((np.log(variance) + EFFECTS**2 / variance).sum(axis=1) + np.log(precision) - precision * mu**2)
    log += log_tau - np.log1p(np.exp(2 * log_tau) / 25)
    weight = np.exp(log - log.max())
    kept = STANDARD_ERRORS**2 / variance
    mean = mu[:, None] + (1 - kept) * (EFFECTS - mu[:, None])
    deviation = np.sqrt((1 - kept) * STANDARD_ERRORS**2 + kept**2 / precision[:, None])
    return log_tau, weight / weight.sum(), (mu, 1 / np.sqrt(precision)), (mean, deviation)


def distribution(output, c):
    """The true P(output <= c)."""
    log_tau, weight, (mu, spread), (mean, deviation) = _given_tau()
    if output == "tau":
        return float(np.interp(np.log(c), log_tau, np.cumsum(weight) - weight / 2)) if c > 0 else 0.0
    j = None if output == "mu" else int(output[6:-1])
    return float(weight @ (ndtr((c - mu) / spread) if j is None else ndtr((c - mean[:, j]) / deviation[:, j])))


@functools.cache
def quantile(output, level):
    return brentq(lambda c: distribution(output, c) - level, 1e-9 if output == "tau" else -200.0, 300.0)


def rows(run, name):
    """Both kinds of estimates on one set of draws."""
    x, s = draw(eight_schools(), seed=0, chains=4, draws=1000, replications=run + 1)[run]
    samples = scv.Samples(x, s, NAMES, constrain_eight_schools)
    outputs = ("mu", "tau", *(f"theta[{j}]" for j in range(8)))
    method = METHODS[name]()
    start = time.process_time()
    cuts = {output: [quantile(output, p) for p in LEVELS] for output in outputs}
    found = scv.probability(samples, below=cuts, method=method)
    seconds = time.process_time() - start
    for k, output in enumerate(outputs):
        for i, p in enumerate(LEVELS):
            yield _row(found, 5 * k + i, p, name, run, "probability", output, p, seconds)
    start = time.process_time()
    result = scv.estimate(samples, method=method, stat=("mean", *LEVELS))
    seconds = time.process_time() - start
    for k, output in enumerate(outputs):
        for p in LEVELS:
            yield _row(result.quantile(p), k, quantile(output, p), name, run, "quantile", output, p, seconds)


def _row(found, k, truth, name, run, kind, output, level, seconds):
    low, high = found.interval().reshape(-1, 2)[k]
    said = " ".join(s.name for s in found.status[k])
    numbers = (found.plain.mean, found.mean, found.plain.standard_error, found.standard_error)
    plain, mean, plain_error, error = (float(np.reshape(a, -1)[k]) for a in numbers)
    short = [f"{number:.4g}" for number in (plain - truth, mean - truth, plain_error, error)]
    return (name, run, kind, output, level, *short,
            int(low <= truth <= high), said, round(seconds, 1))  # fmt: skip


def show(path=PATH):
    """True variance reductions over the runs there are: the median output and level, the worst, and coverage."""
    with path.open() as file:
        read = list(csv.DictReader(file))
    for name in dict.fromkeys(r["method"] for r in read):
        for kind in ("probability", "quantile"):
            mine = [r for r in read if (r["method"], r["kind"]) == (name, kind)]
            groups: dict[tuple[str, str], list] = {}
            for r in mine:
                groups.setdefault((r["output"], r["level"]), []).append((float(r["plain"]), float(r["controlled"])))
            gain = {key: np.divide(*np.square(errors).mean(axis=0)) for key, errors in groups.items()}
            worst = min(gain, key=gain.get)
            covered = np.mean([int(r["covered"]) for r in mine])
            runs, middle = len(next(iter(groups.values()))), np.median(list(gain.values()))
            print(
                f"{name:11} {kind:12} {runs} runs: median {middle:.0f}, "
                f"worst {gain[worst]:.1f} ({worst[0]} at {worst[1]}), covered {covered:.3f}"
            )


def main(runs=20, name="auto"):
    done = set()
    if PATH.exists():
        with PATH.open() as file:
            done = {(r["method"], int(r["run"])) for r in csv.DictReader(file)}
    for run in range(runs):
        if (name, run) in done:
            continue
        made = list(rows(run, name))
        new = not PATH.exists()
        with PATH.open("a", newline="") as file:
            csv.writer(file).writerows([COLUMNS] * new + made)
    show()


if __name__ == "__main__":
    main(*(int(a) if a.isdecimal() else a for a in sys.argv[1:]))
