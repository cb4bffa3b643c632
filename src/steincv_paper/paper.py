"""Put results into docs/paper.md: tables of claims, figures, and how they were made.

    python -m steincv_paper.paper reproduced docs/paper.md

For every experiment under `reproduced/` its figures, CSV and summary are copied beside the page, and the part of the
page between `<!-- NAME -->` and `<!-- end NAME -->` is written anew. Numbers and verdicts come from the CSV alone.
"""

import csv
import importlib
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steincv.runtime.arrays import whole_file
from steincv.runtime.validation import InputError, reading

from . import NAMES
from .claims import FAILS, HOLDS, PART, as_markdown
from .runner import Run, conclude


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        for name in update(Path(arguments[0]), Path(arguments[1])):
            print(f"{arguments[1]}: {name}")
    except InputError as error:
        print(f"steincv: {error}", file=sys.stderr)
        return 2
    return 0


def update(results: Path, page: Path) -> list[str]:
    """Write every experiment found under `results` into `page`; return their names."""
    found = [name for name in NAMES if (results / name / "results.csv").exists()]
    if not found:
        raise InputError(f"{results}: holds no results; there should be {results / NAMES[0] / 'results.csv'}.")
    with reading(page):
        text = page.read_text(encoding="utf-8")
    for name in found:
        target = page.with_suffix("") / name
        target.mkdir(parents=True, exist_ok=True)
        for file in ("results.csv", "summary.json"):
            if (results / name).resolve() != target.resolve():
                shutil.copyfile(results / name / file, target / file)
        part = re.compile(f"<!-- {name} -->.*<!-- end {name} -->", re.DOTALL)
        if len(part.findall(text)) != 1:
            raise InputError(f"{page}: has no place for {name}, between <!-- {name} --> and <!-- end {name} -->.")
        before, after = part.split(text)
        text = f"{before}<!-- {name} -->\n{_section(name, target, page.parent)}<!-- end {name} -->{after}"
    if (mark := re.compile("<!-- overview -->.*<!-- end overview -->", re.DOTALL)).search(text):
        text = mark.sub(lambda _: overview(text), text)
    with whole_file(page, force=True) as out:
        out.write(text.encode())
    return found


def overview(page: str) -> str:
    """Return how many claims hold, counted from the tables of the page: the paper's, and those of this library."""
    rows = re.findall(r"^\| ([\d.]+) \| (.*?) \|.*\| \*\*([a-z ]+)\*\* \|", page, re.MULTILINE)
    counted = [(section, claim.startswith("(ours)"), verdict) for section, claim, verdict in rows]
    lines = ["| § | claims | hold | hold in part | do not hold |", "|---|---|---|---|---|"]
    for ours, name in ((False, "the paper's"), (True, "ours")):
        mine = [(section, verdict) for section, own, verdict in counted if own is ours]
        for section in [*dict.fromkeys(section for section, _ in mine), "all"]:
            here = [verdict for s, verdict in mine if section in (s, "all")]
            counts = " | ".join(str(here.count(kind)) for kind in (HOLDS, PART, FAILS))
            lines.append(f"| {section} | {name}: {len(here)} | {counts} |")
    return "\n".join(["<!-- overview -->", *lines, "<!-- end overview -->"])


def _section(name: str, folder: Path, relative_to: Path) -> str:
    import pandas

    experiment: Any = importlib.import_module(f".{name}", __package__)
    with reading(folder / "summary.json"):
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        given = {key: tuple(v) if isinstance(v, list) else v for key, v in summary["settings"].items()}
        settings = type(experiment.FULL)(**given)
    with reading(folder / "results.csv"), open(folder / "results.csv", newline="", encoding="utf-8") as file:
        table = pandas.DataFrame([{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)])
    run: Run = conclude(experiment, settings, table, folder)
    versions = ", ".join(f"{key} {value}" for key, value in summary["versions"].items())
    kind = "The full run" if settings == experiment.FULL else "**Not the full run, a smaller one**"
    head = (
        f"{kind}: {len(table)} rows, seeds {min(summary['seeds'])} to {max(summary['seeds'])}, "
        f"{summary['cpu_seconds'] / 60:.0f} minutes of one core; {versions}. "
        f"[Table]({(folder / 'results.csv').relative_to(relative_to)}), "
        f"[settings]({(folder / 'summary.json').relative_to(relative_to)}).\n"
    )
    figures = [
        f"![{file.removesuffix('.png').replace('_', ' ')}]({(folder / file).relative_to(relative_to)})\n"
        for file in run.files
        if file.endswith(".png")
    ]
    return "\n".join([head, as_markdown(run.claims), *figures])


def _value(text: str) -> int | float | str:
    """Read a number with every digit, which pandas does not promise in all of its versions."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
