"""Do 95 % intervals cover 95 %, and are the claimed gains true? Six densities x two samplers x ESS x families.

    OPENBLAS_NUM_THREADS=1 python benchmarks/coverage/study.py                     # the closed forms, ~10 minutes
    OPENBLAS_NUM_THREADS=1 python benchmarks/coverage/study.py "small network" Auto()   # the trained ones, an hour

One cell is a density, a sampler, an effective size and a family. Finished cells stand in results/coverage_study.csv,
and a run that was stopped goes on after them; delete the file to begin anew. `plain` comes with `Polynomial(2)`.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import csv
import pathlib
import sys
import time

import numpy as np
from targets import CORRELATION, NAMES, TARGETS, functions

import steincv as scv
from steincv.families.method import CrossFit, Fitted, Method, make_problem
from steincv.stein.folds import make_folds

CHAINS = 4
SEED = 1509
SAMPLERS = {"iid": 0.0, "chains": CORRELATION}
SIZES = (100, 400, 2000)
METHODS: dict[str, Method] = {
    "Polynomial(2)": scv.Polynomial(2),
    "Kernel": scv.Kernel("rational quadratic", degree=2, landmarks=60),
    "small network": scv.Neural(scv.VectorField(16, 1), penalty=1e-3, steps=300, batch=64, ensemble=1),
    "Auto()": scv.Auto(),
}
REPLICATIONS = {"Polynomial(2)": 200, "Kernel": 60, "small network": 60, "Auto()": 40}
# From 200 independent draws on Auto() trains networks; below, it is quick, and far above it takes long.
MORE = {("Auto()", "iid", 100): 200, ("Auto()", "iid", 2000): 20, ("Auto()", "chains", 2000): 20}
CLOSED = ("Polynomial(2)", "Kernel")
OUT = pathlib.Path(__file__).parents[1] / "results" / "coverage_study.csv"
WORDS = ("target", "sampler", "family", "f")


def draw(target, sampler, size, replications):
    """Draws `(replication, chain, draw, dim)` of this effective size; the same for every family."""
    correlation = SAMPLERS[sampler]
    draws = round(size * (1 + correlation) / (1 - correlation) / CHAINS)
    place = list(TARGETS).index(target.name), list(SAMPLERS).index(sampler), size
    rng = np.random.default_rng([SEED, *place])
    x = target.chains(rng, replications * CHAINS, draws, correlation)
    return x.reshape(replications, CHAINS, draws, 2)


class Given(scv.MonteCarlo):
    """A method whose out-of-fold control variate is there already."""

    def __init__(self, g):
        object.__setattr__(self, "g", g)

    def cross_fit(self, samples, values, folds, *, seed=0):
        return CrossFit(self.g, {})

    def __str__(self):
        return "given"


def together(method, samples, values):
    """Out-of-fold g of many equally large data sets, all folds of all of them fitted in one program."""
    folds = make_folds(*values[0].shape[:2])
    made = [
        make_problem(s.select(f.train.chains, f.train.draws), f.train.take(v))
        for s, v in zip(samples, values, strict=True)
        for f in folds
    ]
    controls = method.solve([problem for problem, _, _ in made], 0)
    parts = iter(zip(made, controls, strict=True))
    result = []
    for s, v in zip(samples, values, strict=True):
        g = np.zeros_like(v)
        for fold, ((_, standardise, scale), control) in zip(folds, parts, strict=False):
            fold.test.put(g, Fitted(standardise, scale, control)(s.select(fold.test.chains, fold.test.draws)))
        result.append(g)
    return result


def estimates(target, family, draws):
    """One result a replication."""
    samples = [scv.Samples(x, target.score(x)) for x in draws]
    values = [functions(x)[1] for x in draws]
    if family == "small network":
        methods = [Given(g) for g in together(METHODS[family], samples, values)]
    else:
        methods = [METHODS[family]] * len(samples)
    return [scv.estimate(s, v, m) for s, v, m in zip(samples, values, methods, strict=True)]


def rows_of(cell, family, results, truth, plain=False):
    """One row a function. With `plain`, of the plain means beside the controlled ones."""
    averages = [r.plain if plain else r._average for r in results]
    error = np.array([a.mean for a in averages]) - truth
    before = np.array([r.plain.mean for r in results]) - truth
    bar, half = (np.array([x(a) for a in averages]) for x in (lambda a: a.standard_error, lambda a: a.half_width()))
    codes = [[{s.code for s in found} for found in r.status] for r in results]
    warned = np.array([[bool(c - {scv.Code.NO_GAIN}) for c in found] for found in codes])
    tails = {scv.Code.RARE_DRAWS, scv.Code.HEAVY_TAIL}
    covered = np.abs(error) <= half * bar + 1e-9 * np.abs(truth)
    rows = []
    for k, name in enumerate(NAMES):
        exact = all(scv.Code.EXACT in found[k] for found in codes) and not plain
        rmse = np.sqrt((error[:, k] ** 2).mean())
        said = np.array([r.variance_ratio[k] for r in results])
        rows.append(
            dict(zip(("target", "sampler", "ESS"), cell, strict=True))
            | {
                "family": "plain" if plain else family,
                "f": name,
                "replications": len(results),
                "coverage": float(covered[:, k].mean()),
                "se/rmse": float("nan") if exact else float(np.sqrt((bar[:, k] ** 2).mean()) / rmse),
                "true ratio": float((error[:, k] ** 2).mean() / (before[:, k] ** 2).mean()),
                "reported ratio": 1.0 if plain else float(np.median(said)),
                "mean ESS": float(np.mean([a.ess[k] for a in averages])),
                "half width": float(np.median(half[:, k])),
                "plain reported": float(np.mean([r.method[k] == "plain" for r in results])),
                "with a status": float(warned[:, k].mean()),
                "tail status": float(np.mean([bool(found[k] & tails) for found in codes])),
            }
        )
    return rows


def run_cell(target, sampler, size, family, replications):
    draws = draw(target, sampler, size, replications)
    results = estimates(target, family, draws)
    truth, cell = target.truth(), (target.name, sampler, size)
    rows = rows_of(cell, family, results, truth)
    return rows + (rows_of(cell, family, results, truth, plain=True) if family == "Polynomial(2)" else [])


# Keeping ---------------------------------------------------------------------------------------------


def read():
    if not OUT.exists():
        return []
    with OUT.open(newline="") as file:
        return [{k: v if k in WORDS else float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def write(rows):
    """Whole or not at all: a kill between two cells loses nothing."""
    part = OUT.with_suffix(".part")
    with part.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()})
    part.replace(OUT)


def main():
    families = sys.argv[1:] or CLOSED
    start = time.perf_counter()
    limit = float(os.environ.get("COVERAGE_SECONDS", "inf"))
    for family in families:
        for size in SIZES:
            for sampler in SAMPLERS:
                for target in TARGETS.values():
                    there = {(r["target"], r["sampler"], int(r["ESS"]), r["family"]) for r in read()}
                    if (target.name, sampler, size, family) in there:
                        continue
                    if time.perf_counter() - start > limit:
                        print("stopped by COVERAGE_SECONDS; run again to go on")
                        return
                    begin = time.perf_counter()
                    replications = MORE.get((family, sampler, size), REPLICATIONS[family])
                    found = run_cell(target, sampler, size, family, replications)
                    write(read() + found)  # read again: another process may have been at it
                    print(
                        f"{family}, {target.name}, {sampler}, {size}: {time.perf_counter() - begin:.0f} s", flush=True
                    )


if __name__ == "__main__":
    main()
