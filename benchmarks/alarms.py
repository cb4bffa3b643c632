"""How often do the alarms ring when they should, and when they should not? Row 9 of the promises.

    OPENBLAS_NUM_THREADS=1 python benchmarks/alarms.py [blocks]

Wrong input made on purpose, at several numbers of effective draws, and the clean densities of coverage/targets.py.
Writes results/alarms.csv (power) and results/false_alarms.csv, row by row, and prints both; a run that was stopped goes
on. Some five minutes on one core. With `blocks`, prints how often the Stein alarm rings where, as from a large file,
only means of blocks of draws are kept.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import contextlib
import csv
import functools
import pathlib
import sys

import numpy as np
import scipy.stats
from tables import RESULTS, keep, show

import steincv as scv
from steincv.judging import passing
from steincv.judging.diagnostics import stein_status, value_status
from steincv.judging.error_bars import average
from steincv.judging.passing import pass_over
from steincv.samples.source import MemorySource
from steincv.samples.values import Functions, Targets
from steincv.stein.coordinates import Standardise
from steincv.stein.folds import stretches

sys.path.append(str(pathlib.Path(__file__).parent / "coverage"))
from targets import CORRELATION, TARGETS, functions, gaussian_chains

RUNS, CHAINS, SEED = 200, 4, 909
SIZES = (400, 1000, 4000, 16_000)
SCALED = {3: (400, 4000, 16_000), 10: (400, 4000, 16_000, 100_000)}  # scores times 1.01, by dimension
PROMISED, ALLOWED = 0.99, 0.01
ALARM = {"stein": scv.Code.STEIN_MEAN, "chains": scv.Code.CHAINS_DISAGREE, "tail": scv.Code.HEAVY_TAIL}


# What is wrong ---------------------------------------------------------------------------------------


def normal(rng, draws, dim, correlation=0.0):
    w = np.concatenate([gaussian_chains(rng, CHAINS, draws, correlation) for _ in range(-(-dim // 2))], axis=-1)
    return w[..., :dim]


def scaled(factor, dim):
    def make(rng, draws):
        x = normal(rng, draws, dim)
        return scv.Samples(x, -factor * x)

    return make


def shifted(correlation):
    """Scores off by one draw. Neighbours in a slow chain have nearly the same score; draws = ESS (1 + r) / (1 - r)."""

    def make(rng, draws):
        x = normal(rng, round(draws * (1 + correlation) / (1 - correlation)), 3, correlation)
        return scv.Samples(x, -np.roll(x, 1, axis=1))

    return make


def without_jacobian(rng, draws):
    """A Gamma(3) parameter as its logarithm, with the score of log p(x) d x / d log x alone; beside a normal one."""
    x = rng.gamma(3.0, size=(CHAINS, draws))
    other = rng.normal(size=(CHAINS, draws))
    return scv.Samples(np.stack([np.log(x), other], -1), np.stack([2 - x, -other], -1))  # with it: 3 - x


def constrained(rng, draws):
    """An Exponential(1) parameter left as it is: the density ends at an edge."""
    x = rng.exponential(size=(CHAINS, draws, 1))
    return scv.Samples(x, -np.ones_like(x))


def apart(rhat):
    """One chain of four moved so far that the R-hat of infinitely long chains is this."""
    move = np.sqrt(16 / 3 * (rhat**2 - 1))  # var of (0, 0, 0, m) is 3 m^2 / 16; R-hat^2 = 1 + between / within

    def make(rng, draws):
        x = normal(rng, draws, 1)
        x[0] += move
        return scv.Samples(x, -x)

    return make


def student(nu):
    def make(rng, draws):
        x = rng.standard_t(nu, size=(CHAINS, draws, 1))
        return scv.Samples(x, -(nu + 1) * x / (nu + x**2))

    return make


WRONG = {
    "score x -1": ("stein", scaled(-1.0, 3), SIZES),
    "score x 1.1, D = 3": ("stein", scaled(1.1, 3), SIZES),
    **{f"score x 1.01, D = {dim}": ("stein", scaled(1.01, dim), sizes) for dim, sizes in SCALED.items()},
    "scores off by one draw, independent": ("stein", shifted(0.0), SIZES),
    "scores off by one draw, AR(0.9)": ("stein", shifted(0.9), SIZES[:2]),
    "scores off by one draw, AR(0.98)": ("stein", shifted(0.98), (100,)),
    "log of a Gamma without the Jacobian": ("stein", without_jacobian, SIZES),
    "a positive parameter left constrained": ("stein", constrained, SIZES),
    "chains apart, R-hat 1.2": ("chains", apart(1.2), SIZES),
    "chains apart, R-hat 1.1": ("chains", apart(1.1), SIZES),
    "tail of t(1.5), k = .67": ("tail", student(1.5), SIZES),
    "tail of t(2.5), k = .40": ("tail", student(2.5), SIZES),
}


# What is said ----------------------------------------------------------------------------------------


def codes(samples, values=None):
    """The alarms of one set of draws; `values` are what is estimated, the coordinates if not given."""
    values = samples.draws if values is None else values
    found = value_status(values, average(values).ess)
    return {s.code for s in (*stein_status(samples), *(s for each in found for s in each))}


def interval(hits, runs):
    """Clopper and Pearson, 95 %."""
    low = scipy.stats.beta.ppf(0.025, hits, runs - hits + 1) if hits else 0.0
    high = scipy.stats.beta.ppf(0.975, hits + 1, runs - hits) if hits < runs else 1.0
    return float(low), float(high)


def known(name):
    """The rows of a table that is there already."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [{k: _number(v) for k, v in row.items()} for row in csv.DictReader(file)]


