"""`steincv estimate`: means with error bars from a file of draws and scores."""

import argparse
import os
import re
import time
from collections.abc import Sequence

import numpy as np

from ..cli import parse_method
from ..estimating import estimate
from ..report import printing, terminal
from ..runtime.arrays import refuse_target
from ..runtime.validation import InputError
from ..samples.expressions import evaluate
from ..samples.files import read_samples
from ..samples.samples import Samples
from ..samples.values import values_of


def run(options: argparse.Namespace) -> None:
    """Read the draws, estimate, and print, save and report what was found."""
    method = parse_method(options.method)
    with terminal.working(f"reading {options.file}"):
        samples = read_samples(options.file)
    for path in filter(None, (options.save, options.report)):
        refuse_target(path, force=options.force, inputs=[options.file])
    if options.report and options.save and os.path.realpath(options.report) == os.path.realpath(options.save):
        raise InputError(f"--save and --report are the same file, {options.save}. Give them two names.")
    f = functions(options.function, samples)
    with terminal.working("fitting control variates"):
        start = time.perf_counter()
        result = estimate(samples, f, method, stat=options.stat.split(","), seed=options.seed, folds=options.folds)
        seconds = time.perf_counter() - start
    if options.save:
        result.save(options.save, force=options.force)
    if options.report:
        with terminal.working("writing the report"):
            result.report(options.report, force=options.force)
    if options.json:
        printing.print_json(printing.as_json(result, samples, seconds))
        return
    terminal.say(f"{options.file}: {samples!r}")
    printing.show(result, seconds)
    if options.save:
        terminal.say(f"Saved: {options.save}")
    if options.report:
        terminal.say(f"Report: {options.report}")


def functions(texts: Sequence[str], samples: Samples) -> dict[str, np.ndarray] | None:
    """Return the values of every `--function` at the draws, by its text or, in `name = expression`, by its name."""
    if not texts:
        return None
    columns = {name: samples.draws[..., i] for i, name in enumerate(samples.names)}
    if samples.parameters is not None:  # as the user knows them: Stan calls tau and its logarithm by one name
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
