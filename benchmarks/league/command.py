"""The command line of the league."""

import argparse

from .draws import folder, sample
from .models import MAKERS


def _sample(options: argparse.Namespace) -> None:
    for name in options.names or MAKERS:
        found = sample(name, options.sets, options.patience)
        line = f"{name} {found['dim']} {found['sets']} {found['gradients']:.1f}"
        extra = f"R-hat {found['rhat of a set']:.3f} of a set, {found['rhat of all']:.3f} of all"
        print(f"{line}  ({extra}, {found['divergent']} divergences)", flush=True)
        ready = folder() / "READY.txt"
        known = ready.read_text().splitlines() if ready.exists() else []
        ready.write_text("\n".join([*(old for old in known if old.split()[0] != name), line]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="league.py")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("sample", help="make the draws that are missing")
    command.add_argument("names", nargs="*", metavar="NAME")
    command.add_argument("--sets", type=int, default=10)
    command.add_argument("--patience", type=float, default=120.0, help="seconds that a posterior's chains may run on")
    command.set_defaults(call=_sample)
    options = parser.parse_args()
    options.call(options)
