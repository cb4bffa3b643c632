"""Row 1 again: what would have to be otherwise for the published gains of polynomials?

    python benchmarks/published/row01_variants.py

All 1974 returns instead of 750, and a prior that is narrow enough to matter. The share of the variance that polynomials
leave belongs to the posterior, whatever the sampler: `marginal`. Writes results/published/row01_variants.csv.
"""

import csv

from common import RESULTS, gain, kept, number, replicate
from row01_garch import FIT, NAMES, PUBLISHED, THEIRS, USED, apart, posterior, returns, walk
from tables import show

import steincv as scv

EVERY = 20
VARIANTS = {
    "as published": (USED, 10.0),
    "all returns": (len(returns), 10.0),
    "prior sd 0.2": (USED, 0.2),
}


def marginal(made, degree):
    """Return the variance of single draws over that of controlled ones, all chains together."""
    draws, scores = made["draws"][:, FIT::EVERY], made["scores"][:, FIT::EVERY]
    samples = scv.Samples(draws, scores)
    controlled = draws + scv.Polynomial(degree, penalty=0.0).fit(samples, draws)(samples)
    return draws.var(axis=(0, 1)) / controlled.var(axis=(0, 1))


def main() -> None:
    rows = []
    for name, (count, sd) in VARIANTS.items():
        key = f"row01-{count}" + ("" if sd == 10.0 else f"-{sd:g}")
        made = kept(f"{key}-draws", lambda count=count, sd=sd: walk(posterior(returns[:count], sd)))
        found = replicate(key, apart(made), THEIRS)
        single = {degree: marginal(made, degree) for degree in PUBLISHED}
        for k, f in enumerate(NAMES):
            row = {"variant": name, "f": f, "mean": number(made["draws"][..., k].mean())}
            for degree, published in PUBLISHED.items():
                here = gain(found["plain"][:, k], found[f"ZV degree {degree}, as theirs"][:, k])
                row |= {
                    f"degree {degree}": f"{number(here.low)} to {number(here.high)}",
                    f"marginal {degree}": number(single[degree][k]),
                    f"published {degree}": f"{published[k][0]} to {published[k][1]}",
                }
            rows.append(row)
    show("GARCH: 95 % intervals of the gains", rows)
    with (RESULTS / "row01_variants.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
