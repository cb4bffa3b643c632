"""Many small networks trained together: microseconds a step of the library's own training program.

    python benchmarks/gpu/networks.py [out.json]

The whole axis of networks (outputs x folds x penalties x members) is one compiled program, so what counts on an
accelerator is the time of one step of all of them. Prints a table with device and versions.
"""

import time
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from record import record

from steincv.families.neural import fused as _fused
from steincv.families.neural.training import PRECISION, Batch, Settings, Task, _segment, _start
from steincv.families.neural.trials import Potential, VectorField

NETWORKS, DIM, BATCH, DRAWS = 512, 10, 128, 5000
STEPS, REPEATS = 2000, 5
# the paper's network once more without the kernel that keeps its activations on the chip
OPERATIONS = "VectorField 2 x 40, no kernel"
TRIALS = {
    "VectorField 1 x 40": VectorField(40, 1),
    "VectorField 2 x 40 (the paper's)": VectorField(40, 2),
    OPERATIONS: VectorField(40, 2),
    "Potential 1 x 40": Potential(40, 1),
}


def step_seconds(trial) -> list[float]:
    """Seconds a step, over repeats, compilation excluded."""
    x = np.random.default_rng(0).normal(size=(1, DRAWS, DIM)).astype(np.float32)
    y = np.sin(x.sum(-1, keepdims=True))
    ones = jnp.ones((1, DRAWS))
    data = Batch(jnp.asarray(x), jnp.asarray(-x), jnp.asarray(y), ones, jnp.zeros_like(ones))
    zero = jnp.zeros(NETWORKS, int)
    task = Task(zero, zero, *[jnp.zeros(NETWORKS)] * 3, jax.random.split(jax.random.key(0), NETWORKS))
    settings = Settings(trial, STEPS, BATCH, 1e-3, True, False)
    state = _start(task, settings, DIM)
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        state = jax.block_until_ready(_segment(state, task, data, jnp.asarray(0), settings, STEPS))
        times.append((time.perf_counter() - start) / STEPS)
    return times[1:]


def main() -> None:
    device = jax.devices()[0]
    rows = {"device": device.device_kind, "jax": jax.__version__, "networks": NETWORKS, "dim": DIM, "batch": BATCH}
    print(f"{device.device_kind}, jax {jax.__version__}, {NETWORKS} networks, D = {DIM}, batch {BATCH}")
    for precision in (PRECISION, "highest"):
        with jax.default_matmul_precision(precision):
            for name, trial in TRIALS.items():
                fused = name != OPERATIONS and precision == PRECISION
                with patch.object(_fused, "applies", _fused.applies if fused else lambda *_: False):
                    jax.clear_caches()
                    times = step_seconds(trial)
                middle = 1e6 * float(np.median(times))
                rows[f"{name}, {precision}"] = {"us_per_step_median": middle, "all_us": [1e6 * t for t in times]}
                print(f"{name:36s} {precision:10s} {middle:8.1f} us a step", flush=True)
    record(rows)


if __name__ == "__main__":
    main()
