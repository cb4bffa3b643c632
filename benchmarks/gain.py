"""Is the gain that is shown the true one? The densities of the coverage study, independent draws, repeated runs.

    python benchmarks/gain.py                                     # closed forms, so many runs: minutes
    python benchmarks/gain.py --methods "Auto()" --runs 60 --sizes 400 --processes 4 --seconds 300

A row of results/gain.csv is a function of a density under a method at an effective size. Runs are made in rounds, over
all that was asked for, until there are so many of each or the seconds are over; rows that are there already are
replaced. Runs of another `--seed` have other draws. What decides in `judging/verdict.py` was chosen on other draws than
those of the results.

A mean that is reported plain has a gain of 1 by definition. So all columns but `coverage`, `rare`, `plain` and `of all`
are of those runs that show a gain, and functions for which fewer than a tenth do are left out.

- `true`: mean squared error of the plain mean over that of the controlled one. `by bars`: the same of mean squared
  standard errors, which is unbiased for independent draws and less noisy. `typical`: their geometric mean, and `noise`
  how much its logarithm varies, by 200 resamples of the runs. In rows that far draws decide it is still too small: most
  resamples have none of those that did not come.
- `exact`: the variance of f over that of f + g, from each run's own g at a quadrature of the density: the gain of
  infinitely many runs with these fits, far draws that no run has met included. `median fit`: that of the fit in the
  middle.
- `bare`: 1 / variance_ratio of the run in the middle. `shown`: its `gain`. `shown / typical` is 1 for an honest one.
- `gain covers`: how often its 90 % interval holds the typical true gain; `covers exact`: the exact one. `of all`: as
  `gain covers`, over all runs, plain ones with their [1, 1], against the gain of all. `too high`: how often the lower
  end is above the typical true gain.
- `coverage`: of 95 % intervals of the mean. `rare`: how often the status is `rare draws`.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
import multiprocessing
import pathlib
import sys
import time

import numpy as np
from tables import RESULTS, keep

import steincv as scv
from steincv.families.method import Training
from steincv.stein.folds import make_folds

sys.path.insert(0, str(pathlib.Path(__file__).parent / "coverage"))
from targets import NAMES, TARGETS, functions

METHODS = {
    "Polynomial(2)": scv.Polynomial(2),
    "Kernel": scv.Kernel("rational quadratic", degree=2, landmarks=60),
    "Auto()": scv.Auto(),
}
SIZES = (100, 400, 2000)
CHAINS, ROUND = 4, 10  # runs of a density, a size and a method that are made at a time
WORDS = ("method", "target", "f")
FEWEST = 0.1  # of the runs show a gain, or the function is left out
EVERY = 8  # row and column of the quadrature at which a run's g is looked at: 2e-5 of a variance
BAND = (0.5, 1.2)


class Given(scv.MonteCarlo):
    """A method that is fitted already."""

    def __init__(self, fit):
        object.__setattr__(self, "fit", fit)

    def cross_fit(self, samples, values, folds, *, seed=0):
        return self.fit

    def __str__(self):
        return "given"


def left(target, fit, methods):
    """Return the variance of f + g over that of f under the density itself, on average over the folds."""
    points, weights = target.rule(EVERY)
    f, samples = functions(points)[1], scv.Samples(points[None], target.score(points)[None])

    def variance(values):
        return weights @ (values - weights @ values) ** 2

    def mean(controls):
        return np.mean([variance(f + g(samples)[0]) for g in controls], axis=0) / variance(f)

    found = np.where(np.array(methods) == "given", mean(fit.fitted), 1.0)
    if fit.simpler is not None:
        found = np.where(np.isin(methods, ["given", "plain"]), found, mean(fit.simpler.fitted))
    return found


def run(target, size, method, number, seed):
    """Return what one run gives: every run has draws of its own, so that more can be added."""
    rng = np.random.default_rng([seed, list(TARGETS).index(target.name), size, number])
    x = target.chains(rng, CHAINS, size // CHAINS, 0.0)
    samples, values = scv.Samples(x, target.score(x)), functions(x)[1]
    folds = tuple(make_folds(*values.shape[:2]))
    training = Training(samples.draws, samples.scores, values, folds, samples.names, 0, CHAINS, keep=True)
    fit = METHODS[method].across(training)
    found = scv.estimate(samples, values, Given(fit))
    return {
        "mean": found.mean, "se": found.standard_error, "plain": found.plain.mean, "pse": found.plain.standard_error,
        "gain": np.asarray(found.gain), "gi": found.gain_interval(0.9), "iv": found.interval(0.95),
        "ratio": left(target, fit, found.method), "method": found.method,
        "status": [[s.name for s in said] for said in found.status],
    }  # fmt: skip


def typical(before, after):
    """Return the true gain of some runs: by their errors, by their bars, and the geometric mean of the two."""
    true, bars = ((old**2).mean() / (new**2).mean() for old, new in zip(before, after, strict=True))
    return float(true), float(bars), float(np.sqrt(true * bars))


def noise(before, after):
    """Return the standard deviation of the logarithm of the typical gain over resamples of the runs."""
    rng, count = np.random.default_rng(0), len(before[0])
    picks = rng.integers(count, size=(200, count))
    return float(np.std([np.log(typical([x[i] for x in before], [x[i] for x in after])[2]) for i in picks]))


def cell(target, size, method, found):
    """One row a function, exact answers left out."""
    truth = target.truth()
    mean, se, plain, pse, gain, ends, interval, ratio = (
        np.array([one[key] for one in found]) for key in ("mean", "se", "plain", "pse", "gain", "gi", "iv", "ratio")
    )
    error, before = mean - truth, plain - truth
    rows = []
    for k, name in enumerate(NAMES):
        said = [one["status"][k] for one in found]
        used = np.array([one["method"][k] != "plain" for one in found])
        if any("exact" in codes for codes in said) or used.mean() < FEWEST:
            continue
        pair = (before[used, k], pse[used, k]), (error[used, k], se[used, k])
        true, bars, gained = typical(*pair)
        exact = float(1 / ratio[used, k].mean())
        _, _, overall = typical((before[:, k], pse[:, k]), (error[:, k], se[:, k]))
        low, high = ends[:, k].T
        shown = np.median(gain[used, k])
        rows.append(
            {"method": method, "ESS": size, "target": target.name, "f": name, "runs": len(found), "true": true,
             "by bars": bars, "typical": gained, "noise": noise(*pair), "exact": exact,
             "median fit": float(np.median(1 / ratio[used, k])), "bare": float(np.median((pse / se)[used, k] ** 2)),
             "shown": float(shown), "shown / typical": float(shown / gained), "shown / exact": float(shown / exact),
             "gain covers": float(((low <= gained) & (gained <= high))[used].mean()),
             "covers exact": float(((low <= exact) & (exact <= high))[used].mean()),
             "of all": float(((low <= overall) & (overall <= high)).mean()),
             "too high": float((low > gained)[used].mean()),
             "coverage": float(((interval[:, k, 0] <= truth[k]) & (truth[k] <= interval[:, k, 1])).mean()),
             "rare": float(np.mean(["rare draws" in codes for codes in said])), "plain": float((~used).mean())}
        )  # fmt: skip
    return rows


def read():
    path = RESULTS / "gain.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [{k: v if k in WORDS else float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def some_runs(task):
    """Return what the runs of one task give, those that begin before its time is over."""
    method, size, name, numbers, seed, end = task
    return task, [run(TARGETS[name], size, method, number, seed) for number in numbers if time.time() < end]


def told(method, size, rows):
    def part(key):
        over = np.array([r["shown"] / r[key] for r in rows])
        low, high = (over < BAND[0]).mean(), (over > BAND[1]).mean()
        return f"{1 - low - high:.0%} (too low {low:.0%}, too high {high:.0%}, median {np.median(over):.2f})"

    mean = {key: np.mean([r[key] for r in rows]) for key in rows[0] if key not in WORDS}.__getitem__
    return (
        f"{method}, ESS {size}, {len(rows)} functions: shown over true gain between .5 and 1.2 for {part('typical')}, "
        f"over the exact one for {part('exact')}; noise of the true one {mean('noise'):.2f}; its interval holds the "
        f"true gain in {mean('gain covers'):.1%}, the exact one in {mean('covers exact'):.1%} (of all runs "
        f"{mean('of all'):.1%}, its lower end is above it in {mean('too high'):.1%}), intervals cover "
        f"{mean('coverage'):.1%} (least {min(r['coverage'] for r in rows):.0%}), rare draws in {mean('rare'):.1%}"
    )


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--methods", nargs="+", default=["Polynomial(2)", "Kernel"], choices=METHODS)
    ask.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    ask.add_argument("--runs", type=int, default=200)
    ask.add_argument("--seed", type=int, default=2203)
    ask.add_argument("--processes", type=int, default=1)
    ask.add_argument("--seconds", type=float, default=float("inf"))
    asked = ask.parse_args()
    end = time.time() + asked.seconds
    tasks = [
        (method, size, name, range(first, min(first + ROUND, asked.runs)), asked.seed, end)
        for first in range(0, asked.runs, ROUND)
        for size in asked.sizes
        for method in asked.methods
        for name in TARGETS
    ]
    found = {}
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for (method, size, name, *_), made in pool.imap_unordered(some_runs, tasks):
            found.setdefault((method, size, name), []).extend(made)
    done = {key: made for key, made in found.items() if made}
    old = [r for r in read() if (r["method"], int(r["ESS"]), r["target"]) not in done]
    new = [row for (method, size, name), made in done.items() for row in cell(TARGETS[name], size, method, made)]
    methods, targets = list(METHODS), list(TARGETS)
    rows = sorted(old + new, key=lambda r: (methods.index(r["method"]), r["ESS"], targets.index(r["target"])))
    keep("gain", rows)
    for method, size in dict.fromkeys((r["method"], int(r["ESS"])) for r in rows):
        print(told(method, size, [r for r in rows if (r["method"], r["ESS"]) == (method, size)]))


if __name__ == "__main__":
    main()
