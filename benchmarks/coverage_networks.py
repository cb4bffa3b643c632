"""Do 95 % intervals cover 95 % when networks are trained on the same draws? Row 6 of the promises, for networks.

    python benchmarks/coverage_networks.py [WORKERS [METHOD ...]]

The chains and functions of coverage_polynomials.py, 200 replications. A network is fitted on three chains and judged on
the fourth, four times over; its size, its penalty and when to stop are chosen by validation draws inside the three.
Every replication is one row of a .npy file in the folder of the draws' cache, so a run that was stopped goes on.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from coverage_polynomials import LEVEL, Setting, functions, gaussian_chains, push, truths
from sampling import _folder
from tables import keep, show

from steincv import Auto, Neural, Samples, VectorField, estimate

REPLICATIONS, SEED = 200, 771
# Binomial: at 200 replications a true 95 % is outside once in 500.
BAND = (0.90, 0.985)
SETTINGS = (
    Setting("iid, ESS 500", 4, 125, 4, 0.0),
    Setting("AR(0.8), ESS 444", 4, 1000, 4, 0.8),
)
METHODS = {
    "small network": Neural(VectorField(20, 1), penalty=1e-3, steps=500, batch=64, ensemble=1),
    "Neural()": Neural(),
    "Auto()": Auto(),
}


def replicate(task):
    setting, name, r = task
    path = _folder() / f"coverage-{name}-{setting.chains}x{setting.draws}-{setting.correlation}-{r}.npy"
    if not path.exists():
        x, s = push(gaussian_chains(np.random.default_rng([SEED, r]), setting), setting.cubic)
        values = np.stack([np.asarray(v, dtype=float) for v in functions(x).values()], axis=-1)
        result = estimate(Samples(x, s), values, METHODS[name], seed=r)
        low, high = result.interval(LEVEL).T
        fell_back = [method == "plain" for method in result.method]
        np.save(path, [result.mean, result.standard_error, low, high, fell_back, result.plain.standard_error])
    return np.load(path)


def study(setting, name, run):
    truth = truths(setting.cubic)
    true = np.array(list(truth.values()))
    found = np.array(list(run(replicate, [(setting, name, r) for r in range(REPLICATIONS)])))
    mean, error, low, high, fell_back, plain = np.moveaxis(found, 1, 0)
    covered = ((low <= true) & (true <= high)).mean(0)
    rmse = np.sqrt(((mean - true) ** 2).mean(0))
    return [
        {
            "setting": setting.name, "method": name, "f": f, "coverage": float(covered[k]),
            "se/rmse": float(np.sqrt((error[:, k] ** 2).mean()) / rmse[k]),
            "true factor": float((plain[:, k] ** 2).mean() / rmse[k] ** 2),
            "reported factor": float((plain[:, k] ** 2).mean() / (error[:, k] ** 2).mean()),
            "plain reported": float(fell_back[:, k].mean()),
            "kept": "yes" if BAND[0] <= covered[k] <= BAND[1] else "NO",
        }
        for k, f in enumerate(truth)
    ]  # fmt: skip


def main():
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    rows = []
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for name in sys.argv[2:] or METHODS:
            for setting in SETTINGS:
                rows += study(setting, name, pool.map)
                keep("coverage_networks", rows)
    show(f"coverage of nominal {LEVEL:.0%} over {REPLICATIONS} replications", rows)


if __name__ == "__main__":
    main()
