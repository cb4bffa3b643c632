r"""Hidden units of a shallow potential: their Stein features and the derivatives of these, in closed form.

The potential $Q_j(z) = \sum_k A_{kj}\tanh(w_k\cdot z + b_k)$ has
$\Delta Q_j + \nabla Q_j\cdot s = \sum_k A_{kj}\psi_k$,

$$ \psi_k = h'(u_k)\, w_k\cdot s + h''(u_k)\,|w_k|^2, \qquad u_k = w_k\cdot z + b_k, \quad h = \tanh, $$

a function of mean zero for any $w_k$ and $b_k$. Far from the ridge $u_k = 0$ it goes to zero exponentially, so that no
unit is large where there are no draws.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Units(NamedTuple):
    """Directions and offsets of the hidden units."""

    w: Float[np.ndarray, "unit dim"]
    b: Float[np.ndarray, " unit"]

    def take(self, which: np.ndarray) -> "Units":
        return Units(self.w[which], self.b[which])


def joined(parts: Sequence[Units]) -> Units:
    """Return the units of all parts, one after the other."""
    return Units(np.concatenate([units.w for units in parts]), np.concatenate([units.b for units in parts]))


def features(units: Units, z: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "n unit"]:
    r"""Return $\psi_k$ of every unit at every draw."""
    t = z @ units.w.T
    t += units.b
    np.tanh(t, out=t)
    psi = s @ units.w.T
    psi -= 2 * t * (units.w * units.w).sum(axis=1)
    t *= t
    np.subtract(1.0, t, out=t)
    psi *= t
    return psi


def derivatives(units: Units, z: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "n unit weight"]:
    """Return the derivatives of every feature by its unit's own weights: first `w`, then `b`."""
    n, dim = z.shape
    t = np.tanh(z @ units.w.T + units.b)
    first = 1 - t * t
    second = -2 * t * first
    along, size = s @ units.w.T, (units.w * units.w).sum(axis=1)
    by_b = first * (6 * t * t - 2) * size + second * along
    found = np.empty((n, len(units.b), dim + 1))
    by_w = found[:, :, :dim]
    np.multiply(by_b[:, :, None], z[:, None], out=by_w)
    by_w += first[:, :, None] * s[:, None]
    by_w += 2 * second[:, :, None] * units.w
    found[:, :, dim] = by_b
    return found
