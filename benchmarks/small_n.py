"""Few draws: is `Auto()` ever worse than the plain mean, and do its error bars hold?

    OPENBLAS_NUM_THREADS=1 python benchmarks/small_n.py [--sizes 10 20 50] [--repeats 400] [--processes 2] [problem ...]

The rmse of `Auto()` over that of the plain mean, with the standard error of this ratio, from independent sets of exact
draws whose means are known: a Gaussian mixture and a banana in four and eight dimensions, the six densities of
coverage/targets.py in two, and the borehole of published/row06_borehole.py. `used` is how often the control variate was
reported and not the plain mean, `covered` how often the 95 % interval held. Writes results/small_n.csv, of which lines
of other sizes and problems stay.
"""

import argparse
import csv
import os
import sys
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parent / "coverage"))
sys.path.append(str(Path(__file__).parent / "published"))

import numpy as np
import row06_borehole as borehole
from problems import Problem, banana, mixture, scores_at, values_at
from tables import RESULTS, keep, show
from targets import TARGETS, functions

from steincv import Auto, Samples, estimate

SIZES = (10, 20, 50, 100)
CHAINS = 1  # exact draws come as one long row; 4 gives folds of whole chains instead of blocks
SEED = 71
TARGET = 1.05
METHOD = Auto()


class Few(NamedTuple):
    """Exact draws with scores and values of f, `make(rngs, n)` each (set, draw, ...), and the means by name."""

    make: Callable
    truth: dict[str, float]


def of_problem(problem: Problem) -> Few:
    def make(rngs, n):
        draws = np.stack([problem.iid(rng, n) for rng in rngs])
        values = values_at(problem, draws)
        return draws, scores_at(problem, draws), np.stack([values[label] for label in problem.truth], axis=-1)

    return Few(make, dict(problem.truth))


def wavy(dim: int) -> Few:
    """The mixture with its own f and a coordinate."""
    problem = mixture(dim)
    problem.functionals["x0"] = lambda x: x[0]
    problem.truth["x0"] = 0.0
    return of_problem(problem)


def of_target(name: str) -> Few:
    target = TARGETS[name]

    def make(rngs, n):
        draws = np.concatenate([target.chains(rng, 1, n, 0.0) for rng in rngs])
        return draws, target.score(draws), functions(draws)[1]

    return Few(make, dict(zip(functions(np.zeros(2))[0], target.truth(), strict=True)))


def of_borehole() -> Few:
    def make(rngs, n):
        x = borehole.MEAN + np.stack([rng.normal(size=(n, 8)) for rng in rngs]) * np.sqrt(borehole.VARIANCE)
        return x, -(x - borehole.MEAN) / borehole.VARIANCE, borehole.flow(x)[..., None]

    return Few(make, {"flow": borehole.quadrature()})


PROBLEMS: dict[str, Callable[[], Few]] = {
    "mixture 4": lambda: wavy(4),
    "mixture 8": lambda: wavy(8),
    "banana 4": lambda: of_problem(banana(4)),
    "banana 8": lambda: of_problem(banana(8)),
    **{f"{name} 2": lambda name=name: of_target(name) for name in TARGETS},
    "borehole 8": of_borehole,
}


def replicate(task: tuple[str, int, int, int]) -> np.ndarray:
    """Return (set, what, output): errors of the plain mean and of the method, where it was used, where it covered."""
    name, n, first, last = task
    problem = PROBLEMS[name]()
    truth = np.array(list(problem.truth.values()))
    place = list(PROBLEMS).index(name)
    rngs = [np.random.default_rng([SEED, place, n, r]) for r in range(first, last)]
    rows = []
    for draws, scores, values in zip(*problem.make(rngs, n), strict=True):
        x, s, v = (a.reshape(CHAINS, n // CHAINS, -1) for a in (draws, scores, values))
        result = estimate(Samples(x, s), v, METHOD)
        low, high = np.moveaxis(result.interval(0.95), -1, 0)
        used = [method != "plain" for method in result.method]
        rows.append([result.plain.mean - truth, result.mean - truth, used, (low <= truth) & (truth <= high)])
    return np.array(rows, dtype=float)


def cell(name: str, n: int, repeats: int, pool: Executor, processes: int) -> list[dict]:
    step = max(1, repeats // (4 * processes))
    tasks = [(name, n, r, min(r + step, repeats)) for r in range(0, repeats, step)]
    plain, ours, used, covered = np.concatenate(list(pool.map(replicate, tasks))).swapaxes(0, 1)
    ratio = np.sqrt((ours**2).mean(0) / (plain**2).mean(0))
    # delta method: relative errors of two mean squares, of the same draws
    relative = ours**2 / (ours**2).mean(0) - plain**2 / (plain**2).mean(0)
    error = 0.5 * ratio * relative.std(0, ddof=1) / np.sqrt(len(relative))
    return [
        {"problem": name, "n": n, "f": label, "rmse/plain": float(ratio[k]), "+-": float(error[k]),
         "used": float(used[:, k].mean()), "covered": float(covered[:, k].mean()), "repeats": repeats,
         "kept": "yes" if ratio[k] <= TARGET else "NO"}
        for k, label in enumerate(PROBLEMS[name]().truth)
    ]  # fmt: skip


def merged(rows: list[dict]) -> list[dict]:
    """Return the lines with those of the CSV that are of other sizes or problems."""
    path = RESULTS / "small_n.csv"
    made = {(row["problem"], str(row["n"])) for row in rows}
    before = list(csv.DictReader(path.open())) if path.exists() else []
    every = rows + [row for row in before if (row["problem"], row["n"]) not in made]
    return sorted(every, key=lambda row: (list(PROBLEMS).index(row["problem"]), int(row["n"])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS), help=", ".join(PROBLEMS))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool:
        for name in asked.problems:
            for n in asked.sizes:
                rows = cell(name, n, asked.repeats, pool, asked.processes)
                show(f"rmse of {METHOD} over plain, {asked.repeats} repeats; target {TARGET}", rows)
                keep("small_n", merged(rows))


if __name__ == "__main__":
    main()
