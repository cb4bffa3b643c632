"""The command `steincv`: tables on stdout, progress and errors on stderr.

This module reads the arguments. What a command does stands in `commands/`, one module per command, imported when the
command is run: help and complaints appear at once.
"""

import argparse
import difflib
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import steincv

from .report import terminal
from .report.terminal import clean
from .runtime.validation import InputError

if TYPE_CHECKING:
    from .families.method import Method

# Each word of `--method`: the name of the method, and of the parameter that a number after a colon sets.
METHODS = {
    "auto": ("Auto", None),
    "plain": ("MonteCarlo", None),
    "polynomial": ("Polynomial", "degree"),
    "kernel": ("Kernel", "degree"),
    "neural": ("Neural", None),
    "ncv": ("NCV", None),
    "cncv": ("CNCV", None),
}
DEMO_FIGURE = "demo.png"
METHOD_HELP = "auto (default), plain, polynomial:DEGREE, kernel, ...; joined by + they are stacked"
FILE_HELP = ".npz with draws and scores; .nc or a Zarr folder as nutpie writes them"
# Commands that `steincv_paper` carries out, with options of their own.
PAPER = {
    "evidence": "log evidence of an example model, by thermodynamic integration",
    "reproduce": "the paper's experiments: figures, tables, and whether it holds",
    "bench": "how fast it is on this machine",
}
EXAMPLES = """examples:
  steincv demo
  steincv check draws.npz
  steincv estimate draws.npz
  steincv estimate draws.npz --function 'tau = exp(log_tau)' --function 'mu > 0' --save result.npz
  steincv estimate draws.npz --report report.html
  steincv estimate draws.npz --above mu=0
  steincv summary draws.npz --ci-prob 0.95

exit codes: 0 with an answer, whatever it says; 2 for input that cannot be used; 1 from `check --strict` and
`bench --check` if something was found
"""
EXITS = "Exit code: 0 with an answer, whatever it says, 2 for input that cannot be used."


def program() -> int:
    """Run `main` as the whole of a process.

    Looking for cyclic garbage among a thousand modules takes half a second, and putting them away one by one at the end
    as long again: a command of seconds does neither.
    """
    short = sys.argv[1:2] in (["demo"], ["estimate"], ["summary"], ["check"])
    if short:
        gc.disable()
    code = main()
    if short:
        with suppress(OSError):
            sys.stderr.flush()  # `main` has flushed stdout
        os._exit(code)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 1 if `check --strict` found something, or 2 with one line on stderr for bad input."""
    given, code = sys.argv[1:] if arguments is None else list(arguments), 0
    try:
        if given and given[0] in PAPER:
            from steincv_paper.cli import run as run_paper

            run_paper(given[0], given[1:])
        else:
            options = _parser().parse_args(given)
            code = options.run(options) or 0
        sys.stdout.flush()
    except InputError as error:
        return complain(str(error))
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return complain("stopped.", code=130)
    return code


def complain(message: str, code: int = 2) -> int:
    """Print one line on stderr and return the exit code."""
    print(f"steincv: {clean(' '.join(message.split()))}", file=sys.stderr)
    return code


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments on one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(complain(f"{message}. See {self.prog} --help"))


def _parser() -> Parser:
    """Return the parser of all commands; `run` of what it parses carries the command out."""
    whole = Parser(
        prog="steincv",
        description="Far more accurate expectations from the MCMC draws and gradients you already have.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"steincv {steincv.__version__}")
    whole.set_defaults(run=lambda options: whole.print_help())
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)

    demo = commands.add_parser("demo", help="see what is gained on eight schools, whose draws come with the package")
    demo.add_argument("--out", default=DEMO_FIGURE, metavar="PNG", help="where the figure goes (default: demo.png)")
    demo.add_argument("--force", action="store_true", help="replace that file if it exists; demo.png always is")

    estimate = commands.add_parser("estimate", help="means with error bars from a file of draws and scores")
    estimate.add_argument("file", help=FILE_HELP)
    estimate.add_argument(
        "--function",
        action="append",
        default=[],
        metavar="EXPR",
        help="what to average: a parameter, an array beside the draws, 'exp(log_tau)' or 'tau = exp(log_tau)'; may be "
        "repeated (default: every parameter)",
    )
    for side, sign in (("above", ">"), ("below", "<=")):
        words = f"the probability that NAME {sign} NUMBER instead, NAME a parameter or a --function; may be repeated"
        estimate.add_argument(f"--{side}", action="append", default=[], metavar="NAME=NUMBER", help=words)
    estimate.add_argument("--folds", type=int, metavar="N", help="how many folds to cross-fit on (default: by chain)")
    estimate.add_argument("--stat", default="mean", choices=("mean", "mean,sd"), help="mean (default) or mean,sd")
    estimate.add_argument("--save", metavar="NPZ", help="write the whole result; steincv.Estimate.load reads it")
    estimate.add_argument("--report", metavar="HTML", help="write one page with charts, for any browser, offline")
    estimate.add_argument("--force", action="store_true", help="replace the files of --save and --report if they exist")

    table = commands.add_parser("summary", help="mean, sd, median and interval of every parameter, as ArviZ shows them")
    table.add_argument("file", help=FILE_HELP)
    table.add_argument("--var-names", nargs="+", metavar="NAME", help="only these parameters")
    table.add_argument("--stat-focus", default="mean", choices=("mean", "median"), help="mean (default) or median")
    table.add_argument("--ci-prob", type=float, default=0.9, metavar="P", help="of the interval (default: 0.9)")

    check = commands.add_parser("check", help="are the scores those of the draws, and have the chains mixed?")
    check.add_argument("file", help=FILE_HELP)
    check.add_argument("--strict", action="store_true", help="exit with 1 if any finding is not fine")

    for command in (demo, estimate, table):
        add_method(command)
    for name, command in (("demo", demo), ("estimate", estimate), ("summary", table), ("check", check)):
        command.add_argument("--json", action="store_true", help="print JSON and nothing else")
        command.set_defaults(run=_run, command=name)
        command.epilog = EXITS
    for name, text in PAPER.items():
        commands.add_parser(name, help=text)
    return whole


def add_method(command: argparse.ArgumentParser) -> None:
    """Add the options of every command that fits: the method and the seed."""
    command.add_argument("--method", default="auto", metavar="METHOD", help=METHOD_HELP)
    command.add_argument("--seed", type=int, default=0, metavar="N", help="same seed, same answer (default: 0)")


def _run(options: argparse.Namespace) -> int | None:
    with terminal.working("loading"):
        command = import_module(f".commands.{options.command}", __package__)
    return command.run(options)


# Methods ---------------------------------------------------------------------------------------------


def parse_method(text: str) -> "Method":
    """Return the method of `auto`, `plain`, `polynomial:3` and the like; several joined by `+` are stacked."""
    members = [_one_method(part.strip()) for part in text.split("+")]
    return members[0] if len(members) == 1 else steincv.Stack(members)


def _one_method(text: str) -> "Method":
    name, colon, number = text.partition(":")
    if name not in METHODS:
        close = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"did you mean {close[0]}? Known are" if close else "known are"
        raise InputError(f"there is no method `{text}`; {hint} {', '.join(METHODS)}.")
    cls, parameter = METHODS[name]
    if not colon:
        return getattr(steincv, cls)()
    if parameter is None or not number.isdecimal() or len(number) > 3:
        form = f"{name}:{parameter.upper()}, as in {name}:2" if parameter else name
        raise InputError(f"the method `{text}` cannot be read; write {form}.")
    return getattr(steincv, cls)(**{parameter: int(number)})
