"""The league as a table: results/league/league.csv with everything, and docs/league.md to be read."""

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from .draws import kept_sets, reference, summary as described
from .measures import ENOUGH_SETS, Score, geometric_mean, score
from .methods import VARIANTS
from .models import MAKERS, make
from .runs import lines, versions

RESULTS = Path(__file__).parents[1] / "results" / "league"
PAGE = Path(__file__).parents[2] / "docs" / "league.md"
BEGIN, END = "<!-- written by league.py table -->", "<!-- end -->"
SMALL, LARGE = 14, 18  # at most so many parameters: nothing may be lost; from so many on: the gain that counts
FIRST_VERSION = "before"


@dataclass(frozen=True)
class Player:
    """A method of one version."""

    version: str
    method: str

    @property
    def label(self) -> str:
        return f"{self.method} ({self.version})"


BASELINE = Player(FIRST_VERSION, "auto")


def players() -> list[Player]:
    """All that have run, the earlier version first, methods in the order of their table."""
    found = {Player(version, line["method"]) for version in versions() for line in lines(version)}
    order = list(VARIANTS)
    return sorted(found, key=lambda p: (p.version != FIRST_VERSION, p.version, order.index(p.method)))


@lru_cache
def scores() -> dict[tuple[str, Player], Score]:
    """Every player on every posterior that it has run on often enough."""
    found = {}
    for player in players():
        mine = [line for line in lines(player.version) if line["method"] == player.method]
        for name in MAKERS:
            judged = score(name, [line for line in mine if line["problem"] == name])
            if judged is not None:
                found[name, player] = judged
    return found


def names() -> list[str]:
    """The posteriors with draws that somebody has run on, by dimension."""
    played = {name for name, _ in scores()}
    return [name for name in MAKERS if name in played and kept_sets(name)]


def summary(chosen: list[str], player: Player) -> dict[str, float]:
    """One line over several posteriors. A failure counts as the plain mean, which is what the user is left with."""
    mine = [scores()[name, player] for name in chosen if (name, player) in scores()]
    ran = [s for s in mine if not s.failed]
    typical, together = (
        [float(np.median(r)) for r in each]
        for each in ([s.reported_over_true for s in ran], [s.together_over_true for s in ran])
    )
    covered = [s.coverage for s in ran if np.isfinite(s.coverage)]
    old = {name: scores().get((name, BASELINE)) for name in chosen}
    against = [scores()[name, player].median / s.median for name, s in old.items() if s and (name, player) in scores()]
    return {
        "posteriors": len(mine),
        "failed": sum(bool(s.failed) for s in mine),
        "gain": geometric_mean([s.median for s in mine]),
        "times before": geometric_mean(against),
        "at least": min(against, default=np.nan),
        "worst": min((s.worst for s in ran), default=np.nan),
        "reported / true": float(np.median(typical)) if typical else np.nan,
        "together": float(np.median(together)) if together else np.nan,
        "coverage": float(np.mean(covered)) if covered else np.nan,
        "wrong": sum(s.wrong for s in ran),
        "seconds": float(np.median([s.seconds for s in ran])) if ran else np.nan,
    }


def rows() -> list[dict[str, object]]:
    """A line per posterior and player."""
    found = []
    for (name, player), s in scores().items():
        typical, together = (
            float(np.median(r)) if s.gain.size else np.nan for r in (s.reported_over_true, s.together_over_true)
        )
        found.append({
            "posterior": name, "parameters": make(name).dim, "version": player.version, "method": player.method,
            "sets": s.sets, "gain": s.median, "worst": s.worst, "reported over true": typical, "together": together,
            "coverage": s.coverage, "wrong": s.wrong, "seconds": s.seconds, "failed": s.failed.split(".")[0][:80],
        })  # fmt: skip
    return found


def _number(value: float) -> str:
    if not np.isfinite(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cell(name: str, player: Player) -> str:
    s = scores().get((name, player))
    if s is None:
        return ""
    rough = "~" if s.sets < ENOUGH_SETS else ""
    return "fails" if s.failed else f"{rough}{_number(s.median)} ({_number(s.worst)})"


def _table(head: list[str], body: list[list[str]]) -> str:
    line = ["|" + " | ".join(row) + "|" for row in [head, ["---"] * len(head), *body]]
    return "\n".join(line) + "\n"


def markdown() -> str:
    """Return the tables: every posterior, all of them together, and how the draws were."""
    everyone, chosen = players(), names()
    dims = {name: make(name).dim for name in chosen}
    body = [[name, str(dims[name]), *(_cell(name, player) for player in everyone)] for name in chosen]
    text = "True gain of the median functional, in brackets of the worst one. A tilde: fewer than five sets.\n\n"
    text += _table(["posterior", "parameters", *(player.label for player in everyone)], body)
    groups = {
        f"{LARGE} parameters or more": [name for name in chosen if dims[name] >= LARGE],
        f"at most {SMALL}": [name for name in chosen if dims[name] <= SMALL],
    }
    for title, group in groups.items():
        found = [(player, summary(group, player)) for player in everyone]
        found = [(player, line) for player, line in found if line["posteriors"]]
        if not found:
            continue
        text += f"\nPosteriors with {title}: gain is the geometric mean over them.\n\n"
        text += _table(["method", *found[0][1]], [[p.label, *map(_number, line.values())] for p, line in found])
    return text + "\nThe draws.\n\n" + _table(*_drawn(chosen))


def _drawn(chosen: list[str]) -> tuple[list[str], list[list[str]]]:
    """Head and body of the table of draws."""
    head = ["posterior", "parameters", "sets", "gradients per draw", "R-hat of a set", "divergences", "reference"]
    body = []
    for name in chosen:
        d = described(name)
        numbers = [f"{d['gradients']:.0f}", f"{d['rhat of a set']:.3f}", str(d["divergent"])]
        body.append([name, str(d["dim"]), str(d["sets"]), *numbers, f"{reference(name).draws:,} draws"])
    return head, body


def write() -> None:
    """Write league.csv, put the tables into the page of the docs, and print them."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    found = rows()
    if not found:
        raise ValueError("Nothing has run yet on two sets of a posterior: league.py run comes first.")
    with (RESULTS / "league.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, found[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in found)
    text = markdown()
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
    print(text)
