"""The claims of the paper's section 5.3, and what this library promises there, each with its number and a verdict."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .bnn_figures import REGRESSION, samplers
from .claims import Claim, number, numbers, spread, verdict

if TYPE_CHECKING:
    import pandas

PAPER, OURS = "CNCV, no decay", "last layer"
CONVERGED = "tempered"
# The default may not do harm: on average, and for any single image.
HARM, WORST = 1.02, 1.1
# What it must gain on converged draws, and how often intervals must hold the truth.
GAIN, MOST, COVERED = 0.6, 1.05, (0.92, 0.98)
# When draws have converged: R-hat, effective draws and the agreement of two halves of the chains, image by image.
RHAT, ESS, SHARE = 1.05, 400, 0.95
# A verdict on smooth predictives, and on means that should be zero.
SMOOTH, OFF = {"curve": 0.10, "cars": 0.25}, 0.02
_claim = functools.partial(Claim, "5.3")


def in_section_5_3(table: "pandas.DataFrame", settings: Any) -> Iterator[Claim]:
    for sampler in samplers(table):
        yield from _ratios(table, sampler)
    for sampler in samplers(table):
        yield from _scores(table, sampler)
    yield from _promises(table)


def averaged(rows: "pandas.DataFrame", column: str = "ratio") -> str:
    """Write the paper's average over images, and the robust summary beside it."""
    values = rows[column].to_numpy(dtype=float)
    return f"{number(values.mean())} on average, {spread(values)} over images"


def _ratios(table: "pandas.DataFrame", sampler: str) -> Iterator[Claim]:
    rows = numbers(table, part="ratio", sampler=sampler)
    state = numbers(table, part="sampler", sampler=sampler).iloc[0]
    draws = (
        f"Stein means: largest z {number(state.stein_z)}, beyond 3 in {number(100 * state.stein_share)} %; "
        f"largest score {number(state.score_largest)} times their root mean square."
    )
    for split in dict.fromkeys(rows.split):
        part = rows[(rows.split == split) & (rows.seen == 0)]
        run = f"{sampler}, {int(state.draws)} draws of {int(state.chains)} chains, split {split}; unseen images of 8"
        mine = {method: part[part.method == method] for method in dict.fromkeys(part.method)}
        average = {method: float(each.ratio.mean()) for method, each in mine.items()}
        train = averaged(mine[PAPER], "ratio_train")
        yield _claim(
            "CNCV reduces the variance of the scores of images it was not fitted on",
            run,
            f"ratio on test draws {averaged(mine[PAPER])}; on training draws {train}",
            verdict([average[PAPER] < 1]),
            f"{draws} {100 * state.coin_flips:.0f} % of all scores are below .05 or above .95: nearly a coin flip "
            "in the weights, which a smooth network does not follow; a field with the step in it does.",
        )
        yield _claim(
            "CNCV has a lower ratio than linear control variates",
            run,
            f"linear {averaged(mine['linear'])}; CNCV {averaged(mine[PAPER])}",
            verdict([average[PAPER] < average["linear"]]),
        )
        better = "; ".join(f"{name} {averaged(mine[name])}" for name in ("low rank", OURS) if name in mine)
        yield _claim(
            "(ours) Fields from the network's own last layer reduce it",
            run,
            better,
            verdict([average[OURS] < 1]),
            "Low rank: a potential of 147 units with the same embedding of the image.",
        )


def _scores(table: "pandas.DataFrame", sampler: str) -> Iterator[Claim]:
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
    yield _claim(
        "The distribution of the scores does not change significantly",
        run,
        f"scores: {quartiles}; with CNCV an image moves by {number(moved)} in the median, {outside} leave [0, 1]",
        verdict([moved < 0.1 * wide]),
        "Counted: less than a tenth of the width of the box.",
    )
    yield _claim(
        "With CNCV there are fewer over-confident scores than with the plain BNN and linear control variates",
        run,
        f"images with a score within .1 of 0 or 1: {shares}",
        verdict([sure(PAPER) < sure("plain BNN"), sure(PAPER) < sure("linear")]),
        "Entropies of scores clipped to [0, 1]. Less noise does not move an expectation: where the entropy rises, "
        "it is by noise.",
    )
    yield _claim(
        "A single MLE network is over-confident where the Bayesian one is not",
        run,
        f"images with a score within .1 of 0 or 1: {shares}",
        verdict([sure("single MLE network") > sure("plain BNN")]),
    )


