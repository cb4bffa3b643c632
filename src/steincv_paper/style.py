"""One look for all figures: a colour and a marker for every method, median and quartiles, the legend outside."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steincv.report.figures import new_figure
from steincv.runtime.arrays import whole_file

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

INK, GRID = "#333333", "#DDDDDD"
MEDIAN, MEAN = "#E69F00", "#009E73"  # in box plots, as in the paper
# Okabe and Ito's (2008) colours, two of Tol's for the schemes that appear in one figure only, and a marker each:
# told apart by readers with any colour vision, and in print.
LOOK = {
    "plain f": ("#888888", "|"),
    "linear": ("#E69F00", "v"),
    "quadratic": ("#56B4E9", "^"),
    "control functional": ("#009E73", "D"),
    "NCV": ("#CC79A7", "X"),
    "penalty only": ("#882255", "P"),
    "centre only": ("#332288", "h"),
    "CNCV, no decay": ("#D55E00", "o"),
    "CNCV()": ("#000000", "s"),
    "Auto()": ("#0072B2", "*"),
}


def band(
    ax: Any, table: "pandas.DataFrame", x: str, y: str, method: str, *, shift: float = 0.0, dashed: bool = False
) -> None:
    """Draw the median over replications against x, and the quartiles as a band.

    `shift` moves a line aside, by a share of x on a logarithmic axis: equal methods would hide each other.
    """
    colour, marker = LOOK[method]
    quartiles = table.groupby(x)[y].quantile([0.25, 0.5, 0.75]).unstack()
    at = quartiles.index.to_numpy(dtype=float)
    at = at * (1 + shift) if ax.get_xscale() == "log" else at + shift
    size = 11 if marker == "*" else 6
    line = {"linestyle": (0, (4, 2)), "marker": ""} if dashed else {"marker": marker, "markersize": size}
    ax.plot(at, quartiles[0.5], color=colour, linewidth=1.6, markeredgecolor="w", markeredgewidth=0.5, **line)
    ax.fill_between(at, quartiles[0.25], quartiles[0.75], color=colour, alpha=0.18, linewidth=0)


def panels(count: int, columns: int, size: tuple[float, float], right: float, **shared: Any) -> tuple["Figure", Any]:
    """Return a figure of axes of this size in inches, at most `columns` side by side, with room to the `right`."""
    columns = max(min(columns, count), 1)
    rows = max(-(-count // columns), 1)
    figure = new_figure(size[0] * columns + right, size[1] * rows)
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    for ax in axes.flat[max(count, 1) :]:
        ax.set_visible(False)
    return figure, axes


def tidy(ax: Any, *, log_x: Sequence[int] = ()) -> None:
    """Leave out the box, and draw a light grid; label a logarithmic x axis at the points that were run."""
    if log_x:
        ax.set_xscale("log")
        ax.set_xticks(list(log_x), [f"{value:,}" for value in log_x])
        ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)


def log_y(ax: Any, *, plain: bool = True) -> None:
    """Make a logarithmic axis of ratios; `plain` marks where that of f itself is."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(numticks=20))
    ax.yaxis.set_minor_formatter(NullFormatter())
    if plain:
        ax.axhline(1, color=INK, linewidth=0.9, linestyle=":", zorder=0)


def legend(
    figure: "Figure", methods: Iterable[str], extra: Iterable[tuple[str, Mapping[str, Any]]] = (), *, bands: bool = True
) -> None:
    """Put the legend right of all axes."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Line2D([], [], color=LOOK[m][0], marker=LOOK[m][1], markeredgecolor="w", markeredgewidth=0.5, label=m)
        for m in methods
    ]
    handles += [Line2D([], [], label=label, **{"color": INK, **look}) for label, look in extra]
    if bands:
        handles.append(Patch(color=INK, alpha=0.18, linewidth=0, label="quartiles"))
    figure.legend(handles=handles, loc="outside right center", frameon=False)


def save_figures(figures: Mapping[str, "Figure"], folder: Path) -> list[str]:
    """Write every figure as PNG and SVG, the same bytes from the same numbers."""
    import matplotlib

    names = []
    with matplotlib.rc_context({"svg.hashsalt": "steincv", "svg.fonttype": "path"}):
        for name, figure in figures.items():
            for kind in ("png", "svg"):
                metadata = {"Date": None} if kind == "svg" else {"Software": None}
                with whole_file(folder / f"{name}.{kind}", force=True) as file:
                    figure.savefig(file, format=kind, dpi=150, metadata=metadata)
                names.append(f"{name}.{kind}")
    return names


def draw_boxes(ax: Any, rows: Sequence[tuple[str, str, Any]], truth: float) -> None:
    """Draw lying boxes (label, method, numbers of `box`) with the paper's lines: median, mean and the truth."""
    stats = [
        {"label": label, "med": b["box_median"], "q1": b["box_q1"], "q3": b["box_q3"], "whislo": b["box_low"],
         "whishi": b["box_high"], "mean": b["box_mean"]}
        for label, _, b in rows
    ]  # fmt: skip
    drawn = ax.bxp(
        stats,
        orientation="horizontal",
        widths=0.6,
        showmeans=True,
        meanline=True,
        patch_artist=True,
        showfliers=False,
        medianprops={"color": MEDIAN, "linewidth": 2.2},
        meanprops={"color": MEAN, "linewidth": 2.2, "linestyle": (0, (2, 1))},
    )
    # Single draws far out would make every box a line: they are given as numbers, at the right.
    for k, (patch, (_, method, b)) in enumerate(zip(drawn["boxes"], rows, strict=True)):
        patch.set(facecolor=LOOK[method][0], alpha=0.25, edgecolor=INK)
        text = f"{b['box_min']:.3g} to {b['box_max']:.3g}"
        at = ax.get_yaxis_transform()
        ax.text(1.02, k + 1, text, transform=at, va="center", fontsize="small", color=INK, parse_math=False)
    ax.text(1.02, 0.45, "range", transform=ax.get_yaxis_transform(), va="bottom", fontsize="small", color=INK)
    ax.axvline(truth, color="#777777", linestyle="--", linewidth=1.2, zorder=0)
    ax.set_ylim(len(rows) + 0.6, 0.4)  # the first at the top
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)


BOX_LEGEND: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("median", {"color": MEDIAN, "linewidth": 2.2}),
    ("mean", {"color": MEAN, "linewidth": 2.2, "linestyle": (0, (2, 1))}),
    ("oracle mean", {"color": "#777777", "linestyle": "--", "linewidth": 1.2}),
)


def box(column: np.ndarray) -> dict[str, float]:
    """Return what a box plot shows: quartiles, whiskers at the last draw within 1.5 boxes, mean, extremes."""
    low, middle, high = np.quantile(column, [0.25, 0.5, 0.75])
    reach = 1.5 * (high - low)
    inside = column[(column >= low - reach) & (column <= high + reach)]
    return {
        "box_q1": float(low),
        "box_median": float(middle),
        "box_q3": float(high),
        "box_low": float(inside.min()),
        "box_high": float(inside.max()),
        "box_mean": float(column.mean()),
        "box_min": float(column.min()),
        "box_max": float(column.max()),
    }
