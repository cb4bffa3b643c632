"""Do 95 % intervals of probabilities and quantiles cover the truth? Six densities of the coverage study, three sizes.

    python benchmarks/coverage/steps.py [REPEATS] [polynomial | auto] [SIZE...]

Both coordinates, five levels each. Draws are chains with one effective draw in four. Every set of repeats adds its rows
to results/steps_coverage.csv; those that are there are not made again.
"""

import csv
import functools
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, stdtr
from targets import NU, TARGETS, _posterior

import steincv as scv

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
SIZES = (100, 400, 2000)
CORRELATION = 0.6
METHODS = {"polynomial": lambda: scv.Polynomial(2), "auto": scv.Auto}
PATH = Path(__file__).parents[1] / "results" / "steps_coverage.csv"
COLUMNS = ("method", "density", "ess", "kind", "output", "level", "repeats", "covered", "without_status", "plain",
           "gain", "reported_gain")  # fmt: skip


@functools.cache
def _normal_rule():
    w = np.linspace(-9, 9, 4001)
    weight = np.exp(-0.5 * w**2)
    return w, weight / weight.sum()


@functools.cache
def _logistic(k):
    """The distribution function of a coordinate of the logistic posterior, on the grid that the study has."""
    points, mass, *_ = _posterior()
    axis, which = np.unique(points[:, k], return_inverse=True)
    total = np.bincount(which, mass)
    return axis, np.cumsum(total) - total / 2


def distribution(name, k, c):
    """P(x_k <= c)."""
    w, weight = _normal_rule()
    if name == "logistic posterior":
        return float(np.interp(c, *_logistic(k)))
    return float({
        "Gaussian": lambda: ndtr(c / (1.0, 2.0)[k]),
        "mixture": lambda: (ndtr(c - 1) + ndtr(c + 1)) / 2,
        "banana": lambda: ndtr(c) if k == 0 else weight @ ndtr(2 * (c - 0.5 * w**2)),
        "funnel": lambda: weight @ ndtr(c * np.exp(-w / 2)) if k == 0 else ndtr(c),
        "t(5)": lambda: stdtr(NU, c),
    }[name]())  # fmt: skip


@functools.cache
def cuts(name):
    return np.array(
        [[brentq(lambda c, p=p, k=k: distribution(name, k, c) - p, -41, 41) for p in LEVELS] for k in (0, 1)]
    )


def study(method, name, size, repeats):
    """Return the rows of one density and one size."""
    target, truth = TARGETS[name], cuts(name)
    found = {"probability": [], "quantile": []}
    for repeat in range(repeats):
        x = target.chains(np.random.default_rng([size, repeat]), 4, size, CORRELATION)
        samples = scv.Samples(x, target.score(x))
        made = scv.probability(samples, below={f"x[{k}]": truth[k] for k in (0, 1)}, method=METHODS[method]())
        result = scv.estimate(samples, stat=("mean", *LEVELS), method=METHODS[method]())
        found["probability"].append(_numbers([made], np.tile(LEVELS, 2)))
        found["quantile"].append(_numbers([result.quantile(p) for p in LEVELS], truth.T.ravel()))
    for kind, each in found.items():
        error, plain, covered, plain_covered, said, ratio = (np.array(part) for part in zip(*each, strict=True))
        for j in range(10):
            k, i = (j // 5, j % 5) if kind == "probability" else (j % 2, j // 2)
            quiet = ~said[:, j]
            yield (method, name, size, kind, f"x{k}", LEVELS[i], repeats, covered[:, j].mean().round(4),
                   f"{covered[quiet, j].sum()}/{quiet.sum()}", plain_covered[:, j].mean().round(4),
                   round(float((plain[:, j] ** 2).mean() / (error[:, j] ** 2).mean()), 2),
                   round(float(1 / np.median(ratio[:, j])), 2))  # fmt: skip


def _numbers(estimates, truth):
    """Return errors, plain errors, whether each interval covers, whether a status warns, and variance ratios."""
    calm = {scv.Code.NO_GAIN, scv.Code.EXACT}
    mean, plain = (
        np.concatenate([a(e).reshape(-1) for e in estimates]) for a in (lambda e: e.mean, lambda e: e.plain.mean)
    )
    low, high = np.concatenate([e.interval().reshape(-1, 2) for e in estimates]).T
    plain_low, plain_high = np.concatenate([e.plain.interval().reshape(-1, 2) for e in estimates]).T
    said = [any(s.code not in calm for s in status) for e in estimates for status in e.status]
    ratio = np.concatenate([e.variance_ratio.reshape(-1) for e in estimates])
    # an exact answer is right to rounding
    near = np.abs(mean - truth) < 1e-8
    return (mean - truth, plain - truth, (low <= truth) & (truth <= high) | near,
            (plain_low <= truth) & (truth <= plain_high), np.array(said), ratio)  # fmt: skip


def show(path=PATH):
    with path.open() as file:
        read = list(csv.DictReader(file))
    for key in dict.fromkeys((r["method"], r["ess"], r["kind"]) for r in read):
        mine = [r for r in read if (r["method"], r["ess"], r["kind"]) == key]
        covered = [float(r["covered"]) for r in mine]
        worst = min(mine, key=lambda r: float(r["covered"]))
        print(*key, f"{len(mine)} rows of {mine[0]['repeats']}: covered {np.mean(covered):.3f}, plain "
              f"{np.mean([float(r['plain']) for r in mine]):.3f}, least {worst['covered']} ({worst['density']} "
              f"{worst['output']} {worst['level']}, without status {worst['without_status']}), "
              f"median gain {np.median([float(r['gain']) for r in mine]):.1f}")  # fmt: skip


def main(repeats=40, method="polynomial", *sizes):
    done = set()
    if PATH.exists():
        with PATH.open() as file:
            done = {(r["method"], r["density"], int(r["ess"])) for r in csv.DictReader(file)}
    for size in sizes or SIZES:
        for name in TARGETS:
            if (method, name, size) in done:
                continue
            made = list(study(method, name, size, repeats))
            new = not PATH.exists()
            with PATH.open("a", newline="") as file:
                csv.writer(file).writerows([COLUMNS] * new + made)
    show()


if __name__ == "__main__":
    main(*(int(a) if a.isdecimal() else a for a in sys.argv[1:]))
