"""`steincv evidence MODEL`: an example model, sampled at a ladder of temperatures and integrated."""

import argparse
import sys
import time
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from steincv.cli import parse_method
from steincv.evidence.ladder import temperature_ladder
from steincv.evidence.moves import RANDOM_WALK
from steincv.evidence.thermodynamic import model_evidence
from steincv.families.method import Method
from steincv.report import printing, terminal
from steincv.report.terminal import clean
from steincv.report.text import plus_minus, times
from steincv.result import Estimate
from steincv.runtime.arrays import refuse_target
from steincv.runtime.validation import InputError

from .evidence_figure import plot_evidence
from .models import Example
from .models.goodwin import goodwin
from .models.regression import regression
from .models.van_der_pol import van_der_pol


class Effort(NamedTuple):
    """How long a model is sampled: draws per rung and replica, iterations of warm-up, iterations per draw."""

    draws: int
    warmup: int
    thin: int


# Enough for a table in about a minute on two cores.
EFFORTS = {"regression": Effort(250, 1000, 10), "van-der-pol": Effort(250, 1000, 10), "goodwin": Effort(500, 5000, 20)}


def command(options: argparse.Namespace) -> None:
    """Integrate the model that the options name, and print what was found."""
    method = parse_method(options.method)
    if options.out:
        refuse_target(options.out, force=options.force, inputs=filter(None, [options.checkpoint]))
    model = example(options)
    start = time.perf_counter()
    result = integrate(options, model, method)
    seconds = time.perf_counter() - start
    if options.out:
        plot_evidence(result, options.out, model.exact)
    if options.json:
        data = {"model": model.title, "exact": model.exact, "seconds": seconds, "info": result.info}
        printing.print_json(data | printing.outputs(result)[0])
        return
    terminal.say(f"{model.title}.")
    terminal.console().print(rung_table(result))
    for sentence in sentences(result, model.exact):
        terminal.say(sentence)
    for warning in result.warnings():
        terminal.say(warning, bullet="-")
    terminal.say(f"Took {seconds:.0f} s." + (f" Figure: {options.out}" if options.out else ""))


def example(options: argparse.Namespace) -> Example:
    """Return the model that the options name."""
    if options.model == "regression":
        return regression(options.dim, seed=options.seed)
    if options.model == "van-der-pol":
        return van_der_pol()
    if options.model == "goodwin":
        return goodwin(options.species, options.observed, options.integrator)
    raise InputError(f"there is no example model `{options.model}`; known are {', '.join(EFFORTS)}.")


def integrate(options: argparse.Namespace, model: Example, method: Method) -> Estimate:
    """Sample and integrate, with a progress bar where stderr is a terminal."""
    effort = EFFORTS[options.model]
    return model_evidence(
        model.posterior,
        temperature_ladder(options.rungs),
        method,
        options.rule,
        draws=effort.draws if options.draws is None else options.draws,
        warmup=effort.warmup if options.warmup is None else options.warmup,
        thin=effort.thin if options.kernel == RANDOM_WALK else None,
        replicas=options.replicas,
        kernel=options.kernel,
        seed=options.seed,
        checkpoint=options.checkpoint,
        progress=sys.stderr.isatty(),
    )


# What is printed --------------------------------------------------------------------------------------


def rung_table(result: Estimate) -> Table:
    """Return a row for every rung: the mean log likelihood, plain and controlled, and what was gained."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in ("rung", "t", "plain ± mcse", "controlled ± mcse", "gain", "method", "status"):
        table.add_column(name, justify="left" if name in ("method", "status") else "right")
    for row in result.info["rungs"]:
        cells = [str(row["rung"]), f"{row['temperature']:.3g}", plus_minus(row["plain_mean"], row["plain_error"])]
        if row["bridged"]:
            cells += ["no usable mean", "", "bridged"]
        else:
            ratio = row["variance_ratio"]
            cells += [plus_minus(row["mean"], row["error"]), times(1 / ratio) if ratio > 0 else "> 1e5×"]
            cells.append("plain" if row["method"] == "plain" else clean(row["method"].partition("(")[0], 20))
        cells.append(clean(", ".join(row["status"]), 40))
        table.add_row(*(Text(cell) for cell in cells))
    return table


def sentences(result: Estimate, exact: float | None = None) -> list[str]:
    """Return the log evidence with its error bars, the other rules, and what tempering reports."""
    info = result.info
    low, high = result.interval(0.95)
    plain = result.plain
    found = [
        f"Log evidence: {plus_minus(float(result.mean), float(result.standard_error))} (95 % interval "
        f"{_digits(low, result)} to {_digits(high, result)}); without control variates "
        f"{plus_minus(float(plain.mean), float(plain.standard_error))}."
    ]
    if exact is not None:
        off = (float(result.mean) - exact) / max(float(result.standard_error), 1e-300)
        found.append(f"Exact: {exact:.8g}, {abs(off):.1f} standard errors away.")
    found.append(
        f"Of the standard error, {info['statistical_error']:.2g} is statistical and {info['discretisation_error']:.2g} "
        f"what the spacing of the rungs leaves."
    )
    rules = ", ".join(
        f"{name} {_digits(value['controlled'], result)}" for name, value in info["values_by_rule"].items()
    )
    found.append(f"By rule, controlled: {rules}.")
    if info["refitted"]:
        found.append(f"Rungs given all of Auto(), since they carry the error: {', '.join(map(str, info['refitted']))}.")
    if "tempering" in info:
        found.append(_tempering(info["tempering"]))
    return found


def _digits(value: float, result: Estimate) -> str:
    """Round to as many digits as the error of the result has meaning for."""
    return plus_minus(float(value), float(result.standard_error)).partition(" ±")[0].strip("(")


def _tempering(t: dict[str, Any]) -> str:
    lost = sum(t["not_finite"])
    return (
        f"Tempering by {t['kernel']}: {t['iterations']} iterations in {t['seconds']:.0f} s, swap rates "
        f"{min(t['swaps']):.2g} to {max(t['swaps']):.2g}, {sum(t['round_trips'])} round trips, worst R-hat "
        f"{max(t['rhat']):.3f}, least ESS {min(t['ess']):.0f}; {lost} proposals had no finite likelihood."
    )
