"""The paper's figures 2 and 3: what the centre mu and the penalty lambda of CNCV are worth.

    steincv reproduce constraints [--quick]

f = 10 sin(pi/D sum x) + mu0 under 0.5 N(-1, I) + 0.5 N(1, I), D = 10, 500 training and 500 test draws (and 20,000
more), mu0 = 0..9. The paper's four schemes are lambda = 0 or not, mu learned or not; they have no weight decay. Beside
them stands `CNCV()`, which has. In one replication all fits share draws, first weights and minibatches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from steincv.families.neural.neural import CNCV, NCV, Neural
from steincv.report.figures import new_figure

from .claims import Claim
from .problem import mixture, sine, split
from .runner import Cell
from .style import BOX_LEGEND, LOOK, band, box, draw_boxes, legend, log_y, tidy

if TYPE_CHECKING:
    import pandas

DIM, SCALE, SHOWN = 10, 10.0, 7.0  # SHOWN: the mu0 of the box plot
LAMBDA = 1e-3  # the paper does not give its value; others are tried in LAMBDAS
LAMBDAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
STARTS = ("zero", "mean", "pretrain")
UNCENTRED, CENTRED = ("NCV", "penalty only"), ("centre only", "CNCV, no decay", "CNCV()")
PLAIN = "plain f"
MANY = 5000  # "big enough n"
STEPS, SHORT = 10_000, 1000  # SHORT: to look at the training early
SWEPT = ("penalty only", "CNCV, no decay")


def scheme(method: str, start: str = "zero", penalty: float = LAMBDA, steps: int = STEPS) -> Neural:
    """One of the four schemes, or the library's own; `start` is where mu begins."""
    return {
        "NCV": NCV(steps=steps),
        "penalty only": CNCV(center=False, penalty=penalty, decay=0.0, steps=steps),
        "centre only": CNCV(penalty=0.0, center_start=start, decay=0.0, steps=steps),
        "CNCV, no decay": CNCV(penalty=penalty, center_start=start, decay=0.0, steps=steps),
        "CNCV()": CNCV(penalty=penalty, center_start=start, steps=steps),
    }[method]


@dataclass(frozen=True)
class Settings:
    """Seeds are the numbers of the replications, which are computed `block` at a time."""

    means: tuple[float, ...]
    replications: int
    block: int
    n: int = 500
    test: tuple[int, ...] = (500, 20_000)
    schemes: dict[str, str] = field(default_factory=lambda: {m: repr(scheme(m)) for m in UNCENTRED + CENTRED})
    lambdas: tuple[float, ...] = LAMBDAS


FULL = Settings(tuple(float(k) for k in range(10)), replications=10, block=5)
QUICK = Settings((0.0, 3.0, 5.0, 7.0, 9.0), replications=3, block=3)


def cells(settings: Settings) -> list[Cell]:
    """List the schemes at every mu0; at mu0 = 7 also other penalties, other starts for many draws, a short training."""
    n, means, one = settings.n, settings.means, (SHOWN,)
    swept = [value for value in settings.lambdas if value != LAMBDA]
    fits = [("schemes", m, start, LAMBDA, STEPS, n, means) for m in UNCENTRED + CENTRED for start in _starts(m)]
    fits += [("penalties", m, "zero", value, STEPS, n, one) for m in SWEPT for value in swept]
    fits += [("many draws", "CNCV, no decay", start, LAMBDA, STEPS, MANY, one) for start in STARTS]
    fits += [("short training", "CNCV, no decay", start, LAMBDA, SHORT, n, one) for start in ("zero", "mean")]
    every = range(settings.replications)
    blocks = [tuple(every[i : i + settings.block]) for i in range(0, len(every), settings.block)]
    made = []
    for part, method, start, penalty, steps, draws, at in fits:
        for group in blocks if part == "schemes" else [tuple(every)]:
            label = f"{part}-{method}-{start}-{penalty:g}-{group[0]}"
            rough = (1 + (start == "pretrain")) * (1.0 + len(at)) * steps / STEPS
            arguments = (part, method, start, penalty, steps, draws, at, group, settings.test)
            name = label.replace(" ", "_").replace(",", "").replace("()", "")
            made.append(Cell(name, arguments, 5 + len(group) * rough))
    return made


