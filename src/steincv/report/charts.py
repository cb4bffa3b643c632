"""Charts of the page as rows of HTML and SVG, drawn by hand: no script, no font, no picture to load.

Lengths across are percentages and type has its own size, so a chart fits a phone and a desk without scaling its text.
Every row says in words what it shows, for screen readers and as a tooltip.
"""

import html
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..result import Estimate
from .running import running, window
from .terminal import clean
from .text import LARGEST_GAIN, plus_minus, times


class Layout(NamedTuple):
    """What is shown where there is too much: choices of how a page looks, no results.

    - `rows`, `each_end`: a chart of more rows shows so many of those that gained least, and of those that gained most.
    - `label`: characters of the longest label.
    - `left`, `right`: per cent of the width that a scale spans.
    - `furthest`: plain standard errors that a forest shows; what reaches further ends in an arrow.
    """

    rows: int = 30
    each_end: int = 12
    label: int = 60
    left: float = 2.0
    right: float = 98.0
    furthest: float = 5.0


LAYOUT = Layout()
# What stands in a table, as HTML, and its class.
Cell = tuple[str, str]


def escaped(text: object, longest: int | None = None) -> str:
    """Return any text as HTML: nothing in it is markup, moves the cursor or turns the reading direction."""
    return html.escape(clean(text, longest), quote=True)


def label_html(label: str) -> str:
    """Return a label as HTML that keeps its own reading direction to itself; in full as a tooltip where it was cut."""
    shown = escaped(label, LAYOUT.label) if label.strip() else "(no name)"
    full = f' title="{escaped(label, 500)}"' if len(clean(label)) > 16 else ""
    return f"<bdi{full}>{shown}</bdi>"


def section(name: str, title: str, body: str) -> str:
    """Return a section of the page under its title."""
    return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{title}</h2>\n{body}</section>\n'


def table(name: str, head: Iterable[Cell], rows: Iterable[Sequence[Cell]]) -> str:
    """Return a table that scrolls inside its box, by keyboard too; the first cell of a row is what the row is about."""

    def cell(tag: str, text: str, kind: str, scope: str = "") -> str:
        style = f' class="{kind}"' if kind else ""
        return f"<{tag}{scope}{style}>{text}</{tag}>"

    heads = "".join(cell("th", *each, ' scope="col"') for each in head)
    lines = (cell("th", *row[0], ' scope="row"') + "".join(cell("td", *each) for each in row[1:]) for row in rows)
    inside = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody>"
    return f'<div class="scroll" role="region" aria-label="{escaped(name)}" tabindex="0"><table>{inside}</table></div>'


def chosen(estimate: Estimate) -> list[int | None]:
    """Return the outputs that a chart shows: all, or those that gained least and most with `None` between them."""
    count = len(estimate.labels)
    if count <= LAYOUT.rows:
        return list(range(count))
    gain, varies = np.asarray(estimate.gain).reshape(-1), estimate.plain.standard_error.reshape(-1) > 0
    order = sorted(range(count), key=lambda k: (not varies[k], gain[k]))[: max(int(varies.sum()), 2 * LAYOUT.each_end)]
    return [*order[: LAYOUT.each_end], None, *order[-LAYOUT.each_end :]]


def gains(estimate: Estimate) -> np.ndarray:
    """Return gains, as far as they can be shown."""
    return np.clip(np.asarray(estimate.gain).reshape(-1), 1 / LARGEST_GAIN, LARGEST_GAIN)


def forest(estimate: Estimate, rows: Sequence[int | None]) -> str:
    """Draw 95 % intervals, plain and controlled, about the controlled mean and in plain standard errors."""
    plain, better = estimate.flat()
    unit = np.where(plain.standard_error > 0, plain.standard_error, 1.0)
    ends, middle = plain.interval(0.95), (plain.mean - better.mean) / unit
    wide, narrow = ((a.interval(0.95) - better.mean[:, None]) / unit[:, None] for a in (plain, better))
    shown = [k for k in rows if k is not None]
    far = np.concatenate([wide[shown].ravel(), narrow[shown].ravel(), [-1.0, 1.0]])
    scale = _Linear(max(far.min(), -LAYOUT.furthest), min(far.max(), LAYOUT.furthest))

    def row(k: int) -> str:
        words = (
            f"{estimate.labels[k]}: plain {plus_minus(plain.mean[k], plain.standard_error[k])}, "
            f"95 % from {ends[k, 0]:.4g} to {ends[k, 1]:.4g}; "
            f"controlled {plus_minus(better.mean[k], better.standard_error[k])}"
        )
        marks = (
            _line(scale(0.0), "0", scale(0.0), "100%", "zero"),
            _interval(scale, wide[k], 9, "plain"),
            f'<circle class="plain" cx="{scale(middle[k])}" cy="9" r="4"/>'
            if abs(middle[k]) <= LAYOUT.furthest
            else "",
            _interval(scale, narrow[k], 19, "controlled"),
            f'<rect class="controlled" x="{scale(0.0)}" y="15" width="3" height="8" transform="translate(-1.5)"/>',
        )
        return _row(estimate.labels[k], words, marks)

    return _chart("forest", estimate, rows, row, scale)


