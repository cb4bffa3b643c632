r"""Stein kernels: a radial kernel $k(x, y) = \varphi(|x - y|^2)$ with the Stein operator on both arguments.

Every function $x \mapsto K_0(x, y)$ has mean zero under $p$. With $u = |x-y|^2$, $d = x - y$ and scores
$s = s(x)$, $t = s(y)$ in D dimensions,

$$ \text{order 1:}\quad \textstyle\sum_j (\partial_{x_j} + s_j)(\partial_{y_j} + t_j)\, k
   = -2D\varphi' - 4u\varphi'' + 2\varphi'\, d\cdot(t - s) + \varphi\, s\cdot t $$

$$ \text{order 2:}\quad L_x L_y k = 4D(D+2)\varphi'' + 16(D+2)u\varphi''' + 16u^2\varphi''''
   - 2a'\, d\cdot(t - s) - 4\varphi''(d\cdot s)(d\cdot t) - 2\varphi'\, s\cdot t $$

where $L = \Delta + s\cdot\nabla$ and $a' = 2(D+2)\varphi'' + 4u\varphi'''$.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

KERNELS = ("gaussian", "rational quadratic", "matern")


class Blocks(NamedTuple):
    """Rows and columns of a block, which stays in the cache with the temporaries of its formula.

    `product` is n m k up to which OpenBLAS multiplies (n, k) by (k, m) in one thread (its GEMM_MULTITHREAD_THRESHOLD).
    """

    side: int = 256
    product: int = 2**18


BLOCKS = Blocks()


def radial(kernel: str, u: Any, lengthscale: float, order: int, xp: ModuleType = np) -> list[Any]:
    r"""Return $\varphi(u)$ and its first $2 \cdot$ `order` derivatives; all are finite at u = 0.

    The one place where kernels differ: `xp` is NumPy, or JAX's, and u `(n, m)` an array of it.

    The Matern kernel has smoothness $\nu$ = 5/2 (order 1) or 9/2 (order 2). Its derivatives are Matern
    again: with $t = \sqrt{2\nu u}/\ell$ and $M_\nu = t^\nu K_\nu(t)$, $dM_\nu/du = -(\nu/\ell^2) M_{\nu-1}$,
    and $M_{\nu+1} = 2\nu M_\nu + t^2 M_{\nu-1}$ makes each a polynomial in t times $e^{-t}$.
    """
    scaled = u / lengthscale**2
    if kernel == "gaussian":
        rate, phi = -1 / lengthscale**2, xp.exp(-scaled)
        return [rate**k * phi for k in range(2 * order + 1)]
    if kernel == "rational quadratic":
        phi = 1 / (1 + scaled)
        derivatives = [phi]
        for k in range(1, 2 * order + 1):
            derivatives.append(derivatives[-1] * phi * (-k / lengthscale**2))
        return derivatives
    nu = 2 * order + 0.5
    t_squared = 2 * nu * scaled
    t = xp.sqrt(t_squared)
    lower = xp.exp(-t)
    family = [lower, (1 + t) * lower]
    for k in range(1, 2 * order):
        family.append((2 * k + 1) * family[k] + t_squared * family[k - 1])
    at_zero = np.prod(np.arange(1, 4 * order, 2))  # of the last, so that phi(0) = 1
    return [(-nu / lengthscale**2) ** k / at_zero * member for k, member in enumerate(reversed(family))]


@dataclass(frozen=True)
class SteinKernel:
    """$K_0$ for one of `KERNELS`, a length scale and the order, 1 or 2, of the Stein operator."""

    kernel: str
    lengthscale: float
    order: int = 1

    def __call__(
        self,
        x: Float[np.ndarray, "n dim"],
        s: Float[np.ndarray, "n dim"],
        y: Float[np.ndarray, "m dim"],
        t: Float[np.ndarray, "m dim"],
    ) -> Float[np.ndarray, "n m"]:
        """The matrix of $K_0(x_i, y_j)$."""
        left, right = self._rows(x, s), self._rows(y, t)
        matrix = np.empty((len(x), len(y)))
        for rows, columns in _tiles(len(x), len(y)):
            matrix[rows, columns] = self._tile(left[rows], right[columns])
        return matrix

    def gram(self, x: Float[np.ndarray, "n dim"], s: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n n"]:
        """The symmetric matrix of $K_0(x_i, x_j)$: half the work."""
        points = self._rows(x, s)
        matrix = np.empty((len(x), len(x)))
        for rows, columns in _tiles(len(x), len(x)):
            if columns.start <= rows.start:
                matrix[rows, columns] = tile = self._tile(points[rows], points[columns])
                matrix[columns, rows] = tile.T
        return matrix

    def times(
        self,
        x: Float[np.ndarray, "n dim"],
        s: Float[np.ndarray, "n dim"],
        y: Float[np.ndarray, "m dim"],
        t: Float[np.ndarray, "m dim"],
        alpha: Float[np.ndarray, "m out"],
    ) -> Float[np.ndarray, "n out"]:
        """$K_0(x, y)\\,\\alpha$ without ever holding the matrix."""
        left, right = self._rows(x, s), self._rows(y, t)
        product = np.zeros((len(x), alpha.shape[1]))
        for rows, columns in _tiles(len(x), len(y)):
            product[rows] += self._tile(left[rows], right[columns]) @ alpha[columns]
        return product

    def _rows(self, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        """A point as the row (x, s, |x|^2, x.s): what a tile needs of it."""
        return np.hstack([x, s, (x * x).sum(axis=1)[:, None], (x * s).sum(axis=1)[:, None]])

    def _tile(self, left: np.ndarray, right: np.ndarray) -> Float[np.ndarray, "n m"]:
        D = left.shape[1] // 2 - 1
        x, s, xx, xs = left[:, :D], left[:, D:-2], left[:, -2:-1], left[:, -1:]
        y, t, yy, yt = right[:, :D].T, right[:, D:-2].T, right[:, -2], right[:, -1]
        u = _product(x, y)
        u *= -2
        u += xx
        u += yy
        np.maximum(u, 0, out=u)
        phi = radial(self.kernel, u, self.lengthscale, self.order)
        st = _product(s, t)
        ds = xs - _product(s, y)
        dt = _product(x, t)
        dt -= yt
        # In place, term by term: a tile's time is that of the passes over it.
        if self.order == 1:
            st *= phi[0]
            dt -= ds
            dt -= D
            dt *= phi[1]
            u *= phi[2]
            u *= 2
            dt -= u
            dt *= 2
            st += dt
            return st
        st *= phi[1]
        cross = ds * dt
        cross *= phi[2]
        cross *= 2
        st += cross
        st *= -2
        phi[3] *= u
        slope = (D + 2) * phi[2] + 2 * phi[3]
        dt -= ds
        dt *= slope
        dt *= -4
        st += dt
        phi[2] *= 4 * D * (D + 2)
        phi[3] *= 16 * (D + 2)
        u *= u
        u *= phi[4]
        u *= 16
        st += phi[2]
        st += phi[3]
        st += u
        return st


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b in pieces too small for BLAS to wake its threads.

    At this size waking them gains nothing, and on a busy machine waiting for them costs 50-fold.
    """
    product = np.empty((len(a), b.shape[1]))
    step = max(8, BLOCKS.product // b.size)
    for i in range(0, len(a), step):
        np.matmul(a[i : i + step], b, out=product[i : i + step])
    return product


def _tiles(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    for i in range(0, rows, BLOCKS.side):
        for j in range(0, columns, BLOCKS.side):
            yield slice(i, min(i + BLOCKS.side, rows)), slice(j, min(j + BLOCKS.side, columns))
