"""The report's section on how a result came about: the members of a stack, their weights, and seconds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..result import Estimate
from ..runtime.validation import listed
from . import charts
from .charts import Cell, escaped, label_html
from .terminal import short_method
from .text import effort

MOST_TABLE_ROWS = 2000
MOST_NAMED = 8  # outputs that a sentence names


def methods(estimate: Estimate) -> str:
    """Return the section as HTML."""
    members, took = members_of(estimate.info), escaped(seconds_of(estimate.info))
    if members:
        body = _stacked(estimate, members)
    elif all(method == "plain" for method in estimate.method):
        body = f"<p>No control variate was used: the plain means are reported. Finding out took {took}.</p>"
    else:
        folds = estimate.info.get("folds", ())
        count = len(folds) if isinstance(folds, Sequence) else 0
        fitted = f"fitted {count} times, each time on other draws than it was used on" if count > 1 else "fitted once"
        body = f"<p><b>{escaped(method_names(estimate))}</b>, {fitted}, in {took}.</p>"
    lines = "".join(f"<p>{escaped(line)}</p>\n" for line in effort(estimate.info))
    return charts.section("methods", "How it was done", f"{body}\n{lines}")


def _stacked(estimate: Estimate, members: list["Member"]) -> str:
    def share(part: float) -> tuple[Cell, Cell]:
        return (f"{part:.0%}", "right"), (charts.weight_bar(part), "bar")

    rows = []
    for m in members:
        left = "–" if not math.isfinite(m.ratio) else f"{100 * m.ratio:.3g} %"
        numbers = (left, "right"), (escaped(_duration(m.seconds)), "right")
        rows.append([(escaped(m.name), "whole"), *share(m.share), *numbers])
    rest = share(max(0.0, 1 - sum(m.share for m in members)))
    rows.append([("plain mean", ""), *rest, ("100 %", "right"), ("", "")])
    head = [("method", ""), ("weight", "right"), ("", "bar"), ("variance left", "right"), ("seconds", "right")]
    return f"""<p>Several methods were fitted and combined. Each output has its own weights, at least 0 and at most 1 in
all, chosen at draws that the methods were not fitted on. Here are the averages over the outputs, and how much of the
variance each method alone would leave (median).</p>
{charts.table("Methods", head, rows)}
{_alone(estimate, members)}<p class="note">Altogether {escaped(seconds_of(estimate.info))}.</p>
{_weights(estimate, members)}"""


def _alone(estimate: Estimate, members: list["Member"]) -> str:
    """Name outputs that are one member's, because the combination was not trusted there."""
    known = {m.method for m in members}
    outputs = zip(estimate.labels, estimate.method, strict=True)
    lines = [f"{label_html(label)} ({escaped(method)})" for label, method in outputs if method in known]
    if not lines:
        return ""
    return (
        "<p>A draw or two far out carried the error bar of the combination, so that one method alone is reported for "
        f"{listed(lines, MOST_NAMED)}.</p>\n"
    )


def _weights(estimate: Estimate, members: list["Member"]) -> str:
    """Return one line per output, where the weights are those of these outputs: parts of a result lack theirs."""
    outputs = len(estimate.labels)
    if any(len(m.weights) != outputs * (1 if estimate.sd is None else 2) for m in members) or outputs < 2:
        return ""
    head = [("output", ""), *((escaped(m.name, 40), "right") for m in members)]
    rows = []
    for k, label in enumerate(estimate.labels[:MOST_TABLE_ROWS]):
        weights = ((f"{m.weights[k]:.2f}", "right none" if m.weights[k] < 0.005 else "right") for m in members)
        rows.append([(label_html(label), ""), *weights])
    name = "Weights of every output"
    return f"<details><summary>{name}</summary>{charts.table(name, head, rows)}</details>"


def method_names(estimate: Estimate) -> str:
    """Return the methods that were used, as text."""
    names = dict.fromkeys(short_method(m) for m in estimate.method if m != "plain") or ["plain mean"]
    return ", ".join(names)


class Member:
    """One member of a stack, as far as `info` says so: a result from a file may hold anything there."""

    def __init__(self, entry: Mapping[str, Any]):
        self.method = str(entry.get("method", "?"))
        self.name = short_method(self.method, 80)
        self.weights = [min(max(w, 0.0), 1.0) for w in _floats(entry.get("weight"))]
        self.share = float(np.mean(self.weights)) if self.weights else 0.0
        ratio = _floats(entry.get("variance_ratio"))
        self.ratio = float(np.median(ratio)) if ratio else math.nan
        self.seconds = next(iter(_floats([entry.get("seconds")])), math.nan)


def members_of(info: Mapping[str, Any]) -> list[Member]:
    """Return the members of a stack that have weights."""
    entries = info.get("members", ())
    if not isinstance(entries, list | tuple):
        return []
    return [Member(entry) for entry in entries if isinstance(entry, Mapping) and "weight" in entry]


def _floats(values: object) -> list[float]:
    """Return the numbers of a list of numbers, or nothing."""
    if not isinstance(values, list | tuple | np.ndarray):
        return []
    kept = [float(v) for v in values if isinstance(v, int | float) and math.isfinite(v)]
    return kept if len(kept) == len(values) else []


def seconds_of(info: Mapping[str, Any]) -> str:
    """Return how long it took, as text."""
    return _duration(next(iter(_floats([info.get("seconds")])), math.nan))


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "–"
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
