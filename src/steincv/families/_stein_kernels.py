r"""Stein kernels: a radial kernel $k(x, y) = \varphi(|x - y|^2)$ with the Stein operator on both arguments.

Every function $x \mapsto K_0(x, y)$ has mean zero under $p$. With $u = |x-y|^2$, $d = x - y$ and scores
$s = s(x)$, $t = s(y)$ in D dimensions,

$$ \text{order 1:}\quad \textstyle\sum_j (\partial_{x_j} + s_j)(\partial_{y_j} + t_j)\, k
   = -2D\varphi' - 4u\varphi'' + 2\varphi'\, d\cdot(t - s) + \varphi\, s\cdot t $$

$$ \text{order 2:}\quad L_x L_y k = 4D(D+2)\varphi'' + 16(D+2)u\varphi''' + 16u^2\varphi''''
   - 2a'\, d\cdot(t - s) - 4\varphi''(d\cdot s)(d\cdot t) - 2\varphi'\, s\cdot t $$

where $L = \Delta + s\cdot\nabla$ and $a' = 2(D+2)\varphi'' + 4u\varphi'''$.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

KERNELS = ("gaussian", "rational quadratic", "matern")

# A tile and the half dozen temporaries of its formula stay in a core's cache.
TILE_ROWS, TILE_COLUMNS = 128, 512


def radial(kernel: str, u: Float[np.ndarray, "n m"], lengthscale: float, order: int) -> list[np.ndarray]:
    r"""$\varphi(u)$ and its first $2 \cdot$ `order` derivatives; all are finite at u = 0.

    The Matern kernel has smoothness $\nu$ = 5/2 (order 1) or 9/2 (order 2). Its derivatives are Matern
    again: with $t = \sqrt{2\nu u}/\ell$ and $M_\nu = t^\nu K_\nu(t)$, $dM_\nu/du = -(\nu/\ell^2) M_{\nu-1}$,
    and $M_{\nu+1} = 2\nu M_\nu + t^2 M_{\nu-1}$ makes each a polynomial in t times $e^{-t}$.
    """
    scaled = u / lengthscale**2
    if kernel == "gaussian":
        rate, phi = -1 / lengthscale**2, np.exp(-scaled)
        return [rate**k * phi for k in range(2 * order + 1)]
    if kernel == "rational quadratic":
        phi = 1 / (1 + scaled)
        derivatives = [phi]
        for k in range(1, 2 * order + 1):
            derivatives.append(derivatives[-1] * phi * (-k / lengthscale**2))
        return derivatives
    nu = 2 * order + 0.5
    t_squared = 2 * nu * scaled
    t = np.sqrt(t_squared)
    lower = np.exp(-t)
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
            if columns.start < rows.stop:
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
        """A point as the row (x, s, |x|^2, x.s, 1): every inner product below is one product of these."""
        inner = ((x * x).sum(axis=1), (x * s).sum(axis=1), np.ones(len(x)))
        return np.hstack([x, s, np.column_stack(inner)])

    def _tile(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        D = (left.shape[1] - 3) // 2
        x, s, xx, xs, one = left[:, :D], left[:, D : 2 * D], left[:, -3:-2], left[:, -2:-1], left[:, -1:]
        y, t, yy, yt = right[:, :D], right[:, D : 2 * D], right[:, -3], right[:, -2]
        u = x @ (-2 * y.T)
        u += xx
        u += yy
        np.maximum(u, 0, out=u)
        phi = radial(self.kernel, u, self.lengthscale, self.order)
        st = s @ t.T
        if self.order == 1:
            # d.(t - s) = x.t + y.s - x.s - y.t
            slope = np.hstack([x, s, xs, one]) @ np.hstack([t, y, -one_like(y), -yt[:, None]]).T
            slope -= D
            slope *= 2 * phi[1]
            st *= phi[0]
            st += slope
            u *= -4 * phi[2]
            st += u
            return st
        ds = xs - s @ y.T
        dt = x @ t.T - yt
        uphi3 = u * phi[3]
        slope = 2 * (D + 2) * phi[2] + 4 * uphi3
        return (
            4 * D * (D + 2) * phi[2]
            + 16 * (D + 2) * uphi3
            + 16 * u**2 * phi[4]
            - 2 * slope * (dt - ds)
            - 4 * phi[2] * ds * dt
            - 2 * phi[1] * st
        )


def one_like(y: np.ndarray) -> np.ndarray:
    return np.ones((len(y), 1))


def _tiles(rows: int, columns: int):
    for i in range(0, rows, TILE_ROWS):
        for j in range(0, columns, TILE_COLUMNS):
            yield slice(i, min(i + TILE_ROWS, rows)), slice(j, min(j + TILE_COLUMNS, columns))
