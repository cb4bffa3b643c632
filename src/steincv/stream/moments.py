r"""Sums over draws from which every polynomial control variate of degree 1 or 2 follows, in any coordinates.

The Stein features of degree 1 and 2 in coordinates $z = A(t - \mu)$, $s_z = A^{-T}s$ are linear combinations of
$1$, $s_j$ and $t_i s_j$, whatever $A$ and $\mu$ are. So the sums of

$$ (1, t_i, t_i t_j) \otimes (1, s_i, s_i s_j) \quad\text{and}\quad f\,(1, t_i) \otimes (1, s_j) $$

in some provisional coordinates $t$ hold the Gram matrix of every fold's own features, although a fold's coordinates
(the mean and covariance of its fitting draws) are only known at the end. One matrix product a tile makes the first.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

# Draws in a tile: its features stay in the cache.
TILE = 768


def pairs(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The entries $i \\le j$ of a symmetric matrix, in the order of `fill_products`."""
    return np.triu_indices(dim)


def fill_products(out: Float[np.ndarray, "k m"], x: Float[np.ndarray, "dim m"]) -> None:
    """Rows 1, x_i and x_i x_j, $i \\le j$."""
    dim = len(x)
    out[0] = 1.0
    out[1 : 1 + dim] = x
    at = 1 + dim
    for i in range(dim):
        np.multiply(x[i:], x[i], out=out[at : at + dim - i])
        at += dim - i


@dataclass(eq=False)
class Sums:
    """Of one group of draws. `table` is `(1, t, tt') x (1, s, ss')` for degree 2, else only its first row and column.

    `cross` is f, `(out)`, times `(1, t) x (1, s)` (degree 2) or `(1, s)`; f is in provisional units. `mixed` is t s',
    which for degree 2 is in the table.
    """

    dim: int
    degree: int
    outputs: int
    count: int = 0

    def __post_init__(self) -> None:
        k = 1 + self.dim + self.dim * (self.dim + 1) // 2
        self.table = np.zeros((k, k) if self.degree == 2 else (2, k))
        self.cross = np.zeros((self.outputs, (1 + self.dim) ** 2 if self.degree == 2 else 1 + self.dim))
        self.square = np.zeros(self.outputs)
        self.mixed = np.zeros((self.dim, self.dim))

    def __iadd__(self, other: "Sums") -> "Sums":
        self.count += other.count
        self.table += other.table
        self.cross += other.cross
        self.square += other.square
        self.mixed += other.mixed
        return self

    # What follows from them -----------------------------------------------------------------------------

    def first(self, scores: bool) -> Float[np.ndarray, " dim"]:
        return self._row(scores)[1 : 1 + self.dim]

    def second(self, scores: bool) -> Float[np.ndarray, "dim dim"]:
        """The sum of t t', or of s s'."""
        whole = np.zeros((self.dim, self.dim))
        i, j = pairs(self.dim)
        whole[i, j] = whole[j, i] = self._row(scores)[1 + self.dim :]
        return whole

    def _row(self, scores: bool) -> np.ndarray:
        if self.degree == 2:
            return self.table[0] if scores else self.table[:, 0]
        return self.table[int(scores)]

    def gram(self) -> Float[np.ndarray, "k k"]:
        """Sums of products of 1, s_j, t_i s_j: entry (a, b) of `(1, t)` and `(1, s)` at place a (1 + dim) + b."""
        size = 1 + self.dim
        place = np.zeros((size, size), dtype=int)
        place[0] = place[:, 0] = np.arange(size)
        i, j = pairs(self.dim)
        place[1 + i, 1 + j] = place[1 + j, 1 + i] = size + np.arange(len(i))
        a, b = np.divmod(np.arange(size * size), size)
        return self.table[place[np.ix_(a, a)], place[np.ix_(b, b)]]

    def cross_of_draws(self) -> Float[np.ndarray, "dim k"]:
        """The sums `cross` of f = t, which are in the table."""
        gram = self.gram()
        size = 1 + self.dim
        return gram[size * np.arange(1, size)]


class Tiles:
    """Adds draws to `Sums`, tile by tile, in arrays that are made once."""

    def __init__(self, dim: int, degree: int, outputs: int):
        self.dim, self.degree, self.outputs = dim, degree, outputs
        k = 1 + dim + dim * (dim + 1) // 2
        if degree == 2:
            self.left, self.right, self.product = np.empty((k, TILE)), np.empty((k, TILE)), np.empty((k, k))
        self.both = np.empty(((1 + dim) ** 2, TILE)) if outputs and degree == 2 else None

    def add(
        self,
        sums: Sums,
        t: Float[np.ndarray, "dim m"],
        s: Float[np.ndarray, "dim m"],
        f: Float[np.ndarray, "out m"] | None,
    ) -> None:
        """A tile: m is at most `TILE`."""
        m = t.shape[1]
        sums.count += m
        if self.degree == 2:
            left, right = self.left[:, :m], self.right[:, :m]
            fill_products(left, t)
            fill_products(right, s)
            np.matmul(left, right.T, out=self.product)
            sums.table += self.product
        else:
            i, j = pairs(self.dim)
            for row, x in enumerate((t, s)):
                sums.table[row, 0] += m
                sums.table[row, 1 : 1 + self.dim] += x.sum(axis=1)
                sums.table[row, 1 + self.dim :] += (x @ x.T)[i, j]
            sums.mixed += t @ s.T
        if f is None:
            return
        sums.square += np.einsum("km,km->k", f, f)
        if self.both is None:
            sums.cross[:, 0] += f.sum(axis=1)
            sums.cross[:, 1:] += f @ s.T
        else:
            sums.cross += f @ outer(self.both[:, :m], t, s).T


def outer(
    out: Float[np.ndarray, "k m"], t: Float[np.ndarray, "dim m"], s: Float[np.ndarray, "dim m"]
) -> Float[np.ndarray, "k m"]:
    """Rows `(1, t_i) x (1, s_j)`, written to `out`."""
    size = 1 + len(t)
    out[0] = 1.0
    out[1:size] = s
    for i in range(1, size):
        out[i * size] = t[i - 1]
        np.multiply(s, t[i - 1], out=out[i * size + 1 : (i + 1) * size])
    return out
