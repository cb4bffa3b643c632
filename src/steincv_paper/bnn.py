"""The paper's section 5.3: a Bayesian classifier of 6 against 9, and its scores for images of 8, which it never saw.

    steincv reproduce bnn [--quick] [--data FOLDER]

f is the score of "6" at an image of 8, under the posterior of 405 weights. Draws by preconditioned SGLD, the paper's,
and by parallel tempering, which has converged: these are read from a file, a few that this package has unless another
is named (`bnn_converged` makes them, on a GPU; of other digits there are none). Control variates are fitted on half of
the draws and half of the images, and judged on the others: draws split at random as in the paper, in time, or by
chains. Two regression networks show what the same structure does where the predictive is smooth.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .bnn_draws import Problem, approximate, converged, forget
from .bnn_fits import Split, default_rows, ratio_rows, sampler_row, score_rows, tempered_coverage
from .claims import Claim
from .runner import Cell

if TYPE_CHECKING:
    import pandas

TABLES = ("curve", "cars")


@dataclass(frozen=True)
class Settings:
    """Sampler settings are (chains, draws, warm-up, thinning of pSGLD). `converged` is a file of `bnn_converged`."""

    training: int
    seen: int
    unseen: int
    psgld: tuple[int, ...]
    nuts: tuple[int, ...]
    steps: int
    data: str = ""
    seed: int = 0
    converged: str = field(default="", compare=False)


FULL = Settings(200, 100, 100, psgld=(4, 250, 2000, 10), nuts=(16, 400, 400), steps=4000)
QUICK = Settings(100, 30, 30, psgld=(4, 250, 1000, 5), nuts=(8, 200, 250), steps=1000)


def cells(settings: Settings) -> list[Cell]:
    digits = (settings.data, settings.training, settings.seen, settings.unseen)
    whole = (settings.data, FULL.training, FULL.seen, FULL.unseen)  # what there are converged draws of
    made = [
        Cell("tempered", ("tempered", whole, settings.converged, settings.steps, settings.seed), 80),
        Cell("pSGLD", ("pSGLD", digits, settings.psgld, settings.steps, settings.seed), 60 + settings.steps / 20),
    ]
    for name in TABLES:
        cost = settings.nuts[0] * (settings.nuts[1] + settings.nuts[2]) / (100 if name == "curve" else 50)
        made.append(Cell(f"regression-{name}", (name, (), settings.nuts, 0, settings.seed), cost))
    return made


def cell(what: str, digits: Sequence[Any], protocol: Any, steps: int, seed: int) -> list[dict[str, Any]]:
    if what in TABLES:
        from .bnn_regression import regression_rows

        chains, draws, warmup = protocol
        return [{"sampler": "NUTS", "seed": seed, **row} for row in regression_rows(what, chains, draws, warmup, seed)]
    data, training, seen, unseen = digits
    problem = Problem.of(data, training, seen, unseen, seed)
    begin = time.perf_counter()
    if what == "pSGLD":
        chains, draws, warmup, thin = protocol
        samples = approximate(problem, chains, draws, warmup, thin, seed)
        said = {"seconds": time.perf_counter() - begin}
    elif (there := converged(problem, protocol)) is None:
        return []
    else:
        samples, said = there
    rows = [sampler_row(problem, samples, f := problem.values(samples)) | said]
    controlled: dict[str, Any] = {}
    for how in ("random", "time", "chains") if what == "pSGLD" else ("chains",):
        more, scores = ratio_rows(problem, Split.of(samples, f, how, seed), how, steps, seed)
        rows += more
        controlled = controlled or scores  # the first split is the one whose scores are drawn
    rows += default_rows(problem, Split.of(samples, f, "chains", seed), seed)
    rows += score_rows(problem, samples, f, controlled, seed)
    if what == "tempered":
        rows += tempered_coverage(problem, samples, f)
    else:
        forget(*protocol, seed, problem.digest)
    return [{"sampler": what, "seed": seed, **row} for row in rows]


def figures(table: "pandas.DataFrame", settings: Settings) -> dict[str, Any]:
    from .bnn_figures import boxes, entropies, histograms, regression

    return {
        "bnn_scores": boxes(table),
        "bnn_entropy": entropies(table),
        "bnn_ratios": histograms(table),
        "bnn_regression": regression(table),
    }


def claims(table: "pandas.DataFrame", settings: Settings) -> list[Claim]:
    from .bnn_claims import in_section_5_3

    return list(in_section_5_3(table, settings))
