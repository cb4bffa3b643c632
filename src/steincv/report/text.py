"""Results as tables: plain text for `repr`, HTML for notebooks, rich for the command line.

Labels are data, and may hold anything: control characters are shown as escapes, HTML is escaped, and rich
never sees a label as markup.
"""

import html
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from ..judging.diagnostics import ALARMS, RACED, STEIN_LIMIT, Code, Status, SteinCheck
from ..judging.verdict import BEYOND
from ..result import Estimate
from ..runtime.validation import listed
from .terminal import clean, short_method

HEADER = ("", "plain ± mcse", "controlled ± mcse", "gain", "method", "status")
MOST_ROWS = 60
LONGEST_LABEL = 40
LARGEST_GAIN = 1e6  # beyond this a picture shows no difference
# Codes that are good news or no news: not coloured as warnings.
CALM = frozenset({Code.EXACT, Code.CONSTANT, Code.NO_GAIN})


def plus_minus(mean: float, error: float) -> str:
    """Return `mean ± error`, both to two significant digits of the error.

    >>> plus_minus(4.347570, 0.051669), plus_minus(123456.0, 1234.0), plus_minus(1.23456e-9, 2e-12)
    ('4.348 ± 0.052', '123500 ± 1200', '(1.2346 ± 0.0020)e-09')
    """
    if not (math.isfinite(mean) and math.isfinite(error)):
        return f"{mean:.4g} ± {error:.2g}"
    if error <= 1e-9 * abs(mean):  # as good as exact: its digits would fill the line
        return f"{mean:.10g} ± {error:.0e}" if error else f"{mean:.10g} ± 0"
    largest = max(abs(mean), error)
    exponent = max(math.floor(math.log10(largest)), -300)
    if exponent < -4 or exponent > 7:
        return f"({_rounded(mean / 10.0**exponent, error / 10.0**exponent)})e{exponent:+03d}"
    return _rounded(mean, error)


def _rounded(mean: float, error: float) -> str:
    error = float(f"{error:.1e}")  # first: 0.0996 is 0.10 to two digits, and has one decimal less
    decimals = 1 - math.floor(math.log10(error))
    if decimals >= 0:
        return f"{mean:.{decimals}f} ± {error:.{decimals}f}"
    return f"{round(mean, decimals):.0f} ± {round(error, decimals):.0f}"


def times(factor: float) -> str:
    """Return a gain to two digits: it is an estimate too."""
    return f"{float(f'{factor:.1e}'):g}×" if factor <= 1e5 else "> 1e5×"


def gain_cells(estimate: Estimate) -> Iterator[str]:
    """Yield the gain of every output with its 90 % interval, or its lower end alone where that is all there is."""
    gain = estimate.gain
    for value, (low, high) in zip(np.asarray(gain).reshape(-1), gain.interval().reshape(-1, 2), strict=True):
        if low == high or not math.isfinite(value):
            yield times(value)
        elif high > BEYOND.vague * low and low >= 2:
            yield f"> {times(low).removeprefix('> ')}"
        else:
            ends = [times(x).removesuffix("×") for x in (low, high)]
            yield f"{times(value)} ({ends[0]} – {ends[1]})"


def output_rows(
    estimate: Estimate, longest: int = LONGEST_LABEL
) -> Iterator[tuple[tuple[str, ...], tuple[Status, ...]]]:
    """Yield the cells of every output, then those of its standard deviations and quantiles where asked for."""
    for name, part in estimate.parts():
        plain, better = part.flat()
        for k, (label, gain) in enumerate(zip(part.labels, gain_cells(part), strict=True)):
            cells = (
                name.format(clean(label, longest)),
                plus_minus(plain.mean[k], plain.standard_error[k]),
                plus_minus(better.mean[k], better.standard_error[k]),
                gain,
                short_method(part.method[k]),
                ", ".join(status.name for status in part.status[k]),
            )
            yield cells, part.status[k]


def _shown(estimate: Estimate) -> tuple[list[tuple[tuple[str, ...], tuple[Status, ...]]], int, str]:
    """Return the first rows, how many columns to show (no empty one of statuses), and a line about rows left out."""
    rows = list(output_rows(estimate))
    shown, left = rows[:MOST_ROWS], len(rows) - MOST_ROWS
    columns = len(HEADER) if any(cells[-1] for cells, _ in shown) else len(HEADER) - 1
    return shown, columns, f"... and {left} more; summary() has them all." if left > 0 else ""


def table(estimate: Estimate) -> str:
    """Return plain and controlled means side by side, each rounded by its own error."""
    rows, columns, note = _shown(estimate)
    lines = aligned([row[:columns] for row in (HEADER, *(cells for cells, _ in rows))], range(1, 4))
    return "\n".join([*lines, note] if note else lines)


