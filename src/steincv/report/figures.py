"""Figures of a result. Each draws on `ax`, or on a figure of its own outside pyplot, and returns axes."""

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from .._result import Estimate
from .._status import InputError
from .text import clean, times

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008): told apart by readers with any colour vision, and in print.
PLAIN, CONTROLLED, INK, GRID = "#E69F00", "#0072B2", "#333333", "#DDDDDD"
MOST_OUTPUTS = 40
LARGEST_GAIN = 1e6


def plot_forest(estimate: Estimate, ax: "Axes | None" = None) -> "Axes":
    """95 % intervals of every output, plain and controlled.

    Outputs differ in scale, so each is shown relative to its controlled mean, in plain standard errors: the
    plain intervals are all about 4 long, and the controlled ones show what is left of that.
    """
    count, height = _size(estimate)
    ax = _axes(ax, (6.4, height))
    mean, unit = estimate.mean.reshape(-1)[:count], estimate.plain.standard_error.reshape(-1)[:count]
    unit = np.where(unit > 0, unit, 1.0)
    y = np.arange(count)
    ax.axvline(0, color=GRID, zorder=0)
    for average, name, colour, shift, width in (
        (estimate.plain, "plain", PLAIN, -0.17, 2.5),
        (estimate._average, "controlled", CONTROLLED, 0.17, 4.5),
    ):
        flat = average.reshape((-1,))
        low, high = ((flat.interval(0.95)[:count] - mean[:, None]) / unit[:, None]).T
        ax.hlines(y + shift, low, high, color=colour, linewidth=width, label=f"{name} 95 % interval")
        ax.plot((flat.mean[:count] - mean) / unit, y + shift, "o", color=colour, markersize=6, markeredgecolor="w")
    ax.set_xlabel("distance from the controlled mean, in plain standard errors")
    _name_outputs(ax, estimate, count)
    _legend(ax, columns=2)
    return ax


def plot_gain(estimate: Estimate, ax: "Axes | None" = None) -> "Axes":
    """Variance reduction factors: how many times as many draws the plain mean would need."""
    count, height = _size(estimate)
    ax = _axes(ax, (5.2, height))
    factor = 1 / np.maximum(estimate.variance_ratio.reshape(-1)[:count], 1 / LARGEST_GAIN)
    helped = [method != "plain" for method in estimate.method[:count]]
    y = np.arange(count)
    # Bars grow from 1, "as good as plain"; an output left plain has no bar and shows a tick there instead.
    ax.barh(y, factor - 1, left=1, height=0.62, color=CONTROLLED, label="controlled")
    ax.plot(np.ones(count), y, "|", color=PLAIN, markersize=13, markeredgewidth=2.5, label="plain = 1")
    for k in range(count):
        ax.annotate(
            times(factor[k]) if helped[k] else "plain",
            (max(factor[k], 1.0), y[k]),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            fontsize="small",
        )
    ax.set_xscale("log")
    ax.set_xlim(min(0.9, factor.min() / 1.2), max(factor.max(), 3.0) ** 1.18 * 1.3)
    if factor.max() < 300:
        ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200) if t <= max(factor.max(), 3.0) * 1.5]
        ax.set_xticks(ticks, [f"{t}" for t in ticks])
        ax.minorticks_off()
    ax.set_xlabel("variance reduction factor (log scale)")
    _name_outputs(ax, estimate, count)
    _legend(ax, columns=2)
    return ax


def plot_trace(estimate: Estimate, label: str | None = None, ax: "Axes | None" = None) -> "Axes":
    """Running means, plain and controlled, pooled over the chains, of one output (by default the first)."""
    label = estimate.labels[0] if label is None else label
    if label not in estimate.labels:
        raise InputError(f"`label` = {label!r} is none of the outputs: {', '.join(estimate.labels)}.")
    k = estimate.labels.index(label)
    ax = _axes(ax, (6.4, 3.6))
    chains, draws, _ = estimate.values.shape
    seen = np.arange(1, draws + 1)
    low, high = estimate.interval(0.95).reshape(-1, 2)[k]
    ax.axhspan(low, high, color=CONTROLLED, alpha=0.15, linewidth=0, label="controlled 95 % interval")
    for series, name, colour in (
        (estimate.values, "plain", PLAIN),
        (estimate.controlled, "controlled", CONTROLLED),
    ):
        ax.plot(
            chains * seen,
            series[..., k].sum(axis=0).cumsum() / (chains * seen),
            color=colour,
            label=f"{name} mean",
        )
    # The first few draws wander far; what matters is where the two settle.
    settled = estimate.values[..., k].sum(axis=0).cumsum()[draws // 50 :] / (chains * seen[draws // 50 :])
    margin = 0.1 * max(float(np.ptp(settled)), float(high - low), 1e-12 * abs(float(low)))
    if margin > 0:
        ax.set_ylim(min(settled.min(), low) - margin, max(settled.max(), high) + margin)
    ax.set_xlabel(f"draws, pooled over {chains} chain{'s' if chains > 1 else ''}")
    ax.set_ylabel(clean(label, 40), parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
    _legend(ax, columns=3)
    return ax


def demo_figure(estimate: Estimate, path: "str | os.PathLike[str]") -> None:
    """The forest and the gains side by side, in one PNG."""
    from matplotlib.figure import Figure

    from .._arrays import whole_file

    _, height = _size(estimate)
    figure = Figure(figsize=(11.6, height), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    plot_forest(estimate, left)
    plot_gain(estimate, right)
    right.set_yticklabels([])
    with whole_file(path, force=True) as file:
        figure.savefig(file, format="png", dpi=150)


def _size(estimate: Estimate) -> tuple[int, float]:
    """How many outputs are shown, and the height in inches that they need."""
    count = min(len(estimate.labels), MOST_OUTPUTS)
    return count, 1.5 + 0.34 * count


def _axes(ax: "Axes | None", size: tuple[float, float]) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").subplots() if ax is None else ax


def _name_outputs(ax: Any, estimate: Estimate, count: int) -> None:
    """Labels as text (never as formulas), the first output at the top."""
    ax.set_yticks(np.arange(count), [clean(label, 28) for label in estimate.labels[:count]], parse_math=False)
    ax.set_ylim(count - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    if count < len(estimate.labels):
        ax.set_ylabel(f"the first {count} of {len(estimate.labels)} outputs")


def _legend(ax: Any, columns: int) -> None:
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False, borderaxespad=0.2)
