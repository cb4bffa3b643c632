"""The claims of the paper's section 4, and of the part of its section 5.1 that is about the two constraints."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .claims import FAILS, HOLDS, PART, Claim, better, number, paired, spread, verdict
from .constraints import DIM, LAMBDA, MANY, SCALE, SHORT, SHOWN, main_rows, of, shown_rows, swept_rows
from .problem import sine_deviation

if TYPE_CHECKING:
    import pandas

# A mean is off if it is further from mu0 than this many of its own standard errors, in any replication.
OFF = 3.0
# What counts as an improvement by lambda: more than a tenth.
TENTH = 0.9
# The mu0 whose numbers are written out; verdicts look at all of them.
WRITTEN = (0.0, 3.0, 5.0, 7.0, 9.0)
BOTH = "CNCV, no decay"


def in_section_4(table: "pandas.DataFrame", settings: Any) -> Iterator[Claim]:
    claim = functools.partial(Claim, "4")
    main, shown = main_rows(table), shown_rows(table)
    large = f"ratio_{settings.test[-1]}"
    ncv, plain = of(shown, "NCV", "zero"), of(shown, "plain f", "zero")
    square = _mean_square(ncv, settings.n).to_numpy() / _mean_square(plain, settings.n).to_numpy()
    z = _z(ncv, settings.test[-1])
    runs = f"n = {settings.n}, {settings.replications} replications"
    here = f"mu0 = {SHOWN:g}, {runs}"
    centred = main[main.method.isin(("centre only", BOTH)) & (main.start == "zero")]
    off = (centred.centre - centred.mu0).abs()
    error = SCALE * sine_deviation(DIM) / np.sqrt(settings.n)
    far = off.groupby(centred.mu0).median()
    learned = main[main.method.isin(("centre only", BOTH))]
    kept = _mean_square(learned, settings.n) >= learned.mu0**2
    both, early = main[main.method == BOTH], table[table.part == "short training"]
    many = table[table.part == "many draws"]
    slow = paired(early, "ratio_train", "mean", "zero", ["mu0"], "start")
    from_mean = paired(both, large, "mean", "zero", ["mu0"], "start")
    from_pretraining = paired(both, large, "pretrain", "zero", ["mu0"], "start")
    strategies = paired(both, large, "pretrain", "mean", ["mu0"], "start")
    strategies_many = paired(many, large, "mean", "pretrain", ["mu0"], "start")
    yield claim(
        "With few draws, mean (f + g)² reaches its minimum 0 by point-wise fitting of g = -f",
        f"NCV, {here}",
        f"mean (f + g)² / mean f² on the training draws: {spread(square)}",
        HOLDS if np.median(square) < 1e-2 else FAILS,
        "Counted: less than .01 in the median.",
    )
    yield claim(
        "This violates that the population mean of g is zero",
        f"NCV, {here}; {settings.test[-1]:,} test draws",
        f"mean of g on training draws {spread(ncv.mean_train - SHOWN)}; on fresh draws it is 0 within its standard "
        f"error: z from {number(z.min())} to {number(z.max())}",
        HOLDS if (z.abs() > OFF).all() else PART if (z.abs() > OFF).any() else FAILS,
        "E g = 0 for any weights, by Stein's identity. What is off zero is the mean over the training draws.",
    )
    yield claim(
        "Minimising it directly overfits severely",
        f"NCV, {here}; {settings.test[-1]:,} test draws",
        f"ratio on training draws {spread(ncv.ratio_train)}, on fresh ones {spread(ncv[large])}",
        verdict([float(ncv.ratio_train.median()) < 0.1, float(ncv[large].median()) > 1]),
        "Counted: below .1 on the training draws and above 1 on fresh ones, in the median.",
    )
    yield claim(
        "A learned centre mu is close to mu0",
        f"centre only and {BOTH}, mu started at 0, every mu0; {runs}",
        f"distance from mu0: {_by_mean(off, centred)}; the plain mean has standard error {number(error)}",
        verdict(far <= 2 * error),
        "Counted: within two standard errors of the plain mean, in the median, at every mu0. It is learned from "
        "the same draws as that mean, and started at 0 it is left behind when the network fits faster than it.",
    )
    yield claim(
        "Centring assures mean (f + g)² ≥ mu0² on the training draws",
        f"centre only and {BOTH}, every start of mu, every mu0; {runs}",
        f"true in {number(100 * float(kept.mean()))} % of {len(kept)} fits",
        verdict([bool(kept.all()), bool(kept.mean() > 0.5)]),
        "Counted: in every fit; in part: in more than half. On the training draws f + g is nearly mu, so it is "
        "true where mu exceeds mu0 and false where not.",
    )
    yield claim(
        "A random start of mu slows the training down",
        f"{BOTH}, mu started at 0 (for a random start) and at the mean of f; {here}, {SHORT} steps",
        f"ratio on training draws, mean over 0: {_each(slow)}",
        verdict(better(slow)),
    )
    yield claim(
        "... and causes overfitting, so that starting at the mean of f is better",
        f"{BOTH}, every mu0; {runs}, {settings.test[-1]:,} test draws",
        f"test ratio, mean over 0: {_each(from_mean)}",
        verdict(better(from_mean)),
        "Counted: at every mu0. 0 is a bad start where it is far from mu0 in standard deviations of f.",
    )
    yield claim(
        "... and so is a pre-trained start",
        f"{BOTH}, every mu0, pre-trained with lambda = 1; {runs}, {settings.test[-1]:,} test draws",
        f"test ratio, pre-trained over 0: {_each(from_pretraining)}",
        verdict(better(from_pretraining)),
    )
    yield claim(
        "For few draws, or V[f] large against E f, pre-training is to be preferred to the mean, for many the mean",
        f"{BOTH}; every mu0 at n = {settings.n}, mu0 = {SHOWN:g} at n = {MANY}, {settings.replications} replications",
        f"n = {settings.n}, pre-trained over mean: {_each(strategies)}; "
        f"n = {MANY}, mean over pre-trained: {_each(strategies_many)}",
        verdict([*better(strategies), *better(strategies_many)]),
        "With a large lambda g is small, and mu then is the mean of f: the two starts are nearly the same number.",
    )


def in_section_5(table: "pandas.DataFrame", settings: Any) -> Iterator[Claim]:
    claim = functools.partial(Claim, "5.1")
    main, shown, swept = main_rows(table), shown_rows(table), swept_rows(table)
    zero = main[main.start == "zero"]
    large, size = f"ratio_{settings.test[-1]}", f"{settings.test[-1]:,} test draws"
    runs = f"n = {settings.n}, {settings.replications} replications, {size}"
    here, every = f"mu0 = {SHOWN:g}, mu started at 0, {runs}", f"every mu0, mu started at 0, {runs}"
    deviation = sine_deviation(DIM, SCALE)
    most = max(settings.means)
    medians = {m: of(zero, m, "zero").groupby("mu0")[large].median() for m in ("NCV", "penalty only")}
    overfit = of(zero, "NCV", "zero")
    top = {m: of(zero[zero.mu0 == most], m, "zero") for m in ("NCV", "penalty only")}
    pairs = (("centre only", "NCV"), (BOTH, "penalty only"))
    centring = {p: paired(zero, large, *p, ["mu0"]) for p in pairs}
    won = {p: float((q < 1).to_numpy().mean()) for p, q in centring.items()}
    rivals = {
        m: paired(shown[shown.start == "zero"], large, BOTH, m, ["mu0"]) for m in ("NCV", "penalty only", "centre only")
    }
    regularised = {p: paired(zero, large, *p, ["mu0"]) for p in ((BOTH, "centre only"), ("penalty only", "NCV"))}
    sweeps = {(a, b): _swept(swept, of(shown, b, "zero"), large, a) for a, b in regularised}
    helped = [better(q, TENTH) for q in (*regularised.values(), *sweeps.values())]
    alone, constrained = (of(shown, m, "zero") for m in ("centre only", BOTH))
    yield claim(
        "The standard deviation of f is about 7.5",
        "exact integral",
        number(deviation),
        HOLDS if abs(deviation - 7.5) < 0.1 else FAILS,
        "10 sqrt((1 - exp(-2 pi² / D)) / 2) at D = 10.",
    )
    yield claim(
        "NCV without constraints is easily overfitted to the training data",
        f"NCV, {every}",
        f"training ratio {_by_mean(overfit.ratio_train, overfit)}; test ratio {_by_mean(overfit[large], overfit)}",
        verdict((overfit[large] / overfit.ratio_train).groupby(overfit.mu0).median() > 10),
        "Counted: test over training ratio more than 10 in the median, at every mu0.",
    )
    yield claim(
        "As mu0 increases, the schemes without centre do not reduce the variance on test data",
        f"NCV and penalty only, {every}",
        "; ".join(
            f"{m}: median {', '.join(f'{number(v)} at {at:g}' for at, v in q.items())}" for m, q in medians.items()
        ),
        verdict(bool(q.loc[most] > 1 and q.is_monotonic_increasing) for q in medians.values()),
        f"Counted: growing with mu0, and above 1 at mu0 = {most:g}.",
    )
    yield claim(
        "When mu0 is large against the standard deviation they fit -f, not -f + mu0, on the training data",
        f"NCV and penalty only, mu0 = {most:g}, {runs}",
        "; ".join(f"{m}: mean of f + g on training draws {spread(t.mean_train)}" for m, t in top.items()),
        verdict(float((t.mean_train.abs() / most).median()) < 0.1 for t in top.values()),
        f"Counted: the mean of f + g is less than a tenth of mu0. sd f is {number(deviation)}.",
    )
    yield claim(
        "CNCV (both constraints) outperforms all the others",
        f"{BOTH}, lambda = {LAMBDA:g}; {here}",
        "; ".join(f"ratio over that of {m}: {_each(q)}" for m, q in rivals.items()),
        verdict(bool(better(q).all()) for q in rivals.values()),
        f"With the library's weight decay: {spread(of(shown, 'CNCV()', 'zero')[large])} instead of "
        f"{spread(constrained[large])}.",
    )
    yield claim(
        "Schemes with a centre are always better than those without",
        every,
        "; ".join(
            f"{a} over {b}: {_each(q)}, better in {number(100 * won[a, b])} % of runs" for (a, b), q in centring.items()
        ),
        verdict([min(won.values()) == 1, *np.concatenate([better(q) for q in centring.values()])]),
        "Always: in every replication, at every mu0. At mu0 = 0 there is nothing to centre.",
    )
    yield claim(
        "Regularisation (lambda) improves the performance",
        f"lambda = {LAMBDA:g} at every mu0, and lambda = {', '.join(f'{v:g}' for v in settings.lambdas)} at "
        f"mu0 = {SHOWN:g}; mu started at 0, {runs}",
        "; ".join(f"{a} over {b}: {_each(q)}" for (a, b), q in regularised.items())
        + "; "
        + "; ".join(f"{a} over {b}, {_each_lambda(q)}" for (a, b), q in sweeps.items()),
        verdict(np.concatenate(helped)),
        "Counted: lower by more than a tenth in the median, and in most replications. Without a centre a large "
        "lambda helps by making g small, where the plain mean would be better still. lambda g² also pulls g "
        "away from the best one, so it cannot be large where that is good.",
    )
    yield claim(
        "Centred but not regularised, NCV reduces the variance",
        f"centre only, {here}",
        f"test ratio {spread(alone[large])}",
        verdict(alone[large] < 1),
    )
    yield claim(
        "... but it introduces bias: the sample mean is away from mu0",
        f"centre only, {here}, and the paper's {settings.test[0]}",
        _means(alone, settings),
        _biased(alone, settings),
        "g has mean zero for any weights, so f + g on draws not fitted on has no bias; one sample's mean is off "
        "by its standard error.",
    )
    yield claim(
        "CNCV reduces the variance without bias",
        f"{BOTH}, {here}, and the paper's {settings.test[0]}",
        f"test ratio {spread(constrained[large])}; {_means(constrained, settings)}",
        verdict([bool((constrained[large] < 1).all()), _biased(constrained, settings) == FAILS]),
        "So does every other scheme.",
    )


def _mean_square(rows: "pandas.DataFrame", n: int) -> "pandas.Series":
    """Return the mean of (f + g)² over the n training draws."""
    return rows.mean_train**2 + n * rows.error_train**2


def _z(rows: "pandas.DataFrame", size: int) -> "pandas.Series":
    """Return how many standard errors the mean of f + g on fresh draws is from mu0."""
    return (rows[f"mean_{size}"] - rows.mu0) / rows[f"error_{size}"]


def _means(rows: "pandas.DataFrame", settings: Any) -> str:
    def one(size: int) -> str:
        z = _z(rows, size)
        off = spread(rows[f"mean_{size}"] - rows.mu0)
        return f"mean - mu0 on {size:,} draws {off}, z from {number(z.min())} to {number(z.max())}"

    return "; ".join(map(one, settings.test))


def _biased(rows: "pandas.DataFrame", settings: Any) -> str:
    off = np.concatenate([_z(rows, size).abs() > OFF for size in settings.test])
    return HOLDS if off.all() else PART if off.any() else FAILS


def _swept(rows: "pandas.DataFrame", base: "pandas.DataFrame", column: str, method: str) -> "pandas.DataFrame":
    """Return the quotients to `base`, where lambda = 0: a row per lambda."""
    zero = base.set_index("replication")[column]
    values = rows[rows.method == method].pivot_table(index="penalty", columns="replication", values=column)
    return values / zero


def _by_mean(values: "pandas.Series", rows: "pandas.DataFrame") -> str:
    """Return the spread of a column of the rows, at some mu0."""
    return ", ".join(f"{spread(v)} at {at:g}" for at, v in values.groupby(rows.mu0) if at in WRITTEN)


def _each(quotients: "pandas.DataFrame") -> str:
    """Return the spread over replications at some mu0, and at how many of all the first was the better."""
    won = better(quotients)
    written = ", ".join(f"{spread(q.dropna())} at {at:g}" for at, q in quotients.iterrows() if at in WRITTEN)
    return written + (f"; better at {won.sum()} of {len(won)} mu0" if len(won) > 1 else "")


def _each_lambda(quotients: "pandas.DataFrame") -> str:
    return ", ".join(f"{spread(q.dropna())} at lambda = {at:g}" for at, q in quotients.iterrows())