def aligned(rows: Sequence[Sequence[str]], right: Container[int]) -> list[str]:
    """Return columns of equal width as the terminal counts it, the columns `right` aligned to the right."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        padded = [
            " " * (width - cell_len(cell)) + cell if i in right else cell + " " * (width - cell_len(cell))
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def html_table(estimate: Estimate) -> str:
    """Return the table for a notebook, with what was gained and the messages below."""
    rows, _, note = _shown(estimate)
    notes = [note, estimate.gained(), *estimate.warnings(), *effort(estimate.info)]
    return as_html(HEADER, [cells for cells, _ in rows], [clean(text) for text in notes if text])


def as_html(header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """Return a table, none where it has no rows, with sentences below, for a notebook."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line("td", cells) for cells in rows)
    table = f"<table><thead>{line('th', header)}</thead><tbody>{body}</tbody></table>" if rows else ""
    return table + "".join(f"<p>{html.escape(text)}</p>" for text in notes)


def rich_table(estimate: Estimate) -> Table:
    """Return the table for a terminal, with gains in green and alarms in red."""
    rows, columns, note = _shown(estimate)
    styled = []
    for cells, found in rows:
        gained = ("bold", "green", "") if cells[4] != "plain" else ("", "dim", "dim")
        alarm, calm = any(s.code in ALARMS for s in found), all(s.code in CALM for s in found)
        styles = ("", "", *gained, "red" if alarm else "" if calm else "yellow")
        styled.append([*zip(cells, styles, strict=True)][:columns])
    return rich_rows(HEADER[:columns], styled, range(1, 4), note, unwrapped=4)


def rich_rows(
    header: Sequence[str],
    rows: Iterable[Sequence[tuple[str, str]]],
    right: Container[int],
    note: str = "",
    unwrapped: int = 0,
) -> Table:
    """Return a table for a terminal of cells with their styles; the first columns are on one line each, or folded."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=note or None, caption_justify="left")
    for i, name in enumerate(header):
        justify: Literal["left", "right"] = "right" if i in right else "left"
        shown.add_column(name, justify=justify, no_wrap=i < unwrapped, overflow="fold" if unwrapped else "ellipsis")
    for row in rows:
        shown.add_row(*(Text(cell, style=style) for cell, style in row))
    return shown


def stein_table(check: SteinCheck, most: int = 8) -> Table:
    """Return a table of means that are zero for correct draws and scores, the most suspicious first."""
    rows = []
    for k in np.argsort(-np.abs(check.z))[:most]:
        far = abs(check.z[k]) > STEIN_LIMIT
        verdict = f"beyond {STEIN_LIMIT:g}: not by chance" if far else "ok"
        cells = (clean(check.labels[k], 60), f"{check.mean[k]:.3g}", f"{check.z[k]:.1f}", verdict)
        rows.append([(cell, "red" if far else "") for cell in cells])
    return rich_rows(("mean that should be 0", "mean", "z", ""), rows, (1, 2))


# What the default did besides fitting, one line each -----------------------------------------------


def effort(info: Mapping[str, Any]) -> list[str]:
    """Return the lines, none where nothing is to be said; `info` may come from a file and hold anything."""
    lines = [_left_out(info.get("left_out")), _orbits(info.get("orbits"))]
    if isinstance(why := info.get("fitting"), str):
        lines.append(f"Draws to fit on were {clean(why, 120)}")
    if isinstance(advice := info.get("net_gain"), str):
        lines.append(clean(advice, 400))
    return [line for line in lines if line]


def _left_out(entries: object) -> str:
    entries = entries if isinstance(entries, list | tuple) else ()
    every = [entry for entry in entries if isinstance(entry, list | tuple) and len(entry) == 2]
    pairs = [entry for entry in every if entry[1] != RACED]
    said = [f"{short_method(str(name), 80)} ({clean(str(why), 120)})" for name, why in pairs]
    said = [listed(said, 8)] if said else []
    if raced := len(every) - len(pairs):  # which is usual: `info` names them
        said.append(f"{raced} member{'s' * (raced > 1)} that {RACED}")
    return f"Left out: {'; '.join(said)}." if said else ""


def _orbits(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return ""
    states, gradients, step, seconds, lost, sampler, averaging = (
        _number(entry.get(name)) for name in ("states", "gradients", "step", "seconds", "lost", "sampler", "averaging")
    )
    if states <= 1 and seconds > 0:
        return f"Orbits: none, because one gradient per draw would take {seconds:.3g} s."
    if states <= 1 and isinstance(entry.get("why"), str):
        return f"Orbits: none, because f is not known at new points: {clean(entry['why'], 120)}"
    if states <= 1 and sampler >= 0:
        return f"Orbits: none, because the sampler took {sampler:,.0f} gradients only."
    if not (states > 1 and gradients > 0 and step > 0):
        return ""
    alone = f"; {lost:.1%} of the draws are alone, their orbits left the support" if lost > 0 else ""
    beside = f" (the sampler took {sampler:,.0f})" if sampler >= 0 else ""
    mean = f"; averaged over them, f alone gains {averaging:.2g}" if averaging > 0 else ""
    states_said = f"Orbits: {states:.0f} states around every draw, {gradients:,.0f} gradients{beside}"
    return f"{states_said}, steps of {step:.2g}{mean}{alone}."


def _number(value: object) -> float:
    """Return a finite number, or NaN for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return math.nan
