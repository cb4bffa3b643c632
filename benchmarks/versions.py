"""Two versions of the default on the same draws: is anything lost, and are error bars honest?

    python benchmarks/league.py sample --sets 6 -- rats dugongs
    PYTHONPATH=../earlier/src python benchmarks/versions.py run before rats dugongs
    python benchmarks/versions.py run now rats dugongs
    python benchmarks/versions.py table before now
    python benchmarks/versions.py docs 20 eight_schools garch

`docs` puts so many sets of problems of posteriors.py into that cache, under their names, with the draws given there.
`run` estimates all functionals of the league's posteriors from every set of 4 x 500 draws in the cache, alone, and
keeps a line per run in the cache; lines that are there are not made again. `table` prints, for every posterior that
both versions ran on, the true gain of the median functional (variance over chains of plain means over that of
controlled ones, each chain controlled by fits to the others), the geometric mean over functionals of the ratio of
single draws' variances, which few sets know better, what the later version reports over what is true, and how often
its 95 % intervals hold the mean of the other sets, weighted by their error bars. Writes results/versions.csv.
"""

import csv
import json
import sys
import time

import numpy as np
from league.draws import folder, keep, kept_sets, path_of, read_one
from posteriors import CHAINS, STUDIES
from problems import draw, values_at
from tables import RESULTS, show

import steincv as scv

COLUMNS = ("posterior", "parameters", "sets", "gain before", "gain now", "single draws", "worst functional",
           "reported / true", "coverage", "seconds before", "seconds now")  # fmt: skip


def _path(version):
    return folder() / f"versions-{version}.jsonl"


def _kept(version):
    lines = _path(version).read_text().splitlines() if _path(version).exists() else []
    return {(run["name"], run["set"]): run for run in map(json.loads, lines)}


def docs(sets, *names):
    for name in names:
        make, draws, *_ = STUDIES[name]
        problem = make()
        for k, (x, s) in enumerate(draw(problem, 0, CHAINS, draws, int(sets))):
            found = values_at(problem, x)
            values = np.stack([found[label] for label in problem.functionals], axis=-1)
            labels = list(problem.functionals)
            keep(path_of(name, k), draws=x, scores=s, values=values, labels=labels, gradients=np.ones(x.shape[:2]))


def run(version, *names):
    done = _kept(version)
    for name in names:
        for k in kept_sets(name):
            if (name, k) in done:
                continue
            one = read_one(name, k)
            start = time.process_time()
            result = scv.estimate(scv.Samples(one.draws, one.scores), one.values)
            seconds = time.process_time() - start
            low, high = np.moveaxis(result.interval(0.95), -1, 0)
            variance = result.controlled.var(axis=(0, 1)) / one.values.var(axis=(0, 1))
            found = {"left": variance, "controlled": result.controlled.mean(axis=1), "plain": one.values.mean(axis=1),
                     "gain": np.ravel(result.gain), "mean": result.mean, "half": (high - low) / 2}  # fmt: skip
            line = {"name": name, "set": k, "seconds": seconds, "dim": one.draws.shape[-1]}
            with _path(version).open("a") as file:
                file.write(json.dumps(line | {key: np.asarray(a).tolist() for key, a in found.items()}) + "\n")
            print(name, k, f"{seconds:.1f} s", flush=True)


def _gain(runs):
    plain, controlled = (np.concatenate([run[key] for run in runs]) for key in ("plain", "controlled"))
    return plain.var(axis=0, ddof=1) / controlled.var(axis=0, ddof=1)


def table(first, second):
    before, now = _kept(first), _kept(second)
    rows = []
    for name in dict.fromkeys(name for name, _ in now):
        both = sorted(k for n, k in now if n == name and (n, k) in before)
        if len(both) < 2:
            continue
        old, new = ([runs[name, k] for k in both] for runs in (before, now))
        left = [np.maximum([run["left"] for run in runs], 1e-30) for runs in (old, new)]
        mean, half = (np.array([run[key] for run in new]) for key in ("mean", "half"))
        weight = 1 / np.maximum(half, 1e-300) ** 2
        others = weight.sum(axis=0) - weight
        away = np.abs(mean - ((weight * mean).sum(axis=0) - weight * mean) / others)
        gain = _gain(new)
        numbers = (
            np.median(_gain(old)), np.median(gain), np.exp(np.log(left[0] / left[1]).mean()), gain.min(),
            np.median(np.median([run["gain"] for run in new], axis=0) / gain),
            (away <= np.sqrt(half**2 + 1 / others)).mean(),
            np.mean([run["seconds"] for run in old]), np.mean([run["seconds"] for run in new]),
        )  # fmt: skip
        rows.append([name, new[0]["dim"], len(both), *(f"{x:.3g}" for x in numbers)])
    with (RESULTS / "versions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    show(f"{first} and {second}", [dict(zip(COLUMNS, row, strict=True)) for row in rows])


if __name__ == "__main__":
    {"docs": docs, "run": run, "table": table}[sys.argv[1]](*sys.argv[2:])
