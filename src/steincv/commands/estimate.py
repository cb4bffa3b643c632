"""`steincv estimate`: means with error bars from a file of draws and scores."""

import argparse
import os
import re
import time
from collections.abc import Mapping, Sequence

import numpy as np

from ..cli import parse_method
from ..distribution import probability
from ..estimating import estimate
from ..report import printing, terminal
from ..runtime.arrays import array_names, read_arrays, refuse_target
from ..runtime.validation import InputError
from ..samples.expressions import evaluate
from ..samples.files import read_samples
from ..samples.samples import Samples, finite_array
from ..samples.values import join, values_of


def run(options: argparse.Namespace) -> None:
    """Read the draws, estimate, and print, save and report what was found."""
    method = parse_method(options.method)
    with terminal.working(f"reading {options.file}"):
        samples = read_samples(options.file)
    for path in filter(None, (options.save, options.report)):
        refuse_target(path, force=options.force, inputs=[options.file])
    if options.report and options.save and os.path.realpath(options.report) == os.path.realpath(options.save):
        raise InputError(f"--save and --report are the same file, {options.save}. Give them two names.")
    f = functions(options.function, samples, beside(options.file, options.function, samples))
    seed, folds = options.seed, options.folds
    above, below = thresholds("above", options.above), thresholds("below", options.below)
    if (above or below) and options.stat != "mean":
        raise InputError(f"--above and --below ask for probabilities, which have no --stat {options.stat}.")
    with terminal.working("fitting control variates"):
        start = time.perf_counter()
        if above or below:
            result = probability(samples, f, method, above=above or None, below=below or None, seed=seed, folds=folds)
        else:
            result = estimate(samples, f, method, stat=options.stat.split(","), seed=seed, folds=folds)
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


def thresholds(side: str, texts: Sequence[str]) -> dict[str, list[float]]:
    """Return the numbers of every `NAME=NUMBER`, by the name."""
    found: dict[str, list[float]] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            found.setdefault(name.strip(), []).append(float(number))
        except ValueError:
            equals = ""
        if not (equals and name.strip()):
            raise InputError(f"--{side} {text!r} is not NAME=NUMBER, as in --{side} mu=0.")
    return found


def beside(file: str, texts: Sequence[str], samples: Samples) -> dict[str, np.ndarray]:
    """Return arrays with a value at every draw that an .npz has beside the draws, if a text may speak of them."""
    if not (texts and file.endswith(".npz")):
        return {}
    others = [name for name in array_names(file) if name not in ("draws", "scores", "names")]
    found = read_arrays(file, [], [name for name in others if any(name in text for text in texts)])
    grid = samples.draws.shape[:2]
    if grid[0] == 1:
        found = {name: array[None] if array.shape[:1] == grid[1:] else array for name, array in found.items()}
    entries = {name: array for name, array in found.items() if array.shape[:2] == grid and array.dtype.kind in "fiub"}
    if not entries:
        return {}
    known = join(entries)
    return {label: known.array[..., i] for i, label in enumerate(known.labels)}


def functions(
    texts: Sequence[str], samples: Samples, more: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray] | None:
    """Return the values of every `--function` at the draws, by its text or, in `name = expression`, by its name.

    What is a name as it stands, whatever characters it has, is that parameter, or that one of `more` arrays.
    """
    if not texts:
        return None
    columns = {**(more or {}), **{name: samples.draws[..., i] for i, name in enumerate(samples.names)}}
    if samples.parameters is not None:  # as the user knows them: Stan calls tau and its logarithm by one name
        known = values_of(None, samples)
        columns |= {label: known.array[..., i] for i, label in enumerate(known.labels)}
    values: dict[str, np.ndarray] = {}
    for text in texts:
        label = expression = text.strip()
        if label not in columns and (named := re.fullmatch(r"([^\W\d]\w*)\s*=(?!=)(.*)", label, re.DOTALL)):
            label, expression = named[1], named[2].strip()
        if label in values:
            raise InputError(f"two functions are called `{label}`. Name them: --function 'name = expression'.")
        asked = columns.get(expression)
        values[label] = evaluate(expression, columns) if asked is None else finite_array(expression, asked)
    return values
