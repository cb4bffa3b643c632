"""Is it worth the time? NUTS run longer, against NUTS once and then steincv. Issue 3, item 7.

    python benchmarks/posteriors.py && python benchmarks/net_gain.py

With a true variance factor R (results/posteriors_PROBLEM.csv, the median and the worst functional) the plain mean needs
R times as many draws to be as accurate. The net gain is the time for that over the time to sample once and run steincv:

    warm    R t / (t + c)                  sampling alone against a compiled steincv: a sampler already adapted
    fresh   (T + R t) / (T + t + C)        all that a user waits for in a new process, import excluded

t: sampling seconds, T: compiling, adaptation and burn-in, c and C: steincv compiled, and on its first call.
Below 1 it would have been faster to draw more. Our densities cost microseconds, so this is the hard case: t grows with
the model, c does not. Writes results/net_gain.csv.
"""

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from tables import RESULTS, keep, show

CASES = {"eight_schools": 1000, "logistic60": 500, "garch": 500}
CHAINS, REPEATS = 4, 3
METHODS = ("Polynomial()", "Auto()")


def timed(action):
    begin = time.perf_counter()
    value = action()
    return time.perf_counter() - begin, value


def fresh(name, method):
    """In a new process and with an empty cache: sample from nothing, call steincv once, then measure both warm."""
    import problems

    from steincv import Auto, Polynomial, Samples, estimate

    problem = {"eight_schools": problems.eight_schools, "garch": problems.garch,
               "logistic60": lambda: problems.logistic(60)}[name]()  # fmt: skip
    draws = CASES[name]
    chosen = {"Auto()": Auto(), "Polynomial()": Polynomial(2)}[method]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STEINCV_BENCH_CACHE"] = folder
        sampled, [(x, s)] = timed(lambda: problems.draw(problem, 0, CHAINS, draws))
    values = problems.values_at(problem, x)
    first, _ = timed(lambda: estimate(Samples(x, s), values, chosen))
    again = [timed(lambda: estimate(Samples(x, s), values, chosen))[0] for _ in range(REPEATS)]
    costs = [problems.nuts_seconds(problem, CHAINS, draws).seconds for _ in range(REPEATS)]
    print(json.dumps({"sampled": sampled, "first": first, "warm": min(again), "t": min(costs)}))


def factors(name, method):
    with (RESULTS / f"posteriors_{name}.csv").open(newline="") as file:
        found = [float(row["true"]) for row in csv.DictReader(file) if row["method"] == method]
    return statistics.median(found), min(found)


def main():
    rows = []
    for name in CASES:
        for method in METHODS:
            done = subprocess.run(
                [sys.executable, __file__, name, method], check=True, stdout=subprocess.PIPE, text=True
            )
            cost = json.loads(done.stdout.splitlines()[-1])
            t, overhead = cost["t"], cost["sampled"] - cost["t"]
            gains = {}
            for which, factor in zip(("median", "worst"), factors(name, method), strict=True):
                gains[f"{which} factor"] = factor
                gains[f"warm, {which}"] = factor * t / (t + cost["warm"])
                gains[f"fresh, {which}"] = (overhead + factor * t) / (overhead + t + cost["first"])
            rows.append(
                {
                    "problem": name,
                    "method": method,
                    "t": t,
                    "T": overhead,
                    "c": cost["warm"],
                    "C": cost["first"],
                    **gains,
                }
            )
            print(rows[-1], flush=True)
    show(f"net gain; below 1 more draws would have been faster ({CHAINS} chains; seconds)", rows)
    keep("net_gain", rows)


if __name__ == "__main__":
    fresh(*sys.argv[1:]) if len(sys.argv) > 1 else main()
