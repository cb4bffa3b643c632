"""The command line of the league."""

import argparse
import importlib
import os
import sys
from pathlib import Path

from . import figure, tables
from .draws import folder, sample
from .methods import FIRST, VARIANTS
from .models import MAKERS
from .runs import run


def _sample(options: argparse.Namespace) -> None:
    for name in options.names or MAKERS:
        found = sample(name, options.sets, options.patience)
        line = f"{name} {found['dim']} {found['sets']} {found['gradients']:.1f}"
        extra = f"R-hat {found['rhat of a set']:.3f} of a set, {found['rhat of all']:.3f} of all"
        print(f"{line}  ({extra}, {found['divergent']} divergences)", flush=True)
        ready = folder() / "READY.txt"
        known = ready.read_text().splitlines() if ready.exists() else []
        ready.write_text("\n".join([*(old for old in known if old.split()[0] != name), line]) + "\n")


def _run(options: argparse.Namespace) -> None:
    if options.baseline_source:  # the other version must be found first by a fresh interpreter
        source = Path(options.baseline_source).resolve()
        found = source / "src" if (source / "src").is_dir() else source
        kept, skip = [], False
        for word in sys.argv:
            if not (skip or word.startswith("--baseline-source")):
                kept.append(word)
            skip = word == "--baseline-source"
        environment = os.environ | {"PYTHONPATH": str(found)}
        at = kept.index("run") + 1
        kept[at:at] = ["--version", options.version or "before"]  # a later one of the user's own counts
        os.execve(sys.executable, [sys.executable, *kept], environment)
    library = importlib.import_module("steincv")
    run(library, options.version or "now", options.names, options.methods, options.sets)


def main() -> None:
    parser = argparse.ArgumentParser(prog="league.py")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("sample", help="make the draws that are missing")
    command.add_argument("names", nargs="*", metavar="NAME")
    command.add_argument("--sets", type=int, default=10)
    command.add_argument("--patience", type=float, default=120.0, help="seconds that a posterior's chains may run on")
    command.set_defaults(call=_sample)
    command = commands.add_parser("run", help="every method on every set, restartable")
    command.add_argument("names", nargs="*", metavar="NAME", help="posteriors; all if none is named")
    command.add_argument("--methods", nargs="+", choices=[*VARIANTS], default=FIRST, metavar="METHOD")
    command.add_argument("--sets", type=int, default=10)
    command.add_argument("--version", help='what the results are kept under; "now" if not given')
    command.add_argument("--baseline-source", metavar="PATH", help='a checkout of an earlier version, kept as "before"')
    command.set_defaults(call=_run)
    command = commands.add_parser("table", help="write results/league/league.csv and the tables of docs/league.md")
    command.set_defaults(call=lambda options: tables.write())
    command = commands.add_parser("figure", help="draw results/league/league.png")
    command.add_argument("--methods", nargs="+", choices=[*VARIANTS], default=FIRST, metavar="METHOD")
    command.set_defaults(call=lambda options: figure.draw(options.methods))
    options = parser.parse_args()
    options.call(options)
