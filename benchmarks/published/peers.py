"""All rows in one table, theirs and ours: docs/peers.md between its markers, and the picture beside it.

    python benchmarks/published/peers.py

It reads whatever CSVs are in results/published and beside it. Rows that have none are listed as missing.
"""

import csv
from collections.abc import Collection, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

RESULTS = Path(__file__).parents[1] / "results" / "published"
PAGE = Path(__file__).parents[2] / "docs" / "peers.md"
PICTURE = Path(__file__).parents[2] / "docs" / "peers.png"
BEGIN, END = "<!-- written by benchmarks/published/peers.py -->", "<!-- end -->"
COLUMNS = ("row", "setting", "f", "method", "measure", "published_method", "published", "ours", "ratio")
SETTINGS = {
    1: "GARCH(1,1), DEM/GBP", 2: "probit, Swiss banknotes", 3: "logit, Swiss banknotes",
    4: "Lotka-Volterra, D = 4, MALA", 5: "banana, D = 8, random walk",
    6: "borehole, D = 8", 7: "capture-recapture, D = 12, prior draws",
    8: "linear regression, D = 13", 9: "van der Pol, log evidence", 10: "Lotka-Volterra, D = 8",
}  # fmt: skip
SHOWN = ("Polynomial(2)", "Kernel()", "CNCV()", "Polynomial(2), learned", "Auto()")
GAIN = "gain"
EXACT = 1e-9  # errors below are round-off
THEIRS = "as theirs"  # the end of a label: the authors' method, as they ran it
Row = dict[str, str]


def read() -> tuple[list[Row], dict[str, list[Row]]]:
    """Return the lines of all CSVs that have the columns, and by name those that have columns of their own."""
    lines: list[Row] = []
    others = {}
    for path in sorted([*RESULTS.glob("*.csv"), *Path(__file__).parent.glob("*.csv")], key=lambda path: path.name):
        with path.open(newline="") as file:
            found = list(csv.DictReader(file))
        if found and set(COLUMNS) <= set(found[0]):
            lines += found
        elif found:
            others[path.name] = found
    return lines, others


def short(value: float) -> str:
    """Return a number with two digits or three."""
    if not np.isfinite(value):
        return "-"
    if value < EXACT:
        return "exact"
    if value >= 1e6:
        return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    if value >= 10_000:
        return f"{float(f'{value:.2g}'):,.0f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 1 or value >= 10 else f"{value:.1f}"


def span(values: Sequence[float]) -> str:
    low, high = short(min(values)), short(max(values))
    return low if low == high else f"{low} to {high}"


def base(method: str) -> str:
    """Return the method without what was said of its draws."""
    for name in sorted(SHOWN, key=len, reverse=True):
        if method == name or method.startswith(f"{name}, every"):
            return name
    return method


def groups(lines: Sequence[Row]) -> list[tuple[int, str, list[Row]]]:
    """Return (row, what f is, lines): gains of one setting together, errors number by number of draws."""
    found: dict[tuple[int, str], list[Row]] = {}
    for line in lines:
        f = "" if line["measure"] == GAIN else line["f"]
        found.setdefault((int(line["row"]), f), []).append(line)
    return [(row, f, some) for (row, f), some in sorted(found.items(), key=lambda item: item[0][0])]


def numbers(lines: Sequence[Row], column: str) -> list[float]:
    return [float(line[column]) for line in lines]


def ratio(lines: Sequence[Row]) -> str:
    """Return by how much ours is better: geometric mean over f, and the widest of the intervals."""
    if not lines:
        return ""
    if not np.isfinite(numbers(lines, "ratio")).all():
        return "both exact" if max(numbers(lines, "ours") + numbers(lines, "published")) < EXACT else "-"
    middle = np.exp(np.mean(np.log(numbers(lines, "ratio"))))
    low, high = min(numbers(lines, "ratio_low")), max(numbers(lines, "ratio_high"))
    return f"**{short(middle)}** ({short(low)} to {short(high)})"


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body]) + "\n"


def of(lines: Sequence[Row], name: str) -> list[Row]:
    return [line for line in lines if base(line["method"]) == name]


def here(lines: Sequence[Row], name: str) -> list[Row]:
    """Return the runs of a published method in our hands."""
    return [line for line in lines if line["method"].endswith(THEIRS) and line["published_method"] == name]


