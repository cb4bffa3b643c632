r"""Sparse polynomial control variates: few pairs and triples of coordinates, found by what a linear fit leaves.

In the coordinates of a hierarchical model, each only scaled, a log density has few interactions, and so has the
solution of a Stein equation. With r the residual of a fit, $X^T \mathrm{diag}(r) S$ holds the covariance of r with
every pair feature $x_i s_j + x_j s_i$ at the price of one product of matrices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...runtime.validation import reserve, whole_number
from ..method import Control, Method, Problem
from ..problem import Cost
from .screening import SINGLE, Screen, Terms
from .smoother import Side, Split, solve_symmetric


class _Grid(NamedTuple):
    """What is tried on draws left out: penalties of the terms, per draw, and the parts of the pairs that are kept.

    While terms are searched for, they are fitted with the penalty `search`.
    """

    penalties: tuple[float, ...] = (1e-13, 1e-5, 1e-3, 1e-2, 1e-1, 1.0)
    parts: tuple[float, ...] = (1.0, 0.3, 0.1)
    search: float = 1e-2


class _Limits(NamedTuple):
    """Sizes at which the screen of all pairs is made cheaper.

    Up to `all_rounds` dimensions every round looks at all pairs, up to `first_round` only the first does. Other rounds
    look at pairs with one of the `strong` variables in them.
    """

    all_rounds: int = 300
    first_round: int = 1200
    strong: int = 60


GRID, LIMITS = _Grid(), _Limits()


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

    pairs: int = 160
    rounds: int = 4
    variables: int = 8

    together = False

    def __post_init__(self) -> None:
        whole_number("pairs", self.pairs, 1)
        whole_number("rounds", self.rounds, 1)
        whole_number("variables", self.variables, 0)

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        return [self._solve(problem) for problem in problems]

    def cost(self, n: int, dim: int, outputs: int) -> Cost:
        """Return the cost of a fit: searches on part of the draws and on all, each with a spectrum of the scores."""
        rank, terms = min(n, dim), self.pairs * (self.rounds + 1) / self.rounds
        strong = min(dim, LIMITS.strong)
        screens = [dim if dim <= LIMITS.first_round else 4 * strong]
        screens += [dim if dim <= LIMITS.all_rounds else 4 * strong] * (self.rounds - 1)
        search = 2.0 * n * dim * sum(screens) + 4.0 * n * rank * terms + 2.0 * n * terms**2 + 10 * terms**3
        spectra = 2.0 * n * dim * rank + 10.0 * rank**3 + 6.0 * n * dim * screens[0] + 40.0 * n * rank * outputs
        pairs = 4 * dim * screens[0] / (2 if dim >= SINGLE else 1)
        return Cost(2 * (outputs * search + spectra), 8.0 * (6 * n * rank + 6 * n * dim + 4 * n * terms + pairs))

    def _solve(self, problem: Problem) -> Control:
        z, s, y = problem.z, problem.s, problem.y
        (n, dim), outputs = z.shape, y.shape[1]
        reserve(f"Sparse() of {n} draws in {dim} dimensions", self.cost(n, dim, outputs).bytes, "Use fewer draws.")
        split = Split.of(n, problem.chains)
        trained, whole = Screen.of(z[split.fit], s[split.fit]), Screen.of(z, s)
        held_z, held_s = (np.asfortranarray(x[split.judge]) for x in (z, s))
        first, _ = trained.linear.choose(y[split.fit])
        trials = [self._search(trained, y[split.fit, out], float(first[out])) for out in range(outputs)]
        # what the terms leave may be far more linear than y was, and then asks for a smaller penalty
        penalty, _ = trained.linear.choose(np.column_stack([trial.without_terms() for trial in trials]))
        fits, infos = [], []
        for out, trial in enumerate(trials):
            lam = float(penalty[out])
            part, ridge = _judge(trial.at(lam), held_z, held_s, y[split.judge, out])
            lam = lam if part else float(first[out])
            found = self._search(whole, y[:, out], lam) if part else Design.of(whole, y[:, out], lam)
            fit = found.fit(part, ridge)
            fits.append(fit)
            infos.append({"pairs": len(fit.terms.pairs), "triples": len(fit.terms.triples), "penalty": ridge})

        def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
            z, s = np.asfortranarray(z), np.asfortranarray(s)
            return -np.column_stack([fit.values(z, s) for fit in fits])

        return Control(evaluate, {"draws": n, "linear_penalty": penalty.tolist(), "outputs": infos})

    def _search(self, screen: Screen, y: np.ndarray, lam: float) -> "Design":
        """Find pairs, strongest first, then triples of the variables in most of them."""
        design = Design.of(screen, y, lam)
        dim = screen.z.shape[1]
        share = min(-(-self.pairs // self.rounds), max(1, len(y) // (4 * self.rounds)))
        strong = None if dim <= LIMITS.first_round else screen.relevant(y, LIMITS.strong)
        for _ in range(self.rounds):
            design = design.with_pairs(screen.strongest(design.residual(), share, design.terms, strong))
            if dim > LIMITS.all_rounds:
                strong = design.terms.most_used(LIMITS.strong, dim)
        if self.variables:
            few = design.terms.most_used(self.variables, dim)
            design = design.with_triples(few, *screen.cubic(design.residual(), few, share))
        return design


@dataclass(frozen=True, eq=False)
class Design:
    """Term features about their mean, `f`, what the linear fit with penalty `lam` leaves of them, and y.

    Beside both is what all penalties share: their parts `along` the spectrum of the scores.
    """

    screen: Screen
    y: Side
    lam: float
    terms: Terms
    f: Side
    gram: Float[np.ndarray, "k k"]

    @classmethod
    def of(cls, screen: Screen, y: np.ndarray, lam: float) -> "Design":
        none = np.empty((len(y), 0))
        sides = (Side.of(screen.linear, x, lam) for x in ((y - y.mean())[:, None], none))
        return cls(screen, next(sides), lam, Terms.none(), next(sides), np.empty((0, 0)))

    def with_pairs(self, pairs: np.ndarray) -> "Design":
        return self._plus(self.terms.plus(pairs), self.screen.pairs(pairs))

    def with_triples(self, variables: np.ndarray, triples: np.ndarray, features: np.ndarray) -> "Design":
        return self._plus(self.terms._replace(variables=variables, triples=triples), features)

    def _plus(self, terms: Terms, f: np.ndarray) -> "Design":
        """Return the design with more features, which are used up: all products but theirs are there already."""
        f -= f.mean(axis=0)
        new = Side.of(self.screen.linear, f, self.lam)
        cross = self.f.values.T @ new.left
        gram = np.block([[self.gram, cross], [cross.T, f.T @ new.left]])
        return Design(self.screen, self.y, self.lam, terms, self.f.beside(new), gram)

    def at(self, lam: float) -> "Design":
        """Return the fit with another penalty of the linear features."""
        if lam == self.lam:
            return self
        y, f = (side.at(self.screen.linear, lam) for side in (self.y, self.f))
        return Design(self.screen, y, lam, self.terms, f, f.values.T @ f.left)

    def without_terms(self) -> Float[np.ndarray, " n"]:
        """Return y less the terms of a fit with a moderate penalty."""
        return self.y.values[:, 0] - self.f.values @ self._coefficients(slice(None), GRID.search)

    def residual(self) -> Float[np.ndarray, " n"]:
        """Return what such a fit leaves."""
        return self.y.left[:, 0] - self.f.left @ self._coefficients(slice(None), GRID.search)

    def fit(self, part: float, ridge: float) -> "SparseFit":
        """Fit the scores with penalty `lam` and this part of the terms with penalty `ridge` together."""
        terms = self.terms.first(part)
        kept = slice(len(terms.pairs) + len(terms.triples))
        coefficients = self._coefficients(kept, ridge)
        along = self.y.along[:, 0] - self.f.along[:, kept] @ coefficients
        return SparseFit(self.screen.weights(along, self.lam), terms, coefficients)

    def _coefficients(self, kept: slice, ridge: float) -> np.ndarray:
        gram = self.gram[kept, kept].copy()
        gram[np.diag_indices(len(gram))] += len(self.y.values) * ridge
        return solve_symmetric(gram, self._right[kept])

    @cached_property
    def _right(self) -> np.ndarray:
        return self.f.values.T @ self.y.left[:, 0]


class SparseFit(NamedTuple):
    """The coefficients of the scores and of the terms."""

    linear: np.ndarray
    terms: Terms
    coefficients: np.ndarray

    def values(self, z: np.ndarray, s: np.ndarray) -> np.ndarray:
        return s @ self.linear + self.terms.features(z, s) @ self.coefficients


def _judge(design: Design, z: np.ndarray, s: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return the part of the terms, 0 for none, and the penalty with the least variance at the judged draws."""
    f = design.terms.features(z, s)

    def left(part: float, ridge: float) -> float:
        fit = design.fit(part, ridge)
        return float((y - s @ fit.linear - f[:, : len(fit.coefficients)] @ fit.coefficients).var())

    tried = {(part, ridge): left(part, ridge) for part in GRID.parts for ridge in GRID.penalties}
    best = min(tried, key=lambda choice: tried[choice])
    return best if tried[best] < left(0.0, 1.0) else (0.0, 1.0)