def _promises(table: "pandas.DataFrame") -> Iterator[Claim]:
    for sampler in samplers(table):
        rows = numbers(table, part="default", sampler=sampler)
        most = rows.status.fillna("").value_counts().head(3)
        helped, plain = int(rows.helped.sum()), int((rows.helped == 0).sum())
        yield _claim(
            "(ours) The default of `predictive` does no harm",
            f"{sampler}, chosen and fitted on half of the chains, judged on the others",
            f"ratio {number(rows.ratio.mean())} on average, largest {number(rows.ratio.max())}; used for {helped} "
            f"images, plain means for {plain}",
            verdict([rows.ratio.mean() <= HARM, rows.ratio.max() <= WORST]),
            f"Counted: at most {HARM} on average and {WORST} for any image. "
            + ", ".join(f"{count} x `{name or 'good'}`" for name, count in most.items()),
        )
    if CONVERGED in samplers(table):
        yield from _on_converged_draws(table)
    smooth = numbers(table, part="regression")
    bars = numbers(table, part="regression coverage")
    for name in dict.fromkeys(smooth.data):
        rows = smooth[(smooth.data == name) & (smooth.seen == 0)]
        each = {method: rows[rows.method == method] for method in REGRESSION}
        mine = bars[bars.data == name]
        yield _claim(
            "(ours) Where the predictive is smooth, structure pays",
            f"regression network, {name}, {int(rows.dim.iloc[0])} weights, NUTS; other chains, unseen inputs",
            "; ".join(f"{method} {averaged(part)}" for method, part in each.items())
            + f"; 95 % intervals of {len(mine)} runs of 4 chains cover {100 * mine.covered.mean():.0f} %",
            verdict([each["orbits"].ratio.mean() <= SMOOTH[name], _covers(mine)]),
            f"Counted: at most {SMOOTH[name]} on average, and {_WANTED}.",
        )


def _covers(rows: "pandas.DataFrame") -> bool:
    return bool(COVERED[0] <= rows.covered.mean() <= COVERED[1])


_WANTED = f"intervals that cover {100 * COVERED[0]:.0f} to {100 * COVERED[1]:.0f} %"


def _on_converged_draws(table: "pandas.DataFrame") -> Iterator[Claim]:
    state = numbers(table, part="sampler", sampler=CONVERGED).iloc[0]
    ratios = numbers(table, part="ratio", sampler=CONVERGED)
    last, default = ratios[ratios.method == OURS], numbers(table, part="default", sampler=CONVERGED)
    unseen, runs, z = last[last.seen == 0], numbers(table, part="coverage", sampler=CONVERGED), np.abs(last.z)
    run = f"tempered, {int(state.draws)} draws of {int(state.chains)} chains"
    yield _claim(
        "(ours) The draws have converged, by what is predicted",
        run,
        f"R-hat at most {RHAT} for {100 * state.rhat_share:.0f} % of the images, largest {state.rhat_largest:.3f}; "
        f"effective draws {state.ess:.0f} in the median, at least {state.ess_least:.0f}; two halves of the chains "
        f"agree within two standard errors on {100 * state.halves_agree:.0f} %",
        verdict([state.rhat_share >= SHARE, state.ess_least >= ESS, state.halves_agree >= SHARE]),
        f"{number(state.restarts)} restarts from the prior in a chain; {state.seconds:.0f} s of an accelerator.",
    )
    yield _claim(
        "(ours) On converged draws the default of `predictive` gains",
        f"{run}; chosen and fitted on half of the chains, judged on the others",
        f"ratio {averaged(default)}, largest {number(default.ratio.max())}; used for {int(default.helped.sum())} "
        f"of {len(default)} images; coefficients of other images leave {averaged(unseen)}, at most "
        f"{number(unseen.ratio.max())}",
        verdict([part.ratio.mean() <= GAIN and part.ratio.max() <= MOST for part in (default, unseen)]),
        f"Counted: at most {GAIN} on average and {MOST} for any image, on images asked for and on unseen ones.",
    )
    yield _claim(
        "(ours) Its intervals hold on converged draws",
        f"{run}; {len(runs)} runs of 4 chains, each against all other chains",
        f"95 % intervals cover {100 * runs.covered.mean():.1f} % of the images, "
        f"{100 * runs.covered.min():.0f} to {100 * runs.covered.max():.0f} % run by run; a control variate is used "
        f"for {100 * runs.helped.mean():.0f} %, ratio {number(runs.ratio.mean())}",
        verdict([_covers(runs)]),
        f"Counted: {_WANTED}.",
    )
    yield _claim(
        "(ours) g has mean zero on draws it was not fitted on",
        "tempered, last layer, other chains",
        f"abs z above 3 for {number(100 * float((z > 3).mean()))} % of images, largest {number(z.max())}",
        verdict([float((z > 3).mean()) < OFF]),
    )
    if "pSGLD" not in samplers(table):
        return
    one, two = (numbers(table, part="score", sampler=name, method="plain BNN") for name in (CONVERGED, "pSGLD"))
    if len(one) != len(two):  # a quick run's pSGLD is of another posterior, that of fewer training images
        return
    gap = two.score.to_numpy() - one.score.to_numpy()
    off = np.abs(gap) / np.hypot(one.error.to_numpy(), two.error.to_numpy())
    yield _claim(
        "(ours) Scores by pSGLD, run as in the paper, are those of the posterior",
        f"pSGLD against {run}",
        f"off by {number(np.sqrt(np.mean(gap**2)))} (root mean square over images), {number(np.mean(gap))} on "
        f"average, at most {number(np.abs(gap).max())}; by more than two of its own standard errors and theirs on "
        f"{100 * float((off > 2).mean()):.0f} % of the images; the converged scores' standard error is "
        f"{number(np.median(one.error))} in the median, pSGLD's {number(np.median(two.error))}",
        verdict([float((off <= 2).mean()) >= SHARE]),
        "A root mean square error has bias and noise: the last two numbers tell how much is noise.",
    )
