r"""Gauss-Newton for a few hidden units of a potential, with the linear part solved exactly at every step.

Given the units, which all outputs share, the coefficients of the columns $F = [X, \Psi]$ (polynomial and units) are a
ridge regression. Variable projection takes that solution along and steps are made in the units' weights alone. With
$J = \partial\Psi$ the matrix of such a step is

$$ S = \Omega \circ \big(J^T J - J^T F (F^T F)^{-1} F^T J\big), \qquad \Omega = A A^T, $$

$A$ the units' coefficients, so that its cost does not grow with the number of outputs. A dozen of steps reach what
Adam does not in thousands, but to the nearest minimum: hence from units that Adam has found.

Ref: Golub & Pereyra (1973), SIAM J. Numer. Anal. 10; Kaufman (1975), BIT 15.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from .units import Units, derivatives, features


class Steps(NamedTuple):
    """How Gauss-Newton steps are damped (Marquardt 1963: the exact factors matter little), and when they end.

    - `damping`: of the first step; it falls by `easier` after a good step, grows by `harder` after a bad one, and
      stays within `bounds`.
    - `tries`: of a step before the penalty's stage ends; `gain`: a stage ends where a step gains less than this part.
    - `floor`: added to every diagonal, so that a unit that is a copy of another has a coefficient.
    """

    damping: float = 1e-2
    easier: float = 4.0
    harder: float = 6.0
    bounds: tuple[float, float] = (1e-8, 1e8)
    tries: int = 3
    gain: float = 1e-4
    floor: float = 1e-12


STEPS = Steps()


class Draws(NamedTuple):
    """Draws with the polynomial's features and what is to be fitted."""

    z: Float[np.ndarray, "n dim"]
    s: Float[np.ndarray, "n dim"]
    x: Float[np.ndarray, "n feature"]
    y: Float[np.ndarray, "n out"]

    def take(self, rows: np.ndarray | slice) -> "Draws":
        return Draws(*(a[rows] for a in self))


class _Solved(NamedTuple):
    """The ridge regression at given units; their features `psi` are about their mean, over the root of n."""

    coefficients: np.ndarray
    factor: np.ndarray
    psi: np.ndarray
    mean: np.ndarray
    residual: np.ndarray
    cost: float


class _Refinement:
    """One fit: what does not change from step to step."""

    def __init__(self, draws: Draws, ridge: np.ndarray):
        self.draws, self.ridge = draws, ridge
        self.root = 1 / np.sqrt(len(draws.y))
        self.x_mean = draws.x.mean(axis=0)
        self.x = (draws.x - self.x_mean) * self.root
        self.center = draws.y.mean(axis=0)
        self.y = (draws.y - self.center) * self.root
        self.xx, self.xy = self.x.T @ self.x, self.x.T @ self.y

    def solve(self, units: Units, penalty: float) -> _Solved:
        psi = features(units, self.draws.z, self.draws.s)
        mean = psi.mean(axis=0)
        psi -= mean
        psi *= self.root
        known, count = len(self.ridge), len(units.b)
        gram = np.empty((known + count, known + count))
        gram[:known, :known] = self.xx
        gram[known:, :known] = psi.T @ self.x
        gram[:known, known:] = gram[known:, :known].T
        gram[known:, known:] = psi.T @ psi
        ridge = np.append(self.ridge, np.full(count, penalty))
        gram[np.diag_indices_from(gram)] += ridge + STEPS.floor
        factor = np.linalg.cholesky(gram)
        right = np.concatenate([self.xy, psi.T @ self.y])
        coefficients = scipy.linalg.cho_solve((factor, True), right, check_finite=False)
        residual = self.y - self.x @ coefficients[:known] - psi @ coefficients[known:]
        cost = (residual**2).sum() + (ridge[:, None] * coefficients**2).sum()
        weights = penalty * self.y.shape[1] * (units.w**2).sum()
        return _Solved(coefficients, factor, psi, mean, residual, float(cost + weights))

    def system(self, units: Units, at: _Solved, penalty: float) -> tuple[np.ndarray, np.ndarray]:
        """Return matrix and gradient of a Gauss-Newton step in the units' weights."""
        count, dim = units.w.shape
        jacobian = derivatives(units, self.draws.z, self.draws.s)
        n = len(jacobian)
        flat = jacobian.reshape(n, -1)
        flat -= flat.mean(axis=0)
        flat *= self.root
        heads = at.coefficients[len(self.ridge) :]
        cross = np.concatenate([self.x.T @ flat, at.psi.T @ flat])
        cross = scipy.linalg.solve_triangular(at.factor, cross, lower=True, check_finite=False)
        omega = heads @ heads.T
        matrix = flat.T @ flat
        matrix -= cross.T @ cross
        matrix.reshape(count, dim + 1, count, dim + 1)[...] *= omega[:, None, :, None]
        shrink = np.tile(np.append(np.full(dim, penalty * self.y.shape[1]), 0.0), count)
        matrix[np.diag_indices_from(matrix)] += shrink
        pull = at.residual @ heads.T
        down = np.matmul(jacobian.transpose(1, 2, 0), pull.T[:, :, None])[:, :, 0].reshape(-1)
        return matrix, shrink * _flat(units) - down

    def held_out(self, units: Units, at: _Solved, other: Draws) -> Float[np.ndarray, " out"]:
        """Return the variance that is left at other draws."""
        columns = np.concatenate([other.x - self.x_mean, features(units, other.z, other.s) - at.mean], axis=1)
        return (other.y - columns @ at.coefficients).var(axis=0)


