"""Orbits or longer chains, library by library: what the same gradients, and the same seconds, bring.

    OPENBLAS_NUM_THREADS=1 python benchmarks/orbits_net.py [numpyro pymc blackjax ode]

A logistic regression of 200 answers with 20 coefficients, 4 chains of 500 draws by each library's NUTS with its own
defaults, and Lotka-Volterra (an ODE, whose gradient takes about a millisecond) by BlackJAX. Everything goes through the
adapters as a user's would. A line of results/orbits_net.csv:

- `sampling`: seconds for these draws, warm-up and compiling left out (the slope of time in the number of draws);
  `gradients`: per draw, by the sampler's own count; `alone`: milliseconds per gradient, sampling over gradients.
- `none`, `orbits`: what `Polynomial(2)` and `Auto()` gain with `orbits=0` and 8, as reported, median over functionals;
  `fit` and `ask`: seconds, of a second call, of the latter's fits and of its orbits.
- `same gradients`: gain with orbits, over that without them times the draws that the same gradients would have bought.
- `net`: `steincv.net_gain` of the result with orbits; `net, none`: of the one without.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import csv
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from tables import RESULTS, keep, show

import steincv as scv

CHAINS, DRAWS, LONGER, STATES = 4, 500, 20, 8
DIM, ANSWERS = 20, 200
METHODS = {"Polynomial(2)": scv.Polynomial(2), "Auto()": scv.Auto()}


def data():
    rng = np.random.default_rng(8)
    x = rng.normal(size=(ANSWERS, DIM)) / np.sqrt(DIM) * 3
    return x, (rng.uniform(size=ANSWERS) < 1 / (1 + np.exp(-x @ rng.normal(size=DIM)))).astype(int)


def functionals(b):
    """Six coefficients, three squares and three predictions."""
    x, _ = data()
    return jnp.concatenate([b[:6], b[6:9] ** 2, jax.nn.sigmoid(jnp.asarray(x[:3]) @ b)])


def slope(run):
    """Return what a run of DRAWS gives, and the seconds of its draws alone: two lengths, each compiled before."""
    times = []
    for count in (DRAWS * LONGER, DRAWS):
        run(count)
        begin = time.perf_counter()
        found = run(count)
        times.append(time.perf_counter() - begin)
    seconds = (times[0] - times[1]) / (LONGER - 1)
    if seconds <= 0:
        raise SystemExit("Other work hides the time of the draws: run it on a calmer machine.")
    return found, seconds


def numpyro():
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    x, y = data()

    def model():
        b = numpyro.sample("b", dist.Normal(0, 1).expand([DIM]))
        numpyro.sample("y", dist.Bernoulli(logits=jnp.asarray(x) @ b), obs=jnp.asarray(y))

    def run(count):
        mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=count, num_chains=CHAINS, chain_method="sequential",
                    progress_bar=False)  # fmt: skip
        mcmc.run(jax.random.key(0), extra_fields=("num_steps",))
        jax.block_until_ready(mcmc.get_samples())
        return mcmc

    mcmc, seconds = slope(run)
    return scv.from_numpyro(mcmc), lambda p: functionals(p["b"]), seconds


def pymc():
    import pymc as pm

    x, y = data()
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=DIM)
        pm.Bernoulli("y", logit_p=x @ b, observed=y)

        def run(count):
            return pm.sample(count, tune=500, chains=CHAINS, cores=1, progressbar=False, random_seed=0)

        found, seconds = slope(run)
    return scv.from_pymc(found, model), lambda p: functionals(p["b"]), seconds


def by_blackjax(logdensity, start, f):
    import blackjax

    kernel = blackjax.nuts
    key = jax.random.key(0)
    with jax.enable_x64(True):
        start = jnp.asarray(np.asarray(start), jnp.float64)
        warm = jax.jit(lambda k, at: blackjax.window_adaptation(kernel, logdensity).run(k, at, 500)[0])
        (state, parameters) = warm(key, start)
        step = kernel(logdensity, **parameters).step

        def chain(key, count):
            def move(state, key):
                state, info = step(key, state)
                return state, (state, info)

            return jax.lax.scan(move, state, jax.random.split(key, count))[1]

        many = jax.jit(lambda keys, count: jax.lax.map(lambda k: chain(k, count), keys), static_argnums=1)
        (states, info), seconds = slope(lambda count: jax.block_until_ready(many(jax.random.split(key, CHAINS), count)))
        return scv.from_blackjax(states, logdensity, info=info), f, seconds


def blackjax():
    x, y = data()

    def logdensity(b):
        logits = jnp.asarray(x) @ b
        return jnp.sum(y * logits - jnp.logaddexp(0.0, logits)) - 0.5 * b @ b

    return by_blackjax(logdensity, jnp.zeros(DIM), functionals)


def ode():
    import problems

    one = problems.lotka_volterra()
    return by_blackjax(one.logdensity, jnp.asarray(one.start(jax.random.key(1))),
                       lambda x: jnp.stack([g(x) for g in one.functionals.values()]))  # fmt: skip


SAMPLERS = {"numpyro": numpyro, "pymc": pymc, "blackjax": blackjax, "ode": ode}


def rows_of(name):
    samples, f, seconds = SAMPLERS[name]()
    spent = samples.gradients
    for label, method in METHODS.items():
        found = {}
        for states in (0, STATES):
            scv.estimate(samples, f, method, orbits=states)  # JAX compiles the model
            found[states] = scv.estimate(samples, f, method, orbits=states)
        gains = {states: float(np.median(result.gain)) for states, result in found.items()}
        nets = {states: scv.net_gain(result, seconds, gradients=spent) for states, result in found.items()}
        asked = found[STATES].info["orbits"]["gradients"]
        row = {"sampler": name, "method": label, "sampling": seconds}
        if spent:
            row |= {"gradients": spent / samples.size, "alone": 1e3 * seconds / spent}
            same = gains[STATES] / (gains[0] * (1 + asked / spent))
        else:
            row |= {"gradients": float("nan"), "alone": float("nan")}
            same = float("nan")
        yield row | {"none": gains[0], "orbits": gains[STATES], "same gradients": same, "fit": nets[STATES].fitting,
                     "ask": nets[STATES].orbits, "net": nets[STATES].net, "net, none": nets[0].net}  # fmt: skip


def main():
    path = RESULTS / "orbits_net.csv"
    rows = list(csv.DictReader(path.open(newline=""))) if path.exists() else []
    for name in sys.argv[1:] or SAMPLERS:
        if all(row["sampler"] != name for row in rows):
            rows += list(rows_of(name))
            keep("orbits_net", rows)
    show("Orbits of 8 states or longer chains", rows)


if __name__ == "__main__":
    main()
