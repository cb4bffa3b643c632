"""The result of `log_evidence` as a table of its rungs and a few sentences."""

from typing import Any

from rich.table import Table
from rich.text import Text

from steincv.report.terminal import clean
from steincv.report.text import plus_minus, times
from steincv.result import Estimate


def rung_table(result: Estimate) -> Table:
    """Return a row for every rung: the mean log likelihood, plain and controlled, and what was gained."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in ("rung", "t", "plain ± mcse", "controlled ± mcse", "gain", "method", "status"):
        table.add_column(name, justify="left" if name in ("method", "status") else "right")
    for row in result.info["rungs"]:
        cells = [str(row["rung"]), f"{row['temperature']:.3g}", plus_minus(row["plain_mean"], row["plain_error"])]
        if row["bridged"]:
            cells += ["no usable mean", "", "bridged"]
        else:
            ratio = row["variance_ratio"]
            cells += [plus_minus(row["mean"], row["error"]), times(1 / ratio) if ratio > 0 else "> 1e5×"]
            cells.append("plain" if row["method"] == "plain" else clean(row["method"].partition("(")[0], 20))
        cells.append(clean(", ".join(row["status"]), 40))
        table.add_row(*(Text(cell) for cell in cells))
    return table


def sentences(result: Estimate, exact: float | None = None) -> list[str]:
    """Return the log evidence with its error bars, the other rules, and what tempering reports."""
    info = result.info
    low, high = result.interval(0.95)
    plain = result.plain
    found = [
        f"Log evidence: {plus_minus(float(result.mean), float(result.standard_error))} (95 % interval "
        f"{_digits(low, result)} to {_digits(high, result)}); without control variates "
        f"{plus_minus(float(plain.mean), float(plain.standard_error))}."
    ]
    if exact is not None:
        off = (float(result.mean) - exact) / max(float(result.standard_error), 1e-300)
        found.append(f"Exact: {exact:.8g}, {abs(off):.1f} standard errors away.")
    found.append(
        f"Of the standard error, {info['statistical_error']:.2g} is statistical and {info['discretisation_error']:.2g} "
        f"what the spacing of the rungs leaves."
    )
    rules = ", ".join(
        f"{name} {_digits(value['controlled'], result)}" for name, value in info["values_by_rule"].items()
    )
    found.append(f"By rule, controlled: {rules}.")
    if info["refitted"]:
        found.append(f"Rungs given all of Auto(), since they carry the error: {', '.join(map(str, info['refitted']))}.")
    if "tempering" in info:
        found.append(_tempering(info["tempering"]))
    return found


def _digits(value: float, result: Estimate) -> str:
    """Round to as many digits as the error of the result has meaning for."""
    return plus_minus(float(value), float(result.standard_error)).partition(" ±")[0].strip("(")


def _tempering(t: dict[str, Any]) -> str:
    lost = sum(t["not_finite"])
    return (
        f"Tempering by {t['kernel']}: {t['iterations']} iterations in {t['seconds']:.0f} s, swap rates "
        f"{min(t['swaps']):.2g} to {max(t['swaps']):.2g}, {sum(t['round_trips'])} round trips, worst R-hat "
        f"{max(t['rhat']):.3f}, least ESS {min(t['ess']):.0f}; {lost} proposals had no finite likelihood."
    )
