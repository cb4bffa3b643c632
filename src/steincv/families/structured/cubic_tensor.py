r"""The cubic part of a log density as a symmetric tensor, learned from the scores at many states.

The same $h(z) = \tfrac16 T[z, z, z]$ as in `cubic_density.py`, whose scores are $c + Bz + \tfrac12 T[z, z]$, by its
dim^3 / 6 coefficients: of orbits there are more scores than those. Conjugate gradients then need 2 n dim^3 operations
a product, and not n^2 dim. In whitened coordinates of a nearly normal density the entries hardly mix, and a few
products do.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .cubic_density import SIZES


class Settings(NamedTuple):
    """Found on logistic regressions in 61 and 120 dimensions, one fold each.

    - `penalty`: per state. With .03 f + g had 1.2 times the variance; .003 is there for few states.
    - `steps`: products at most, and `more` from a start; `precision`: of the gradient, at which there are enough.
    - `rows`: states whose products of pairs are made at a time.
    """

    penalty: float = 0.003
    steps: int = 12
    more: int = 6
    precision: float = 0.01
    rows: int = 512


SETTINGS = Settings()


@dataclass(frozen=True, eq=False)
class CubicTensor:
    """The symmetric T of third derivatives."""

    tensor: Float[np.ndarray, "dim dim dim"]

    @classmethod
    def of(
        cls, z: Float[np.ndarray, "n dim"], s: Float[np.ndarray, "n dim"], start: "CubicTensor | None" = None
    ) -> "CubicTensor":
        """Fit T to the scores by conjugate gradients, in single precision: any T gives a valid control variate.

        `start`: one that was fitted to part of these states; then a few products do.
        """
        n, dim = z.shape
        basis = np.linalg.qr(np.column_stack([np.ones(n), z]))[0].astype(np.float32)
        left = s.astype(np.float32)
        left -= basis @ (basis.T @ left)  # linear functions of the states are not the tensor's
        found = np.zeros((dim, dim, dim), np.float32)
        if float(np.vdot(left, left)) <= SIZES.rounding * float(np.vdot(s, s)):
            return cls(found.astype(float))
        i, j = np.triu_indices(dim)
        half = np.where(i == j, np.float32(0.5), np.float32(1.0))[:, None]
        columns, buffer = np.ascontiguousarray(z.T, np.float32), np.empty((len(i), SETTINGS.rows), np.float32)
        tiles = [slice(first, min(n, first + SETTINGS.rows)) for first in range(0, n, SETTINGS.rows)]

        def pairs(tile: slice) -> np.ndarray:
            """Return the products of coordinates, `(pair, state)`."""
            x, at = columns[:, tile], 0
            for k in range(dim):
                np.multiply(x[k], x[k:], out=buffer[at : at + dim - k, : x.shape[1]])
                at += dim - k
            return buffer[:, : x.shape[1]]

        def whole(packed: np.ndarray) -> np.ndarray:
            one = np.empty((dim, dim, dim), np.float32)
            one[i, j] = one[j, i] = packed
            return (one + one.transpose(1, 2, 0) + one.transpose(2, 0, 1)) / 6

        def product(tensor: np.ndarray) -> np.ndarray:
            packed, total = half * tensor[i, j], np.zeros((len(i), dim), np.float32)
            along = np.zeros((1 + dim, dim), np.float32)
            for tile in tiles:
                x = pairs(tile)
                image = x.T @ packed
                total += x @ image
                along += basis[tile].T @ image
            return whole(total - mixed @ along) + np.float32(n * SETTINGS.penalty) * tensor

        mixed, right = (np.sum([pairs(tile) @ side[tile] for tile in tiles], axis=0) for side in (basis, left))
        slope = whole(right)
        enough = SETTINGS.precision**2 * float(np.vdot(slope, slope))
        if start is not None:
            found = start.tensor.astype(np.float32)
            slope -= product(found)
        step, size = slope.copy(), float(np.vdot(slope, slope))
        for _ in range(SETTINGS.steps if start is None else SETTINGS.more):
            if size <= enough:
                break
            image = product(step)
            length = np.float32(size / float(np.vdot(step, image)))
            found += length * step
            slope -= length * image
            before, size = size, float(np.vdot(slope, slope))
            step = slope + np.float32(size / before) * step
        return cls(found.astype(float))

    def features(
        self, z: Float[np.ndarray, "n dim"], s: Float[np.ndarray, "n dim"], directions: Float[np.ndarray, "group dim k"]
    ) -> Float[np.ndarray, "group n k_and_k_squared"]:
        """Return the Stein features of dh/db and of (a . z) dh/db, for all directions a, b of each group."""
        groups, _, k = directions.shape
        out = np.empty((groups, len(z), k + k * k))
        slope = np.empty((len(z), k))
        for g, chosen in enumerate(directions):
            curved = np.moveaxis(self.tensor @ chosen, 2, 0)  # T[b], symmetric, for every b
            stein = out[g, :, :k]
            for b, matrix in enumerate(curved):
                image = z @ matrix
                slope[:, b] = 0.5 * np.einsum("ni,ni->n", image, z)
                stein[:, b] = np.einsum("ni,ni->n", image, s) + np.trace(matrix)
            u, su = z @ chosen, s @ chosen
            products = u[:, :, None] * stein[:, None] + su[:, :, None] * slope[:, None]
            # the derivative of dh/db along a is linear in z
            across = np.einsum("bij,ja->iab", curved, chosen).reshape(len(chosen), -1)
            out[g, :, k:] = products.reshape(len(z), -1) + 2 * (z @ across)
        return out
