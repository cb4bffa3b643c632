"""Do the intervals of `predictive` hold for regression networks? Many runs of 4 chains against all other chains.

    OPENBLAS_NUM_THREADS=1 python benchmarks/regression_calibration.py [curve | cars] [chains, default 64]

The rows of `steincv reproduce bnn` are of 4 such runs only. Predictions of one run are correlated, so the runs are what
is counted: the mean of their coverage with its standard error. Adds to results/regression_calibration.csv.
"""

import csv
import sys

import numpy as np
from tables import RESULTS, machine

from steincv.networks import NetworkField
from steincv.networks.predictive import predictions
from steincv_paper.bnn_fits import Known
from steincv_paper.bnn_regression import covered, regression_draws, table


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "curve"
    chains = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    samples, (model, inputs) = regression_draws(name, chains, 400, 400, seed=1), table(name, 1)
    f = predictions(samples, model.predict, inputs)
    known = Known(model, inputs, samples, NetworkField(model, inputs).fields(samples))
    rows = covered(name, samples, known, f, times=1)
    held, helped = (np.array([r[key] for r in rows]) for key in ("covered", "helped"))
    row = {
        "data": name,
        "runs": len(rows),
        "coverage": held.mean(),
        "+-": held.std(ddof=1) / np.sqrt(len(rows)),
        "least": held.min(),
        "z rms": np.sqrt(np.mean([r["z_rms"] ** 2 for r in rows])),
        "variance ratio": np.mean([r["ratio"] for r in rows]),
        "helped": helped.mean(),
    }
    print(row)
    path = RESULTS / "regression_calibration.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()})
    print(machine())


if __name__ == "__main__":
    main()
