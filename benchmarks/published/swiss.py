"""What rows 2 and 3 share: the banknotes, the methods, and the lines of a binary regression with flat priors."""

from collections.abc import Callable

import numpy as np
from common import DATA, GAIN, Data, Line, Planned, agree, between, fitted_apart, gain, keep, ours, replicate
from sampling import Problem, draw

import steincv as scv

REPEATS, FEWER, FEWEST = 40, 20, 4  # theirs: 100
FIT, ESTIMATE = 2000, 2000
NAMES = ("length", "left", "right", "bottom")
NUTS_REPEATS = 10
SOURCE = "Mira, Solgi, Imparato 2013"
LINEAR, QUADRATIC = "linear ZV", "quadratic ZV"

THEIRS = {LINEAR: scv.Polynomial(1, penalty=0.0), QUADRATIC: scv.Polynomial(2, penalty=0.0)}
METHODS = {
    "plain": Planned(lambda data, seed: data.values.mean(axis=(0, 1)), REPEATS),
    **{f"{name}, as theirs": Planned(fitted_apart(method), REPEATS) for name, method in THEIRS.items()},
    "Polynomial(2)": Planned(ours(scv.Polynomial(2)), REPEATS),
    "Polynomial(2), learned": Planned(ours(scv.Polynomial(2), "learned"), FEWER),
    "Kernel()": Planned(ours(scv.Kernel()), FEWER),
    "CNCV()": Planned(ours(scv.CNCV()), FEWEST),
    "Auto()": Planned(ours(scv.Auto()), FEWER),
}


def notes() -> tuple[np.ndarray, np.ndarray]:
    """Return the measurements as they are, no column of ones (Marin and Robert), and which notes are counterfeit."""
    table = np.loadtxt(DATA / "swiss.csv", delimiter=",")
    return table[:, :4], table[:, 4]


def study(
    row: int, name: str, sampler: str, made: dict[str, np.ndarray], logdensity: Callable, published: dict
) -> None:
    """Run everything on their sampler, then the default on NUTS, and write the row.

    `made`: their draws and scores (repeat, draw, 4), FIT + ESTIMATE in each repeat.
    """

    def data(r):
        draws, scores = made["draws"][r][None], made["scores"][r][None]
        first = Data(draws[:, :FIT], scores[:, :FIT], draws[:, :FIT])
        return Data(draws[:, FIT:], scores[:, FIT:], draws[:, FIT:], first)

    found = replicate(f"row{row:02d}", data, METHODS)
    agree(found, NAMES)
    every = made["draws"].reshape(-1, 4)
    center, factor = every.mean(0), np.linalg.cholesky(np.cov(every.T))
    # NUTS walks where the posterior is about round: the coefficients are strongly correlated
    problem = Problem(
        f"published-{name}", 4, lambda z: logdensity(center + factor @ z), {}, NAMES, start=lambda key: np.zeros(4)
    )
    sets = draw(problem, seed=0, chains=4, draws=ESTIMATE // 4, replications=NUTS_REPEATS)

    def nuts(r):
        return Data(*sets[r], center + sets[r][0] @ factor.T)

    some = {k: METHODS[k]._replace(repeats=NUTS_REPEATS) for k in ("plain", "Polynomial(2)", "Auto()")}
    walked = replicate(f"row{row:02d}-nuts", nuts, some)
    agree(walked, NAMES)
    best = QUADRATIC
    lines = []
    same = f"data, model, flat priors, f, {sampler}, 2000 draws to estimate"
    for where, estimates in (("", found), (", NUTS", walked)):
        for label in list(estimates)[1:]:
            beside = label.removesuffix(", as theirs") if label.endswith("as theirs") else best
            apart = label.endswith("as theirs")
            matched = f"{same}, 2000 others to fit" if apart else same if not where else "data, model, flat priors, f"
            other = "repeats" if apart else "no draws only to fit; repeats" if not where else "NUTS 4 x 500; repeats"
            for k, f in enumerate(NAMES):
                mine = estimates[label][:, k]
                lines.append(
                    Line(row, f"{name}, Swiss banknotes", f, label + where, GAIN, beside, between(*published[beside]),
                         gain(estimates["plain"][:, k], mine), len(mine), matched, other, SOURCE)
                )  # fmt: skip
    keep(lines, f"row{row:02d}")
