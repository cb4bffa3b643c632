"""What the closed form of the divergence saves: one training step with it, and with the trace of `jax.jacfwd`.

    python benchmarks/divergence.py

The whole step is timed, minibatch, gradient and Adam included, in the program that `Neural` runs: a 2 x 40 sigmoid
`VectorField`, batch 128. Issue 3, item 6. Writes results/divergence.csv.
"""

import statistics
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from tables import keep, show

from steincv import VectorField
from steincv.families.neural.training import Batch, Settings, Task, _segment, _start

DIMS = (10, 30, 100)
TARGETS = {10: 3.0, 100: 20.0}
DRAWS, BATCH = 2000, 128
STEPS = {"closed form": 200, "jacfwd": 20}  # in one timed call
REPEATS = 7


@dataclass(frozen=True)
class Jacfwd(VectorField):
    """The same network; its divergence the way everyone writes it first."""

    def field(self, params, z):
        def one(x):
            return VectorField.field(self, params, x[None])[0][0]  # its closed form is not used, so not computed

        return jax.vmap(one)(z), jax.vmap(lambda x: jnp.trace(jax.jacfwd(one)(x)))(z)


def stepper(trial, dim, steps):
    """A function that makes `steps` training steps of one network and returns microseconds a step."""
    z = jax.random.normal(jax.random.key(0), (1, DRAWS, dim))
    data = Batch(z, -z, jnp.sin(z[..., :1]), jnp.ones((1, DRAWS)), jnp.zeros((1, DRAWS)))
    zero = jnp.zeros(1)
    task = Task(zero.astype(int), zero.astype(int), zero + 1e-3, zero, zero, jax.random.split(jax.random.key(1), 1))
    settings = Settings(trial, 10_000, BATCH, 5e-3, learn_center=True, early_stop=False)

    def run():
        state = jax.block_until_ready(_start(task, settings, dim))
        begin = time.perf_counter()
        jax.block_until_ready(_segment(state, task, data, jnp.asarray(0), settings, steps))
        return 1e6 * (time.perf_counter() - begin) / steps

    run()  # compiles
    return run


def main():
    rows = []
    for dim in DIMS:
        closed = stepper(VectorField(), dim, STEPS["closed form"])
        jacfwd = stepper(Jacfwd(), dim, STEPS["jacfwd"])
        pairs = [(closed(), jacfwd()) for _ in range(REPEATS)]
        mine, theirs = (statistics.median(p[k] for p in pairs) for k in (0, 1))
        ratio = min(p[1] for p in pairs) / min(p[0] for p in pairs)
        target = TARGETS.get(dim, "")
        rows.append(
            {"dim": dim, "closed form, us": mine, "jacfwd, us": theirs,
             "ratio": statistics.median(b / a for a, b in pairs), "ratio of fastest": ratio,
             "target": target, "us / dim": mine / dim}
        )  # fmt: skip
    show("one training step of a 2 x 40 VectorField, batch 128, medians", rows)
    keep("divergence", rows)


if __name__ == "__main__":
    main()