def _number(text):
    with contextlib.suppress(ValueError):
        return float(text) if "." in text or "e-" in text else int(text)
    return text


def power():
    rows = known("alarms")
    for k, (name, (alarm, make, sizes)) in enumerate(WRONG.items()):
        if any(row["what is wrong"] == name for row in rows):
            continue
        for size in sizes:
            runs = RUNS if size <= 4000 else 100 if size <= 16_000 else 30  # where more would take minutes
            rng = np.random.default_rng([SEED, k, size])
            seen = [codes(make(rng, size // CHAINS)) for _ in range(runs)]
            hits = sum(ALARM[alarm] in found for found in seen)
            low, high = interval(hits, runs)
            rows.append(
                {"what is wrong": name, "ESS": size, "alarm": ALARM[alarm].name.lower(), "runs": runs,
                 "rang": hits / runs, "low": low, "high": high,
                 "any alarm": sum(bool(found & set(ALARM.values())) for found in seen) / runs,
                 "kept": "yes" if hits / runs >= PROMISED else "NO"}
            )  # fmt: skip
        keep("alarms", rows)
        print(name, "done", flush=True)
    return rows


def false_alarms():
    """On clean input: the share of runs in which one of two coordinates, or the Stein check, raises an alarm."""
    rows = known("false_alarms")
    for t, target in enumerate(TARGETS.values()):
        if any(row["target"] == target.name for row in rows):
            continue
        for sampler, correlation in (("iid", 0.0), ("chains", CORRELATION)):
            for size in (400, 4000):
                draws = round(size * (1 + correlation) / (1 - correlation) / CHAINS)
                rng = np.random.default_rng([SEED, 100 + t, size])
                x = target.chains(rng, RUNS * CHAINS, draws, correlation).reshape(RUNS, CHAINS, draws, 2)
                seen = [codes(scv.Samples(x[r], target.score(x[r])), functions(x[r])[1][..., :2]) for r in range(RUNS)]
                row = {"target": target.name, "sampler": sampler, "ESS": size, "runs": RUNS}
                row |= {name: sum(code in found for found in seen) / RUNS for name, code in ALARM.items()}
                worst = max(row[name] for name in ALARM)
                rows.append(row | {"kept": "yes" if worst <= ALLOWED else "NO"})
        keep("false_alarms", rows)
        print(target.name, "done", flush=True)
    return rows


def in_blocks():
    """Print how often the Stein alarm rings on clean and on wrong input in 500 blocks per chain."""
    passing.ROOM = passing.Room(blocks=500)
    clean = {
        f"clean, D = {dim}, AR({correlation})": (dim, correlation)
        for dim, correlation in ((3, 0.0), (3, 0.9), (3, 0.98), (10, 0.0), (10, 0.9))
    }
    cases = {name: (functools.partial(_gaussian, *how), 4000) for name, how in clean.items()}
    wrong = {
        name: make
        for name, (alarm, make, _) in WRONG.items()
        if alarm == "stein" and not {"1.01,", "AR(0.98)"} & {*name.split()}
    }
    cases |= {name: (make, 1000 if "AR(" in name else 4000) for name, make in wrong.items()}
    for name, (make, draws) in cases.items():
        hits = 0
        for k in range(RUNS):
            samples = make(np.random.default_rng([7, k]), draws)
            source = MemorySource.of(samples)
            standardise = Standardise.of(scv.Samples(samples.draws[:, ::5], samples.scores[:, ::5]))
            parts = stretches(*samples.draws.shape[:2])
            passed = pass_over(source, Functions.of(None, source), Targets(None), parts, [], standardise)
            hits += bool(passed.stein_status(source))
        print(f"{name}, blocks of {passed.blocks.size}: {hits} of {RUNS}", flush=True)


def _gaussian(dim, correlation, rng, draws):
    x = normal(rng, draws, dim, correlation)
    return scv.Samples(x, -x)


def main():
    if sys.argv[1:] == ["blocks"]:
        return in_blocks()
    rows, clean = power(), false_alarms()
    show(f"alarms: share of {RUNS} runs in which they rang (promised {PROMISED:.0%})", rows)
    show(f"false alarms on clean densities (allowed {ALLOWED:.0%})", clean)


if __name__ == "__main__":
    main()
