"""`steincv evidence MODEL`: an example model, sampled at a ladder of temperatures and integrated."""

import argparse
import sys
import time
from typing import NamedTuple

from steincv.cli import parse_method
from steincv.evidence.ladder import temperature_ladder
from steincv.evidence.model_evidence import model_evidence
from steincv.evidence.moves import RANDOM_WALK
from steincv.families.method import Method
from steincv.report import printing, terminal
from steincv.result import Estimate
from steincv.runtime.arrays import refuse_target
from steincv.runtime.validation import InputError

from .evidence_figure import plot_evidence
from .evidence_text import rung_table, sentences
from .models.example import Example
from .models.goodwin import goodwin
from .models.regression import regression
from .models.van_der_pol import van_der_pol


class Effort(NamedTuple):
    """How long a model is sampled: draws per rung and replica, iterations of warm-up, iterations per draw."""

    draws: int
    warmup: int
    thin: int


# Enough for a table in about a minute on two cores.
EFFORTS = {
    "regression": Effort(250, 1000, 10),
    "van-der-pol": Effort(250, 1000, 10),
    "goodwin": Effort(500, 5000, 20),
}


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
