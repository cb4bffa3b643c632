"""Row 1 again: what would have to be otherwise for the published gains of polynomials?

    python benchmarks/published/row01_variants.py

One thing at a time: the posterior (returns, first h, prior), the coordinates that gradients are taken in, and the
random walk. Intervals of a true gain over 40 repeats reach from 1 / 1.9 of it to 1.9 times. Writes
results/published/row01_variants.csv.
"""

import numpy as np
from row01_garch import ESTIMATE, PUBLISHED, REPEATS, SEED, START, USED, WIDTH, posterior, returns
from variants import Variant, study, table

EVERY = 5
some = returns[:USED]
as_it_is = posterior(some)
VARIANTS = {
    "as in the table: whitened": Variant(as_it_is, whitened=True),
    "gradients in the parameters as they are": Variant(as_it_is),
    "and all 1974 returns": Variant(posterior(returns)),
    "and the last 750": Variant(posterior(returns[-USED:])),
    "and returns less their mean": Variant(posterior(some - some.mean())),
    "and first h of equilibrium": Variant(posterior(some, first="equilibrium")),
    "and first h the first square": Variant(posterior(some, first="square")),
    "and prior sd 1": Variant(posterior(some, 1.0)),
    "and prior sd .1": Variant(posterior(some, 0.1)),
    "and proposals as wide as each parameter, 2.38 / sqrt 3 times": Variant(as_it_is, 2.38 / 3**0.5 * WIDTH),
    "and a fifth of that": Variant(as_it_is, 0.2 * 2.38 / 3**0.5 * WIDTH),
    "and proposals of sd .02 for every parameter": Variant(as_it_is, (0.02,) * 3),
    "the same, every 20th of 40,000 draws to fit": Variant(as_it_is, (0.02,) * 3, thin=20),
    "the same, whitened": Variant(as_it_is, (0.02,) * 3, thin=20, whitened=True),
    "sd .01, every 20th of 40,000 draws to fit": Variant(as_it_is, (0.01,) * 3, thin=20),
}


def main() -> None:
    start = START + 0.1 * WIDTH * np.random.default_rng(SEED).normal(size=(REPEATS, 3))
    found = {}
    for name, variant in VARIANTS.items():
        found[name] = study(variant, start, WIDTH, ESTIMATE, EVERY, SEED)
        print(name, {key: value.round(2) for key, value in found[name].items()}, flush=True)
    theirs = {f"degree {k}": " / ".join(f"{low} to {high}" for low, high in rows) for k, rows in PUBLISHED.items()}
    table("row01_variants", "GARCH: gains for w1 / w2 / w3", found, theirs)


if __name__ == "__main__":
    main()
