"""What `steincv evidence MODEL` runs: an example model, sampled and integrated."""

import argparse
import sys
from typing import TYPE_CHECKING

from ..runtime.validation import InputError

if TYPE_CHECKING:
    from steincv_paper.models.example import Example

    from ..families.method import Method
    from ..result import Estimate

MODELS = ("regression", "van-der-pol", "goodwin")
# Enough for a table in about a minute; draws a rung and replica, iterations of warm-up, iterations a draw.
DEFAULTS = {"regression": (250, 1000, 10), "van-der-pol": (250, 1000, 10), "goodwin": (500, 5000, 20)}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=", ".join(MODELS))
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


def example(options: argparse.Namespace) -> "Example":
    """The model that the options name."""
    from steincv_paper.models.goodwin import goodwin
    from steincv_paper.models.regression import regression
    from steincv_paper.models.van_der_pol import van_der_pol

    if options.model == "regression":
        return regression(options.dim, seed=options.seed)
    if options.model == "van-der-pol":
        return van_der_pol()
    if options.model == "goodwin":
        return goodwin(options.species, options.observed, options.integrator)
    raise InputError(f"there is no example model `{options.model}`; known are {', '.join(MODELS)}.")


def run(options: argparse.Namespace, found: "Example", method: "Method") -> "Estimate":
    """Sample and integrate, with a progress bar where stderr is a terminal."""
    from .ladder import temperature_ladder
    from .model_evidence import model_evidence
    from .moves import RANDOM_WALK
    from .tempering import THIN

    draws, warmup, thin = DEFAULTS[options.model]
    return model_evidence(
        found.posterior,
        temperature_ladder(options.rungs),
        method,
        options.rule,
        draws=draws if options.draws is None else options.draws,
        warmup=warmup if options.warmup is None else options.warmup,
        thin=thin if options.kernel == RANDOM_WALK else THIN.get(options.kernel),
        replicas=options.replicas,
        kernel=options.kernel,
        seed=options.seed,
        checkpoint=options.checkpoint,
        progress=sys.stderr.isatty(),
    )
