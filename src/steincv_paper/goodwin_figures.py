"""Figures of the Goodwin experiment: the ratio against dimension, temperature and training size; the log evidence."""

from typing import TYPE_CHECKING, Any

import numpy as np

from steincv.report.figures import new_figure

from .claims import numbers
from .style import INK, LOOK, legend, log_y, panels, tidy

if TYPE_CHECKING:
    import pandas

# What is drawn at the bottom edge, or at the top.
LEAST, MOST = 1e-8, 30.0


def ratios(table: "pandas.DataFrame", part: str = "ratio", **chosen: Any) -> "pandas.DataFrame":
    """Return the rows of variance ratios above t = 0, where the log likelihood has no mean that could be estimated."""
    rows = numbers(table, part=part, **chosen)
    return rows[rows.temperature > 0].dropna(subset=["ratio"])


def variants(table: "pandas.DataFrame") -> list[tuple[str, str, str, str]]:
    """List what was run: (observed, integrator, coordinates, split)."""
    rows = table[table.part == "ratio"]
    found = rows[["observed", "integrator", "coordinates", "split"]].drop_duplicates()
    return [tuple(row) for row in found.itertuples(index=False)]


def of(table: "pandas.DataFrame", variant: tuple[str, str, str, str], part: str = "ratio") -> "pandas.DataFrame":
    observed, integrator, coordinates, split = variant
    return ratios(table, part, observed=observed, integrator=integrator, coordinates=coordinates, split=split)


def named(variant: tuple[str, str, str, str]) -> str:
    observed, integrator, coordinates, split = variant
    return f"observed: {observed}, {integrator}, {coordinates} coordinates, {split} split"


def _methods(rows: "pandas.DataFrame") -> list[str]:
    return [name for name in LOOK if name in set(rows.method)]


def _line(ax: Any, x: Any, y: Any, method: str, **look: Any) -> None:
    colour, marker = LOOK[method]
    style = {"linewidth": 1.5, "marker": marker, "markersize": 5, "markeredgecolor": "w", "markeredgewidth": 0.4}
    ax.plot(x, np.clip(y, LEAST, MOST), color=colour, **style | look)


def against_dimension(table: "pandas.DataFrame") -> Any:
    """Draw the mean over rungs, as in the paper, against the number of species; one panel per variant."""
    found = variants(table)
    figure, axes = panels(len(found), 2, (4.0, 3.5), 3.0, sharey=True)
    for ax, variant in zip(axes.flat, found, strict=False):
        rows = of(table, variant)
        for method in _methods(rows):
            mean = rows[rows.method == method].groupby("species").ratio.mean()
            _line(ax, mean.index, mean, method)
        log_y(ax)
        tidy(ax)
        ax.set_title(named(variant), loc="left", fontsize="small")
        ax.set_xticks(sorted(set(rows.species)))
        ax.set_xlabel("species g (dimension g + 2)")
    for ax in axes[:, 0]:
        ax.set_ylabel("variance ratio, mean over rungs")
    legend(figure, _methods(table[table.part == "ratio"]), bands=False)
    return figure


def against_temperature(table: "pandas.DataFrame") -> Any:
    """Draw every rung, for every number of species, as the text has the problem."""
    rows = ratios(table, observed="all", integrator="ode", coordinates="log", split="random")
    species = sorted(set(rows.species))
    figure, axes = panels(len(species), 3, (3.6, 3.2), 2.6, sharex=True, sharey=True)
    for ax, g in zip(axes.flat, species, strict=False):
        for method in _methods(rows):
            mine = rows[(rows.species == g) & (rows.method == method)].sort_values("temperature")
            _line(ax, mine.temperature, mine.ratio, method, markersize=3.5, linewidth=1.1)
        log_y(ax)
        tidy(ax)
        ax.set_xscale("log")
        ax.set_title(f"g = {g}", loc="left")
    for ax in axes[-1]:
        ax.set_xlabel("temperature t")
    for ax in axes[:, 0]:
        ax.set_ylabel("variance ratio")
    legend(figure, _methods(rows), bands=False)
    return figure


def against_size(table: "pandas.DataFrame") -> Any:
    """Draw the mean over some rungs against the number of training draws; dashed, on the training draws."""
    rows = ratios(table, "size")
    species = sorted(set(rows.species))
    figure, axes = panels(len(species), len(species), (3.6, 4.0), 2.6, sharey=True)
    for ax, g in zip(axes[0], species, strict=False):
        mine = rows[rows.species == g]
        for method in _methods(rows):
            mean = mine[mine.method == method].groupby("n")[["ratio", "ratio_train"]].mean()
            _line(ax, mean.index, mean.ratio, method)
            if mean.ratio_train.notna().all():
                _line(ax, mean.index, mean.ratio_train, method, marker="", linestyle=(0, (4, 2)), linewidth=1.0)
        log_y(ax)
        tidy(ax, log_x=sorted(int(n) for n in set(mine.n)))
        ax.tick_params(axis="x", labelrotation=45)
        ax.set_title(f"g = {g}", loc="left")
        ax.set_xlabel("training draws")
    axes[0, 0].set_ylabel("variance ratio, mean over rungs")
    kinds = [("test", {}), ("training", {"linestyle": (0, (4, 2))})]
    legend(figure, _methods(rows), extra=kinds, bands=False)
    return figure


def evidence(table: "pandas.DataFrame") -> Any:
    """Draw the log evidence against the number of species, and its statistical errors, too short to see there."""
    rows = evidence_rows(table)
    groups = [mine for _, mine in rows.groupby(["observed", "integrator"], sort=False)]
    figure = new_figure(11.5, 4.0 * len(groups))
    axes = figure.subplots(len(groups), 2, squeeze=False, sharex=True)
    for (left, right), mine in zip(axes, groups, strict=True):
        auto = mine[mine.method == "Auto()"].sort_values("species")
        for shift, value, error, method in (
            (-0.07, "plain", "plain_error", "plain f"),
            (0.07, "log_evidence", "error", "Auto()"),
        ):
            colour = LOOK[method][0]
            left.errorbar(auto.species + shift, auto[value], 1.96 * auto[error], color=colour, fmt="o", capsize=3)
        _line(right, auto.species, auto.plain_statistical, "plain f", marker="o")
        for method in _methods(mine):
            part = mine[mine.method == method].sort_values("species")
            _line(right, part.species, part.statistical_error, method)
        right.plot(auto.species, auto.discretisation_error, color=INK, linestyle=(0, (4, 2)), linewidth=1.2)
        left.set_ylabel("log evidence, 95 % interval")
        left.set_title(f"observed: {mine.observed.iloc[0]}, {mine.integrator.iloc[0]}", loc="left", fontsize="small")
        right.set_ylabel("error of the log evidence")
        log_y(right, plain=False)
        for ax in (left, right):
            tidy(ax)
            ax.set_xticks(sorted(set(rows.species)))
    for ax in axes[-1]:
        ax.set_xlabel("species g")
    spacing = ("left by the spacing of rungs", {"linestyle": (0, (4, 2))})
    legend(figure, ["plain f", *_methods(rows)], extra=[spacing], bands=False)
    return figure


def evidence_rows(table: "pandas.DataFrame") -> "pandas.DataFrame":
    """Return the log evidences, with the statistical error of the plain one: without the discretisation's."""
    rows = numbers(table, part="evidence")
    squares = rows.plain_error**2 - rows.discretisation_error**2
    return rows.assign(plain_statistical=np.sqrt(np.maximum(squares, 0)))
