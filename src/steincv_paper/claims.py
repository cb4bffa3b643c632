"""Claims of the paper, each with the number that was found and a verdict that a rule has given, not a person."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas

HOLDS, PART, FAILS = "holds", "holds in part", "does not hold"
# One is better than another in a setting if its ratio is lower by at least 2 % in the median, and lower in at least
# three quarters of the replications.
CLEARLY, MOST = 0.98, 0.75


@dataclass(frozen=True)
class Claim:
    """`section` of the paper, the `claim`, what was `run`, the `number` found, the `verdict` and the reason `why`."""

    section: str
    claim: str
    run: str
    number: str
    verdict: str
    why: str = ""


def verdict(parts: Iterable[bool | np.bool_]) -> str:
    """Say whether a claim holds in all settings, in some, or in none."""
    held = list(parts)
    return HOLDS if all(held) else PART if any(held) else FAILS


def spread(values: "pandas.Series | Sequence[float] | np.ndarray") -> str:
    """Write the median and the quartiles."""
    low, middle, high = np.quantile(np.asarray(values, dtype=float), [0.25, 0.5, 0.75])
    return f"{number(middle)} ({number(low)} to {number(high)})"


def number(value: float) -> str:
    """Write three digits, without the zero before the point."""
    plain = 1e-3 <= abs(value) < 1e4 or value == 0
    text = f"{value:.3g}" if plain else f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


# Columns of tables that hold words.
TEXT = {"part", "method", "split", "sampler", "status", "data", "source", "coefficients"}
TEXT |= {"observed", "integrator", "coordinates"}


def numbers(table: "pandas.DataFrame", **chosen: object) -> "pandas.DataFrame":
    """Return the chosen rows with numbers as numbers: in a table read from a file what is missing is an empty text."""
    import pandas

    rows = table
    for name, value in chosen.items():
        rows = rows[rows[name] == value]
    return rows.assign(**{n: pandas.to_numeric(rows[n], errors="coerce") for n in rows.columns if n not in TEXT})


def paired(
    table: "pandas.DataFrame", column: str, one: str, other: str, by: Sequence[str], key: str = "method"
) -> "pandas.DataFrame":
    """Return the quotient one / other on the same draws: a row per setting `by`, a column per replication."""
    values = table.pivot_table(index=[*by, "replication"], columns=key, values=column)
    return (values[one] / values[other]).dropna().unstack("replication")


def better(quotients: "pandas.DataFrame", by: float = CLEARLY) -> "pandas.Series":
    """Tell in which settings the first is better: quotients below `by` in the median, below 1 in most replications."""
    wins = (quotients < 1).mean(axis=1)
    return (quotients.median(axis=1) < by) & (wins >= MOST)


def as_markdown(claims: Sequence[Claim]) -> str:
    """Return a Markdown table, one row per claim."""
    lines = ["| § | the paper says | run here | found | verdict | why |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {c.section} | {c.claim} | {c.run} | {c.number} | **{c.verdict}** | {c.why} |".replace("\n", " ")
        for c in claims
    ]
    return "\n".join(lines) + "\n"
