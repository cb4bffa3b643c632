r"""The cubic part of a log density, learned from the scores of the draws.

With $s(z) = c + Bz + \nabla h(z)$ and h a cubic form, the scores say n times dim numbers about h, where values of one
f say n about its control variate. Ridge regression with the kernel $(z\cdot z')^3 / 6$ makes

$$ h(z) = \tfrac12 \sum_m (z\cdot z_m)^2\, (z\cdot c_m), $$

whose coefficients $c_m$ solve a linear system of n times dim unknowns. Conjugate gradients need a dozen products
with its matrix, n^2 dim operations each, and never the dim^3 / 6 coefficients of h.

Perturbation theory says what it is for. If z is nearly standard normal, the Stein equation of $f = b\cdot z$ has the
solution $b\cdot z + \tfrac12 \partial_b h$, and that of a product of two linear functions needs
$(a\cdot z)\,\partial_b h$.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Sizes(NamedTuple):
    """New draws taken at a time, so that their products with the draws fitted on stay small, and what is rounding.

    Scores that are linear to within `rounding` of their square say nothing else about a cubic form.
    """

    rows: int = 512
    rounding: float = 1e-9


SIZES = Sizes()


@dataclass(frozen=True, eq=False)
class CubicDensity:
    """The form h: draws it was fitted on, and their coefficients."""

    centres: Float[np.ndarray, "m dim"]
    coefficients: Float[np.ndarray, "m dim"]

    @classmethod
    def of(
        cls, z: np.ndarray, s: np.ndarray, penalty: float = 0.01, steps: int = 12, precision: float = 0.03
    ) -> "CubicDensity":
        """Fit h to the scores by conjugate gradients, in single precision: any h gives a valid control variate.

        `penalty` is per draw, for a kernel over the dimension.
        """
        n, dim = z.shape
        basis = np.linalg.qr(np.column_stack([np.ones(n), z]))[0].astype(np.float32)

        def outside(x: np.ndarray) -> np.ndarray:
            """Take off what is a linear function of the draws."""
            return x - basis @ (basis.T @ x)

        small = z.astype(np.float32)
        products = small @ small.T
        squares = products * products * np.float32(0.5 / dim)
        products *= np.float32(1 / dim)

        def matrix(x: np.ndarray) -> np.ndarray:
            bent = small @ x.T
            bent *= products
            return outside(squares @ x + bent @ small) + np.float32(n * penalty) * x

        left = outside(s.astype(np.float32))
        found, step = np.zeros_like(left), left.copy()
        size = start = float(np.vdot(left, left))
        for _ in range(steps):
            if size <= precision**2 * start or start <= SIZES.rounding * float(np.vdot(s, s)):
                break
            image = matrix(step)
            length = np.float32(size / float(np.vdot(step, image)))
            found += length * step
            left -= length * image
            before, size = size, float(np.vdot(left, left))
            step = left + np.float32(size / before) * step
        return cls(z, outside(found).astype(float))

    def features(
        self, z: Float[np.ndarray, "n dim"], s: Float[np.ndarray, "n dim"], directions: Float[np.ndarray, "group dim k"]
    ) -> Float[np.ndarray, "group n k_and_k_squared"]:
        """Return the Stein features of dh/db and of (a . z) dh/db, for all directions a, b of each group."""
        groups, dim, k = directions.shape
        flat = directions.transpose(1, 0, 2).reshape(dim, -1)
        along, across = self.centres @ flat, self.coefficients @ flat
        slope, stein = np.empty((len(z), groups * k)), np.empty((len(z), groups * k))
        size = np.einsum("mi,mi->m", self.centres, self.centres)
        mixed = np.einsum("mi,mi->m", self.centres, self.coefficients)
        for start in range(0, len(z), SIZES.rows):
            rows = slice(start, start + SIZES.rows)
            t, v = z[rows] @ self.centres.T, z[rows] @ self.coefficients.T
            st, sv = s[rows] @ self.centres.T, s[rows] @ self.coefficients.T
            slope[rows] = (t * v) @ along + (0.5 * t * t) @ across
            stein[rows] = (st * v + t * sv + 2 * mixed) @ along + (t * st + size) @ across
        slope, stein = (x.reshape(len(z), groups, k).transpose(1, 0, 2) for x in (slope, stein))
        out = np.empty((groups, len(z), k + k * k))
        out[..., :k] = stein
        along, across = (x.reshape(-1, groups, k).transpose(1, 0, 2) for x in (along, across))
        for g in range(groups):
            # the derivative of dh/db along a is linear in z
            pairs = np.einsum("mj,mk->mjk", along[g], along[g]).reshape(-1, k * k)
            bent = np.einsum("mj,mk->mjk", across[g], along[g])
            bent = (bent + bent.transpose(0, 2, 1)).reshape(-1, k * k)
            second = z @ (self.coefficients.T @ pairs + self.centres.T @ bent)
            u, su = z @ directions[g], s @ directions[g]
            products = u[:, :, None] * stein[g][:, None, :] + su[:, :, None] * slope[g][:, None, :]
            out[g, :, k:] = products.reshape(len(z), -1) + 2 * second
        return out
