"""A result as one self-contained page: no script, and nothing is loaded from anywhere.

Its content security policy allows one style, named by its hash, and the icon inside the page. Whatever comes from data,
labels and messages above all, passes through `escaped`.
"""

import base64
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files

import numpy as np

from .. import __version__
from ..judging.diagnostics import ALARMS, STEIN_LIMIT, Code, Status, limits_of_rhat
from ..judging.error_bars import split_rhat, tail_index
from ..result import Estimate
from ..runtime.arrays import refuse_target, whole_file
from ..runtime.validation import listed
from . import charts
from .charts import escaped, label_html
from .check import chains, effective, tails
from .meaning import MEANINGS
from .members import MOST_NAMED, MOST_TABLE_ROWS, members_of, method_names, methods, seconds_of
from .running import typical
from .text import CALM, HEADER, output_rows, times

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M1 5h14' stroke='%23e69f00' stroke-width='2'/%3E"
    "%3Cpath d='M6 11h4' stroke='%230072b2' stroke-width='4'/%3E%3C/svg%3E"
)

FOOT = (
    "This page holds everything it shows and loads nothing. It holds no draws: <code>result.save()</code> keeps those."
)


def write_report(estimate: Estimate, path: "str | os.PathLike[str]", *, force: bool = False) -> None:
    """Write the page to `path`, whole or not at all."""
    refuse_target(path, force=force)
    text = page(estimate).encode()
    with whole_file(path, force=force) as file:
        file.write(text)


def page(estimate: Estimate) -> str:
    """Return the page as text."""
    style = (files(__package__) / "page.css").read_text("utf-8")
    sections = (_picture, _settling, _table, methods, _diagnostics, _citation)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy(style)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="{ICON}">
<title>steincv report</title>
<style>{style}</style>
</head>
<body>
{_head(estimate)}
<main>
{"".join(section(estimate) for section in sections)}</main>
<footer>Made by steincv {escaped(__version__)}. {FOOT}</footer>
</body>
</html>
"""


def policy(style: str) -> str:
    """Return the policy: nothing but this one style and pictures inside the page."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


# Sections --------------------------------------------------------------------------------------------


