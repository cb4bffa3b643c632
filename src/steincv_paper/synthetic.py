"""The paper's figure 1: V[f + g] / V[f] on fresh draws, against the number of draws and against the dimension.

    steincv reproduce synthetic [--quick]

f = sin(pi/D sum x) under 0.5 N(-1, I) + 0.5 N(1, I). In one replication all methods are fitted on the same draws and
judged on the same fresh ones: 500 as in the paper, and 20,000 others, because a variance known from 500 is noisy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from steincv.families.auto import Auto
from steincv.families.kernel.kernel import Kernel
from steincv.families.neural.neural import CNCV, NCV
from steincv.families.polynomial.polynomial import Polynomial
from steincv.report.figures import new_figure

from .claims import Claim, better, paired, spread, verdict
from .problem import mixture, sine, split
from .runner import Cell
from .style import band, legend, log_y, tidy

if TYPE_CHECKING:
    import pandas

METHODS = {
    "linear": Polynomial(1),
    "quadratic": Polynomial(2),
    "control functional": Kernel(),  # length scale and penalty by cross-validation, on all draws, no landmarks
    "NCV": NCV(),
    "CNCV, no decay": CNCV(decay=0.0),  # the paper's objective and nothing else
    "CNCV()": CNCV(),
    "Auto()": Auto(),
}
# Their replications share a cell: a second fit of the same shape does not compile again.
NETWORKS = ("NCV", "CNCV, no decay", "CNCV()")
CLASSICAL = ("linear", "quadratic", "control functional")
MUCH = 0.5  # what "much lower" is taken to mean
LIMIT = (
    "As D grows, f tends to (pi/D) sum s on either mode, linear in the score: linear control variates, and the kernel "
    "with the long length scale that cross-validation chooses, then leave nearly nothing either."
)
BEST = "best of the classical"


@dataclass(frozen=True)
class Settings:
    """Left: `draws` at dimension `dim`. Right: `dims` at `n` draws. Seeds are the numbers of the replications."""

    draws: tuple[int, ...]
    dim: int
    dims: tuple[int, ...]
    n: int
    replications: int
    test: tuple[int, ...] = (500, 20_000)
    methods: dict[str, str] = field(default_factory=lambda: {name: repr(m) for name, m in METHODS.items()})


FULL = Settings((500, 1000, 2000, 3000, 5000, 10_000), 10, (2, 5, 10, 20, 50, 100), 5000, replications=10)
QUICK = Settings((500, 1000, 2000), 10, (2, 10, 20), 1000, replications=3)


def cells(settings: Settings) -> list[Cell]:
    both = [(n, settings.dim) for n in settings.draws] + [(settings.n, dim) for dim in settings.dims]
    every = tuple(range(settings.replications))
    made = []
    for n, dim in dict.fromkeys(both):
        for method in settings.methods:
            groups = [every] if method in NETWORKS else [(r,) for r in every]
            for group in groups:
                name = f"{method}-n={n}-D={dim}-{group[0]}".replace(" ", "_").replace(",", "").replace("()", "")
                made.append(Cell(name, (method, n, dim, group, settings.test), len(group) * seconds(method, n, dim)))
    return made


def seconds(method: str, n: int, dim: int) -> float:
    """Return the rough time in seconds on one core: what is long is started first."""
    rough = {"Auto()": 15 + 6e-4 * n * dim, "quadratic": 1.6e-6 * n * dim**2, "control functional": 2.5e-7 * n**2}
    return 0.1 + rough.get(method, 2.5 if method in NETWORKS else 0.0)


def cell(method: str, n: int, dim: int, replications: Sequence[int], test: Sequence[int]) -> list[dict[str, Any]]:
    rows = []
    for seed in replications:
        train = mixture(n, dim, seed, n, dim)
        values = sine(train)
        fitted = METHODS[method].fit(train, values, seed=seed)
        row = {"method": method, "n": n, "dim": dim, "replication": seed, "seed": seed}
        row["ratio_train"] = _ratio(values, fitted(train)[..., 0])
        for size, fresh in zip(test, split(mixture(sum(test), dim, seed, n, dim, 1), test), strict=True):
            row[f"ratio_{size}"] = _ratio(sine(fresh), fitted(fresh)[..., 0])
        rows.append(row)
    return rows


def _ratio(f: np.ndarray, g: np.ndarray) -> float:
    return float((f + g).var() / f.var())


def figures(table: "pandas.DataFrame", settings: Settings) -> dict[str, Any]:
    figure = new_figure(11, 7.6)
    axes = figure.subplots(len(settings.test), 2, sharex="col", sharey="row", squeeze=False)
    for (left, right), size in zip(axes, settings.test, strict=True):
        left.set_ylabel(f"variance ratio on {size:,} fresh draws")
        for ax, at in ((left, settings.draws), (right, settings.dims)):
            log_y(ax)
            tidy(ax, log_x=at)
        for k, method in enumerate(settings.methods):
            mine, shift = table[table.method == method], 0.01 * (k - len(settings.methods) / 2)
            band(left, mine[mine.dim == settings.dim], "n", f"ratio_{size}", method, shift=shift)
            band(right, mine[mine.n == settings.n], "dim", f"ratio_{size}", method, shift=shift)
    axes[0, 0].set_title(f"against draws, D = {settings.dim}", loc="left")
    axes[0, 1].set_title(f"against dimension, n = {settings.n:,}", loc="left")
    axes[-1, 0].set_xlabel("training draws n")
    axes[-1, 1].set_xlabel("dimension D")
    legend(figure, settings.methods, extra=[("as plain f", {"linestyle": ":", "linewidth": 0.9})])
    return {"synthetic": figure}


def claims(table: "pandas.DataFrame", settings: Settings) -> list[Claim]:
    return list(_in_section_5_1(table, settings))


def _in_section_5_1(table: "pandas.DataFrame", settings: Settings) -> Iterator[Claim]:
    """Judge the claims by quotients of variance ratios on the same draws: below 1 where CNCV is the better one."""
    ratios = [f"ratio_{size}" for size in settings.test]
    table = _with_best(table, ratios)
    small, large = ratios[0], ratios[-1]
    against_n, against_dim = table[table.dim == settings.dim], table[table.n == settings.n]
    runs = f"{settings.replications} replications, {settings.test[-1]:,} test draws"
    left = ("n", against_n, f"n = {_list(settings.draws)} at D = {settings.dim}")
    right = ("D", against_dim, f"D = {_list(settings.dims)} at n = {settings.n}")
    for label, part, where in (left, right):
        by = "n" if label == "n" else "dim"
        for method in ("CNCV, no decay", "CNCV()"):
            quotients = paired(part, large, method, BEST, [by])
            won = better(quotients)
            other = verdict(better(paired(part, small, method, BEST, [by])))
            lost = ", ".join(f"{label} = {at}" for at in won.index[~won])
            yield Claim(
                "5.1",
                f"CNCV outperforms linear, quadratic and control functional, against {label}",
                f"`{method}`, {where}; {runs}",
                f"ratio over the least of the three: {_each(quotients, label)}",
                verdict(won),
                (f"Not better at {lost}. " if lost else "")
                + f"With {settings.test[0]} test draws: {'the same' if other == verdict(won) else other}.",
            )
    for method in NETWORKS:
        quotients = paired(against_dim, large, method, "control functional", ["dim"])
        high = quotients[quotients.index >= settings.dim]
        yield Claim(
            "5.1",
            f"In many dimensions {'NCV has an advantage' if method == 'NCV' else 'CNCV is still much lower'} "
            "(control functional)",
            f"`{method}`, {right[2]}; {runs}",
            f"ratio over the control functional's: {_each(quotients, 'D')}",
            verdict(high.median(axis=1) < MUCH),
            f"Counted: less than {MUCH} of it in the median, at every D from {settings.dim} on. {LIMIT}",
        )


def _with_best(table: "pandas.DataFrame", ratios: list[str]) -> "pandas.DataFrame":
    """Return the least ratio of linear, quadratic and control functional per replication, as one more method."""
    import pandas

    classical = table[table.method.isin(CLASSICAL)]
    best = classical.groupby(["n", "dim", "replication"])[ratios].min().reset_index().assign(method=BEST)
    return pandas.concat([table, best])


def _each(quotients: "pandas.DataFrame", label: str) -> str:
    return ", ".join(f"{spread(row.dropna())} at {label} = {at}" for at, row in quotients.iterrows())


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