def gain_bars(estimate: Estimate, rows: Sequence[int | None]) -> str:
    """Draw gains as bars that grow from 1, which is the plain mean, on a log scale, with lines for their intervals."""
    factor, told = gains(estimate), estimate.gains_told()
    shown = [k for k in rows if k is not None]
    scale = _Log(min(1.0, factor[shown].min()), max(3.0, factor[shown].max()) ** 1.15)
    low, high = np.clip(estimate.gain_interval().reshape(-1, 2), 10**scale.low, 10**scale.high).T

    def row(k: int) -> str:
        kept = estimate.method[k] == "plain"
        words = f"{estimate.labels[k]}: " + (
            "plain mean reported" if kept else f"worth {told[k].amount} as many draws{told[k].between}"
        )
        marks = (
            _line(scale(1.0), "14", scale(factor[k]), "14", "controlled bar" if factor[k] >= 1 else "plain bar"),
            _line(scale(1.0), "5", scale(1.0), "23", "plain"),
            "" if kept else _line(scale(low[k]), "14", scale(high[k]), "14", "ends"),
        )
        number = "plain" if kept else times(factor[k])
        return _row(estimate.labels[k], words, marks, f'<span class="number">{number}</span>')

    return _chart("gain", estimate, rows, row, scale, "<span></span>")


def trace(estimate: Estimate, k: int) -> str:
    """Draw running means of one output with their 95 % bands."""
    parts = running(estimate, k)
    low, high = window(*parts)
    total = parts[0].draws[-1]

    def points(x: np.ndarray, y: np.ndarray) -> str:
        inside = np.clip((high - y) / (high - low), -1, 2)  # far outside is as good as outside
        return " ".join(f"{1000 * a / total:.1f},{300 * b:.1f}" for a, b in zip(x, inside, strict=True))

    bands, curves = [], []
    for part, name in zip(parts, ("plain", "controlled"), strict=True):
        around = points(np.r_[part.draws, part.draws[::-1]], np.r_[part.high, part.low[::-1]])
        bands.append(f'<polygon class="{name} band" points="{around}"/>')
        curves.append(f'<polyline class="{name}" points="{points(part.draws, part.mean)}"/>')
    words = (
        f"Running means of {estimate.labels[k]}: after {total} draws the plain mean is {parts[0].mean[-1]:.5g}, "
        f"between {parts[0].low[-1]:.5g} and {parts[0].high[-1]:.5g}, and the controlled mean is "
        f"{parts[1].mean[-1]:.5g}, between {parts[1].low[-1]:.5g} and {parts[1].high[-1]:.5g}"
    )
    scale = _Linear(low, high, 100.0, 0.0)
    side = "".join(
        f'<text x="100%" y="{scale(t)}" dx="-6" dy="4" text-anchor="end">{_number(t)}</text>'
        for t in scale.ticks()
        if 3 < scale.percent(t) < 97
    )
    drawn = (
        f'<svg class="plot" viewBox="0 0 1000 300" preserveAspectRatio="none" role="img"><title>{escaped(words)}'
        f"</title>{''.join([*bands, *curves])}</svg>"
    )
    counts = _Linear(0.0, float(total), 0.0, 100.0)
    below = _axis(counts, [t for t in counts.ticks() if t > 0])
    return (
        f'<div class="trace"><svg class="side" aria-hidden="true">{side}</svg>{drawn}<span></span>{below}</div>'
        f'<p class="axis-name">draws, over all chains</p>'
    )


def weight_bar(share: float) -> str:
    """Draw a share between 0 and 1 as a bar."""
    end = f"{100 * min(max(share, 0.0), 1.0):.1f}%"
    marks = (_line("0", "50%", "100%", "50%", "track"), _line("0", "50%", end, "50%", "controlled bar"))
    return f'<svg class="share" aria-hidden="true">{"".join(marks)}</svg>'


