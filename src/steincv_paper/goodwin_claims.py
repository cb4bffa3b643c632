"""The claims of the paper's section 5.2, thermodynamic integration, under every variant that was run."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .claims import CLEARLY, Claim, number, verdict
from .goodwin_figures import evidence_rows, named, of, ratios, variants

if TYPE_CHECKING:
    import pandas

# "Hardly reduces the variance": more than this is left. "Significantly reduces": less than this.
HARDLY, SIGNIFICANTLY = 0.5, 0.5
PAPERS = ("linear", "quadratic", "control functional")
LOW, HIGH = (3, 4), (7, 8)  # numbers of species
_claim = functools.partial(Claim, "5.2")


def in_section_5_2(table: "pandas.DataFrame", settings: Any) -> Iterator[Claim]:
    for variant in variants(table):
        rows = of(table, variant)
        run = f"{named(variant)}; g = {', '.join(map(str, sorted(set(rows.species))))}; n = {int(rows.n.max())}"
        means = rows.pivot_table(index="species", columns="method", values="ratio", aggfunc="mean")
        middles = rows.pivot_table(index="species", columns="method", values="ratio", aggfunc="median")
        for method in PAPERS[:2]:
            yield _hardly(method, means, middles, run)
        yield from _low_dimension_only(means, middles, run)
        for network in [m for m in ("CNCV, no decay", "CNCV()") if m in means]:
            yield from _lowest(network, rows, means, run)
    yield from _sizes(table)
    yield from _evidence(table)


def _hardly(method: str, means: "pandas.DataFrame", middles: "pandas.DataFrame", run: str) -> Claim:
    kind = "Linear" if method == "linear" else "Quadratic"
    return _claim(
        f"{kind} control variates hardly reduce the variance",
        run,
        f"mean over rungs {_by_species(means[method])}; median {_by_species(middles[method])}",
        verdict(means[method] > HARDLY),
        f"Counted: more than {number(HARDLY)} is left in the mean over rungs, at every g.",
    )


def _low_dimension_only(means: "pandas.DataFrame", middles: "pandas.DataFrame", run: str) -> Iterator[Claim]:
    column = means["control functional"]
    low = column[column.index.isin(LOW)]
    high = column[column.index.isin(HIGH)]
    text = f"mean over rungs {_by_species(column)}; median {_by_species(middles['control functional'])}"
    yield _claim(
        "The control functional significantly reduces the variance when the dimension is low",
        run,
        text,
        verdict(low < SIGNIFICANTLY),
        f"Counted: less than {number(SIGNIFICANTLY)} is left, at g = 3 and 4.",
    )
    if len(high):
        yield _claim(
            "... and only then",
            run,
            text,
            verdict(high > SIGNIFICANTLY),
            f"Counted: more than {number(SIGNIFICANTLY)} is left, at g = 7 and 8.",
        )


def _lowest(network: str, rows: "pandas.DataFrame", means: "pandas.DataFrame", run: str) -> Iterator[Claim]:
    others = means[list(PAPERS)].min(axis=1)
    at = rows.pivot_table(index=["species", "rung"], columns="method", values="ratio")
    wins = at[network] < CLEARLY * at[list(PAPERS)].min(axis=1)
    by_species = wins.groupby("species").mean()
    yield _claim(
        f"CNCV has the lowest ratio at every dimension ({network})",
        run,
        f"mean over rungs {_by_species(means[network])}; best of the others {_by_species(others)}",
        verdict(means[network] < CLEARLY * others),
        "Counted: lower by 2 % than linear, quadratic and control functional.",
    )
    yield _claim(
        f"... and at every temperature ({network})",
        run,
        f"share of rungs where it is lowest: {_by_species(by_species)}",
        verdict(wins),
        "Counted: the same, at every rung above t = 0.",
    )


def _sizes(table: "pandas.DataFrame") -> Iterator[Claim]:
    rows = ratios(table, "size")
    if rows.empty:
        return
    few = rows[rows.n == rows.n.min()]
    means = few.pivot_table(index="species", columns="method", values="ratio", aggfunc="mean")
    for network in ("CNCV, no decay", "CNCV()"):
        yield _claim(
            f"CNCV deals with insufficient training draws ({network})",
            f"observed: all, ode, log coordinates, random split; n = {int(few.n.iloc[0])}",
            "; ".join(f"{m} {_by_species(means[m])}" for m in (network, *PAPERS, "Auto()")),
            verdict((means[network] < 1) & (means[network] < CLEARLY * means[list(PAPERS)].min(axis=1))),
            "Counted: at the fewest draws a ratio below 1, and lower by 2 % than the other three.",
        )


def _evidence(table: "pandas.DataFrame") -> Iterator[Claim]:
    """Judge what it is all for, which is no claim of the paper: the log evidence."""
    for (observed, integrator), mine in evidence_rows(table).groupby(["observed", "integrator"], sort=False):
        auto = mine[mine.method == "Auto()"].set_index("species")
        gain = (auto.plain_statistical / auto.statistical_error) ** 2
        z = (auto.plain - auto.log_evidence) / np.hypot(auto.plain_error, auto.error)
        yield _claim(
            "(ours) The log evidence is known better with control variates, by `Auto()`",
            f"observed: {observed}, {integrator}",
            f"log evidence {_with_errors(auto)}; statistical variance smaller by a factor of {_by_species(gain)}; "
            f"plain minus controlled in standard errors {_by_species(z)}",
            verdict((gain > 1) & (z.abs() < 4)),
            "Counted: a gain, and within four standard errors of the plain estimate.",
        )


def _with_errors(rows: "pandas.DataFrame") -> str:
    """Write each with its error, and in brackets what of that the spacing of the rungs leaves."""
    return ", ".join(
        f"{row.log_evidence:.2f} ± {number(row.error)} [{number(row.discretisation_error)}] (g = {g})"
        for g, row in rows.iterrows()
    )


def _by_species(values: "pandas.Series") -> str:
    return ", ".join(f"{number(float(v))} (g = {g})" for g, v in values.items())
