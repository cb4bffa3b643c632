"""Figures with matplotlib. Each draws on `ax`, or on a figure of its own, and returns the axes.

`var_names` picks outputs as ArviZ does: a name stands for itself and for all its entries, `theta` for `theta[0]`, ...
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..judging.diagnostics import STEIN_LIMIT, stein_check
from ..result import Estimate, asked_for, called
from ..runtime.arrays import whole_file
from ..runtime.validation import InputError, StrPath
from ..samples.samples import Samples
from ..samples.streamed import refuse_streamed
from .check import coordinate_z
from .geometry import Geometry, deviation
from .running import running, window
from .terminal import clean
from .text import LARGEST_GAIN, times

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe and Ito (2008): told apart by readers with any colour vision, and in print.
PLAIN, CONTROLLED, ALARM, INK, GRID = "#E69F00", "#0072B2", "#D55E00", "#333333", "#DDDDDD"
MOST_OUTPUTS = 40


def plot_forest(estimate: Estimate, ax: "Axes | None" = None, var_names: Sequence[str] | None = None) -> "Axes":
    """Draw 95 % intervals of every output, plain and controlled.

    Outputs differ in scale, so each is shown relative to its controlled mean, in plain standard errors: the
    plain intervals are all about 4 long, and the controlled ones show what is left of that.

    **Arguments:**

    - `ax`: where to draw; a new figure if not given.
    - `var_names`: which outputs; all, up to 40, if not given.
    """
    names, shown = _picked(estimate.labels, var_names)
    ax, y = axes_for(ax, (6.4, height_of(len(shown)))), np.arange(len(shown))
    plain, better = (average[shown] for average in estimate.flat())
    unit = np.where(plain.standard_error > 0, plain.standard_error, 1.0)
    ax.axvline(0, color=GRID, zorder=0)
    for average, name, colour, shift, width in (
        (plain, "plain", PLAIN, -0.17, 2.5),
        (better, "controlled", CONTROLLED, 0.17, 4.5),
    ):
        low, high = ((average.interval(0.95) - better.mean[:, None]) / unit[:, None]).T
        ax.hlines(y + shift, low, high, color=colour, linewidth=width, label=f"{name} 95 % interval")
        ax.plot((average.mean - better.mean) / unit, y + shift, "o", color=colour, markersize=6, markeredgecolor="w")
    ax.set_xlabel("distance from the controlled mean, in plain standard errors")
    name_rows(ax, names, len(estimate.labels) if var_names is None else len(shown))
    legend_above(ax, columns=2)
    return ax


def plot_gain(estimate: Estimate, ax: "Axes | None" = None, var_names: Sequence[str] | None = None) -> "Axes":
    """Draw gains with their 90 % intervals: how many times as many draws the plain mean would need.

    **Arguments:** as for `plot_forest`.
    """
    names, shown = _picked(estimate.labels, var_names)
    ax, y = axes_for(ax, (5.2, height_of(len(shown)))), np.arange(len(shown))
    factor = np.minimum(np.asarray(estimate.gain).reshape(-1)[shown], LARGEST_GAIN)
    ends = np.minimum(estimate.gain_interval().reshape(-1, 2)[shown], LARGEST_GAIN)
    helped = np.array([estimate.method[k] != "plain" for k in shown], dtype=bool)
    # Bars grow from 1, "as good as plain"; an output left plain has no bar and shows a tick there instead.
    ax.barh(y, factor - 1, left=1, height=0.62, color=CONTROLLED, label="controlled")
    ax.plot(np.ones(len(shown)), y, "|", color=PLAIN, markersize=13, markeredgewidth=2.5, label="plain = 1")
    ax.hlines(y[helped], *ends[helped].T, color=INK, linewidth=1.2, label="90 % interval")
    for k in range(len(shown)):
        _note(ax, times(factor[k]) if helped[k] else "plain", (max(ends[k, 1], 1.0), k), 6)
    ax.set_xscale("log")
    furthest = max(factor.max(), ends.max(), 3.0)
    ax.set_xlim(min(0.9, factor.min() / 1.2), furthest**1.18 * 1.3)
    if furthest < 300:
        _ticks(ax, (1, 2, 5, 10, 20, 50, 100, 200), 0.0, furthest * 1.5)
    ax.set_xlabel("gain: as good as so many times the draws (log scale)")
    name_rows(ax, names, len(estimate.labels) if var_names is None else len(shown))
    legend_above(ax, columns=3)
    return ax


def plot_trace(
    estimate: Estimate, label: str | None = None, ax: "Axes | None" = None, var_names: Sequence[str] | None = None
) -> "Axes":
    """Draw running means of one output, plain and controlled, with 95 % bands: how the two settle as draws come in.

    The bands come from the first draws of every chain. The control variate is the final one throughout.

    **Arguments:**

    - `label`: which output; the first if not given.
    - `ax`: where to draw; a new figure if not given.
    - `var_names`: another way to say which output; it must match exactly one.
    """
    ax = axes_for(ax, (6.4, 3.6))
    k = _one(estimate, label, var_names)
    parts = running(estimate, k)
    for part, name, colour, alpha in zip(parts, ("plain", "controlled"), (PLAIN, CONTROLLED), (0.2, 0.35), strict=True):
        ax.fill_between(part.draws, part.low, part.high, color=colour, alpha=alpha, linewidth=0)
        ax.plot(part.draws, part.mean, color=colour, label=f"{name} mean, 95 % band")
    ax.set_ylim(*window(*parts))
    ax.set_xlim(0, parts[0].draws[-1])
    chains = estimate.values.shape[0]
    ax.set_xlabel(f"draws, pooled over {chains} chain{'s' if chains > 1 else ''}")
    ax.set_ylabel(clean(estimate.labels[k], 40), parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
    legend_above(ax, columns=2)
    return ax


def plot_stein_check(samples: Samples, ax: "Axes | None" = None, var_names: Sequence[str] | None = None) -> "Axes":
    """Draw z values of means that are zero if the scores are those of the draws: all should lie in the white.

    Two for every coordinate, of $s_i$ and of $x_i s_i + 1$ about the mean, and a last row for the largest of
    all in standard coordinates, which is the one that `estimate` judges by.

    **Arguments:** as for `plot_forest`; without `var_names` the 40 most suspicious coordinates are shown.
    """
    refuse_streamed(samples, "plot_stein_check")
    worst = stein_check(samples)  # first: it refuses coordinates that are constant or dependent
    score_z, product_z = coordinate_z(samples)
    far = np.maximum(np.abs(score_z), np.abs(product_z))
    if var_names is None and samples.dim > MOST_OUTPUTS:
        shown = np.argsort(-far, kind="stable")[:MOST_OUTPUTS]
        names = [samples.names[k] for k in shown]
    else:
        names, shown = _picked(samples.names, var_names)
    ax = axes_for(ax, (6.4, height_of(len(shown) + 1)))
    y = np.arange(len(shown))
    reach = 2 * STEIN_LIMIT
    for side in (-1, 1):
        ax.axvspan(side * STEIN_LIMIT, side * 1.1 * reach, color=ALARM, alpha=0.13, linewidth=0)
    ax.axvline(0, color=GRID, zorder=0)
    last = worst.z[worst.worst]
    colour = ALARM if abs(last) > STEIN_LIMIT else INK
    for z, at, marker, style in (
        (score_z[shown], y - 0.13, "o", (CONTROLLED, 6, "mean of the score")),
        (product_z[shown], y + 0.13, "D", (PLAIN, 5, "mean of draw · score + 1")),
        (np.array([last]), np.array([len(shown)]), "s", (colour, 7, None)),
    ):
        ax.plot(np.clip(z, -reach, reach), at, marker, color=style[0], markersize=style[1], label=style[2])
        for value, height in zip(z, at, strict=True):
            if abs(value) > reach:  # drawn at the edge, with its number
                _note(ax, f"{value:.0f}", (np.clip(value, -reach, reach), height), -9 if value > 0 else 9)
    ax.set_xlim(-1.1 * reach, 1.1 * reach)
    ax.set_xticks(np.linspace(-reach, reach, 5))
    ax.set_xlabel(f"standard errors from zero (beyond {STEIN_LIMIT:g} is not chance)")
    name_rows(ax, [*names, "worst standardised"], len(names) + 1 if var_names is not None else samples.dim + 1)
    legend_above(ax, columns=2)
    return ax


def demo_figure(estimate: Estimate, path: StrPath) -> None:
    """Draw the forest and the gains side by side, in one PNG."""
    figure = new_figure(11.6, height_of(min(len(estimate.labels), MOST_OUTPUTS)))
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    plot_forest(estimate, left)
    plot_gain(estimate, right)
    right.set_yticklabels([])
    save_png(figure, path)


# Pieces ----------------------------------------------------------------------------------------------


def _picked(labels: Sequence[str], var_names: Sequence[str] | None) -> tuple[list[str], np.ndarray]:
    """Return the labels shown and their places: those that `var_names` names, or the first of all."""
    if var_names is None:
        shown = np.arange(min(len(labels), MOST_OUTPUTS))
    else:
        wanted = asked_for(var_names, labels)
        kept: list[int] = []
        for name in wanted:
            if not called(name, labels):
                raise InputError(f"`var_names` holds {name!r}, which is none of: {', '.join(labels[:20])}.")
            kept += called(name, labels)
        if not kept:
            raise InputError("`var_names` is empty: name at least one output, or leave it out for all.")
        shown = np.array([*dict.fromkeys(kept)])
    return [labels[int(k)] for k in shown], shown


def _one(estimate: Estimate, label: str | None, var_names: Sequence[str] | None) -> int:
    """Return the one output to trace."""
    if label is None and var_names is None:
        return 0
    if label is not None:
        if label not in estimate.labels:
            raise InputError(f"`label` = {label!r} is none of the outputs: {', '.join(estimate.labels[:20])}.")
        return estimate.labels.index(label)
    names, shown = _picked(estimate.labels, var_names)
    if len(shown) > 1:
        raise InputError(f"`var_names` matches {', '.join(names[:20])}; a trace shows one output. Name one of them.")
    return int(shown[0])


def height_of(rows: int) -> float:
    """Return the inches that so many rows need."""
    return 1.5 + 0.34 * rows


def axes_for(ax: "Axes | None", size: tuple[float, float]) -> "Axes":
    """Return `ax`, or axes of a new figure.

    Where pyplot is in use, and in a notebook, the figure is pyplot's, so that it is shown there. Elsewhere it
    belongs to nobody: no window system is touched, and it goes when the caller lets go of it.
    """
    if ax is not None:
        return ax
    if "matplotlib.pyplot" in sys.modules or "ipykernel" in sys.modules:
        import matplotlib.pyplot

        return matplotlib.pyplot.subplots(figsize=size, layout="constrained")[1]
    return new_figure(*size).subplots()


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of so many inches that belongs to nobody."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_png(figure: "Figure", path: StrPath) -> None:
    """Write a figure as PNG, replacing what is there."""
    with whole_file(path, force=True) as file:
        figure.savefig(file, format="png", dpi=150)


def name_rows(ax: "Axes", names: Sequence[str], total: int) -> None:
    """Write labels as text (never as formulas), the first at the top."""
    count = len(names)
    ax.set_yticks(np.arange(count), [clean(label, 28) for label in names], parse_math=False)
    ax.set_ylim(count - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    if count < total:
        ax.set_ylabel(f"{count} of {total}")


def _note(ax: "Axes", text: str, at: tuple[float, float | np.integer], points: float) -> None:
    """Write a number so many points to the right of a place, or to the left."""
    side = "left" if points > 0 else "right"
    ax.annotate(text, at, (points, 0), textcoords="offset points", ha=side, va="center", color=INK, fontsize="small")


def _ticks(ax: "Axes", wanted: Sequence[float], low: float, high: float) -> None:
    """Mark those of some numbers that lie between two ends."""
    ticks = [t for t in wanted if low <= t <= high]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()


def legend_above(ax: "Axes", columns: int) -> None:
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False, borderaxespad=0.2)


# A colour and a marker per parent, the strongest first (Okabe and Ito 2008); further ones share the last.
MARKS = ((CONTROLLED, "o"), (PLAIN, "D"), ("#009E73", "s"), ("#CC79A7", "^"), (INK, "v"))


def plot_geometry(geometry: Geometry, ax: "Axes | None" = None) -> "Axes":
    """Draw by what factor each parameter's scale changes with one standard deviation of the parameter that scales it.

    A mark at 1 is no effect. In a funnel marks are at 2 or 5: the posterior is that much wider for the parameter where
    the one that scales it is large.

    **Arguments:**

    - `geometry`: what `geometry(samples)` returned.
    - `ax`: where to draw; a new figure if not given.
    """
    table = geometry.summary()
    strongest = table.assign(size=table["log_scale_per_sd"].abs()).groupby("child", sort=False)["size"].max()
    few = strongest.sort_values(ascending=False, kind="stable").index[:MOST_OUTPUTS]
    names = [name for name in geometry.names if name in set(few)]
    ax = axes_for(ax, (6.4, height_of(max(len(names), 3))))
    if not names:
        ax.text(0.5, 0.5, geometry.sentences()[0], ha="center", va="center", color=INK, transform=ax.transAxes)
        ax.set_axis_off()
        return ax
    row = {name: k for k, name in enumerate(names)}
    ax.axvline(1, color=GRID, zorder=0)
    ends = [0.5, 2.0]  # slight effects look slight
    for k, group in enumerate(geometry.groups):
        colour, marker = MARKS[min(k, len(MARKS) - 1)]
        pairs = zip(group.children, group.exponents, strict=True)
        found = [(row[c], np.exp(e * deviation(group))) for c, e in pairs if c in row]
        if not found:
            continue
        y, factor = np.array(found).T
        label = f"per sd of {clean(group.parent, 28)}".replace("$", r"\$")
        ax.hlines(y, 1, factor, color=colour, linewidth=1.5, alpha=0.5)
        ax.plot(factor, y, marker, color=colour, markersize=6, markeredgecolor="w", label=label)
        ends += [factor.min() / 1.05, factor.max() * 1.05]
    ax.set_xscale("log")
    ax.set_xlim(min(ends), max(ends))
    _ticks(ax, (0.1, 0.2, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20), min(ends), max(ends))
    ax.set_xlabel("change of scale per standard deviation (log scale)")
    name_rows(ax, names, len(strongest))
    legend_above(ax, columns=min(3, len(geometry.groups)))
    return ax
