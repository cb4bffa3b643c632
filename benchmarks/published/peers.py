"""All rows in one table, theirs and ours: docs/peers.md between its markers, and the picture beside it.

    python benchmarks/published/peers.py

It reads whatever CSVs are in results/published. Rows that have none are listed as missing.
"""

import csv
from collections.abc import Sequence
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
Row = dict[str, str]


def read() -> tuple[list[Row], list[str]]:
    """Return the lines of all CSVs that have the columns, and the names of those that have not."""
    lines: list[Row] = []
    others = []
    for path in sorted(RESULTS.glob("*.csv")):
        with path.open(newline="") as file:
            found = list(csv.DictReader(file))
        if found and set(COLUMNS) <= set(found[0]):
            lines += found
        else:
            others.append(path.name)
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


def main_table(lines: Sequence[Row]) -> str:
    head = ["row", "setting", "measure", "best published", *(f"`{name}`" for name in SHOWN), "`Auto()` is better by"]
    head = [h.replace("`Polynomial(2), learned`", "the same, learned") for h in head]
    body = []
    for row, f, some in groups(lines):
        auto = of(some, "Auto()")
        best = auto or some
        told = (
            f"{best[0]['published_method']}: {span(numbers(best, 'published_low') + numbers(best, 'published_high'))}"
        )
        if best[0]["measure"] != GAIN:
            told = f"{best[0]['published_method']}: {short(float(best[0]['published']))}"
        cells = [span(numbers(mine, "ours")) if (mine := of(some, name)) else "" for name in SHOWN]
        setting = best[0]["setting"] + (f"; {f}" if f else "")
        body.append([str(row), setting, best[0]["measure"], told, *cells, ratio(auto)])
    there = {int(line["row"]) for line in lines}
    body += [[str(row), SETTINGS[row], "missing", *[""] * (len(head) - 3)] for row in SETTINGS if row not in there]
    body.sort(key=lambda cells: int(cells[0]))
    return table(head, body)


def reproduced(lines: Sequence[Row]) -> str:
    """Return their methods in our hands, and the plain means, beside what they report."""
    head = ["row", "f", "method", "published (95 %)", "here (95 %)", "repeats", "intervals overlap"]
    body = []
    for line in lines:
        if not (
            line["method"].endswith("as theirs") or (line["method"] == "plain" and line["published_method"] == "plain")
        ):
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
        what = "theirs" if line["method"].endswith("as theirs") else "ours"
        said = (line["row"], line["matched"], line["not_matched"])
        body.setdefault(said, [line["row"], what, *said[1:], line["source"]])
    return table(["row", "run", "the same", "not the same", "source"], list(body.values()))


def draw(lines: Sequence[Row]) -> None:
    """Draw how many times fewer draws are needed than for the best published figure: theirs at 1, ours right of it."""
    some = [(row, f, of(all_, "Auto()"), all_) for row, f, all_ in groups(lines) if of(all_, "Auto()")]
    figure, ax = plt.subplots(figsize=(8.0, 0.9 + 0.33 * len(some)), layout="constrained")
    colors = dict(zip(SHOWN, ("C0", "C2", "C4", "C1", "C3"), strict=True))
    for y, (_, _, _, all_) in enumerate(some):
        for name, color in colors.items():
            mine = of(all_, name)
            if not mine or not np.isfinite(numbers(mine, "ratio")).all():
                continue
            power = 1.0 if mine[0]["measure"] == GAIN else 2.0  # of a ratio of errors
            value = np.exp(np.mean(np.log(numbers(mine, "ratio")))) ** power
            style = {"ms": 8, "mec": "k", "zorder": 3} if name == "Auto()" else {"ms": 5}
            if name == "Auto()":
                low, high = min(numbers(mine, "ratio_low")) ** power, max(numbers(mine, "ratio_high")) ** power
                ax.plot([low, high], [y, y], "-", color=color, lw=1.5, zorder=2)
            ax.plot(min(value, 1e12), y, "o", color=color, label=name if y == 0 else None, **style)
    ax.axvline(1.0, color="0.3", lw=1.0)
    ax.set_yticks(
        range(len(some)),
        [f"{row}  {a[0]['setting']}" + (f"; {f.split(', ')[-1]}" if f else "") for row, f, a, _ in some],
    )
    ax.set(
        xscale="log",
        ylim=(len(some) - 0.4, -0.6),
        xlabel="variance of the best published method over that of ours (the line: equally good)",
    )
    ax.grid(axis="x", lw=0.3)
    ax.legend(fontsize=8, loc="best")
    figure.savefig(PICTURE, dpi=110)
    plt.close(figure)


def main() -> None:
    lines, others = read()
    text = main_table(lines) + "\nTheir methods in our hands, and their plain means:\n\n" + reproduced(lines)
    text += "\nWhat is the same, and what is not:\n\n" + matched(lines)
    if others:
        text += f"\nWith columns of their own: {', '.join(others)}.\n"
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
    draw(lines)
    print(text)


if __name__ == "__main__":
    main()
