"""Few draws: is `Auto()` ever worse than the plain mean? Issue 3, item 4.

    OPENBLAS_NUM_THREADS=1 python benchmarks/small_n.py

The rmse of `Auto()` over that of the plain mean, with the standard error of this ratio, from independent sets of exact
draws of a Gaussian mixture and a banana whose means are known. `used` is how often the control variate was reported
and not the plain mean. Writes results/small_n.csv.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from problems import banana, mixture, scores_at, values_at
from tables import keep, show

from steincv import Auto, Samples, estimate

SIZES = (20, 50, 100)
DIMS = (4, 8)
CHAINS = 1  # exact draws come as one long row; 4 gives folds of whole chains instead of blocks
REPLICATIONS = 400
PROCESSES = 2
SEED = 71
TARGET = 1.05
METHOD = Auto()


def problems(dim):
    """The mixture with its own f and a coordinate, and the banana with all of its functionals."""
    wavy = mixture(dim)
    wavy.functionals["x0"] = lambda x: x[0]
    wavy.truth["x0"] = 0.0
    return {"mixture": wavy, "banana": banana(dim)}


def replicate(task):
    """Errors (set of draws, output) of the plain mean and of the method, and where the method was used."""
    name, dim, n, first, last = task
    problem = problems(dim)[name]
    truth = np.array(list(problem.truth.values()))
    rows = []
    sets = [problem.iid(np.random.default_rng([SEED, dim, n, r]), n) for r in range(first, last)]
    draws, scores = np.stack(sets), scores_at(problem, np.stack(sets))
    by_label = values_at(problem, draws)
    values = np.stack([by_label[label] for label in problem.truth], axis=-1)
    for x, s, v in zip(draws, scores, values, strict=True):
        samples = Samples(*(a.reshape(CHAINS, n // CHAINS, dim) for a in (x, s)))
        result = estimate(samples, v.reshape(CHAINS, n // CHAINS, -1), METHOD)
        used = [method != "plain" for method in result.method]
        rows.append([result.plain.mean - truth, result.mean - truth, used])
    return np.array(rows, dtype=float)


def cell(name, dim, n, pool):
    step = REPLICATIONS // (4 * PROCESSES)
    tasks = [(name, dim, n, r, min(r + step, REPLICATIONS)) for r in range(0, REPLICATIONS, step)]
    plain, ours, used = np.concatenate(list(pool.map(replicate, tasks))).swapaxes(0, 1)
    ratio = np.sqrt((ours**2).mean(0) / (plain**2).mean(0))
    # delta method: relative errors of two mean squares, of the same draws
    relative = ours**2 / (ours**2).mean(0) - plain**2 / (plain**2).mean(0)
    error = 0.5 * ratio * relative.std(0, ddof=1) / np.sqrt(len(relative))
    return [
        {"problem": name, "dim": dim, "n": n, "f": label, "rmse/plain": float(ratio[k]), "+-": float(error[k]),
         "used": float(used[:, k].mean()), "kept": "yes" if ratio[k] <= TARGET else "NO"}
        for k, label in enumerate(problems(dim)[name].truth)
    ]  # fmt: skip


def main():
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        rows = [row for name in ("mixture", "banana") for d in DIMS for n in SIZES for row in cell(name, d, n, pool)]
    show(f"rmse of {METHOD} over plain, {REPLICATIONS} replications; target {TARGET}", rows)
    keep("small_n", rows)


if __name__ == "__main__":
    main()
