"""One full-batch gradient of a wide network in many dimensions, against the matmul rate of the same run.

    python benchmarks/gpu/fullbatch.py [out.json]

The one-hidden-layer vector field with its closed-form divergence: two products forward and three backward of n x D x H,
10 n D H operations, and everything else. Its rate over that of a plain product of the same shapes at the same precision
says how much of the device is used. Float32 throughout; the precision of products is stated.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from record import record

from steincv.families.neural.sharding import Draws, full_batch_gradient
from steincv.families.neural.trials import VectorField

N, DIM, WIDTH, REPEATS = 200_000, 1024, 1024, 10
if jax.default_backend() == "cpu":  # to see that it runs
    N, DIM, WIDTH, REPEATS = 2000, 64, 64, 3


def seconds(run) -> float:
    """The median over repeats, after one that compiles."""
    jax.block_until_ready(run())
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def main() -> None:
    device = jax.devices()[0]
    trial = VectorField(WIDTH, 1, "tanh")
    keys = jax.random.split(jax.random.key(0), 2)
    z = jax.random.normal(keys[0], (N, DIM), jnp.float32)
    draws = Draws(z, -z, jnp.sin(z[:, 0]), jnp.ones(N, jnp.float32))
    params = trial.init(keys[1], DIM)
    product = jax.jit(lambda a, b: a @ b)
    rows = {"device": device.device_kind, "jax": jax.__version__, "n": N, "dim": DIM, "width": WIDTH}
    print(f"{device.device_kind}, jax {jax.__version__}, n = {N}, D = {DIM}, H = {WIDTH}, float32")
    for precision in ("high", "highest"):
        with jax.default_matmul_precision(precision):
            matmul = 2 * N * DIM * WIDTH / seconds(lambda: product(z, params[0][0].T))
            taken = seconds(lambda: full_batch_gradient(trial, params, jnp.float32(0), draws, 1e-3))
        rate = 10 * N * DIM * WIDTH / taken
        rows[precision] = {"ms": 1e3 * taken, "tflops": rate / 1e12, "matmul_tflops": matmul / 1e12}
        rows[precision]["share"] = rate / matmul
        print(
            f"precision {precision:8s} {1e3 * taken:8.2f} ms a gradient, {rate / 1e12:6.1f} TFlop/s, "
            f"plain product {matmul / 1e12:6.1f} TFlop/s: {100 * rate / matmul:.0f} %",
            flush=True,
        )
    record(rows)


if __name__ == "__main__":
    main()
