"""The curve of thermodynamic integration with plain and controlled error bars, and what was gained at every rung."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from steincv.report.figures import CONTROLLED, GRID, INK, PLAIN, legend_above, new_figure, save_png
from steincv.report.text import plus_minus
from steincv.result import Estimate
from steincv.runtime.validation import InputError, StrPath

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Ratios below this are drawn at the edge: an exact mean has none.
LEAST_RATIO = 1e-8


def plot_evidence(result: Estimate, path: StrPath | None = None, exact: float | None = None) -> "Figure":
    """Draw a result of `log_evidence`; with `path` the figure is written there as PNG, replacing what is there.

    From above: the mean log likelihood with 95 % intervals; its standard errors, where those are too short to see; the
    variance ratio. Temperatures crowd near 0, so rungs are drawn evenly spaced and labelled by their temperatures.
    """
    rows = result.info.get("rungs") if isinstance(result, Estimate) else None
    if not rows:
        raise InputError("`result` must be a result of log_evidence: it has no rungs to draw.")
    k = np.array([row["rung"] for row in rows])
    columns = {name: _column(rows, name) for name in ("plain_mean", "plain_error", "mean", "error", "variance_ratio")}
    figure = new_figure(8.4, 8.6)
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(1.5, 1, 1))
    _curve(top, k, columns, rows)
    _errors(middle, k, columns)
    _ratios(bottom, k, columns["variance_ratio"])
    bottom.set_xticks(*_labels(rows))
    bottom.set_xlabel("temperature t of the rung")
    figure.suptitle(_title(result, exact), fontsize="medium", color=INK)
    if path is not None:
        save_png(figure, path)
    return figure


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=float)


def _curve(ax: "Axes", k: np.ndarray, columns: dict[str, np.ndarray], rows: Sequence[Mapping[str, Any]]) -> None:
    for kind, colour, shift in (("plain_", PLAIN, -0.12), ("", CONTROLLED, 0.12)):
        mean, error = columns[f"{kind}mean"], columns[f"{kind}error"]
        usable = np.array([not row["bridged"] for row in rows])
        label = f"{'plain' if kind else 'controlled'}, 95 % interval"
        ax.errorbar(
            k[usable] + shift,
            mean[usable],
            1.96 * error[usable],
            fmt="o",
            color=colour,
            markersize=4,
            capsize=2.5,
            label=label,
        )
    for row in rows:
        if row["bridged"]:
            ax.axvspan(row["rung"] - 0.5, row["rung"] + 0.5, color=GRID, alpha=0.6, linewidth=0)
    if any(row["bridged"] for row in rows):
        ax.plot([], [], "s", color=GRID, markersize=9, label="no usable mean: bridged")
    ax.set_ylabel(r"$E_t[\log p(y|\theta)]$")
    values = np.concatenate([columns["mean"], columns["plain_mean"]])
    values = values[np.isfinite(values)]
    if values.size and values.max() - values.min() > 100 * max(1.0, abs(values.max())):
        ax.set_yscale("symlog", linthresh=max(1.0, abs(float(values.max()))))
    legend_above(ax, columns=3)
    _open(ax)


def _errors(ax: "Axes", k: np.ndarray, columns: dict[str, np.ndarray]) -> None:
    for name, colour in (("plain_error", PLAIN), ("error", CONTROLLED)):
        error = columns[name]
        shown = np.isfinite(error) & (error > 0)
        ax.plot(k[shown], error[shown], "o", color=colour, markersize=4)
    ax.set_yscale("log")
    ax.set_ylabel("standard error of the mean")
    handles = ax.get_lines()
    ax.legend(handles, ["plain", "controlled"], loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    _open(ax)


def _ratios(ax: "Axes", k: np.ndarray, ratio: np.ndarray) -> None:
    shown = np.isfinite(ratio)
    ax.axhline(1, color=PLAIN, linewidth=1.5)
    ax.vlines(k[shown], np.maximum(ratio[shown], LEAST_RATIO), 1, color=CONTROLLED, linewidth=4)
    ax.set_yscale("log")
    ax.set_ylabel("variance ratio")
    low = float(np.nanmin(np.maximum(ratio, LEAST_RATIO))) if shown.any() else 0.1
    ax.set_ylim(low / 3, 3)
    _open(ax)


def _labels(rows: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[str]]:
    """A temperature at every few rungs."""
    every = max(1, (len(rows) - 1) // 7)
    at = sorted({*range(0, len(rows), every), len(rows) - 1})
    if len(at) > 1 and at[-1] - at[-2] < every / 2:
        at.pop(-2)
    return at, [f"{rows[i]['temperature']:.2g}" for i in at]


def _title(result: Estimate, exact: float | None) -> str:
    known = "" if exact is None else f", exact {exact:.8g}"
    plain = result.plain
    return (
        f"log evidence {plus_minus(float(result.mean), float(result.standard_error))}, "
        f"plain {plus_minus(float(plain.mean), float(plain.standard_error))}{known}"
    )


def _open(ax: "Axes") -> None:
    """Leave out the frame above and to the right, and draw lines across."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=GRID, linewidth=0.6)
