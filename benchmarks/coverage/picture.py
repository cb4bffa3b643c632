"""The picture of results/coverage_study.csv for docs/trust.md, and its summary as a table in Markdown.

python benchmarks/coverage/picture.py [PNG]
"""

import pathlib
import sys

import numpy as np
from matplotlib.figure import Figure
from study import OUT, SAMPLERS, SIZES, read
from targets import TARGETS

from steincv.report.figures import GRID, INK

FAMILIES = ("plain", "Polynomial(2)", "Kernel", "small network", "Auto()")
COLOURS = ("#777777", "#1f77b4", "#d97706", "#7c3aed", "#15803d")
PICTURE = pathlib.Path(__file__).parents[2] / "docs" / "trust.png"
# What is exact to rounding has no error bar to judge.
EXACT = 1e-12


def inexact(rows):
    return [row for row in rows if row["true ratio"] > EXACT]


def draw(rows, path):
    """One dot a function of a density; the promised band in grey."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, sampler in zip(axes, SAMPLERS, strict=True):
        ax.axhspan(0.92, 0.975, color=GRID, alpha=0.7, lw=0)
        ax.axhline(0.95, color=INK, lw=0.8)
        for k, (family, colour) in enumerate(zip(FAMILIES, COLOURS, strict=True)):
            for j, size in enumerate(SIZES):
                mine = [r for r in rows if (r["sampler"], r["family"], int(r["ESS"])) == (sampler, family, size)]
                if not mine:
                    continue
                told = np.array([r["tail status"] > 0.5 for r in mine])
                y = np.array([r["coverage"] for r in mine])
                x = j + (k - 2) * 0.17 + np.linspace(-0.05, 0.05, len(y))
                label = family if j == 0 and sampler == "chains" else None
                ax.plot(x[~told], y[~told], "o", color=colour, ms=3.5, alpha=0.75, mew=0)
                ax.plot(x[told], y[told], "o", color=colour, ms=4, mfc="none", mew=0.9)
                ax.plot(j + (k - 2) * 0.17, y.mean(), "_", color=colour, ms=17, mew=2.4, label=label)
        ax.set_xticks(range(len(SIZES)), [f"{size:,}" for size in SIZES])
        ax.set_xlabel("effective draws of a coordinate")
        ax.set_title({"iid": "independent draws", "chains": "Markov chains"}[sampler], fontsize=11, loc="left")
        ax.set_xlim(-0.55, len(SIZES) - 0.45)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("share of 95 % intervals that cover")
    axes[0].set_ylim(min(0.7, min(r["coverage"] for r in rows) - 0.02), 1.01)
    words = "bar: mean over 6 densities, 5 functions\nhollow: the user is told of rare draws or heavy tails"
    axes[0].text(0.01, 0.02, words, transform=axes[0].transAxes, fontsize=8.5, color=INK)
    axes[1].legend(loc="lower right", frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)


def table(rows):
    """Mean and worst coverage, and the other promises, of every family and size.

    Reported over true variance ratio: of the mean over runs, which is the square of se / rmse, and of the typical run;
    the median over so many functions, apart where most runs say `rare draws` or `heavy tail` and where they do not.
    """
    lines = [
        "| family | ESS | replications | coverage, mean | worst | below 89 % | of these told "
        "| reported / true, mean of runs | of the typical run, no tail status | the same with one |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for family in FAMILIES:
        for size in SIZES:
            mine = [r for r in rows if r["family"] == family and int(r["ESS"]) == size]
            if not mine:
                continue
            cover = np.array([r["coverage"] for r in mine])
            low = [r for r in mine if r["coverage"] < 0.89]
            told = sum(r["with a status"] > 0.5 for r in low)
            ratios = [
                [r["reported ratio"] / r["true ratio"] for r in mine if (r["tail status"] > 0.5) == told_so]
                for told_so in (False, True)
            ]
            shown = [f"{np.median(each):.2f} ({len(each)})" if each else "" for each in ratios]
            lines.append(
                f"| {family} | {size} | {int(mine[0]['replications'])} | {cover.mean():.3f} | {cover.min():.2f} "
                f"| {len(low)} of {len(mine)} | {told} | {np.median([r['se/rmse'] ** 2 for r in mine]):.2f} "
                f"| {shown[0]} | {shown[1]} |"
            )
    return "\n".join(lines)


def main():
    if not OUT.exists():
        raise SystemExit("run study.py first")
    rows = inexact(read())
    draw(rows, sys.argv[1] if len(sys.argv) > 1 else PICTURE)
    print(table(rows))
    for name in TARGETS:
        worst = sorted((r for r in rows if r["target"] == name), key=lambda r: r["coverage"])[:3]
        print(name, [(r["family"], r["sampler"], int(r["ESS"]), r["f"], r["coverage"]) for r in worst])


if __name__ == "__main__":
    main()
