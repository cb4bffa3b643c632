"""Problems x methods in one table and one picture: what is truly gained, what is reported, seconds, and net gain.

    python benchmarks/posteriors.py && python benchmarks/net_gain.py && python benchmarks/summary.py

Reads results/posteriors_*.csv and results/net_gain.csv; prints the table as Markdown, and draws docs/problems.png.
"""

import csv
import pathlib
import statistics

from tables import RESULTS

METHODS = {"Polynomial(degree=1)": "Polynomial(1)", "Polynomial()": "Polynomial(2)", "Auto()": "Auto()"}
DOCS = pathlib.Path(__file__).parents[1] / "docs"


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def rows():
    gains = {(r["problem"], r["method"]): r for r in read(RESULTS / "net_gain.csv") if r["sampler"] == "blackjax"}
    found = []
    for path in sorted(RESULTS.glob("posteriors_*.csv")):
        problem, table = path.stem.removeprefix("posteriors_"), read(path)
        for method, name in METHODS.items():
            mine = [r for r in table if r["method"] == method]
            true, told = ([float(r[key]) for r in mine] for key in ("true", "reported"))
            net = gains.get((problem, method))
            found.append(
                {"problem": problem, "method": name, "functions": len(mine), "true": statistics.median(true),
                 "worst": min(true), "reported": statistics.median(told), "seconds": float(mine[0]["seconds"]),
                 "net": float(net["net gain, median"]) if net else None,
                 "warm": float(net["warm, median"]) if net else None}
            )  # fmt: skip
    return found


def text(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
    return "" if value is None else str(value)


def picture(found):
    from matplotlib.figure import Figure

    problems = list(dict.fromkeys(r["problem"] for r in found))
    figure = Figure(figsize=(8.5, 0.55 * len(problems) + 1.4), layout="constrained")
    ax = figure.subplots()
    for k, (name, colour) in enumerate(zip(METHODS.values(), ("#9aa5b1", "#3b7dd8", "#d1495b"), strict=True)):
        mine = [r for r in found if r["method"] == name]
        at = [problems.index(r["problem"]) + 0.22 * (k - 1) for r in mine]
        ax.hlines(at, [r["worst"] for r in mine], [r["true"] for r in mine], color=colour, lw=5, alpha=0.35)
        ax.plot([r["true"] for r in mine], at, "o", color=colour, label=name)
        ax.plot([r["reported"] for r in mine], at, "|", color="black", ms=11, label="reported" if k == 2 else None)
    ax.set_xscale("log")
    ax.axvline(1, color="black", lw=0.8)
    ax.set_yticks(range(len(problems)), [p.replace("_", " ") for p in problems])
    ax.invert_yaxis()
    ax.set_xlabel("variance reduction in truth, from replications: median function (dot) and worst (end of the bar)")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper right")
    figure.savefig(DOCS / "problems.png", dpi=130)


def gain(row):
    """The median function, and the worst."""
    return f"{text(row['true'])} ({text(row['worst'])})"


def main():
    found = rows()
    print(
        "| problem | functions | Polynomial(1): true gain, median (worst) | Polynomial(2) | Auto() | reported by it | "
        "seconds | net gain, new process | compiled |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for problem in dict.fromkeys(r["problem"] for r in found):
        mine = {r["method"]: r for r in found if r["problem"] == problem}
        auto = mine["Auto()"]
        cells = [problem.replace("_", " "), auto["functions"], *map(gain, mine.values()), auto["reported"],
                 auto["seconds"], auto["net"], auto["warm"]]  # fmt: skip
        print("| " + " | ".join(map(text, cells)) + " |")
    picture(found)


if __name__ == "__main__":
    main()
