"""`steincv demo`: what is gained on eight schools, whose draws come with the package."""

import argparse
import time
from importlib.resources import as_file, files

from ..cli import DEMO_FIGURE, parse_method
from ..demo import eight_schools_parameters
from ..estimating import estimate
from ..report import printing, terminal
from ..report.figures import demo_figure
from ..runtime.arrays import refuse_target
from ..samples.files import read_samples

# What drawing and printing need, loaded while the fits run.
LATER = ("scipy.optimize", "matplotlib.figure", "matplotlib.backends.backend_agg", "rich.table")


def run(options: argparse.Namespace) -> None:
    """Estimate the parameters of eight schools, print the table and draw the figure."""
    method = parse_method(options.method)
    draws = files("steincv") / "data" / "eight_schools.npz"
    refuse_target(options.out, force=options.force or options.out == DEMO_FIGURE, inputs=[str(draws)])
    terminal.load_meanwhile(*LATER)
    with as_file(draws) as file:
        samples = read_samples(file)
    with terminal.working("fitting control variates"):
        start = time.perf_counter()
        result = estimate(samples, eight_schools_parameters(samples.draws), method, seed=options.seed)
        seconds = time.perf_counter() - start
    with terminal.working("drawing"):
        demo_figure(result, options.out)
    if options.json:
        printing.print_json(printing.as_json(result, samples, seconds) | {"figure": str(options.out)})
        return
    terminal.say(f"Eight schools: {samples.chains} chains of {samples.draws.shape[1]} NUTS draws, with their scores.")
    printing.show(result, seconds)
    terminal.say(f"Figure: {options.out}")
