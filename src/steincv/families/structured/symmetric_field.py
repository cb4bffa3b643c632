r"""Control variates of linear fields $\Phi(z) = a + Az$ with A symmetric, by a few steps of conjugate gradients.

$g = \mathrm{tr} A + (a + Az)\cdot s$ is all that a quadratic Q can give: D (D + 3) / 2 features. A product with all of
them, or with their transpose, is one product of matrices, n D^2 operations for each output, and no feature is ever
stored. In whitened coordinates of a nearly normal density features are nearly uncorrelated, so that each step counts;
and the fewer steps, the less is fitted to noise: their number is the penalty.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

# Products at most. In 61 and 120 dimensions, on 1500 orbits of 8 states, two to four were best.
STEPS = 8


@dataclass(frozen=True, eq=False)
class SymmetricField:
    """For every output a and, below it, A."""

    matrices: Float[np.ndarray, "out one_and_dim dim"]

    def __call__(self, z: Float[np.ndarray, "n dim"], s: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n out"]:
        """Return -g: what is fitted to f."""
        ahead, out = _with_ones(z), np.empty((len(z), len(self.matrices)))
        for o, matrix in enumerate(self.matrices):
            out[:, o] = _along(ahead, s, matrix) + np.trace(matrix[1:])
        return out

    @classmethod
    def fit(
        cls, z: np.ndarray, s: np.ndarray, y: Float[np.ndarray, "n out"], steps: Int[np.ndarray, " out"]
    ) -> "SymmetricField":
        """Return the field of every output after so many steps."""
        found = np.zeros((y.shape[1], 1 + z.shape[1], z.shape[1]))
        single = _with_ones(z).astype(np.float32), s.astype(np.float32)
        for o in np.flatnonzero(steps):
            for _, matrix in zip(range(steps[o]), _path(*single, y[:, o]), strict=False):
                found[o] = matrix
        return cls(found)

    @staticmethod
    def judge(
        fitted: tuple[np.ndarray, np.ndarray, np.ndarray], judged: tuple[np.ndarray, np.ndarray, np.ndarray]
    ) -> Int[np.ndarray, " out"]:
        """Return the number of steps after which a fit to (z, s, y) leaves least of the variance of other ones."""
        (z, s, y), (at, score, rest) = fitted, judged
        single, ahead = (_with_ones(z).astype(np.float32), s.astype(np.float32)), _with_ones(at)
        steps = np.zeros(y.shape[1], int)
        for o in range(y.shape[1]):
            left = [rest[:, o].var()]
            left += [(rest[:, o] - _along(ahead, score, matrix)).var() for matrix in _path(*single, y[:, o])]
            steps[o] = np.argmin(left)
        return steps


def _with_ones(z: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(z)), z])


def _along(ahead: np.ndarray, s: np.ndarray, matrix: np.ndarray) -> Float[np.ndarray, " n"]:
    return np.einsum("ni,ni->n", ahead @ matrix, s)


def _path(ahead: np.ndarray, s: np.ndarray, y: Float[np.ndarray, " n"]) -> Iterator[np.ndarray]:
    """Yield the field after one step, two, and so on."""

    def back(x: np.ndarray) -> np.ndarray:
        slope = (ahead.T @ ((x - x.mean()).astype(np.float32)[:, None] * s)).astype(float)
        slope[1:] = (slope[1:] + slope[1:].T) / 2
        return slope

    left, found = y - y.mean(), np.zeros((ahead.shape[1], s.shape[1]))
    slope = back(left)
    step, size = slope, float(np.vdot(slope, slope))
    for _ in range(STEPS):
        image = _along(ahead, s, step.astype(np.float32)).astype(float)
        image -= image.mean()
        stiff = float(image @ image)
        if stiff <= 0:
            return
        found = found + size / stiff * step
        left = left - size / stiff * image
        yield found
        slope = back(left)
        before, size = size, float(np.vdot(slope, slope))
        step = slope + size / before * step