def refine(
    units: Units,
    train: Draws,
    valid: Draws,
    ridge: Float[np.ndarray, " feature"],
    penalties: tuple[float, ...],
    steps: int,
) -> Units:
    """Return the units, of those at every penalty of a path from large to small, that leave least at `valid`.

    Outputs are of variance one and count alike, each by the factor that it gains.
    """
    fit = _Refinement(train, ridge)
    damping, best, least = STEPS.damping, units, np.inf
    for penalty in penalties:
        try:
            units, at, damping = _stage(fit, units, penalty, damping, steps)
        except np.linalg.LinAlgError:  # not even the start can be solved for: numbers of very different size
            break
        left = float(np.log(np.maximum(fit.held_out(units, at, valid), STEPS.floor)).mean())
        if left < least:
            best, least = units, left
    return best


def _stage(fit: _Refinement, units: Units, penalty: float, damping: float, steps: int) -> tuple[Units, _Solved, float]:
    """Make steps at one penalty for as long as they pay."""
    at = fit.solve(units, penalty)
    low, high = STEPS.bounds
    for _ in range(steps):
        matrix, gradient = fit.system(units, at, penalty)
        diagonal = np.diagonal(matrix).copy()
        base = diagonal + 1e-3 * diagonal.mean()
        for _ in range(STEPS.tries):
            damped = matrix.copy()
            damped[np.diag_indices_from(damped)] += damping * base + STEPS.floor
            try:
                factor = scipy.linalg.cho_factor(damped, lower=True, overwrite_a=True, check_finite=False)
                move = scipy.linalg.cho_solve(factor, gradient, check_finite=False)
                trial = _unflat(_flat(units) - move, units)
                after = fit.solve(trial, penalty)
            except np.linalg.LinAlgError:
                after = None
            if after is not None and after.cost < at.cost:  # false for NaN as well
                break
            damping = min(damping * STEPS.harder, high)
        else:
            return units, at, damping
        gained = at.cost - after.cost
        units, at, damping = trial, after, max(damping / STEPS.easier, low)
        if gained < STEPS.gain * at.cost:
            break
    return units, at, damping


def choose(psi: Float[np.ndarray, "n unit"], y: Float[np.ndarray, "n out"], count: int) -> Int[np.ndarray, " count"]:
    """Return the `count` units that, one after the other, take most off what the ones before leave of y."""
    psi = psi - psi.mean(axis=0)
    psi /= np.maximum(np.sqrt((psi**2).sum(axis=0)), STEPS.floor)
    gram = psi.T @ psi
    cross = psi.T @ (y - y.mean(axis=0))
    free = np.ones(len(gram))  # of each unit, the part of its square that the chosen ones do not explain
    rows = np.zeros((count, len(gram)))
    chosen: list[int] = []
    for i in range(count):
        gain = np.where(free > 1e-4, (cross**2).sum(axis=1) / np.maximum(free, 1e-4), -1.0)
        gain[chosen] = -2.0
        k = int(gain.argmax())
        chosen.append(k)
        size = np.sqrt(max(free[k], 1e-4))
        rows[i] = (gram[k] - rows[:i, k] @ rows[:i]) / size
        cross = cross - rows[i][:, None] * (cross[k] / size)
        free = free - rows[i] ** 2
    return np.array(chosen)


def _flat(units: Units) -> np.ndarray:
    return np.concatenate([units.w, units.b[:, None]], axis=1).reshape(-1)


def _unflat(flat: np.ndarray, like: Units) -> Units:
    both = flat.reshape(like.w.shape[0], -1)
    return Units(both[:, :-1], both[:, -1])
