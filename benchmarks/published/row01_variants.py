"""Row 1 again: the polynomials' published gains come out with all 1974 returns, not with the first 750.

    python benchmarks/published/row01_variants.py

Writes results/published/row01_variants.csv.
"""

import csv

from common import RESULTS, gain, kept, number, replicate
from row01_garch import NAMES, PUBLISHED, THEIRS, apart, posterior, returns, walk
from tables import show

COUNTS = (750, len(returns))


def main() -> None:
    rows = []
    for count in COUNTS:
        made = kept(f"row01-{count}-draws", lambda count=count: walk(posterior(returns[:count])))
        found = replicate(f"row01-{count}", apart(made), THEIRS)
        means = made["draws"].mean(axis=(0, 1))
        for k, f in enumerate(NAMES):
            row = {"returns": count, "f": f, "mean": number(means[k])}
            for degree, published in PUBLISHED.items():
                here = gain(found["plain"][:, k], found[f"ZV degree {degree}, as theirs"][:, k])
                row |= {f"degree {degree}": f"{number(here.low)} to {number(here.high)}"}
                row |= {f"published {degree}": f"{published[k][0]} to {published[k][1]}"}
            rows.append(row)
    show("GARCH: 95 % intervals of the gains", rows)
    with (RESULTS / "row01_variants.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