def legend(*entries: tuple[str, str]) -> str:
    """Say what the colours mean: pairs of a class and its words."""
    keys = ((_line("0", "50%", "100%", "50%", name), escaped(text)) for name, text in entries)
    items = "".join(f'<span><svg class="key" aria-hidden="true">{mark}</svg>{text}</span>' for mark, text in keys)
    return f'<p class="legend">{items}</p>'


# Pieces ----------------------------------------------------------------------------------------------


def _chart(
    name: str,
    estimate: Estimate,
    rows: Sequence[int | None],
    row: Callable[[int], str],
    scale: "_Linear",
    end: str = "",
) -> str:
    """Draw every row, a word about those left out where there is `None`, and the axis below."""
    left = len(estimate.labels) - 2 * LAYOUT.each_end
    gap = f'<p class="gap" role="listitem">… {left} more between these, all in the table …</p>'
    lines = "".join(gap if k is None else row(k) for k in rows)
    return f'<div class="chart {name}" role="list">{lines}<span></span>{_axis(scale, scale.ticks())}{end}</div>'


def _row(label: str, words: str, marks: Iterable[str], after: str = "") -> str:
    svg = f'<svg height="28" role="img"><title>{escaped(words)}</title>{"".join(marks)}</svg>'
    return f'<div class="row" role="listitem"><span class="label">{label_html(label)}</span>{svg}{after}</div>'


def _line(x1: str, y1: str, x2: str, y2: str, name: str) -> str:
    return f'<line class="{name}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _interval(scale: "_Linear", ends: np.ndarray, y: int, name: str) -> str:
    """Draw a line between the ends, with an arrow where it goes on beyond the scale."""
    left, right = np.clip(ends, scale.low, scale.high)
    heads = "".join(
        f'<svg class="head" x="{scale(at)}" y="{y}"><path class="{name}" d="M0 -5L{tip} 0L0 5z"/></svg>'
        for at, tip, beyond in ((left, -6, ends[0] < scale.low), (right, 6, ends[1] > scale.high))
        if beyond
    )
    return _line(scale(left), f"{y}", scale(right), f"{y}", name) + heads


def _axis(scale: "_Linear", ticks: Sequence[float]) -> str:
    marks = []
    for t in ticks:
        at, percent = scale(t), scale.percent(t)
        anchor = "start" if percent < 4 else "end" if percent > 96 else "middle"  # at the edges it stays inside
        text = f'<text x="{at}" y="19" text-anchor="{anchor}">{_number(t)}</text>'
        marks.append(_line(at, "0", at, "5", "tick") + text)
    return f'<svg class="axis" height="24" aria-hidden="true">{"".join(marks)}</svg>'


def _number(t: float) -> str:
    """Return a round number in as few characters as it needs."""
    digits, _, power = f"{t:.6g}".partition("e")
    if abs(t) >= 1e4 and abs(t) == 10.0 ** round(math.log10(abs(t))):
        digits, power = "1" if t > 0 else "-1", f"{round(math.log10(abs(t)))}"
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")) if power else ""
    scaled = f"{'' if digits == '1' else digits + '·'}10{raised}" if power else digits
    return scaled.replace("-", "−")


class _Linear:
    """A scale from values to per cent of the width."""

    def __init__(self, low: float, high: float, left: float = LAYOUT.left, right: float = LAYOUT.right):
        self.low, self.high, self.left, self.right = low, high, left, right

    def percent(self, x: float) -> float:
        return self.left + (self.right - self.left) * (x - self.low) / (self.high - self.low)

    def __call__(self, x: float) -> str:
        return f"{self.percent(x):.3f}%"

    def ticks(self) -> list[float]:
        """Return five or so round numbers."""
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = min((m * power for m in (1, 2, 5, 10) if m * power >= rough), default=10 * power)
        return [step * i for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


class _Log(_Linear):
    """A logarithmic scale from factors to per cent of the width."""

    def __init__(self, low: float, high: float):
        super().__init__(math.log10(low), math.log10(high))

    def percent(self, x: float) -> float:
        return super().percent(math.log10(x))

    def ticks(self) -> list[float]:
        """Return powers of ten; for a short scale 2 and 5 times them too, for a long one fewer."""
        decades = self.high - self.low
        steps = (1, 2, 5) if decades < 2 else (1,)
        every = 1 if decades < 5 else 2
        powers = range(math.floor(self.low), math.ceil(self.high) + 1, every)
        found = [m * 10.0**p for p in powers for m in steps]
        return [t for t in found if self.low - 1e-9 <= math.log10(t) <= self.high + 1e-9]
