"""What the variants of rows 1 and 3 share: the authors' control variates in any coordinates, and their gains."""

import csv
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from common import RESULTS, Data, random_walk, scores_of
from tables import show

REPEATS = 40
DEGREES = (1, 2, 3)
BURN_IN = 3000


class Variant(NamedTuple):
    """A way in which the authors may have run it.

    - `proposals`: standard deviations of a random walk with independent proposals; None: its covariance is that of the
      chains, 2.38 / sqrt(D) times as wide.
    - `fit`: draws that coefficients are fitted on, of which there are `thin` steps each.
    - `whitened`: gradients in whitened parameters, as this library takes them, and not in the parameters as they are.
    """

    logdensity: Callable
    proposals: Sequence[float] | None = None
    thin: int = 1
    whitened: bool = False
    fit: int = 2000


def controls(x: np.ndarray, s: np.ndarray, degree: int) -> np.ndarray:
    """Return the Laplacian of every monomial up to a degree plus its gradient times the score, (draw, monomial)."""
    columns = []
    for powers in product(range(degree + 1), repeat=x.shape[1]):
        if not 0 < sum(powers) <= degree:
            continue
        column = np.zeros(len(x))
        for k, power in enumerate(powers):
            lower = np.array(powers)
            for order in range(min(power, 2)):
                lower[k] -= 1
                size = power if order == 0 else power * (power - 1)
                column += size * np.prod(x**lower, axis=1) * (s[:, k] if order == 0 else 1.0)
        columns.append(column)
    return np.stack(columns, axis=1)


def study(variant: Variant, start: np.ndarray, scale: np.ndarray, estimate: int, every: int, seed: int) -> dict:
    """Return for every parameter the gains: true, true with coefficients from all chains, and of single draws.

    Every repeat fits to its first draws and estimates from `estimate` steps behind them; one in `every` counts.
    """
    fit = variant.fit * variant.thin
    steps = fit + estimate
    if variant.proposals is None:
        path = random_walk(variant.logdensity, start, scale, steps, seed)
    else:
        proposals = np.asarray(variant.proposals)
        path = random_walk(variant.logdensity, start, proposals, BURN_IN + steps, seed, adapt=False)[:, BURN_IN:]
    accepted = (np.diff(path[..., 0], axis=1) != 0).mean()
    first = path[:, : fit : variant.thin]
    f = np.concatenate([first, path[:, fit::every]], axis=1)
    s = scores_of(variant.logdensity, f)
    cut, dim = first.shape[1], f.shape[2]
    whole = f.reshape(-1, dim)
    factor = np.linalg.cholesky(np.cov(whole.T)) if variant.whitened else np.eye(dim)
    z, q = (whole - whole.mean(0)) @ np.linalg.inv(factor).T, s.reshape(-1, dim) @ factor
    before = f[:, cut:].mean(1).var(0, ddof=1)
    found = {"accepted": accepted, "draws per effective": f[:, cut:].shape[1] * every * before / f[:, cut:].var((0, 1))}
    for degree in DEGREES:
        c = controls(z, q, degree)
        c = (c / c.std(0)).reshape(*f.shape[:2], -1)  # least squares do not mind, their solver does
        own = [y[cut:] - g[cut:] @ least_squares(g[:cut], y[:cut]) for y, g in zip(f, c, strict=True)]
        well = f[:, cut:] - c[:, cut:] @ least_squares(c[:, cut:].reshape(-1, c.shape[2]), f[:, cut:].reshape(-1, dim))
        found[f"degree {degree}"] = before / np.var([left.mean(0) for left in own], axis=0, ddof=1)
        found[f"degree {degree}, well fitted"] = before / well.mean(1).var(0, ddof=1)
        found[f"degree {degree}, single draws"] = f[:, cut:].var((0, 1)) / well.var((0, 1))
    return found


def rounded(value: float) -> str:
    """Return two digits, without exponents."""
    return f"{float(f'{value:.2g}'):,.{0 if value >= 10 else 1 if value >= 1 else 2}f}"


def fitted_raw(degree: int) -> Callable:
    """Return the authors' method: coefficients from draws of their own, gradients in the parameters as they are."""

    def run(data: Data, seed: int) -> np.ndarray:
        x, s = (
            np.concatenate([a[0], b[0]]) for a, b in ((data.first.draws, data.draws), (data.first.scores, data.scores))
        )
        c = controls(x - x.mean(0), s, degree)
        c, cut = c / c.std(0), data.first.draws.shape[1]
        return (x[cut:] - c[cut:] @ least_squares(c[:cut], x[:cut])).mean(0)

    return run


def least_squares(c: np.ndarray, f: np.ndarray) -> np.ndarray:
    return np.linalg.lstsq(c - c.mean(0), f - f.mean(0), rcond=None)[0]


def table(name: str, title: str, found: dict[str, dict], published: dict[str, str]) -> None:
    """Print a line per variant, and write results/published/NAME.csv."""
    rows = [{"variant": "published"} | published]
    for label, gains in found.items():
        cells = {key: " / ".join(rounded(v) for v in np.atleast_1d(value)) for key, value in gains.items()}
        rows.append({"variant": label} | cells)
    order = list(dict.fromkeys(key for row in reversed(rows) for key in row))
    show(title, [{key: row.get(key, "") for key in order} for row in rows])
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, order, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