def _head(estimate: Estimate) -> str:
    chain_count, draws, _ = estimate.values.shape
    factor = charts.gains(estimate)[_varying(estimate)]
    helped = sum(method != "plain" for method in estimate.method)
    facts = [
        ("improved", f"{helped} of {len(factor)}"),
        ("draws", f"{chain_count} × {draws:,}"),
        ("fit", seconds_of(estimate.info)),
    ]
    if helped:
        facts.insert(0, ("gain, median", times(float(np.sort(factor)[(len(factor) - 1) // 2]))))
    if helped and len(factor) > 1:
        facts.insert(1, ("least and most", f"{times(factor.min())} to {times(factor.max())}"))
    shown = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in facts)
    headline = estimate.gained()
    if any(s.code is Code.STEIN_MEAN for found in estimate.status for s in found):
        headline = "The plain means are reported, because the scores do not fit the draws."
        if helped:
            headline = "These means are not to be trusted: the scores do not fit the draws."
    alarms = {s.code for found in _statuses(estimate) for s in found if s.code in ALARMS}
    banner = "".join(
        f'<div class="alarm" role="alert"><p><b>{escaped(MEANINGS[code].title)}.</b> '
        f"What that means, and what to do next, stands below under Can it be believed?</p></div>"
        for code in MEANINGS
        if code in alarms
    )
    return f"""<header>
<p class="kicker"><b>steincv</b> · expectations with control variates · {escaped(method_names(estimate))}</p>
<h1>{escaped(headline)}</h1>
{banner}
<dl class="facts">{shown}</dl>
</header>"""


def _picture(estimate: Estimate) -> str:
    rows = charts.chosen(estimate)
    spread = ""
    if None in rows:
        tenth, half, most = np.quantile(charts.gains(estimate)[_varying(estimate)], (0.1, 0.5, 0.9))
        end = charts.LAYOUT.each_end
        spread = (
            f'<p class="note">Of {len(estimate.labels)} outputs, shown are the {end} that gained least and '
            f"the {end} that gained most. One in ten gains less than {times(tenth)}, half gain more than "
            f"{times(half)}, one in ten gains more than {times(most).removeprefix('> ')}.</p>\n"
        )
    key = charts.legend(("plain", "plain 95 % interval"), ("controlled", "controlled 95 % interval"))
    bars = charts.legend(("plain", "plain = 1"), ("controlled", "controlled"))
    body = f"""{spread}<div class="charts">
<figure>{key}{charts.forest(estimate, rows)}
<figcaption>Intervals for each mean, about the controlled mean, in plain standard errors. A shorter bar is a more
accurate mean.</figcaption></figure>
<figure>{bars}{charts.gain_bars(estimate, rows)}
<figcaption>The gain, on a log scale: 10× is as good as ten times as many draws. Thin lines are 90 % intervals of the
gain itself.</figcaption></figure>
</div>
"""
    return charts.section("gained", "What was gained", body)


def _settling(estimate: Estimate) -> str:
    if all(method == "plain" for method in estimate.method):
        return ""
    k = typical(estimate)
    which = "This is the output whose gain is the median one. " if len(estimate.labels) > 1 else ""
    key = charts.legend(("plain", "plain mean, 95 % band"), ("controlled", "controlled mean, 95 % band"))
    body = f"""<figure>{key}{charts.trace(estimate, k)}
<figcaption>The mean of the first draws, as they come in. {which}The control variate is the final one
throughout.</figcaption></figure>
"""
    return charts.section("settling", f"How the mean settles: {label_html(estimate.labels[k])}", body)


def _table(estimate: Estimate) -> str:
    rows = []
    with_status = any(_statuses(estimate))  # no empty column
    for cells, found in output_rows(estimate, charts.LAYOUT.label):
        label, *shown = map(escaped, cells[:-1])
        kinds = (
            ("right", "right best", "right", "") if cells[4] != "plain" else ("right", "right", "right none", "none")
        )
        words = [(_status_words(found), "")] if with_status else []
        rows.append([(f"<bdi>{label}</bdi>", ""), *zip(shown, kinds, strict=True), *words])
    left = len(rows) - MOST_TABLE_ROWS
    more = f'<p class="note">… and {left} more; <code>result.summary()</code> has them all.</p>' if left > 0 else ""
    names = HEADER if with_status else HEADER[:-1]
    head = [(escaped(name or "output"), "right" if i in (1, 2, 3) else "") for i, name in enumerate(names)]
    body = f"""<p class="note">Each number is rounded by its own Monte Carlo standard error (mcse). Gain is how many
times as many draws the plain mean would need. It counts with draws that have not come, so it may be less than the ratio
of the squared errors.</p>
{charts.table("Every mean", head, rows[:MOST_TABLE_ROWS])}
{more}
"""
    return charts.section("table", "Every mean", body)


def _diagnostics(estimate: Estimate) -> str:
    about: dict[Code, list[tuple[str, Status]]] = {}
    for name, part in estimate.parts():
        for label, found in zip(part.labels, part.status, strict=True):
            for status in found:
                about.setdefault(status.code, []).append((name.format(label), status))
    notes = "".join(_found(code, about[code]) for code in MEANINGS if code in about)
    lines = "".join(
        f'<li><span class="mark {"good" if fine else "bad"}">{"ok" if fine else "look"}</span>'
        f"<span>{escaped(text)}</span></li>"
        for fine, text in _checks(estimate, set(about))
    )
    return charts.section("diagnostics", "Can it be believed?", f'<ul class="checks">{lines}</ul>\n{notes}\n')


def _checks(estimate: Estimate, codes: set[Code]) -> Iterator[tuple[bool, str]]:
    if Code.STEIN_MEAN in codes:
        yield False, "Scores do not fit the draws: see below."
    elif any(Code.CONSTANT not in {s.code for s in found} for found in estimate.status):
        least = f"no Stein mean is more than {STEIN_LIMIT:g} standard errors from zero"
        yield True, f"Scores fit the draws: {least}, the value they all have for correct scores."
    varies = _varying(estimate)
    if varies.any():
        names = [label for label, kept in zip(estimate.labels, varies, strict=True) if kept]
        values, size = estimate.values[..., varies], estimate.values.shape[0] * estimate.values.shape[1]
        fewest = np.minimum(estimate.plain.ess, estimate.ess).reshape(-1)[varies]
        rhat = split_rhat(values)
        yield chains(names, rhat, limits_of_rhat(values, rhat))
        yield effective(names, fewest, size)
        yield tails(names, tail_index(values))


def _found(code: Code, about: Sequence[tuple[str, Status]]) -> str:
    """Explain what happened to some outputs, and what to do next."""
    title, meaning, next_step = MEANINGS[code]
    labels = listed([label_html(label) for label, _ in about], MOST_NAMED)
    messages: dict[str, None] = dict.fromkeys(status.message for _, status in about)
    words = "".join(f"<li>{escaped(message, 600)}</li>" for message in list(messages)[:20])
    serious = " serious-found" if code in ALARMS else ""
    return f"""<div class="found{serious}">
<h3>{escaped(title)}</h3>
<p class="note">{labels}</p>
<p>{escaped(meaning)}</p>
<p><b>Next.</b> {escaped(next_step)}</p>
<details><summary>The message, with its numbers</summary><ul>{words}</ul></details>
</div>
"""


def _citation(estimate: Estimate) -> str:
    used = [m.name for m in members_of(estimate.info) if m.share > 0.005] or list(estimate.method)
    lines = "\n".join(map(escaped, bibtex(used).split("\n")))
    asked = "Please cite the software and the papers of the methods that did the work."
    return charts.section("cite", "How to cite", f'<p>{asked}</p>\n<pre tabindex="0">{lines}</pre>\n')


# Pieces ----------------------------------------------------------------------------------------------


def _status_words(found: Iterable[Status]) -> str:
    return ", ".join(
        f'<span class="serious">{escaped(s.name)}</span>' if s.code in ALARMS or s.code not in CALM else escaped(s.name)
        for s in found
    )


def _statuses(estimate: Estimate) -> Iterable[tuple[Status, ...]]:
    return (found for _, part in estimate.parts() for found in part.status)


def _varying(estimate: Estimate) -> np.ndarray:
    """Return which outputs are not constant."""
    return np.array([all(s.code is not Code.CONSTANT for s in found) for found in estimate.status], dtype=bool)


# What to cite --------------------------------------------------------------------------------------


# The software, with its version to be filled in, the paper it implements, and the papers of methods.
SOFTWARE, NEURAL, POLYNOMIAL, KERNEL = (files(__package__) / "papers.bib").read_text("utf-8").strip().split("\n\n")
PAPERS = {"Polynomial(": POLYNOMIAL, "Kernel(": KERNEL}


def bibtex(methods: Iterable[str]) -> str:
    """Return BibTeX of the software, the paper it implements, and the papers of the `methods` that were used."""
    used = list(methods)
    papers = [entry for name, entry in PAPERS.items() if any(name in method for method in used)]
    return "\n\n".join([SOFTWARE.replace("VERSION", __version__), NEURAL, *papers])
