r"""Coefficients for chains that move slowly, where the variance of a draw is not what makes the standard error.

With residuals $r = y - X\beta$, one linear system each:

- *spectral*: $\beta$ minimises the spectral variance of r at zero: least squares over sums of neighbouring draws
  (`families/spectral.py`).
- *diffusion*: $\beta$ makes r uncorrelated with the polynomials $\psi$ themselves, $\Psi^T (y - X\beta) = 0$. There the
  asymptotic variance of the Langevin diffusion, $2 E|\nabla(Q_f - Q)|^2$ with $\mathcal{L}Q_f = -(f - Ef)$, is least:
  $E[\nabla\psi\cdot\nabla Q] = E[\psi (f - Ef)]$, with $E[\nabla\psi\cdot\nabla Q] = -E[\psi\,\mathcal{L}Q]$. Written
  with $\mathcal{L}Q$ it is exact at any draws, where theory says so, and not only on average.

The penalty, and how it grows with the degree, are those with the least spectral variance in chains that were left out.

A chain of small steps is nearly a diffusion, whose $\mathcal{L}Q = \nabla\cdot(C\nabla Q) + C\nabla Q\cdot s$ has
the covariance C of the chain's own steps; with another C, Q answers another chain's question. So Q is a polynomial in
coordinates in which the steps are alike in all directions, `own_steps`: of independent draws, whitened ones.
On a banana in 8 dimensions by a random walk equally wide in all directions (row 5 of docs/peers.md; pooled fits
on twenty and ten chains, tested on twenty others), quadratics gain 15 there and 4 in whitened coordinates, cubics 74
and 18.

Reference: Brosse, Durmus, Meyn, Moulines, Radhakrishnan (2018), arXiv:1808.01665; Belomestny, Iosipoi, Moulines,
Naumov, Samsonov (2020), Statistics and Computing 30.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import block_diag

from ...runtime.threads import blas_threads
from ...stein.folds import make_folds
from ..spectral import draws_per_effective, window_sums, windows_of
from .ridge import GROWTHS, RidgeFit

OBJECTIVES = ("variance", "diffusion", "spectral")

# In units of the diagonal; small ones are what the units of a network need.
PENALTIES = np.array([1e-13, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0])
# With more features than this one growth has to do: each penalty costs a linear system for every part that is left out.
MANY_FEATURES = 150
# How many parts of the chains are left out, one after the other, at most: see `make_folds`.
PARTS = 5


class Turn(NamedTuple):
    """A linear map of coordinates, and the one of scores that belongs to it: z @ draws, s @ scores."""

    draws: Float[np.ndarray, "dim dim"]
    scores: Float[np.ndarray, "dim dim"]


def own_steps(z: Float[np.ndarray, "n dim"], chains: int, states: int, parts: int) -> Turn:
    """Return the map to coordinates in which the steps of chains, chain after chain, are alike in all directions.

    The fastest direction keeps its unit. `states`, `parts`: those of a `Problem`; each part has coordinates of its own.
    As many steps as there are dimensions are added that are alike already, for chains of few draws.
    """
    found = []
    for part in np.split(z, parts, axis=1):
        dim = part.shape[1]
        steps = np.diff(part.reshape(chains, -1, states, dim)[:, :, 0], axis=1).reshape(-1, dim)
        squares = steps.T @ steps
        added = np.trace(squares) / max(len(steps), 1) or 1.0  # of chains that stand still nothing is known
        values, vectors = np.linalg.eigh(squares + added * np.eye(dim))
        slow = np.sqrt(values.max() / values)
        found.append(Turn(vectors * slow, vectors / slow))
    return Turn(*(block_diag(*each) for each in zip(*found, strict=True)))


class Part(NamedTuple):
    """Some chains, or a stretch of one: its share of systems `gram beta = cross`, and sums of X and y to judge by."""

    systems: list[tuple[Float[np.ndarray, "feature feature"], Float[np.ndarray, "feature out"]]]
    x: Float[np.ndarray, "row feature"]
    y: Float[np.ndarray, "row out"]


def fit_slow(
    x: Float[np.ndarray, "n feature"],
    y: Float[np.ndarray, "n out"],
    degree: Int[np.ndarray, " feature"],
    penalty: float | str,
    chains: int,
    *,
    orbits: Float[np.ndarray, "orbit state"] | None = None,
    basis: Float[np.ndarray, "n feature"] | None = None,
) -> RidgeFit:
    """Fit every output as `ridge` does, at the draws of equally long chains, chain after chain.

    `basis`: the polynomials that X are the features of, for the diffusion's objective; without it the spectral one.
    """
    states = 1 if orbits is None else orbits.shape[1]
    weight = np.ones((len(x), 1)) if orbits is None else orbits.reshape(-1, 1)
    draws = len(x) // (chains * states)

    def centred(a: np.ndarray) -> np.ndarray:
        return a - (weight * a).sum(axis=0) / weight.sum()

    def by_draw(a: np.ndarray) -> np.ndarray:
        return a.reshape(chains, draws, states, -1)

    x, y = centred(x), centred(y)
    means, values = (by_draw(weight * a).sum(axis=2) for a in (x, y))
    window = int(windows_of(draws_per_effective(values), draws).max())
    # least squares over single draws are in the search as well: of few effective draws they are the better fit
    widths = [1, window] if penalty == "auto" and window > 1 else [window]
    against = None if basis is None else -weight * centred(basis)
    parts = []
    for fold in make_folds(chains, draws, min(PARTS, chains if chains > 1 else draws)):
        a, b = fold.test.take(means), fold.test.take(values)
        if against is None:
            sums = [(window_sums(a, width), window_sums(b, width)) for width in widths]
        else:
            own, of_x, of_y = (fold.test.take(by_draw(m)).reshape(-1, m.shape[1]) for m in (against, x, y))
        systems = [(u.T @ u, u.T @ v) for u, v in sums] if against is None else [(own.T @ of_x, own.T @ of_y)]
        parts.append(Part(systems, window_sums(a, window), window_sums(b, window)))
    return _choose(parts, degree, penalty)


def systems_solved(features: int) -> int:
    """Return how many linear systems a search solves, at most."""
    return 2 * PARTS * len(PENALTIES) * (1 if features > MANY_FEATURES else len(GROWTHS))


def _choose(parts: list[Part], degree: np.ndarray, penalty: float | str) -> RidgeFit:
    """Choose system, growth and penalty of every output by what is left in the parts that were not fitted on."""
    features, outputs = parts[0].systems[0][1].shape
    many = features > MANY_FEATURES
    lambdas, growths = PENALTIES, (GROWTHS[1:2] if many else GROWTHS)
    if penalty != "auto":
        lambdas = np.array([max(float(penalty), PENALTIES[0])])
    if penalty != "auto" or degree.max() == 1:
        growths = GROWTHS[:1]
    fit = RidgeFit(np.zeros((features, outputs)), np.zeros(outputs), np.ones(outputs), np.full(outputs, np.inf))
    for k in range(len(parts[0].systems)):
        gram, cross = (np.sum([part.systems[k][i] for part in parts], axis=0) for i in range(2))
        own = np.abs(np.diagonal(gram))
        unit = np.maximum(own, PENALTIES[0] * own.mean())
        for growth in growths:
            shape = unit * growth ** (degree - 1.0)
            for lam in lambdas:
                found = [
                    part.y - part.x @ _solve(gram - part.systems[k][0], lam * shape, cross - part.systems[k][1])
                    for part in parts
                ]
                error = np.sum([np.einsum("no,no->o", r, r) for r in found], axis=0) / sum(map(len, found))
                better = error < fit.leave_one_out
                if better.any():
                    fit.coefficients[:, better] = _solve(gram, lam * shape, cross[:, better])
                    fit.penalty[better], fit.growth[better], fit.leave_one_out[better] = lam, growth, error[better]
    return fit


def _solve(gram: np.ndarray, ridge: np.ndarray, cross: np.ndarray) -> np.ndarray:
    """Return the solution, or zeros where there is none."""
    with blas_threads(len(gram) ** 3):
        try:
            found = np.linalg.solve(gram + np.diag(ridge), cross)
        except np.linalg.LinAlgError:
            return np.zeros_like(cross)
    return found if np.isfinite(found).all() else np.zeros_like(cross)