def main_table(lines: Sequence[Row], others: Collection[str]) -> str:
    head = ["row", "setting", "measure", "best published", "that one, run here", *(f"`{name}`" for name in SHOWN)]
    head = [h.replace("`Polynomial(2), learned`", "learned") for h in head] + ["`Auto()` better than published by"]
    body = []
    for row, f, some in groups(lines):
        auto = of(some, "Auto()")
        best = auto or some
        name = best[0]["published_method"]
        theirs = numbers(best, "published_low") + numbers(best, "published_high")
        told = span(theirs if best[0]["measure"] == GAIN else numbers(best, "published"))
        runs = [here(some, name), *(of(some, shown) for shown in SHOWN)]
        cells = [span(numbers(mine, "ours")) if mine else "" for mine in runs]
        setting = best[0]["setting"] + (f"; {f}" if f else "")
        body.append([str(row), setting, best[0]["measure"], f"{name}: {told}", *cells, ratio(auto)])
    there = {int(line["row"]) for line in lines}
    for row in set(SETTINGS) - there:
        apart = any(name.startswith(f"row{row:02d}") for name in others)
        body.append(
            [str(row), SETTINGS[row], "in a table of its own, below" if apart else "missing", *[""] * (len(head) - 3)]
        )
    body.sort(key=lambda cells: int(cells[0]))
    return table(head, body)


def reproduced(lines: Sequence[Row]) -> str:
    """Return their methods in our hands, and the plain means, beside what they report."""
    head = ["row", "f", "method", "published (95 %)", "here (95 %)", "repeats", "intervals overlap"]
    body = []
    for line in lines:
        if not (line["method"].endswith(THEIRS) or (line["method"] == "plain" and line["published_method"] == "plain")):
            continue
        theirs, mine = ([float(line[f"{c}_{end}"]) for end in ("low", "high")] for c in ("published", "ours"))
        meet = theirs[0] <= mine[1] and mine[0] <= theirs[1]
        method = line["method"].removesuffix(", as theirs")
        shown = [f"{short(a)} to {short(b)}" if a < b else short(a) for a, b in (theirs, mine)]
        body.append([line["row"], line["f"], method, *shown, line["repeats"], "yes" if meet else "**no**"])
    return table(head, body)


def matched(lines: Sequence[Row]) -> str:
    body = {}
    for line in lines:
        what = "theirs" if line["method"].endswith(THEIRS) else "ours"
        said = (line["row"], line["matched"], line["not_matched"])
        body.setdefault(said, [line["row"], what, *said[1:], line["source"]])
    return table(["row", "run", "the same", "not the same", "source"], list(body.values()))


def draw(lines: Sequence[Row]) -> None:
    """Draw the variance of the best published method over ours: theirs at 1, ours right of it where it is better."""
    marks = dict(zip(SHOWN, ("C0s", "C2^", "C4v", "C1D", "C3o"), strict=True))
    some = [(row, f, all_) for row, f, all_ in groups(lines) if ratio(of(all_, "Auto()")).startswith("**")]
    figure, ax = plt.subplots(figsize=(8.5, 1.3 + 0.33 * len(some)), layout="constrained")
    for y, (_, _, all_) in enumerate(some):
        name = of(all_, "Auto()")[0]["published_method"]
        runs = {"the published method, run here": ("kx", here(all_, name))}
        runs |= {label: (mark, of(all_, label)) for label, mark in marks.items()}
        for label, (mark, mine) in runs.items():
            if not mine:
                continue
            power = 1.0 if mine[0]["measure"] == GAIN else 2.0  # of a ratio of errors
            value = np.exp(power * np.mean(np.log(numbers(mine, "ratio"))))
            best = label == "Auto()"
            if best:
                ends = min(numbers(mine, "ratio_low")) ** power, max(numbers(mine, "ratio_high")) ** power
                ax.plot(ends, [y, y], "C3-", lw=1.5)
            ax.plot(
                value, y, mark, ms=8 if best else 5, mec="k" if best else mark[:-1], mfc=mark[:-1] if best else "none"
            )
    for label, mark in {"the published method, run here": "kx", **marks}.items():
        ax.plot([], [], mark, mfc=mark[:-1] if label == "Auto()" else "none", label=label)
    ax.axvline(1.0, color="0.3", lw=1.0)
    ax.text(1.0, -0.75, "as published", ha="center", va="bottom", fontsize=9)
    names = [f"{row}  {a[0]['setting']}" + (f"; {f.split(', ')[-1]}" if f else "") for row, f, a in some]
    ax.set_yticks(range(len(some)), names)
    ax.set(xscale="log", ylim=(len(some) - 0.4, -0.6), xlabel="variance of the best published figure over ours")
    ax.grid(axis="x", lw=0.3)
    figure.legend(fontsize=8, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(PICTURE, dpi=110)
    plt.close(figure)


def main() -> None:
    lines, others = read()
    text = main_table(lines, others) + "\nTheir methods in our hands, and their plain means:\n\n" + reproduced(lines)
    text += "\nWhat is the same, and what is not:\n\n" + matched(lines)
    for name, rows in others.items():
        text += f"\n`{name}`:\n\n" + table(list(rows[0]), [list(row.values()) for row in rows])
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
    draw(lines)
    print(text)


if __name__ == "__main__":
    main()
