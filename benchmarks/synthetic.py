"""The paper's first two experiments, with its measure: V[f + g] / V[f] on draws not fitted on. Issue 3, items 1 and 2.

    OPENBLAS_NUM_THREADS=1 python benchmarks/synthetic.py            # all; a run that was stopped goes on
    rm benchmarks/results/synthetic.csv                              # to start anew

f = sin(pi/D sum x) under 0.5 N(-1, I) + 0.5 N(1, I), and f = 10 sin(pi/D sum x) + 7 for the schemes with and without
centre and penalty (those without weight decay, which the paper has not). Every fit is a row of results/synthetic.csv.
"""

import csv
import os
import statistics
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from tables import RESULTS, machine, show

from steincv import CNCV, NCV, Auto, Samples

SEEDS = range(5)
TEST = 10_000
# what, method, draws, dimensions, scale and shift of f, and the bound on the median over seeds
CASES = (
    ("CNCV()", CNCV(), 500, 10, (1, 0), 0.12),
    ("CNCV()", CNCV(), 2000, 10, (1, 0), 0.01),
    ("CNCV()", CNCV(), 5000, 10, (1, 0), 0.001),
    ("NCV(): neither", NCV(), 500, 10, (10, 7), None),
    ("penalty only", CNCV(center=False, decay=0.0), 500, 10, (10, 7), None),
    ("centre only", CNCV(penalty=0.0, decay=0.0), 500, 10, (10, 7), None),
    ("both", CNCV(decay=0.0), 500, 10, (10, 7), None),
    ("CNCV(): both, weight decay", CNCV(), 500, 10, (10, 7), None),
    ("Auto()", Auto(), 500, 10, (1, 0), 0.02),
    ("Auto()", Auto(), 1000, 10, (1, 0), 0.001),
    ("Auto()", Auto(), 5000, 10, (1, 0), 0.0002),
    ("Auto()", Auto(), 5000, 50, (1, 0), 0.003),
    ("Auto()", Auto(), 5000, 100, (1, 0), 0.003),
)
FIELDS = ("case", "n", "dim", "f", "seed", "test ratio", "train ratio", "seconds", "target")
OUT = RESULTS / "synthetic.csv"


def mixture(rng, n, dim, scale, shift):
    """Exact draws with their scores, and f."""
    x = rng.normal(size=(n, dim)) + rng.choice([-1.0, 1.0], size=(n, 1))
    samples = Samples(x, np.tanh(x.sum(-1, keepdims=True)) - x)
    return samples, scale * np.sin(np.pi / dim * samples.draws.sum(-1)) + shift


def run(case, seed):
    name, method, n, dim, f, target = case
    train, values = mixture(np.random.default_rng([seed, n, dim]), n, dim, *f)
    test, unseen = mixture(np.random.default_rng([seed, n, dim, 1]), TEST, dim, *f)
    begin = time.perf_counter()
    fitted = method.fit(train, values, seed=seed)
    seconds = time.perf_counter() - begin
    ratios = [(v + fitted(s)[..., 0]).var() / v.var() for s, v in ((test, unseen), (train, values))]
    formula = f"{f[0]} sin + {f[1]}" if f != (1, 0) else "sin"
    row = (name, n, dim, formula, seed, f"{ratios[0]:.3e}", f"{ratios[1]:.3e}", f"{seconds:.2f}", target or "")
    return dict(zip(FIELDS, row, strict=True))


def done():
    if not OUT.exists():
        return []
    with OUT.open(newline="") as file:
        return list(csv.DictReader(file))


def keep(row, new):
    with OUT.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def medians(rows):
    cases = list(dict.fromkeys((r["case"], r["n"], r["dim"], r["f"], r["target"]) for r in rows))
    for case in cases:
        fits = [r for r in rows if (r["case"], r["n"], r["dim"], r["f"], r["target"]) == case]
        test, train, seconds = ([float(r[k]) for r in fits] for k in ("test ratio", "train ratio", "seconds"))
        middle, target = statistics.median(test), case[4]
        yield {
            "case": case[0], "n": case[1], "dim": case[2], "f": case[3], "seeds": len(fits), "test ratio": middle,
            "worst": max(test), "train ratio": statistics.median(train), "seconds": statistics.median(seconds),
            "target": target, "kept": "" if not target else "yes" if middle <= float(target) else "NO",
        }  # fmt: skip


def main():
    RESULTS.mkdir(exist_ok=True)
    rows = done()
    have = {(r["case"], r["n"], r["dim"], r["f"], r["seed"]) for r in rows}
    for case in CASES:
        for seed in SEEDS:
            formula = "sin" if case[4] == (1, 0) else f"{case[4][0]} sin + {case[4][1]}"
            if (case[0], str(case[2]), str(case[3]), formula, str(seed)) in have:
                continue
            row = {k: str(v) for k, v in run(case, seed).items()}
            keep(row, new=not rows)
            rows.append(row)
            print(*row.values(), flush=True)
    show(f"V[f + g] / V[f] on {TEST} draws, medians over seeds", list(medians(rows)))
    print(machine())


if __name__ == "__main__":
    main()
