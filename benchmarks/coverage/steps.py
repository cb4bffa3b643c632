"""Do 95 % intervals of probabilities and quantiles cover the truth? Six densities of the coverage study, three sizes.

    OPENBLAS_NUM_THREADS=1 python benchmarks/coverage/steps.py --methods polynomial auto --repeats 60 --processes 4
    python benchmarks/coverage/steps.py --show

Both coordinates, five levels each. Draws are chains with one effective draw in four. What is finished at the limit of
`--seconds` is written: a row says how many repeats it rests on. Rows of the same method, density and size are replaced.
"""

import argparse
import csv
import functools
import multiprocessing
import os
import time
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


def repeat(task):
    """Return the task, and what is seen of probabilities and of quantiles on one set of draws."""
    method, name, size, seed = task
    target, truth = TARGETS[name], cuts(name)
    x = target.chains(np.random.default_rng([size, seed]), 4, size, CORRELATION)
    samples = scv.Samples(x, target.score(x))
    made = scv.probability(samples, below={f"x[{k}]": truth[k] for k in (0, 1)}, method=METHODS[method]())
    result = scv.estimate(samples, stat=("mean", *LEVELS), method=METHODS[method]())
    return task, {
        "probability": _numbers([made], np.tile(LEVELS, 2)),
        "quantile": _numbers([result.quantile(p) for p in LEVELS], truth.T.ravel()),
    }


def study(tasks, processes, seconds):
    """Return what every task that ended in time has seen, by method, density and size."""
    found, start = {}, time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        running = pool.imap_unordered(repeat, tasks)
        for _ in tasks:
            left = seconds - (time.perf_counter() - start)
            try:
                (*cell, seed), seen = running.next(max(left, 1e-3))
            except multiprocessing.TimeoutError:
                break
            if left <= 0:
                break
            found.setdefault(tuple(cell), {})[seed] = seen
    return found


def summed(cell, seen):
    """Return the rows of one method, density and size."""
    for kind in ("probability", "quantile"):
        each = [seen[seed][kind] for seed in sorted(seen)]
        error, plain, covered, plain_covered, said, ratio = (np.array(part) for part in zip(*each, strict=True))
        for j in range(10):
            k, i = (j // 5, j % 5) if kind == "probability" else (j % 2, j // 2)
            quiet = ~said[:, j]
            yield (*cell, kind, f"x{k}", LEVELS[i], len(each), covered[:, j].mean().round(4),
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


def write(found, path):
    """Write rows, and leave those of other methods, densities and sizes as they are."""
    rows = []
    if path.exists():
        with path.open() as file:
            rows = [tuple(r) for r in list(csv.reader(file))[1:] if (*r[:2], int(r[2])) not in found]
    for cell, seen in found.items():
        rows += summed(cell, seen)
    part = path.with_suffix(".part")
    with part.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    part.replace(path)


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--methods", nargs="+", choices=METHODS, default=["polynomial"])
    ask.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    ask.add_argument("--densities", nargs="+", choices=TARGETS, default=list(TARGETS))
    ask.add_argument("--repeats", type=int, default=40)
    ask.add_argument("--first", type=int, default=0, help="the first seed, to choose on some and check on others")
    ask.add_argument("--processes", type=int, default=1)
    ask.add_argument("--seconds", type=float, default=float("inf"))
    ask.add_argument("--path", type=Path, default=PATH)
    ask.add_argument("--show", action="store_true")
    given = ask.parse_args()
    if not given.show:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        tasks = [
            (method, name, size, given.first + seed)
            for seed in range(given.repeats)
            for method in given.methods
            for size in given.sizes
            for name in given.densities
        ]
        write(study(tasks, given.processes, min(given.seconds, 1e6)), given.path)
    show(given.path)


if __name__ == "__main__":
    main()
