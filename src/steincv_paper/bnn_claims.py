"""The claims of the paper's section 5.3, and what this library promises there, each with its number and a verdict."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .bnn_figures import numbers, samplers
from .claims import Claim, number, spread, verdict

if TYPE_CHECKING:
    import pandas

PAPER, OURS = "CNCV, no decay", "last layer"
# The default may not do harm: on average, and for any single image.
HARM, WORST = 1.02, 1.1
# A verdict on a smooth predictive, and on means that should be zero.
SMOOTH, OFF = 0.45, 0.02


def in_section_5_3(table: "pandas.DataFrame", settings: Any) -> list[Claim]:
    found: list[Claim] = []
    for sampler in samplers(table):
        found += _ratios(table, sampler)
    for sampler in samplers(table):
        found += _scores(table, sampler)
    return found + _promises(table)


def _claim(claim: str, run: str, found: str, held: str, why: str = "") -> Claim:
    return Claim("5.3", claim, run, found, held, why)


def averaged(rows: "pandas.DataFrame", column: str = "ratio") -> str:
    """Write the paper's average over images, and the robust summary beside it."""
    values = rows[column].to_numpy(dtype=float)
    return f"{number(values.mean())} on average, {spread(values)} over images"


def _ratios(table: "pandas.DataFrame", sampler: str) -> list[Claim]:
    rows = numbers(table, part="ratio", sampler=sampler)
    state = numbers(table, part="sampler", sampler=sampler).iloc[0]
    draws = (
        f"Stein means: largest z {number(state.stein_z)}, beyond 3 in {number(100 * state.stein_share)} %; "
        f"largest score {number(state.score_largest)} times their root mean square."
    )
    claims = []
    for split in dict.fromkeys(rows.split):
        part = rows[(rows.split == split) & (rows.seen == 0)]
        run = f"{sampler}, {int(state.draws)} draws of {int(state.chains)} chains, split {split}; unseen images of 8"
        mine = {method: part[part.method == method] for method in dict.fromkeys(part.method)}
        average = {method: float(each.ratio.mean()) for method, each in mine.items()}
        train = averaged(mine[PAPER], "ratio_train")
        claims.append(
            _claim(
                "CNCV reduces the variance of the scores of images it was not fitted on",
                run,
                f"ratio on test draws {averaged(mine[PAPER])}; on training draws {train}",
                verdict([average[PAPER] < 1]),
                f"{draws} {100 * state.coin_flips:.0f} % of all scores are below .05 or above .95: nearly a coin flip "
                "in the weights, which a smooth network does not follow; a field with the step in it does.",
            )
        )
        claims.append(
            _claim(
                "CNCV has a lower ratio than linear control variates",
                run,
                f"linear {averaged(mine['linear'])}; CNCV {averaged(mine[PAPER])}",
                verdict([average[PAPER] < average["linear"]]),
            )
        )
        better = "; ".join(f"{name} {averaged(mine[name])}" for name in ("low rank", OURS))
        claims.append(
            _claim(
                "(ours) Fields from the network's own last layer reduce it",
                run,
                better,
                verdict([average[OURS] < 1]),
                "Low rank: a potential of 147 units with the same embedding of the image.",
            )
        )
    return claims


def _scores(table: "pandas.DataFrame", sampler: str) -> list[Claim]:
    rows = numbers(table, part="score", sampler=sampler)
    each = {name: rows[rows.method == name] for name in dict.fromkeys(rows.method)}
    run = f"{sampler}, {each['plain BNN'].image.nunique()} images of 8"
    names = ("plain BNN", "linear", PAPER, "predictive()")

    def sure(name: str) -> float:
        """Return the share of images with a score within .1 of 0 or 1."""
        return float((each[name].entropy < 0.325).mean())

    quartiles = "; ".join(f"{name} {spread(each[name].score)}" for name in names)
    moved = float(np.median(np.abs(each[PAPER].score.to_numpy() - each["plain BNN"].score.to_numpy())))
    wide = float(np.subtract(*np.quantile(each["plain BNN"].score, [0.75, 0.25])))
    outside = int(each[PAPER].outside.sum())
    shares = "; ".join(f"{name} {100 * sure(name):.0f} %" for name in (*names, "single MLE network"))
    return [
        _claim(
            "The distribution of the scores does not change significantly",
            run,
            f"scores: {quartiles}; with CNCV an image moves by {number(moved)} in the median, {outside} leave [0, 1]",
            verdict([moved < 0.1 * wide]),
            "Counted: less than a tenth of the width of the box.",
        ),
        _claim(
            "With CNCV there are fewer over-confident scores than with the plain BNN and linear control variates",
            run,
            f"images with a score within .1 of 0 or 1: {shares}",
            verdict([sure(PAPER) < sure("plain BNN"), sure(PAPER) < sure("linear")]),
            "Entropies of scores clipped to [0, 1]. Less noise does not move an expectation: where the entropy rises, "
            "it is by noise.",
        ),
        _claim(
            "A single MLE network is over-confident where the Bayesian one is not",
            run,
            f"images with a score within .1 of 0 or 1: {shares}",
            verdict([sure("single MLE network") > sure("plain BNN")]),
        ),
    ]


def _promises(table: "pandas.DataFrame") -> list[Claim]:
    found = []
    for sampler in samplers(table):
        rows = numbers(table, part="default", sampler=sampler)
        helped, plain = int(rows.helped.sum()), int((rows.helped == 0).sum())
        found.append(
            _claim(
                "(ours) The default of `predictive` does no harm",
                f"{sampler}, chosen and fitted on half of the chains, judged on the others",
                f"ratio {number(rows.ratio.mean())} on average, largest {number(rows.ratio.max())}; used for {helped} "
                f"images, plain means for {plain}",
                verdict([rows.ratio.mean() <= HARM, rows.ratio.max() <= WORST]),
                f"Counted: at most {HARM} on average and {WORST} for any image. "
                + ", ".join(f"{count} x `{name}`" for name, count in rows.status.value_counts().head(3).items()),
            )
        )
    exact = numbers(table, part="ratio", sampler="HMC")
    if len(exact):
        z = np.abs(exact[exact.method == OURS].z)
        found.append(
            _claim(
                "(ours) g has mean zero on draws it was not fitted on",
                "HMC, last layer, other chains",
                f"abs z above 3 for {number(100 * float((z > 3).mean()))} % of images, largest {number(z.max())}",
                verdict([float((z > 3).mean()) < OFF]),
            )
        )
    smooth = numbers(table, part="regression")
    bars = numbers(table, part="regression coverage")
    for name in dict.fromkeys(smooth.data):
        rows = smooth[(smooth.data == name) & (smooth.seen == 0)]
        each = {method: rows[rows.method == method] for method in ("linear", "last layer", "Gauss-Newton")}
        mine = bars[bars.data == name]
        found.append(
            _claim(
                "(ours) Where the predictive is smooth, structure pays",
                f"regression network, {name}, {int(rows.dim.iloc[0])} weights, NUTS; other chains, unseen inputs",
                "; ".join(f"{method} {averaged(part)}" for method, part in each.items())
                + f"; 95 % intervals of {len(mine)} runs of 4 chains cover {100 * mine.covered.mean():.0f} %",
                verdict([each["Gauss-Newton"].ratio.mean() <= SMOOTH]),
                f"Counted: at most {SMOOTH} on average.",
            )
        )
    return found
