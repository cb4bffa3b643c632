"""How long is a fit for a Bayesian network of 405 weights, 1000 draws and 500 images?

    python benchmarks/networks_fit.py [results/networks_fit.csv]

The draws are of the prior: a fit costs the same on any. One row a method, seconds with compilation.
"""

import csv
import sys
import time

import numpy as np

from steincv import Polynomial, Samples
from steincv.families.neural.neural import CNCV
from steincv.networks import NetworkField, predictive
from steincv.networks.predictive import predictions
from steincv_paper.amortised import Amortised
from steincv_paper.classifier import Classifier
from steincv_paper.embedding import ImageEmbedding

TRAINING, IMAGES, CHAINS, DRAWS, STEPS = 200, 500, 4, 250, 4000


def main() -> None:
    rng = np.random.default_rng(0)
    images = rng.uniform(size=(TRAINING + IMAGES, 28, 28)).astype(np.float32)
    model = Classifier(images[:TRAINING], np.arange(TRAINING) % 2)
    inputs = images[TRAINING:]
    theta = rng.normal(size=(CHAINS, DRAWS, model.dim))
    samples = Samples(theta, -theta)
    values = predictions(samples, model.predict, inputs)
    methods = {
        "last layer": lambda: NetworkField(model, inputs).fit(samples, values),
        "CNCV, amortised": lambda: CNCV(Amortised(inputs, embed=ImageEmbedding()), steps=STEPS).fit(samples, values),
        "linear": lambda: Polynomial(1).fit(samples, values),
        "predictive(), default": lambda: predictive(samples, model, inputs),
    }
    rows = []
    for name, work in methods.items():
        begin, cpu = time.perf_counter(), time.process_time()
        work()
        row = {"method": name, "dim": model.dim, "draws": samples.size, "images": IMAGES,
               "seconds": round(time.perf_counter() - begin, 1),
               "cpu_seconds": round(time.process_time() - cpu, 1)}  # fmt: skip
        rows.append(row)
        print(row, flush=True)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
