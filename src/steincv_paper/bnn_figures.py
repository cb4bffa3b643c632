"""Figures of the Bayesian networks: scores and entropy of images of 8, variance ratios, and the regression networks."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .claims import numbers
from .style import INK, MEAN, MEDIAN, panels, tidy

if TYPE_CHECKING:
    import pandas

LOOK = {
    "plain BNN": ("#888888", "-"),
    "linear": ("#E69F00", "-"),
    "CNCV, no decay": ("#D55E00", "-"),
    "low rank": ("#CC79A7", "-"),
    "last layer": ("#009E73", "-"),
    "Gauss-Newton": ("#56B4E9", "-"),
    "orbits": ("#0072B2", "-"),
    "predictive()": ("#0072B2", "--"),
    "single MLE network": ("#000000", ":"),
}
# What is judged on regression networks.
REGRESSION = ("linear", "last layer", "Gauss-Newton", "orbits")
# Ratios are drawn between these; beyond them at the edge.
LEAST, MOST = 1e-2, 1e4


def samplers(table: "pandas.DataFrame") -> list[str]:
    return [name for name in ("pSGLD", "tempered") if (table.sampler == name).any()]


def boxes(table: "pandas.DataFrame") -> Any:
    """Draw scores of "6" over the images of 8, each the mean over draws."""
    figure, (axes,) = panels(len(samplers(table)), len(samplers(table)), (6.2, 3.6), 1.2)
    for ax, sampler in zip(axes, samplers(table), strict=True):
        rows = numbers(table, part="score", sampler=sampler)
        methods = [m for m in LOOK if (rows.method == m).any()]
        drawn = ax.boxplot(
            [np.clip(rows[rows.method == m].score, -0.5, 1.5) for m in methods],
            orientation="horizontal",
            widths=0.6,
            patch_artist=True,
            showmeans=True,
            meanline=True,
            tick_labels=methods,
            flierprops={"marker": ".", "markersize": 3, "markeredgecolor": INK},
            medianprops={"color": MEDIAN, "linewidth": 2},
            meanprops={"color": MEAN, "linewidth": 2, "linestyle": (0, (2, 1))},
        )
        for patch, method in zip(drawn["boxes"], methods, strict=True):
            patch.set(facecolor=LOOK[method][0], alpha=0.3, edgecolor=INK)
        for edge in (0, 1):
            ax.axvline(edge, color=INK, linewidth=0.8, linestyle=":")
        ax.set(title=sampler, xlabel='score of "6", images of 8', xlim=(-0.55, 1.55))
        ax.invert_yaxis()
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
    return figure


def entropies(table: "pandas.DataFrame") -> Any:
    """Draw the cumulative distribution of the entropy over images of 8."""
    figure, (axes,) = panels(len(samplers(table)), len(samplers(table)), (5.2, 4.0), 1.2)
    for ax, sampler in zip(axes, samplers(table), strict=True):
        rows = numbers(table, part="score", sampler=sampler)
        for method, (colour, line) in LOOK.items():
            values = np.sort(rows[rows.method == method].entropy)
            if len(values):
                share = np.arange(1, len(values) + 1) / len(values)
                ax.step(values, share, color=colour, linestyle=line, where="post", linewidth=1.7, label=method)
        ax.set(title=sampler, xlabel="entropy of the score", xlim=(0, np.log(2)), ylim=(0, 1))
        tidy(ax)
    axes[0].set_ylabel("share of images of 8")
    _legend(figure, axes)
    return figure


def histograms(table: "pandas.DataFrame") -> Any:
    """Draw variance ratios over images: seen and unseen, on training and test draws."""
    found = numbers(table, part="ratio")
    kinds = list(found[["sampler", "split"]].drop_duplicates().itertuples(index=False, name=None))
    figure, (axes,) = panels(len(kinds), len(kinds), (4.4, 4.0), 1.2, sharey=True)
    bins = np.geomspace(LEAST, MOST, 61)
    for ax, (sampler, split) in zip(axes, kinds, strict=True):
        rows = found[(found.sampler == sampler) & (found.split == split) & (found.seen == 0)]
        for method, (colour, _) in LOOK.items():
            mine = rows[rows.method == method]
            if len(mine):
                for column, style in (("ratio", "-"), ("ratio_train", ":")):
                    values = np.clip(mine[column], LEAST * 1.01, MOST / 1.01)
                    label = method if style == "-" else None
                    ax.hist(values, bins, histtype="step", color=colour, linestyle=style, linewidth=1.7, label=label)
        ax.axvline(1, color=INK, linewidth=0.9, linestyle=":")
        ax.set(title=f"{sampler}, split {_how(split)}", xlabel="variance ratio", xscale="log", xlim=(LEAST, MOST))
        tidy(ax)
    axes[0].set_ylabel("unseen images (dotted: training draws)")
    _legend(figure, axes)
    return figure


def _how(split: str) -> str:
    return {"random": "at random", "time": "in time", "chains": "by chains"}[split]


def regression(table: "pandas.DataFrame") -> Any:
    """Draw variance ratios of the regression networks on other chains, input by input."""
    found = numbers(table, part="regression")
    names = list(dict.fromkeys(found.data))
    figure, (axes,) = panels(len(names), len(names), (5.0, 3.4), 1.2, sharey=True)
    for ax, name in zip(axes, names, strict=True):
        rows = found[found.data == name]
        methods = [m for m in REGRESSION if (rows.method == m).any()]
        for k, method in enumerate(methods):
            for seen, marker in ((1, "o"), (0, "x")):
                mine = rows[(rows.method == method) & (rows.seen == seen)]
                at = k + (0.15 if seen else -0.15) + 0.1 * np.linspace(-1, 1, len(mine))
                ax.plot(at, mine.ratio, marker, color=LOOK[method][0], markersize=4, alpha=0.7)
        ax.axhline(1, color=INK, linewidth=0.9, linestyle=":")
        ax.set(title=f"{name}, {int(rows.dim.iloc[0])} weights", yscale="log")
        ax.set_xticks(range(len(methods)), methods)
        tidy(ax)
    axes[0].set_ylabel("variance ratio on other chains\n(circles: seen inputs, crosses: unseen)")
    return figure


def _legend(figure: Any, axes: list[Any]) -> None:
    every = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    names = [name for name in LOOK if name in every]
    figure.legend([every[name] for name in names], names, loc="outside right center", frameon=False)
