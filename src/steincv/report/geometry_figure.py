"""The picture of a posterior's geometry."""

from typing import TYPE_CHECKING

import numpy as np

from .clean import clean
from .figures import CONTROLLED, GRID, INK, MOST_OUTPUTS, PLAIN, axes_for, height_of, legend_above, name_rows
from .geometry import Geometry, deviation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        found = [(row[c], np.exp(e * deviation(group))) for c, e in zip(group.children, group.exponents, strict=True)
                 if c in row]  # fmt: skip
        if not found:
            continue
        y, factor = np.array(found).T
        label = f"per sd of {clean(group.parent, 28)}".replace("$", r"\$")
        ax.hlines(y, 1, factor, color=colour, linewidth=1.5, alpha=0.5)
        ax.plot(factor, y, marker, color=colour, markersize=6, markeredgecolor="w", label=label)
        ends += [factor.min() / 1.05, factor.max() * 1.05]
    ax.set_xscale("log")
    ax.set_xlim(min(ends), max(ends))
    ticks = [t for t in (0.1, 0.2, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20) if min(ends) <= t <= max(ends)]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.set_xlabel("change of scale per standard deviation (log scale)")
    name_rows(ax, names, len(strongest))
    legend_above(ax, columns=min(3, len(geometry.groups)))
    return ax
