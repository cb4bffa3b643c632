r"""Sparse polynomial control variates: few pairs and triples of coordinates, found by what a linear fit leaves.

In the coordinates of a hierarchical model, each only scaled, a log density has few interactions, and so has the
solution of a Stein equation. With r the residual of a fit, $X^T \mathrm{diag}(r) S$ holds the covariance of r with
every pair feature $x_i s_j + x_j s_i$ at the price of one product of matrices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...runtime.memory import reserve
from ...runtime.validation import whole_number
from ..method import Control, Method, Problem
from ..polynomial.hermite import degrees, stein_features
from .smoother import Smoother
from .splitting import Split


class _Grid(NamedTuple):
    """Penalties of pairs, per draw, and the parts of the pairs that are tried, each on draws left out."""

    penalties: tuple[float, ...] = (1e-8, 1e-3, 1e-2, 1e-1, 1.0)
    parts: tuple[float, ...] = (1.0, 0.3, 0.1)


GRID = _Grid()


@dataclass(frozen=True)
class Sparse(Method):
    r"""$g = \Delta Q + \nabla Q \cdot s$ with Q linear in all coordinates, and few products of two and of three.

    Made for coordinates that are only scaled: whitening mixes them, and what was sparse is so no more. All is chosen
    for each output: pairs in rounds, each by their correlation with what the fit before has left; then products of
    three among the variables that came up most. How many are kept, and their penalty, is decided by a fit on part of
    the chains judged on the others.

    **Arguments:**

    - `pairs`: how many pairs are kept at most.
    - `rounds`: in how many rounds they are found.
    - `variables`: products of three are made of so many variables; 0 for none.
    """

    pairs: int = 120
    rounds: int = 3
    variables: int = 8

    together = False

    def __post_init__(self) -> None:
        whole_number("pairs", self.pairs, 1)
        whole_number("rounds", self.rounds, 1)
        whole_number("variables", self.variables, 0)

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        return [self._solve(problem) for problem in problems]

    def _solve(self, problem: Problem) -> Control:
        z, s, y = problem.z, problem.s, problem.y
        (n, dim), outputs = z.shape, y.shape[1]
        reserve(f"Sparse() of {n} draws in {dim} dimensions", memory(n, dim), "Use fewer draws.")
        split = Split.of(n, problem.chains)
        trained = _Workshop.of(z[split.fit], s[split.fit])
        whole = _Workshop.of(z, s)
        penalty, _ = whole.linear.choose(y)
        terms, infos = [], []
        for out in range(outputs):
            y_fit, lam = y[split.fit, out], float(penalty[out])
            trial = self._search(trained, y_fit, lam)
            part, ridge = _judge(trained, trial, y_fit, lam, z[split.judge], s[split.judge], y[split.judge, out])
            found = self._search(whole, y[:, out], lam).first(part) if part else _Terms.none()
            terms.append(whole.fit(found, y[:, out], lam, ridge))
            infos.append({"pairs": len(found.pairs), "triples": len(found.triples), "penalty": ridge})

        def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
            return -np.column_stack([fit.values(z, s) for fit in terms])

        return Control(evaluate, {"draws": n, "linear_penalty": penalty.tolist(), "outputs": infos})

    def _search(self, workshop: "_Workshop", y: np.ndarray, lam: float) -> "_Terms":
        """Return pairs in the order in which they were found, then triples of the variables in most of them."""
        found = _Terms.none()
        dim = workshop.z.shape[1]
        share = min(-(-self.pairs // self.rounds), max(1, len(y) // (4 * self.rounds)), dim * (dim + 1) // 2)
        for _ in range(self.rounds):
            residual = workshop.residual(found, y, lam)
            found = found.plus(workshop.strongest(residual, share, found))
        if self.variables:
            found = found.with_triples(workshop.triples(found, workshop.residual(found, y, lam), self.variables, share))
        return found


class _Terms(NamedTuple):
    """Pairs `(k, 2)` of coordinates with i <= j, and triples as columns of the cubic features of a few coordinates."""

    pairs: Int[np.ndarray, "k two"]
    variables: Int[np.ndarray, " v"]
    triples: Int[np.ndarray, " t"]

    @classmethod
    def none(cls) -> "_Terms":
        return cls(np.empty((0, 2), dtype=int), np.empty(0, dtype=int), np.empty(0, dtype=int))

    def plus(self, pairs: np.ndarray) -> "_Terms":
        return self._replace(pairs=np.vstack([self.pairs, pairs]))

    def with_triples(self, found: tuple[np.ndarray, np.ndarray]) -> "_Terms":
        return self._replace(variables=found[0], triples=found[1])

    def first(self, part: float) -> "_Terms":
        """Return the terms that were found first. Triples are kept only with all pairs."""
        kept = self._replace(pairs=self.pairs[: max(1, round(part * len(self.pairs)))])
        return kept if part == 1 else kept.with_triples(_Terms.none()[1:])

    def features(self, z: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "n k"]:
        """Return the Stein features, normalised as those of `stein_features`."""
        i, j = self.pairs.T
        f = (z[:, i] * s[:, j] + z[:, j] * s[:, i]) / 2
        same = i == j
        f[:, same] = (f[:, same] + 1) / np.sqrt(2)
        if not len(self.triples):
            return f
        few = stein_features(np.ascontiguousarray(z[:, self.variables]), np.ascontiguousarray(s[:, self.variables]), 3)
        return np.hstack([f, few[:, self.triples]])


class _Fit(NamedTuple):
    """The coefficients of the scores and of the terms."""

    linear: np.ndarray
    terms: _Terms
    coefficients: np.ndarray

    def values(self, z: np.ndarray, s: np.ndarray) -> np.ndarray:
        return s @ self.linear + self.terms.features(z, s) @ self.coefficients


@dataclass(frozen=True, eq=False)
class _Workshop:
    """Draws with the spectrum of their linear features and the mean square of every pair feature."""

    z: Float[np.ndarray, "n dim"]
    s: Float[np.ndarray, "n dim"]
    linear: Smoother
    size: Float[np.ndarray, "dim dim"]

    @classmethod
    def of(cls, z: np.ndarray, s: np.ndarray) -> "_Workshop":
        d = z * s
        square = (z * z).T @ (s * s)
        square += square.T.copy()
        square += 2 * (d.T @ d)
        return cls(z, s, Smoother.of_features(s), np.sqrt(square / len(z)))

    def strongest(self, residual: np.ndarray, most: int, found: _Terms) -> np.ndarray:
        """Return the pairs whose features correlate most with the residual, strongest first."""
        covariance = (self.z * residual[:, None]).T @ self.s
        covariance += covariance.T.copy()
        covariance /= self.size
        strength = np.abs(np.triu(covariance))
        i, j = found.pairs.T
        strength[i, j] = 0
        flat = strength.ravel()
        top = np.argpartition(-flat, most - 1)[:most]
        top = top[np.argsort(-flat[top], kind="stable")]
        return np.column_stack(np.unravel_index(top, strength.shape))

    def triples(self, found: _Terms, residual: np.ndarray, most: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the variables in most of the pairs, the first ones counting most, and their best cubic features."""
        weight = np.zeros(self.z.shape[1])
        importance = 1 / (10 + np.arange(len(found.pairs)))
        np.add.at(weight, found.pairs[:, 0], importance)
        np.add.at(weight, found.pairs[:, 1], importance)
        variables = np.sort(np.argsort(-weight, kind="stable")[: min(most, len(weight))])
        few = stein_features(
            np.ascontiguousarray(self.z[:, variables]), np.ascontiguousarray(self.s[:, variables]), 3
        )
        cubic = np.flatnonzero(degrees(len(variables), 3) == 3)
        strength = np.abs(residual @ few[:, cubic]) / np.sqrt((few[:, cubic] ** 2).sum(axis=0))
        return variables, np.sort(cubic[np.argsort(-strength, kind="stable")[:count]])

    def residual(self, terms: _Terms, y: np.ndarray, lam: float) -> np.ndarray:
        """Return what a fit with a moderate penalty leaves."""
        fit = self.fit(terms, y, lam, GRID.penalties[2])
        left = y - fit.values(self.z, self.s)
        return left - left.mean()

    def fit(self, terms: _Terms, y: np.ndarray, lam: float, ridge: float) -> _Fit:
        """Fit the scores with penalty `lam` and the terms with penalty `ridge` together."""
        n = len(y)
        f = terms.features(self.z, self.s)
        f = f - f.mean(axis=0)
        outside = self.linear.residual(f, np.full(f.shape[1], lam))
        gram = f.T @ outside
        gram[np.diag_indices(len(gram))] += n * max(ridge, 1e-13)
        coefficients = np.linalg.lstsq(gram, outside.T @ (y - y.mean()), rcond=1e-13)[0] if len(gram) else np.empty(0)
        alpha = self.linear.dual((y - f @ coefficients)[:, None], np.array([lam]))[:, 0]
        return _Fit(self.s.T @ alpha, terms, coefficients)


def _judge(
    workshop: _Workshop, terms: _Terms, y: np.ndarray, lam: float, z: np.ndarray, s: np.ndarray, judged: np.ndarray
) -> tuple[float, float]:
    """Return the part of the terms, 0 for none, and the penalty with the least variance at the judged draws."""
    least = (judged - workshop.fit(_Terms.none(), y, lam, 1.0).values(z, s)).var()
    best = (0.0, 1.0)
    for part in GRID.parts:
        kept = terms.first(part)
        for ridge in GRID.penalties:
            left = (judged - workshop.fit(kept, y, lam, ridge).values(z, s)).var()
            if left < least:
                least, best = left, (part, ridge)
    return best


def memory(n: int, dim: int) -> float:
    """Return the bytes that a fit takes at its peak: spectra of the linear features and matrices of pairs."""
    return 8.0 * (4 * n * min(n, dim) + 4 * n * dim + 6 * dim * dim)