def _starts(method: str) -> tuple[str, ...]:
    return STARTS if method in CENTRED else STARTS[:1]


def cell(
    part: str,
    method: str,
    start: str,
    penalty: float,
    steps: int,
    n: int,
    means: Sequence[float],
    replications: Sequence[int],
    test: Sequence[int],
) -> list[dict[str, Any]]:
    """Fit all mu0 as outputs of one fit, so that they share draws, first weights and minibatches."""
    network = scheme(method, start, penalty, steps)
    fit = {"part": part, "method": method, "start": start, "penalty": network.penalty, "steps": steps, "n": n}
    rows = []
    for seed in replications:
        train, fresh = mixture(n, DIM, seed, n), split(mixture(sum(test), DIM, seed, n, 1), test)
        values = _values(train, means)
        fitted = network.fit(train, values, seed=seed)
        centre = np.array(fitted.info["center"]) * fitted.scale
        sets = {"train": train} | {str(size): s for size, s in zip(test, fresh, strict=True)}
        plain = {name: _values(s, means)[0] for name, s in sets.items()}
        controlled = {name: plain[name] + fitted(s)[0] for name, s in sets.items()}
        fit |= {"replication": seed, "seed": seed}
        rows += _rows(fit, means, centre, plain, controlled)
        if method == "NCV":  # once is enough for f itself
            rows += _rows(fit | {"method": PLAIN}, means, np.zeros(len(means)), plain, plain)
    return rows


def _values(samples: Any, means: Sequence[float]) -> np.ndarray:
    return sine(samples, SCALE)[..., None] + np.array(means)


def _rows(
    fit: dict[str, Any],
    means: Sequence[float],
    centre: np.ndarray,
    plain: dict[str, np.ndarray],
    controlled: dict[str, np.ndarray],
) -> list[dict[str, Any]]:
    """Return a row per mu0: the learned mu, and on every set of draws the variance ratio and the mean of f + g."""
    rows = []
    for k, mean in enumerate(means):
        row = {**fit, "mu0": mean, "centre": float(centre[k])}
        for name, series in controlled.items():
            column = series[:, k]
            row[f"ratio_{name}"] = float(column.var() / plain[name][:, k].var())
            row[f"mean_{name}"] = float(column.mean())
            row[f"error_{name}"] = float(column.std() / np.sqrt(len(column)))
        small = next(name for name in controlled if name != "train")
        rows.append(row | box(controlled[small][:, k]))
    return rows


# Rows ------------------------------------------------------------------------------------------------


def main_rows(table: "pandas.DataFrame") -> "pandas.DataFrame":
    """Return the rows of the schemes at every mu0."""
    return table[table.part == "schemes"]


def of(table: "pandas.DataFrame", method: str, start: str) -> "pandas.DataFrame":
    """Return a method's rows; one without a learned centre has no start, and is the same in every panel."""
    return table[(table.method == method) & (table.start == (start if method in CENTRED else "zero"))]


def shown_rows(table: "pandas.DataFrame") -> "pandas.DataFrame":
    """Return the rows of the schemes at mu0 = 7."""
    return table[(table.part == "schemes") & (table.mu0 == SHOWN)]


def swept_rows(table: "pandas.DataFrame") -> "pandas.DataFrame":
    """Return the rows of all penalties at mu0 = 7, mu started at 0."""
    shown = table.part.isin(("schemes", "penalties")) & (table.mu0 == SHOWN)
    return table[shown & (table.start == "zero") & table.method.isin(SWEPT)]


# Figures ---------------------------------------------------------------------------------------------


def figures(table: "pandas.DataFrame", settings: Settings) -> dict[str, Any]:
    return {
        "constraints_ratio": _ratio_figure(table, settings, STARTS[:1]),
        "constraints_boxes": _box_figure(table, settings, STARTS[:1]),
        "constraints_ratio_starts": _ratio_figure(table, settings, STARTS[1:]),
        "constraints_boxes_starts": _box_figure(table, settings, STARTS[1:]),
        "constraints_lambda": _lambda_figure(table, settings),
    }


def claims(table: "pandas.DataFrame", settings: Settings) -> list[Claim]:
    from .constraints_claims import in_section_4, in_section_5

    return [*in_section_4(table, settings), *in_section_5(table, settings)]


