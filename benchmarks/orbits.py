"""Orbits: are their means unbiased, do intervals still cover, and what do they gain at equal gradients?

    python benchmarks/orbits.py unbiased coverage gain:logistic20 gain:logistic61:4

Every part writes lines to benchmarks/orbits.csv, and lines that are there already are not made again.

- `unbiased`: orbit means of known expectations, 400 replications of 200 independent draws of each density of the
  coverage study, orbits of 5 states in whitened coordinates with the step that `estimate` would take: the z of every
  function.
- `coverage`: 95 % intervals of Polynomial(2) with orbits of 4 states, 200 replications of 4 x 250 correlated draws; the
  lines give the share that covers the truth, and the median standard error over the true error.
- `gain:NAME:SETS:METHOD`: a posterior of the league, sets of 4 x 500 NUTS draws: median over functionals of the true
  gain of a method (`quadratic` or `auto`) over plain means, without orbits, with 8 states, and without orbits on draws
  that cost the same gradients (a part of the next set is appended). The truth is the mean of the other sets' estimates
  with orbits. A set that is done is kept in the cache, so that a run that was stopped goes on.
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np

import steincv as scv
from steincv.samples.log_density import LogDensity
from steincv.stein.coordinates import Standardise
from steincv.stein.orbits import find_step, orbits

sys.path.insert(0, str(Path(__file__).with_name("coverage")))
from targets import NU, PRECISION, TARGETS, functions, logistic

OUT = Path(__file__).with_suffix(".csv")
REPLICATIONS, DRAWS, STATES = 400, 200, 5
COVERED, LENGTH, CORRELATION = 200, 250, 0.6
VALUES = {
    "Gaussian": lambda x: -0.5 * np.einsum("ni,ij,nj->n", x, PRECISION, x),
    "mixture": lambda x: np.logaddexp(-0.5 * ((x - 1) ** 2).sum(1), -0.5 * ((x + 1) ** 2).sum(1)),
    "banana": lambda x: -0.5 * x[:, 0] ** 2 - 2 * (x[:, 1] - 0.5 * x[:, 0] ** 2) ** 2,
    "funnel": lambda x: -0.5 * x[:, 0] ** 2 * np.exp(-x[:, 1]) - 0.5 * x[:, 1] - 0.5 * x[:, 1] ** 2,
    "logistic posterior": logistic,
    "t(5)": lambda x: -(NU + 1) / 2 * np.log1p(x**2 / NU).sum(1),
}


def model(name):
    def batch(x):
        with np.errstate(over="ignore", invalid="ignore"):
            return VALUES[name](x), TARGETS[name].score(x)

    return LogDensity(batch)


def unbiased(name):
    target, rng = TARGETS[name], np.random.default_rng(1)
    x = target.chains(rng, REPLICATIONS, DRAWS, 0.0).reshape(-1, 2)
    scores = target.score(x)
    some = slice(0, 2000)
    coordinates = Standardise.of(scv.Samples(x[some], scores[some]))
    step = find_step(x[some], scores[some], model(name), coordinates, STATES, seed=0)
    found = orbits(x, scores, model(name), coordinates, STATES, step, rng)
    values = (found.weight[..., None] * functions(found.draws)[1]).sum(axis=1)
    error = values.reshape(REPLICATIONS, DRAWS, -1).mean(axis=1) - target.truth()
    z = error.mean(axis=0) / (error.std(axis=0, ddof=1) / np.sqrt(REPLICATIONS))
    return [f"{value:.2f}" for value in z]


def coverage(name):
    target, covered, ratios, errors = TARGETS[name], [], [], []
    truth = target.truth()
    for seed in range(COVERED):
        x = target.chains(np.random.default_rng([2, seed]), 4, LENGTH, CORRELATION)
        samples = scv.Samples(x, target.score(x), log_density=model(name))
        # a NumPy function of one vector is slow: JAX traces this one
        result = scv.estimate(samples, _traced, scv.Polynomial(2), orbits=4, coordinates="affine", seed=seed)
        low, high = np.moveaxis(result.interval(0.95), -1, 0)
        exact = np.abs(result.mean - truth) < 1e-9  # up to rounding, which an interval does not know
        covered.append(exact | (low <= truth) & (truth <= high))
        ratios.append(result.standard_error)
        errors.append(result.mean - truth)
    share = np.mean(covered, axis=0)
    calibration = np.median(ratios, axis=0) / np.sqrt(np.mean(np.square(errors), axis=0))
    return [f"{a:.3f} ({b:.2f})" for a, b in zip(share, calibration, strict=True)]


def _traced(x):
    import jax
    import jax.numpy as jnp

    return jnp.stack([x[0], x[1], x[0] ** 2, jnp.sin(x[0] + x[1]), jax.nn.sigmoid(3 * (x[1] - 1))])


def gain(name, most, method):
    """Estimate from every set, one line of JSON per set in the cache; return what they come to."""
    from league.draws import folder, kept_sets, read_one

    which = kept_sets(name)[: int(most or 6)]
    kept = folder() / f"orbits-{name}-{method}.jsonl"
    done = {one["set"]: one for one in map(json.loads, kept.read_text().splitlines())} if kept.exists() else {}
    for k, after in zip(which, [*which[1:], which[0]], strict=True):
        if k not in done:
            done[k] = {"set": k, **_gain_of_set(name, METHODS[method], read_one(name, k), read_one(name, after))}
            with kept.open("a") as file:
                file.write(json.dumps(done[k]) + "\n")
            print(name, method, k, done[k]["spent"], flush=True)
    found = {key: np.array([done[k][key] for k in which]) for key in ("plain", "none", "longer", "orbits")}
    truth = (found["orbits"].sum(axis=0) - found["orbits"]) / (len(which) - 1)
    squared = {key: ((value - truth) ** 2).mean(axis=0) for key, value in found.items()}
    gains = {key: squared["plain"] / squared[key] for key in ("none", "longer", "orbits")}
    least = float((squared["none"] / squared["orbits"]).min())
    return [f"{len(which)} sets", *(f"{key} {np.median(g):.1f}" for key, g in gains.items()), f"least {least:.2f}"]


def _gain_of_set(name, method, one, after):
    """Return means of all functionals: plain, without orbits, on longer chains, with orbits; and gradients per draw."""
    import jax.numpy as jnp
    from league.models import make

    posterior = make(name)

    def f(x):
        return jnp.stack([jnp.asarray(value) for value in posterior.functionals(x).values()])

    spent = float(np.mean(one.gradients))
    more = round(8 / spent * one.draws.shape[1])
    longer = [np.concatenate([a, b[:, :more]], 1) for a, b in ((one.draws, after.draws), (one.scores, after.scores))]
    samples = scv.Samples(one.draws, one.scores, log_density=posterior.logdensity)
    with_orbits = scv.estimate(samples, f, method, orbits=8)
    means = {
        "plain": with_orbits.plain.mean,
        "orbits": with_orbits.mean,
        "none": scv.estimate(samples, f, method, orbits=0).mean,
        "longer": scv.estimate(scv.Samples(*longer), f, method).mean,
    }
    return {"spent": spent, **{key: np.asarray(value).tolist() for key, value in means.items()}}


METHODS = {"quadratic": scv.Polynomial(2), "auto": None}
PARTS = {"unbiased": unbiased, "coverage": coverage}


def main(parts):
    done = {tuple(row[:2]) for row in csv.reader(OUT.open())} if OUT.exists() else set()
    for part in parts:
        kind, name, most, method = [*part.split(":"), "", "", "quadratic"][:4]
        for case in [name] if name else TARGETS:
            label = f"{case}, {method}" if kind == "gain" else case
            if (kind, label) not in done:
                line = [kind, label, *(gain(case, most, method) if kind == "gain" else PARTS[kind](case))]
                with OUT.open("a", newline="") as file:
                    csv.writer(file).writerow(line)
                print(*line, sep=", ", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["unbiased", "coverage"])
