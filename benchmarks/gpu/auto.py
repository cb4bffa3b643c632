"""The whole of Auto() on eight schools: first call and later ones, on the device that JAX finds.

python benchmarks/gpu/auto.py [out.json]
"""

import importlib.util
import sys
import time
import types
from contextlib import nullcontext
from importlib.resources import as_file, files

import jax
import numpy as np
from record import record

if importlib.util.find_spec("threadpoolctl") is None:  # BLAS threads then stay as they are

    class _Controller:
        def limit(self, **_):
            return nullcontext()

        def info(self):
            return []

    sys.modules["threadpoolctl"] = types.SimpleNamespace(ThreadpoolController=_Controller)

import steincv as scv
from steincv.demo import constrain_eight_schools
from steincv.samples.files import read_samples
from steincv.samples.values import values_of
from steincv.stein.folds import make_folds

REPEATS = 3


def eight_schools() -> scv.Samples:
    with as_file(files("steincv") / "data" / "eight_schools.npz") as file:
        stored = read_samples(file)
    return scv.Samples(stored.draws, stored.scores, stored.names, constrain_eight_schools)


def main() -> None:
    samples = eight_schools()
    values = values_of(None, samples)
    folds = make_folds(*samples.draws.shape[:2])
    times, members = [], []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        fit = scv.Auto().cross_fit(samples, values.array, folds, seed=0)
        times.append(time.perf_counter() - start)
        members = fit.info["members"]
    device = jax.devices()[0].device_kind
    print(f"{device}, jax {jax.__version__}: Auto() on eight schools, {samples!r}")
    print(f"first call {times[0]:.1f} s, then {np.median(times[1:]):.1f} s (median of {REPEATS})")
    for member in members:
        print(f"  {member['method']:60s} {member['seconds']:7.2f} s")
    ratio = (values.array + fit.g).var(axis=(0, 1)) / values.array.var(axis=(0, 1))
    print(f"variance left, median over {len(ratio)} outputs: {np.median(ratio):.4f}")
    record({"device": device, "jax": jax.__version__, "seconds": times, "members": members})


if __name__ == "__main__":
    main()
