"""The coefficients of polynomial features and hidden units together: exact ridge regressions, all outputs at once."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Path(NamedTuple):
    """Penalties on the units' coefficients, from large to small, and what keeps their regressions solvable.

    - `least`: over the number of draws, the smallest penalty; few validation draws cannot tell wild fits from good.
    - `outputs`: solved for at a time, so that residuals of thousands of them take little memory.
    - `floor`, `twin`: added to every column's penalty, and to the diagonal of the correlations: a copy of another
      column is then solvable.
    """

    penalties: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    least: float = 3e-3
    outputs: int = 256
    floor: float = 1e-12
    twin: float = 1e-14


PATH = Path()


class Heads(NamedTuple):
    """Coefficients `(column, out)`, each output's penalty, and what it leaves at the validation draws."""

    coefficients: Float[np.ndarray, "column out"]
    penalty: Float[np.ndarray, " out"]
    error: Float[np.ndarray, " out"]


def solve_heads(
    columns: Float[np.ndarray, "n column"],
    y: Float[np.ndarray, "n out"],
    held: np.ndarray,
    ridge: Float[np.ndarray, " feature"],
    polynomial_error: Float[np.ndarray, " out"],
) -> Heads:
    """Choose each output's penalty at the `held` draws and solve with it on all.

    The first columns are the polynomial's with the penalties `ridge`. Where no penalty beats `polynomial_error` the
    polynomial is used alone.
    """
    units = columns.shape[1] - len(ridge)
    train, valid = ~held, held
    some, judged = Sums.of(columns[train], y[train]), columns[valid]
    part, whole = some.moments(), some.plus(Sums.of(judged, y[valid])).moments()
    allowed = [p for p in PATH.penalties if p * len(y) >= PATH.least]
    solved = np.stack([part.solve(np.append(ridge, np.full(units, p))) for p in allowed])
    errors = np.empty((len(allowed), y.shape[1]))
    judged -= part.mean
    for start in range(0, y.shape[1], PATH.outputs):
        outputs = slice(start, start + PATH.outputs)
        for k, c in enumerate(solved):
            errors[k, outputs] = (y[valid, outputs] - judged @ c[:, outputs]).var(axis=0)
    errors[~np.isfinite(errors)] = np.inf
    choice = errors.argmin(axis=0)
    best = errors[choice, np.arange(y.shape[1])]
    alone = ~(best <= polynomial_error)
    coefficients = np.zeros((columns.shape[1], y.shape[1]))
    for k in np.unique(choice[~alone]):
        used = (choice == k) & ~alone
        coefficients[:, used] = whole.solve(np.append(ridge, np.full(units, allowed[k])), used)
    if alone.any() and len(ridge):
        known = slice(0, len(ridge))
        only = Moments(whole.gram[known, known], whole.cross[known], whole.mean[known])
        coefficients[known, alone] = only.solve(ridge, alone)
    penalty = np.where(alone, np.inf, np.array(allowed)[choice])
    return Heads(coefficients, penalty, np.minimum(best, polynomial_error))


class Sums(NamedTuple):
    """Sums over draws, of which those of two parts add up, so that every draw is multiplied once."""

    draws: int
    gram: np.ndarray
    cross: np.ndarray
    columns: np.ndarray
    y: np.ndarray

    @classmethod
    def of(cls, columns: np.ndarray, y: np.ndarray) -> "Sums":
        """From Stein features, whose means are small beside their deviations."""
        return cls(len(y), columns.T @ columns, columns.T @ y, columns.sum(axis=0), y.sum(axis=0))

    def plus(self, other: "Sums") -> "Sums":
        draws, sums = self.draws + other.draws, zip(self[1:], other[1:], strict=True)
        return Sums(draws, *(mine + theirs for mine, theirs in sums))

    def moments(self) -> "Moments":
        mean = self.columns / self.draws
        gram = self.gram / self.draws - np.outer(mean, mean)
        return Moments(gram, (self.cross - np.outer(mean, self.y)) / self.draws, mean)


class Moments(NamedTuple):
    """Second moments of the columns about their means, and with y."""

    gram: np.ndarray
    cross: np.ndarray
    mean: np.ndarray

    def solve(self, ridge: np.ndarray, outputs: np.ndarray | slice = slice(None)) -> np.ndarray:
        size = np.sqrt(np.diagonal(self.gram) + ridge + PATH.floor)
        scaled = self.gram / size / size[:, None]  # columns can be of very different size
        scaled[np.diag_indices_from(scaled)] = 1 + PATH.twin
        return np.linalg.solve(scaled, self.cross[:, outputs] / size[:, None]) / size[:, None]