def _ratio_figure(table: "pandas.DataFrame", settings: Settings, starts: Sequence[str]) -> Any:
    """Draw test above training: they are decades apart."""
    table = main_rows(table)
    figure = new_figure(3.2 + 4.6 * len(starts), 7.0)
    axes = figure.subplots(2, len(starts), sharex=True, sharey="row", squeeze=False, height_ratios=(1.4, 1))
    for (upper, lower), start in zip(axes.T, starts, strict=True):
        for ax in (upper, lower):
            log_y(ax, plain=ax is upper)
            tidy(ax)
        for k, method in enumerate(UNCENTRED + CENTRED):
            mine, shift = of(table, method, start), 0.09 * (k - 2)
            band(upper, mine, "mu0", f"ratio_{settings.test[0]}", method, shift=shift)
            band(lower, mine, "mu0", "ratio_train", method, shift=shift, dashed=True)
        upper.set_title(f"mu starts at {_words(start)}", loc="left")
        lower.set_xlabel("oracle mean mu0")
    axes[0, 0].set_ylabel(f"variance ratio, {settings.test[0]} test draws")
    axes[1, 0].set_ylabel(f"variance ratio, {settings.n} training draws")
    kinds = [("test", {}), ("training", {"linestyle": (0, (4, 2))})]
    legend(figure, UNCENTRED + CENTRED, extra=[*kinds, ("as plain f", {"linestyle": ":", "linewidth": 0.9})])
    return figure


def _box_figure(table: "pandas.DataFrame", settings: Settings, starts: Sequence[str]) -> Any:
    """Draw one run, the first, as in the paper; and the centred schemes again, larger."""
    first = shown_rows(table)
    first = first[first.replication == 0]
    figure = new_figure(12.4, 0.6 + 3.8 * len(starts))
    axes = figure.subplots(len(starts), 2, sharex="col", squeeze=False, width_ratios=(1.5, 1))
    for (left, right), start in zip(axes, starts, strict=True):
        for ax, methods in ((left, (PLAIN, *UNCENTRED, *CENTRED)), (right, CENTRED)):
            draw_boxes(ax, [(_labels(m, ax is left), m, of(first, m, start).iloc[0]) for m in methods], SHOWN)
        left.set_title(f"mu starts at {_words(start)}", loc="left")
        right.set_title("enlarged", loc="left")
    for ax in axes[-1]:
        ax.set_xlabel(f"f + g on {settings.test[0]} test draws, mu0 = {SHOWN:g}")
    legend(figure, (), extra=BOX_LEGEND, bands=False)
    return figure


def _lambda_figure(table: "pandas.DataFrame", settings: Settings) -> Any:
    figure = new_figure(7.8, 4.4)
    ax = figure.subplots()
    log_y(ax)
    tidy(ax)
    ax.set_xscale("log")
    swept = swept_rows(table)
    for k, method in enumerate(SWEPT):
        band(ax, swept[swept.method == method], "penalty", f"ratio_{settings.test[-1]}", method, shift=0.04 * k)
    for method, text in (("NCV", "lambda = 0"), ("centre only", "lambda = 0")):
        middle = of(shown_rows(table), method, "zero")[f"ratio_{settings.test[-1]}"].median()
        ax.axhline(middle, color=LOOK[method][0], linewidth=1.4, linestyle="-.")
        ax.annotate(
            text, (min(settings.lambdas), middle), xytext=(0, 4), textcoords="offset points", color=LOOK[method][0]
        )
    ax.set_xlabel("penalty lambda")
    ax.set_ylabel(f"variance ratio on {settings.test[-1]:,} fresh draws")
    ax.set_title(f"mu0 = {SHOWN:g}, n = {settings.n}, mu starts at 0", loc="left")
    legend(figure, ("NCV", "penalty only", "centre only", "CNCV, no decay"))
    return figure


def _words(start: str) -> str:
    return {"zero": "0", "mean": "the mean of f", "pretrain": "its pre-trained value"}[start]


def _labels(method: str, long: bool) -> str:
    signs = {"NCV": "0, 0", "penalty only": "not 0, 0", "centre only": "0, not 0", "CNCV, no decay": "not 0, not 0"}
    return f"{method}\n(lambda, mu: {signs[method]})" if long and method in signs else method
