"""Is the gain that is shown the true one? The densities of the coverage study, independent draws, repeated runs.

    OPENBLAS_NUM_THREADS=1 python benchmarks/gain.py                      # Polynomial(2) and Kernel, minutes
    OPENBLAS_NUM_THREADS=1 python benchmarks/gain.py "Auto()" 40          # the default, so many runs

A row of results/gain.csv is a function of a density under a method at an effective size. Finished cells are kept:
delete the file to begin anew.

- `true`: mean squared error of the plain mean over that of the controlled one. `by bars`: the same of mean squared
  standard errors, which is unbiased for independent draws and less noisy. `typical`: their geometric mean.
- `bare`: 1 / variance_ratio of the run in the middle. `shown`: its `gain`. `shown / typical` is 1 for an honest one.
- `gain covers`: how often its 90 % interval holds the typical true gain. `coverage`: of 95 % intervals of the mean.
- `rare`: how often the status is `rare draws`.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import csv
import pathlib
import sys

import numpy as np
from tables import RESULTS, keep

import steincv as scv

sys.path.insert(0, str(pathlib.Path(__file__).parent / "coverage"))
from targets import NAMES, TARGETS, functions

METHODS = {
    "Polynomial(2)": scv.Polynomial(2),
    "Kernel": scv.Kernel("rational quadratic", degree=2, landmarks=60),
    "Auto()": scv.Auto(),
}
SIZES = (400, 100)
CHAINS, RUNS, SEED = 4, 200, 2200


def cell(target, size, method, runs):
    """One row a function, exact answers left out."""
    rng = np.random.default_rng([SEED, list(TARGETS).index(target.name), size])
    draws = [target.chains(rng, CHAINS, size // CHAINS, 0.0) for _ in range(runs)]
    found = [scv.estimate(scv.Samples(x, target.score(x)), functions(x)[1], METHODS[method]) for x in draws]
    truth = target.truth()
    error, before = (np.array([a.mean for a in part]) - truth for part in (found, [r.plain for r in found]))
    bars, plain = (np.array([a.standard_error for a in part]) for part in (found, [r.plain for r in found]))
    gain, ends = np.array([r.gain for r in found]), np.array([r.gain_interval(0.9) for r in found])
    low, high = np.moveaxis(np.array([r.interval(0.95) for r in found]), -1, 0)
    names = [[{s.name for s in said} for said in r.status] for r in found]
    rows = []
    for k, name in enumerate(NAMES):
        if any("exact" in said[k] for said in names):
            continue
        true = (before[:, k] ** 2).mean() / (error[:, k] ** 2).mean()
        by_bars = (plain[:, k] ** 2).mean() / (bars[:, k] ** 2).mean()
        typical, shown = np.sqrt(true * by_bars), np.median(gain[:, k])
        held = (ends[:, k, 0] <= typical) & (typical <= ends[:, k, 1])
        rows.append(
            {"method": method, "ESS": size, "target": target.name, "f": name, "runs": runs, "true": float(true),
             "by bars": float(by_bars), "typical": float(typical),
             "bare": float(np.median((plain[:, k] / bars[:, k]) ** 2)), "shown": float(shown),
             "shown / typical": float(shown / typical), "gain covers": float(held.mean()),
             "coverage": float(((low[:, k] <= truth[k]) & (truth[k] <= high[:, k])).mean()),
             "rare": float(np.mean(["rare draws" in said[k] for said in names])),
             "plain": float(np.mean([r.method[k] == "plain" for r in found]))}
        )  # fmt: skip
    return rows


def read():
    path = RESULTS / "gain.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        words = ("method", "target", "f")
        return [{k: v if k in words else float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def main():
    methods = [sys.argv[1]] if len(sys.argv) > 1 else ["Polynomial(2)", "Kernel"]
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else RUNS
    for method in methods:
        for size in SIZES:
            for target in TARGETS.values():
                if any((r["method"], r["ESS"], r["target"]) == (method, size, target.name) for r in read()):
                    continue
                keep("gain", [*read(), *cell(target, size, method, runs)])
            rows = [r for r in read() if (r["method"], r["ESS"]) == (method, size)]
            over = np.array([r["shown / typical"] for r in rows])
            print(
                f"{method}, ESS {size}: shown / true median {np.median(over):.2f}, between .5 and 1.2 for "
                f"{((over >= 0.5) & (over <= 1.2)).mean():.0%} of {len(over)}; its interval holds the true gain in "
                f"{np.mean([r['gain covers'] for r in rows]):.1%}, intervals cover "
                f"{np.mean([r['coverage'] for r in rows]):.1%} (least {min(r['coverage'] for r in rows):.0%}), "
                f"rare draws in {np.mean([r['rare'] for r in rows]):.1%}"
            )


if __name__ == "__main__":
    main()
