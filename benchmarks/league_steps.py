"""How much do probabilities and quantiles gain on the league's posteriors, beside what means gain?

    OPENBLAS_NUM_THREADS=1 python benchmarks/league_steps.py --sets 10 --processes 6 --seconds 400
    python benchmarks/league_steps.py --show

Every set is 4 x 500 draws by the league's NUTS, made where it is missing. Means, probabilities and quantiles of all
functionals at five levels; thresholds are the quantiles of all sets together. A gain is true: the variance of the
plain value over that of the controlled one, over the chains of all sets, each controlled by fits to the others of its
set. A line per set is kept in the cache, and not made again; results/league/steps.csv has what is there.
"""

import argparse
import csv
import json
import multiprocessing
import os
import time
from pathlib import Path

import jax
import numpy as np
from league.draws import folder, kept_sets, read_one, sample
from league.models import make

import steincv as scv

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
NAMES = ("eight_schools_noncentred", "hospitals", "random_effects_centred", "random_effects_noncentred",
         "seeds_noncentred", "rats", "counties_centred", "poisson_centred")  # fmt: skip
METHODS = {"auto": scv.Auto, "polynomial": lambda: scv.Polynomial(2)}
PATH = Path(__file__).parent / "results" / "league" / "steps.csv"
COLUMNS = ("method", "posterior", "parameters", "functionals", "sets", "kind", "level", "median gain", "worst gain",
           "share of the gain of means", "seconds")  # fmt: skip


def kept(method, name):
    """Return what was kept of every set."""
    path = folder() / f"steps-{method}-{name}.jsonl"
    return {run["set"]: run for run in map(json.loads, path.read_text().splitlines())} if path.exists() else {}


def run(task):
    """Make the draws and the lines of one posterior that are missing."""
    method, name, sets = task
    sample(name, sets, 0.0)
    for which in set(kept_sets(name)) - set(kept(method, name)):
        line = json.dumps({"set": which} | one(method, name, which))
        with (folder() / f"steps-{method}-{name}.jsonl").open("a") as file:
            file.write(f"{line}\n")
    return name


def one(method, name, which):
    """Return the values of the chains of one set: plain and controlled, for every kind and level."""
    posterior, drawn = make(name), read_one(name, which)
    pooled = np.concatenate([read_one(name, k).values.reshape(-1, len(drawn.labels)) for k in kept_sets(name)])
    cuts = dict(zip(drawn.labels, np.quantile(pooled, LEVELS, axis=0).T, strict=True))

    def f(x: jax.Array) -> dict[str, jax.Array]:
        found = posterior.functionals(x)
        return {label: found[label] for label in drawn.labels}

    samples = scv.Samples(drawn.draws, drawn.scores, posterior.names)
    clock = time.process_time()
    result = scv.estimate(samples, f, METHODS[method](), stat=("mean", *LEVELS))
    probability = scv.probability(samples, f, METHODS[method](), below=cuts)
    found = {"seconds": time.process_time() - clock}
    of_levels = [result.quantile(p) for p in LEVELS]
    for kind, estimates in (("mean", [result]), ("quantile", of_levels), ("probability", [probability])):
        pairs = [(e.values.mean(axis=1), e.controlled.mean(axis=1)) for e in estimates]
        if kind == "probability":
            pairs = [tuple(a[:, k :: len(LEVELS)] for a in pairs[0]) for k in range(len(LEVELS))]
        found[kind] = np.array(pairs).tolist()  # level, plain or controlled, chain, functional
    return found


def rows(method, name, runs):
    """Return the lines of one posterior from its sets."""
    kinds = ("mean", "probability", "quantile")
    both = {kind: np.concatenate([each[kind] for each in runs], axis=2) for kind in kinds}
    gain = {}
    for kind, a in both.items():
        plain, left = np.moveaxis(a.var(axis=2, ddof=1), 1, 0)
        # of a discrete functional a quantile may be the same in all chains: there is nothing to gain
        gain[kind] = np.where(plain > 0, plain / np.maximum(left, 1e-9 * np.where(plain > 0, plain, 1.0)), np.nan)
    dim, outputs = make(name).dim, gain["mean"].shape[1]
    for kind, levels in (("mean", ("",)), ("probability", LEVELS), ("quantile", LEVELS)):
        for level, each in zip(levels, gain[kind], strict=True):
            share = np.nanmedian(each / gain["mean"][0])
            middle, worst = np.nanmedian(each), np.nanmin(each)
            yield (method, name, dim, outputs, len(runs), kind, level, f"{middle:.3g}", f"{worst:.3g}",
                   f"{share:.2f}", f"{np.mean([each['seconds'] for each in runs]):.1f}")  # fmt: skip


def show(path):
    with path.open() as file:
        read = list(csv.DictReader(file))
    for method, name in dict.fromkeys((r["method"], r["posterior"]) for r in read):
        mine = [r for r in read if (r["method"], r["posterior"]) == (method, name)]
        for kind in ("mean", "probability", "quantile"):
            each = [r for r in mine if r["kind"] == kind]
            print(f"{method:11}{name:28}{each[0]['sets']:>3} sets {kind:12} median gains",
                  " ".join(f"{r['median gain']:>8}" for r in each), "  shares",
                  " ".join(r["share of the gain of means"] for r in each))  # fmt: skip


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("names", nargs="*", default=NAMES)
    ask.add_argument("--methods", nargs="+", choices=METHODS, default=["auto"])
    ask.add_argument("--sets", type=int, default=10)
    ask.add_argument("--processes", type=int, default=1)
    ask.add_argument("--seconds", type=float, default=1e6)
    ask.add_argument("--path", type=Path, default=PATH)
    ask.add_argument("--show", action="store_true")
    given = ask.parse_args()
    if given.show:
        return show(given.path)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    start = time.perf_counter()
    tasks = [(method, name, given.sets) for name in given.names for method in given.methods]
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        running = pool.imap_unordered(run, tasks)
        for _ in tasks:
            try:
                print(running.next(max(given.seconds - (time.perf_counter() - start), 1e-3)), flush=True)
            except multiprocessing.TimeoutError:
                break
    found = {(method, name): list(kept(method, name).values()) for method, name, _ in tasks}
    with given.path.open("w", newline="") as file:
        lines = (row for key, runs in found.items() if len(runs) > 1 for row in rows(*key, runs))
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
    return show(given.path)


if __name__ == "__main__":
    main()
