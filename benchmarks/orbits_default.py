"""What orbits add to the default, and what they cost: which is what `orbits="auto"` is set by.

    python benchmarks/league.py sample --sets 5 -- eight_schools_noncentred dugongs
    python benchmarks/orbits_default.py eight_schools_noncentred dugongs

For every posterior of the league that is named, five sets of 4 x 500 NUTS draws, `Auto()` with orbits of 0, 4 and 8
states: true gain (variance over the 20 chains of plain means over that of controlled ones, each controlled by fits
to the others), of the median and of the worst functional, what the median run reports, and processor seconds per call.
Writes results/orbits_default.csv; lines that are there already are not made again.
"""

import csv
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from league.draws import read_one
from league.models import make
from tables import RESULTS

import steincv as scv

SETS, STATES = 5, (0, 4, 8)
OUT = RESULTS / "orbits_default.csv"
COLUMNS = ("posterior", "states", "median gain", "worst gain", "reported", "processor seconds")


def run(name, states):
    posterior = make(name)

    def f(x):
        found = posterior.functionals(x)
        return jnp.stack([found[label] for label in posterior.labels])

    plain, controlled, reported, seconds = [], [], [], []
    for k in range(SETS):
        one = read_one(name, k)
        samples = scv.Samples(one.draws, one.scores, log_density=posterior.logdensity)
        start = time.process_time()
        result = scv.estimate(samples, f, orbits=states)
        seconds.append(time.process_time() - start)
        plain.append(one.values.mean(axis=1))
        controlled.append(result.controlled.mean(axis=1))
        reported.append(np.ravel(result.gain))
    gain = np.concatenate(plain).var(axis=0, ddof=1) / np.concatenate(controlled).var(axis=0, ddof=1)
    return [f"{x:.3g}" for x in (np.median(gain), gain.min(), np.median(reported), np.median(seconds))]


def main(names):
    kept = list(csv.reader(OUT.open())) if OUT.exists() else [list(COLUMNS)]
    for name in names:
        for states in STATES:
            if [name, str(states)] not in [row[:2] for row in kept]:
                kept.append([name, str(states), *run(name, states)])
                print(*kept[-1], sep=", ", flush=True)
                with OUT.open("w", newline="") as file:
                    csv.writer(file).writerows(kept)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(sys.argv[1:])
