"""The full kernel fit of 30,000 draws in float64 on a GPU.

    python benchmarks/gpu/kernel.py [out.json]

The library's own path: matrix, Cholesky factor and solves on the device (`families/_device_kernel.py`).
"""

import time

import jax
import numpy as np
from record import record

from steincv.families.kernel.device import control_functional_on_device
from steincv.families.kernel.stein_kernels import SteinKernel

N, DIM, REPEATS = (30_000, 10, 5) if jax.default_backend() != "cpu" else (500, 10, 2)


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, DIM)) + rng.choice([-1.0, 1.0], size=(N, 1))
    s = np.tanh(x.sum(-1, keepdims=True)) - x
    f = np.sin(x.sum(-1, keepdims=True) / DIM)
    kernel = SteinKernel("gaussian", 4.0)
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        fit = control_functional_on_device(kernel, x, s, f, np.zeros((N, 0)), np.full(N, 1e-6))
        times.append(time.perf_counter() - start)
    device = jax.devices()[0].device_kind
    middle = float(np.median(times[1:]))
    print(f"{device}, jax {jax.__version__}: kernel fit of {N} draws in {DIM} dimensions, float64")
    rate = N**3 / 3 / middle / 1e12
    print(f"first call {times[0]:.2f} s, then {middle:.3f} s (median of {REPEATS}); {rate:.1f} TFlop/s")
    print(f"estimate {fit.mean[0]:.6f}, exact 0, plain mean {f.mean():.6f}")
    record({"device": device, "jax": jax.__version__, "n": N, "seconds": times[1:]})


if __name__ == "__main__":
    main()
