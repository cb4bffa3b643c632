"""Is it worth the time? NUTS run longer, against NUTS once and then steincv. Issue 3, item 7.

    python benchmarks/posteriors.py && python benchmarks/net_gain.py

With a true variance factor R (results/posteriors_PROBLEM.csv, the median and the worst functional) the plain mean needs
R times as many draws to be as accurate. The net gain is the time for that over the time to sample once and run steincv:

    (T + R t) / (T + t + C)

t: sampling the draws; T: everything else a sampler does in a new process (compiling, adaptation); C: the first call of
steincv in that process. `warm` leaves T out and has steincv compiled: R t / (t + c).
Below 1 it would have been faster to draw more. All samplers are run as their users run them, with their defaults: PyMC,
NumPyro, and BlackJAX with vmapped chains, compiled in one program, the fastest there is on these densities, which cost
microseconds: the hard case, since t grows with the model and C does not. t is the slope of time in the number of draws.
Writes results/net_gain.csv.
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

# problem: draws a chain, samplers
CASES = {"eight_schools": (1000, ("pymc", "numpyro", "blackjax")), "logistic60": (500, ("blackjax",)),
         "garch": (500, ("blackjax",)), "lotka_volterra": (500, ("blackjax",)), "logistic20": (1000, ("blackjax",)),
         "funnel5": (1000, ("blackjax",))}  # fmt: skip
CHAINS, REPEATS, LONGER = 4, 3, 10
METHODS = ("Polynomial()", "Auto()")


def timed(action):
    begin = time.perf_counter()
    value = action()
    return time.perf_counter() - begin, value


def problem(name):
    import problems

    return {"eight_schools": problems.eight_schools, "garch": problems.garch, "funnel5": problems.funnel,
            "lotka_volterra": problems.lotka_volterra, "logistic20": problems.logistic,
            "logistic60": lambda: problems.logistic(60)}[name]()  # fmt: skip


# How long each sampler takes, in a process of its own ------------------------------------------------------


def blackjax_seconds(name, draws):
    import problems

    target = problem(name)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STEINCV_BENCH_CACHE"] = folder
        total, _ = timed(lambda: problems.draw(target, 0, CHAINS, draws))
    t = min(problems.nuts_seconds(target, CHAINS, draws).seconds for _ in range(REPEATS))
    return total - t, t


def numpyro_seconds(name, draws):
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    y, sigma = schools()
    numpyro.enable_x64()

    def model():
        mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("school", 8):
            theta = numpyro.deterministic("theta", mu + tau * numpyro.sample("eta", dist.Normal(0, 1)))
            numpyro.sample("y", dist.Normal(theta, jnp.asarray(sigma)), obs=jnp.asarray(y))

    def run(count):
        mcmc = MCMC(NUTS(model), num_warmup=1000, num_samples=count, num_chains=CHAINS, progress_bar=False)
        return timed(lambda: jax.block_until_ready((mcmc.run(jax.random.key(0)), mcmc.get_samples())[1]))[0]

    return slope(run, draws)


def pymc_seconds(name, draws):
    import pymc as pm

    y, sigma = schools()
    with pm.Model():
        mu, tau, eta = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5), pm.Normal("eta", 0, 1, shape=8)
        pm.Normal("y", pm.Deterministic("theta", mu + tau * eta), sigma, observed=y)

        def run(count):
            return timed(lambda: pm.sample(count, tune=1000, chains=CHAINS, progressbar=False, random_seed=0))[0]

        return slope(run, draws)


def slope(run, draws):
    """Overhead of the first run in a process, and time of `draws` draws: from later runs of two lengths."""
    first = run(draws)
    once, more = (min(run(count) for _ in range(REPEATS)) for count in (draws, LONGER * draws))
    t = (more - once) / (LONGER - 1)
    return first - t, t


def schools():
    return [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]


def steincv_seconds(name, draws, method):
    """The first call in a process, and one when everything is compiled."""
    import problems

    from steincv import Auto, Polynomial, Samples, estimate

    target = problem(name)
    ((x, s),) = problems.draw(target, 0, CHAINS, draws)
    values = problems.values_at(target, x)
    chosen = {"Auto()": Auto(), "Polynomial()": Polynomial(2)}[method]
    first, _ = timed(lambda: estimate(Samples(x, s), values, chosen))
    return first, min(timed(lambda: estimate(Samples(x, s), values, chosen))[0] for _ in range(REPEATS))


# The table -------------------------------------------------------------------------------------------------


def fresh(*arguments):
    """One measurement in a process of its own, with nothing compiled before."""
    print(json.dumps(globals()[arguments[0]](arguments[1], int(arguments[2]), *arguments[3:])))


def measure(*arguments):
    command, nothing = [sys.executable, __file__, *map(str, arguments)], {**os.environ, "STEINCV_CACHE": "0"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=nothing)
    return json.loads(done.stdout.splitlines()[-1])


def factors(name, method):
    with (RESULTS / f"posteriors_{name}.csv").open(newline="") as file:
        found = [float(row["true"]) for row in csv.DictReader(file) if row["method"] == method]
    return statistics.median(found), min(found)


def main():
    rows = []
    for name, (draws, samplers) in CASES.items():
        if not (RESULTS / f"posteriors_{name}.csv").exists():
            print(f"{name}: left out, its true factors have not been measured", flush=True)
            continue
        costs = {sampler: measure(f"{sampler}_seconds", name, draws) for sampler in samplers}
        for method in METHODS:
            first, warm = measure("steincv_seconds", name, draws, method)
            for sampler, (overhead, t) in costs.items():
                row = {"problem": name, "sampler": sampler, "method": method, "t": t, "T": overhead, "C": first,
                       "c": warm}  # fmt: skip
                for which, factor in zip(("median", "worst"), factors(name, method), strict=True):
                    row[f"factor, {which}"] = factor
                    row[f"net gain, {which}"] = (overhead + factor * t) / (overhead + t + first)
                    row[f"warm, {which}"] = factor * t / (t + warm)
                rows.append(row)
                print(row, flush=True)
    show(f"net gain; below 1 more draws would have been faster ({CHAINS} chains; seconds)", rows)
    keep("net_gain", rows)


if __name__ == "__main__":
    fresh(*sys.argv[1:]) if len(sys.argv) > 1 else main()
