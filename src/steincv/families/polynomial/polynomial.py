r"""Polynomial (zero-variance) control variates: Phi is the gradient of a polynomial, in a Hermite basis.

$He_a(z) = \prod_i He_{a_i}(z_i)$ for multi-indices $a$ of total degree 1..degree. With
$\mathcal{L}u = \Delta u + \nabla u \cdot s$, the product rule
$\mathcal{L}(uv) = u\mathcal{L}v + v\mathcal{L}u + 2\nabla u\cdot\nabla v$ and $a = p + e_i$,

$$ He_a = z_i He_p - p_i He_{p-e_i}, \qquad
   \mathcal{L}He_a = z_i \mathcal{L}He_p + s_i He_p + p_i (2 He_{p-e_i} - \mathcal{L}He_{p-e_i}), $$

so a feature costs a handful of multiplications a draw, whatever the degree. On a standard Gaussian
the features are uncorrelated. Divided by $|a|\sqrt{a!}$ they have variance one there, and a sum of
squared coefficients over one degree does not change when the coordinates are rotated: ridge
penalties, one a degree, mean the same on every problem.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...runtime.validation import InputError, reserve, whole_number
from ...stein.coordinates import CACHED, Bilinear
from ..method import Control, CrossFit, Kind, Member, Method, Problem, Training
from ..problem import Cost, systems
from .ridge import GROWTHS, SIZES as RIDGE, RidgeFit, judged_every, ridge, ridge_of_moments
from .slow import OBJECTIVES, fit_slow, own_steps, systems_solved

# More than any memory holds, and still a float.
MOST_FEATURES = 10**18
# More features per draw than this cost more than they bring (benchmarks/league.py).
FEATURES_PER_DRAW = 0.5
# From this many draws on the features are made in tiles of so many, and only their sums are kept.
MANY_DRAWS, TILE = 20_000, 4096


def feature_count(dim: int, degree: int) -> int:
    """How many multi-indices of total degree 1..degree there are in `dim` dimensions, or `MOST_FEATURES`."""
    return min(math.comb(dim + degree, min(dim, degree)) - 1, MOST_FEATURES)


def degrees(dim: int, degree: int) -> np.ndarray:
    """The total degree of every feature, in the order of `stein_features`."""
    return np.repeat(np.arange(1, degree + 1), [math.comb(dim + k - 1, k) for k in range(1, degree + 1)])


@functools.lru_cache(maxsize=64)
def _recipe(dim: int, degree: int) -> tuple[list[list[tuple]], np.ndarray]:
    """How every block of multi-indices follows from shorter ones, and each feature's normalisation.

    Children by coordinate i are all parents of one degree less that use coordinates 0..i only. In
    this order those are a prefix of the parents, so a block of children is a few array operations.
    """
    level: dict[tuple[int, ...], int] = {(0,) * dim: 0}
    before: dict[tuple[int, ...], int] = {}
    steps: list[list[tuple]] = []
    norms: list[float] = []
    for k in range(1, degree + 1):
        parents, blocks, children = list(level), [], []
        for i in range(dim):
            block = [p for p in parents if not any(p[i + 1 :])]
            power = np.array([p[i] for p in block])
            rows = np.flatnonzero(power)
            lower = [before[_minus(block[r], i)] for r in rows]
            blocks.append((i, len(block), rows, np.array(lower, dtype=int), power[rows].astype(float)[:, None]))
            children += [(*p[:i], p[i] + 1, *p[i + 1 :]) for p in block]
        steps.append(blocks)
        norms += [1 / (k * math.sqrt(math.prod(math.factorial(j) for j in a))) for a in children]
        before, level = level, {a: n for n, a in enumerate(children)}
    return steps, np.array(norms)


def _minus(index: tuple[int, ...], i: int) -> tuple[int, ...]:
    return (*index[:i], index[i] - 1, *index[i + 1 :])


def stein_features(z: np.ndarray, s: np.ndarray, degree: int) -> np.ndarray:
    r"""$\mathcal{L}He_a / (|a|\sqrt{a!})$ at every draw, `(n, feature)`: for each a a mean-zero function."""
    n, dim = z.shape
    steps, norms = _recipe(dim, degree)
    out = np.empty((n, feature_count(dim, degree)))
    tile_size = max(64, CACHED // out.shape[1])
    for start in range(0, n, tile_size):
        tile = slice(start, start + tile_size)
        _fill(out[tile], np.ascontiguousarray(z[tile].T), np.ascontiguousarray(s[tile].T), steps, norms)
    return out


def hermite_basis(z: np.ndarray, degree: int) -> np.ndarray:
    r"""$He_a / \sqrt{a!}$ at every draw, `(n, feature)`: of variance one on a standard Gaussian."""
    steps, norms = _recipe(z.shape[1], degree)
    out, start = np.empty((len(z), len(norms))), 0
    he, before = np.ones((1, len(z))), np.empty((0, len(z)))
    for k, blocks in enumerate(steps, start=1):
        children = []
        for i, count, rows, lower, power in blocks:
            child = he[:count] * z[:, i]
            child[rows] -= power * before[lower]
            children.append(child)
        before, he = he, np.concatenate(children)
        here = slice(start, start + len(he))
        out[:, here] = (k * norms[here, None] * he).T
        start += len(he)
    return out


def _fill(out: np.ndarray, z: np.ndarray, s: np.ndarray, steps: list, norms: np.ndarray) -> None:
    """Features of one tile of draws, coordinates first so that every operation runs along the draws."""
    n, start = z.shape[1], 0
    he, before = np.ones((1, n)), np.empty((0, n))
    stein, stein_before = np.zeros((1, n)), np.empty((0, n))
    for k, blocks in enumerate(steps, start=1):
        size, parents = sum(block[1] for block in blocks), k < len(steps)
        child, child_stein = np.empty((size if parents else 0, n)), np.empty((size, n))
        at = 0
        for i, count, rows, lower, power in blocks:
            here = slice(at, at + count)
            np.multiply(stein[:count], z[i], out=child_stein[here])
            child_stein[here] += he[:count] * s[i]
            if parents:
                np.multiply(he[:count], z[i], out=child[here])
                child[at + rows] -= power * before[lower]
            if len(rows):
                child_stein[at + rows] += power * (2 * before[lower] - stein_before[lower])
            at += count
        out[:, start : start + size] = (child_stein * norms[start : start + size, None]).T
        before, he, stein_before, stein = he, child, stein, child_stein
        start += size


def quadratic_form(coefficients: np.ndarray, dim: int) -> Bilinear:
    r"""Return a combination of Stein features of degree 1 and 2, and of rotations, with coefficients `(feature, out)`.

    They are $s_i$, and $z_p s_i + z_i s_p$ for $p \le i$ up to constants, of which those with $p = i$ have one.
    """
    gradients = feature_count(dim, 2)
    weights = (coefficients[:gradients] * _recipe(dim, 2)[1][:, None]).T
    form = np.zeros((len(weights), 1 + dim, 1 + dim))
    i, p = np.tril_indices(dim)
    form[:, 0, 1:] = weights[:, :dim]
    if len(coefficients) > gradients:
        j, k = np.triu_indices(dim, 1)
        form[:, 1 + j, 1 + k] = coefficients[gradients:].T / 2
        form[:, 1 + k, 1 + j] = -coefficients[gradients:].T / 2
    form[:, 1 + p, 1 + i] += weights[:, dim:]
    form[:, 1 + i, 1 + p] += weights[:, dim:]
    form[:, 0, 0] = 2 * weights[:, dim:][:, i == p].sum(axis=1)
    return Bilinear(form)


def rotations(z: np.ndarray, s: np.ndarray) -> np.ndarray:
    r"""Return $(z_i s_j - z_j s_i)/2$ for $i < j$, the Stein features of the fields $(z_i e_j - z_j e_i)/2$."""
    i, j = np.triu_indices(z.shape[1], 1)
    return (z[:, i] * s[:, j] - z[:, j] * s[:, i]) / 2


def polynomial_features(z: np.ndarray, s: np.ndarray, degree: int, turning: bool = False) -> np.ndarray:
    """Return the Stein features of all polynomials up to a degree, which may be 0, and those of rotations."""
    found = stein_features(z, s, degree) if degree else np.empty((len(z), 0))
    return np.hstack([found, rotations(z, s)]) if turning else found


def feature_degrees(dim: int, degree: int, turning: bool = False) -> np.ndarray:
    """Return the degree of each of these features; a rotation has that of a quadratic."""
    return np.append(degrees(dim, degree), np.full(turning * math.comb(dim, 2), 2))


@dataclass(frozen=True)
class Polynomial(Method):
    r"""$g = \Delta Q + \nabla Q \cdot s$ with $Q$ a polynomial of total degree at most `degree`.

    The coefficients are those of a ridge regression of f on the Stein features of a Hermite basis, so
    all outputs share one factorisation. Degree 1 is the linear, degree 2 the quadratic zero-variance
    control variate. Exact for a Gaussian density and a polynomial f of the same degree.

    **Arguments:**

    - `degree`: total degree of Q, 1 or more.
    - `penalty`: lambda of `_ridge.ridge`; "auto" chooses it, and how it grows with the degree, by exact
      leave-one-out, for each output.
    - `objective`: what the coefficients make small. "variance": that of single draws of f + g. For chains that move
      slowly, such as those of random walks, "spectral": the variance of their mean, from windows of neighbouring draws;
      "diffusion": that of the mean of a Langevin diffusion with steps like the chains' own. Q is then a polynomial in
      coordinates in which these are alike in all directions. The penalty is chosen by what is left of the variance of
      the mean in chains that were left out.
    - `rotations`: whether fields that turn around, $\Phi = z_i e_j - z_j e_i$, are fitted beside gradients. With degree
      2 Phi is then any linear field. g of a rotation is 0 for a Gaussian: it is all about how a density is not one. If
      not given, they are where affine and learned coordinates are used side by side and the draws carry them.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> fitted = scv.Polynomial(degree=2).fit(scv.Samples(x, -x), x[..., 0] ** 2)
    >>> bool(np.ptp(x[..., 0] ** 2 + fitted(scv.Samples(x, -x))[..., 0]) < 1e-9)
    True

    Reference: Mira, Solgi, Imparato (2013), Statistics and Computing 23; South et al. (2023),
    Statistics and Computing 33. Objectives: Brosse et al. (2018), arXiv:1808.01665; Belomestny et al. (2020),
    Statistics and Computing 30.
    """

    degree: int = 2
    penalty: float | Literal["auto"] = "auto"
    objective: str = "variance"
    rotations: bool | None = None

    together = False
    weighted = True

    def __post_init__(self) -> None:
        whole_number("degree", self.degree, 1)
        number = isinstance(self.penalty, int | float) and not isinstance(self.penalty, bool)
        if not (self.penalty == "auto" or (number and 0 <= float(self.penalty) < np.inf)):
            raise InputError(
                f"The 'penalty' parameter of Polynomial must be 'auto' or a number in [0, inf). "
                f"Got {self.penalty!r} instead."
            )
        if self.objective not in OBJECTIVES:
            raise InputError(
                f"The 'objective' parameter of Polynomial must be 'variance', 'diffusion' or 'spectral'. "
                f"Got {self.objective!r} instead."
            )
        if self.rotations and self.objective == "diffusion":
            raise InputError("Polynomial(objective='diffusion') needs gradient fields: leave `rotations` out.")

    def count(self, dim: int) -> int:
        """Return the number of features in so many dimensions."""
        return feature_count(dim, self.degree) + bool(self.rotations) * math.comb(dim, 2)

    def _table(self, z: np.ndarray, s: np.ndarray, parts: int) -> np.ndarray:
        """Return the features of every system of coordinates that z and s hold, side by side."""

        turning = bool(self.rotations)
        each = [polynomial_features(*at, self.degree, turning) for at in systems(z, s, parts)]
        return each[0] if parts == 1 else np.hstack(each)

    def _kinds(self, dim: int, parts: int) -> np.ndarray:
        """Return the degree of every feature."""
        return np.tile(feature_degrees(dim, self.degree, bool(self.rotations)), parts)

    def cost(self, n: int, dim: int, outputs: int) -> Cost:
        """Return the cost of a fit: a Gram matrix, of which half is computed, and its spectrum for every growth."""
        features = self.count(dim)
        if self.objective != "variance":
            operations = 4.0 * n * features**2 + systems_solved(features) * 2 / 3 * features**3
            return Cost(operations, 2 * self._bytes(n, features))
        rank = min(n, features)
        one = (self.degree == 1 and not self.rotations) or rank > RIDGE.large
        operations = 1.0 * n * features * rank + 9.0 * rank**3 + 30.0 * n * rank * outputs
        return Cost(operations * (1 if one else len(GROWTHS)), self._bytes(n, features))

    def _bytes(self, n: int, features: int) -> float:
        # features, centred and scaled copies and the eigenvector side; one Gram matrix and its vectors
        return 8.0 * (4 * n * features + 3 * min(n, features) ** 2)

    def kind(self, training: Training) -> Kind:
        """Return the coordinates: beside learned ones the affine ones, where there are draws for the features of both.

        A regression on both gained twice what one on the learned ones did, and has all that affine ones have.
        """
        if training.coordinates != "learned":
            return "affine"
        features = 2 * self.count(training.draws.shape[-1])
        return "both" if features <= FEATURES_PER_DRAW * training.fewest else "learned"

    def across(self, training: Training) -> CrossFit:
        kind = self.kind(training)
        may = self.rotations is None and self.objective == "variance" and self.degree > 1
        turning = replace(self, rotations=True) if may else self
        enough = 2 * turning.count(training.draws.shape[-1]) <= FEATURES_PER_DRAW * training.fewest
        return training.fit([Member(turning if kind == "both" and enough else self, kind)])[0]

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        return [self._solve(problem) for problem in problems]

    def _solve(self, problem: Problem) -> Control:
        parts = problem.parts
        dim = problem.z.shape[1] // parts
        features = parts * self.count(dim)
        orbits = None if problem.weight is None else problem.weight.reshape(-1, problem.states)
        z, s, y = problem.z, problem.s, problem.y
        n, turn = len(z), None
        kept = None if problem.kept is None else problem.kept.setdefault((self.degree, self.rotations), {})
        if self.objective != "variance":
            self._reserve(n, dim, 2 * self._bytes(n, features))
            turn = own_steps(z, problem.chains, problem.states, parts)
            z, s = z @ turn.draws, s @ turn.scores
            x, kinds = self._table(z, s, parts), self._kinds(dim, parts)
            basis = None
            if self.objective == "diffusion":
                basis = np.hstack([hermite_basis(part, self.degree) for part in np.split(z, parts, axis=1)])
            fit = fit_slow(x, y, kinds, self.penalty, problem.chains, orbits=orbits, basis=basis)
        elif n >= max(MANY_DRAWS, 4 * features) and orbits is None:
            self._reserve(n, dim, 8 * (5 * features**2 + 4 * TILE * features))
            fit = self._fit_in_tiles(z, s, y, parts)
        else:
            self._reserve(n, dim, self._bytes(n, features))
            x, kinds = self._table(z, s, parts), self._kinds(dim, parts)
            fit = ridge(x, y, kinds, self.penalty, overwrite=True, orbits=orbits, kept=kept)

        def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
            z, s = (z, s) if turn is None else (z @ turn.draws, s @ turn.scores)
            return -(self._table(z, s, parts) @ fit.coefficients)

        info = {"features": features, "draws": n, "penalty": fit.penalty.tolist(), "growth": fit.growth.tolist()}
        form = quadratic_form(-fit.coefficients, dim) if (self.degree, parts, turn) == (2, 1, None) else None
        return Control(evaluate, info, form=form)

    def _fit_in_tiles(self, z: np.ndarray, s: np.ndarray, y: np.ndarray, parts: int) -> RidgeFit:
        """The same from sums over tiles of draws: its memory does not grow with them."""
        n, kinds = len(z), self._kinds(z.shape[1] // parts, parts)
        gram, cross = np.zeros((len(kinds), len(kinds))), np.zeros((len(kinds), y.shape[1]))
        mean = np.zeros(len(kinds))
        for start in range(0, n, TILE):
            tile = slice(start, start + TILE)
            x = self._table(z[tile], s[tile], parts)
            gram += x.T @ x
            cross += x.T @ y[tile]
            mean += x.sum(axis=0) / n
        center = y.mean(axis=0)
        gram -= n * np.outer(mean, mean)
        cross -= n * np.outer(mean, center)
        every = judged_every(n, y.shape[1])
        judged = self._table(z[::every], s[::every], parts) - mean
        return ridge_of_moments(n, lambda: gram, cross, judged, y[::every] - center, kinds, self.penalty)

    def _reserve(self, n: int, dim: int, needed: float) -> None:
        reserve(
            f"Polynomial(degree={self.degree}) of {n} draws in {dim} dimensions has {self.count(dim):,} features and",
            needed,
            f"Use degree={max(1, self.degree - 1)} or fewer draws.",
        )
