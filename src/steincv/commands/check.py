"""`steincv check`: whether the scores are those of the draws, and whether the chains have mixed."""

import argparse
from collections.abc import Sequence

from ..report import printing, terminal
from ..report.check import Check, check, check_table, findings
from ..report.text import stein_table
from ..samples.files import read_samples


def run(options: argparse.Namespace) -> int:
    """Check the draws of a file and print what was found; return 1 if that is not fine and options are strict."""
    with terminal.working(f"checking {options.file}"):
        samples = read_samples(options.file)
        found = check(samples)
    sentences = findings(found)
    code = int(options.strict and not all(fine for fine, _ in sentences))
    if options.json:
        printing.print_json(as_json(found, sentences))
        return code
    terminal.say(f"{options.file}: {samples!r}")
    console = terminal.console()
    console.print(stein_table(found.stein, most=5))
    console.print(check_table(found))
    for fine, text in sentences:
        terminal.say(text, bullet="ok" if fine else "!!", style="green" if fine else "bold red")
    return code


def as_json(found: Check, sentences: Sequence[tuple[bool, str]]) -> dict[str, object]:
    """Return everything that the tables show, for all coordinates and Stein means, the worst first."""
    coordinates = [
        {
            "name": found.names[k],
            "score_z": found.score_z[k],
            "product_z": found.product_z[k],
            "ess": found.ess[k],
            "rhat": found.rhat[k],
            "tail_index": found.tail[k],
            "repeated_draws": found.repeats[k],
        }
        for k in found.order
    ]
    stein = [
        {"label": label, "mean": mean, "z": z}
        for label, mean, z in zip(found.stein.labels, found.stein.mean, found.stein.z, strict=True)
    ]
    return {
        "ok": all(fine for fine, _ in sentences),
        "findings": [{"ok": fine, "message": text} for fine, text in sentences],
        "coordinates": coordinates,
        "stein_means": sorted(stein, key=lambda row: -abs(row["z"])),
        "mismatched_scores": found.mismatched,
    }
