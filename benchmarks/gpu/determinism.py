"""Does the same seed give the same answer on an accelerator? Twenty runs each, their spread in standard errors.

python benchmarks/gpu/determinism.py [out.json]

On a CPU it is the same to the bit (tests/trust/test_determinism.py); on a GPU sums may be taken in another order.
"""

import jax
import numpy as np
from auto import eight_schools
from record import record

import steincv as scv
from steincv.samples.values import values_of
from steincv.stein.folds import make_folds

RUNS = 20
METHODS = {
    "Auto()": scv.Auto(),
    "Neural()": scv.Neural(),
    "CNCV(steps=2000)": scv.CNCV(steps=2000),
}


def main() -> None:
    samples = eight_schools()
    values, folds = values_of(None, samples), make_folds(*samples.draws.shape[:2])
    device = jax.devices()[0].device_kind
    print(f"{device}, jax {jax.__version__}: {RUNS} runs on {samples!r}")
    rows: dict = {"device": device, "jax": jax.__version__, "runs": RUNS}
    for name, method in METHODS.items():
        runs = [values.array + method.cross_fit(samples, values.array, folds, seed=0).g for _ in range(RUNS)]
        means = np.array([run.mean(axis=(0, 1)) for run in runs])
        error = runs[0].std(axis=(0, 1)) / np.sqrt(samples.size)  # NUTS draws, nearly independent
        spread = float((np.ptp(means, axis=0) / error).max())
        rows[name] = {"largest spread, standard errors": spread, "bitwise": bool((means == means[0]).all())}
        print(f"{name:20s} largest spread of a mean {spread:.2g} standard errors", flush=True)
    record(rows)


if __name__ == "__main__":
    main()
