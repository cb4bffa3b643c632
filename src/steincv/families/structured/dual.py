r"""The quadratic control variate through its kernel: n^2 D operations where the features are D^2 / 2."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from ...runtime.memory import reserve
from ...runtime.validation import InputError
from ..cost import Cost
from ..method import Control, Method, Problem
from ..polynomial.hermite import degrees, feature_count, stein_features
from .smoother import Smoother

# New draws are taken so many at a time, so that the kernel between them and those fitted on stays small.
TILE = 512


@dataclass(frozen=True)
class DualQuadratic(Method):
    r"""$g = \Delta Q + \nabla Q \cdot s$ with $Q$ a quadratic, by a ridge regression in its dual form.

    The Stein features of a quadratic are $s_i$, $(1 + z_i s_i)/\sqrt2$ and $(z_i s_j + z_j s_i)/2$. Their inner
    products at two draws need no features:

    $$ k = s\cdot s' + \tfrac1\gamma\Big( \tfrac14 (z\cdot z')(s\cdot s') + \tfrac14 (z\cdot s')(s\cdot z')
       - \tfrac12 d\cdot d' + \tfrac\delta2 (1 + d)\cdot(1 + d') \Big), \qquad d_i = z_i s_i . $$

    The penalty of each output is chosen by leaving out blocks of neighbouring draws. With $\delta = 1$ and equal
    penalties this is `Polynomial(2)`; it costs n^2 D + n^3 operations whatever the number of features.

    **Arguments:**

    - `growth`: gamma, how many times as much as linear features the pairs are penalised. "auto" is dim^2 / 4, with
      which all pairs together weigh about as much as one linear feature, however many they are.
    - `diagonal`: delta, how many times less than pairs the squares are penalised.
    - `most`: at most about so many draws are fitted on, evenly spaced; up to twice as many are fitted on as they are.

    >>> import numpy as np, steincv as scv
    >>> from steincv.families.structured.dual import DualQuadratic
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 3))
    >>> fitted = DualQuadratic().fit(scv.Samples(x, -x), x[..., 0] * x[..., 1])
    >>> bool(np.ptp(x[..., 0] * x[..., 1] + fitted(scv.Samples(x, -x))[..., 0]) < 1e-6)
    True
    """

    growth: float | Literal["auto"] = "auto"
    diagonal: float = 1.0
    most: int = 1500

    together = False

    def __post_init__(self) -> None:
        if self.growth != "auto" and not 0 < self.growth < np.inf:
            raise InputError(f"The 'growth' of DualQuadratic must be 'auto' or positive. Got {self.growth!r} instead.")
        if not 0 <= self.diagonal < np.inf:
            raise InputError(f"The 'diagonal' of DualQuadratic must be in [0, inf). Got {self.diagonal!r} instead.")

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        return [self._solve(problem) for problem in problems]

    def cost(self, n: int, dim: int, outputs: int) -> Cost:
        """Return the cost of a fit: a kernel, its spectrum, and a search over penalties."""
        n = min(n, 2 * self.most)
        operations = 16.0 * n * n * dim + 10.0 * n**3 + 60.0 * n * n * (outputs + n / 60)
        return Cost(operations, 8.0 * (5 * n * n + 3 * n * dim + outputs * min(dim, n / 8) ** 2))

    def _solve(self, problem: Problem) -> Control:
        rows = problem.spaced(self.most)
        z, s, y = problem.z[rows], problem.s[rows], problem.y[rows]
        n, dim = z.shape
        needed = self.cost(n, dim, y.shape[1]).bytes
        reserve(f"DualQuadratic() of {n} draws in {dim} dimensions", needed, "Use a smaller `most`.")
        growth = max(1.0, dim**2 / 4) if self.growth == "auto" else float(self.growth)
        if feature_count(dim, 2) < n and self.diagonal == 1:  # then the features themselves are the shorter way
            smoother = Smoother.of_features(stein_features(z, s, 2) * growth ** (-0.5 * (degrees(dim, 2) - 1.0)))
        else:
            smoother = Smoother.of_kernel(kernel(z, s, z, s, growth, self.diagonal))
        penalty, left_out = smoother.choose(y)
        alpha = smoother.dual(y, penalty)
        info = {"draws": n, "penalty": penalty.tolist(), "growth": growth, "left_out": left_out.tolist()}
        return Control(Quadratic.of(z, s, alpha, growth, self.diagonal), info)


def kernel(
    z: Float[np.ndarray, "n dim"],
    s: Float[np.ndarray, "n dim"],
    centre_z: Float[np.ndarray, "m dim"],
    centre_s: Float[np.ndarray, "m dim"],
    growth: float,
    diagonal: float,
) -> Float[np.ndarray, "n m"]:
    """Return the inner products of all quadratic Stein features at two sets of draws."""
    linear = s @ centre_s.T
    k = z @ centre_z.T
    k *= linear
    cross = z @ centre_s.T
    cross *= s @ centre_z.T
    k += cross
    k *= 0.25
    d, centre_d = z * s, centre_z * centre_s
    np.matmul(d, centre_d.T, out=cross)
    k += (0.5 * diagonal - 0.5) * cross
    k += 0.5 * diagonal * (d.sum(axis=1)[:, None] + centre_d.sum(axis=1) + z.shape[1])
    k /= growth
    k += linear
    return k


@dataclass(frozen=True, eq=False)
class Quadratic:
    r"""$g = -(c\cdot s + z^T W s + \mathrm{tr} W)$ of each output, with c `(dim, out)` and W `(out, dim, dim)`."""

    linear: Float[np.ndarray, "dim out"]
    pairs: Float[np.ndarray, "out dim dim"]

    @classmethod
    def of(cls, z: np.ndarray, s: np.ndarray, alpha: np.ndarray, growth: float, diagonal: float) -> "Quadratic | Tiled":
        """Return the weights of the dual coefficients, or the dual form itself where that is smaller."""
        dim = z.shape[1]
        if dim > len(z) / 8:
            return Tiled(z, s, alpha, growth, diagonal)
        pairs = np.empty((alpha.shape[1], dim, dim))
        for w, a in zip(pairs, alpha.T, strict=True):
            product = (z * a[:, None]).T @ s
            np.add(product, product.T, out=w)
            w /= 4 * growth
            # of alpha, which has mean zero, nothing is left of the constants
            w[np.diag_indices(dim)] *= diagonal
        return cls(s.T @ alpha, pairs)

    def __call__(self, z: np.ndarray, s: np.ndarray) -> np.ndarray:
        g = -(s @ self.linear)
        for out, w in enumerate(self.pairs):
            g[:, out] -= np.einsum("ni,ni->n", z @ w, s) + np.trace(w)
        return g


@dataclass(frozen=True, eq=False)
class Tiled:
    """The same in dual form: the kernel between new draws and those fitted on, a tile of draws at a time."""

    z: Float[np.ndarray, "m dim"]
    s: Float[np.ndarray, "m dim"]
    alpha: Float[np.ndarray, "m out"]
    growth: float
    diagonal: float

    def __call__(self, z: np.ndarray, s: np.ndarray) -> np.ndarray:
        g = np.empty((len(z), self.alpha.shape[1]))
        for start in range(0, len(z), TILE):
            rows = slice(start, start + TILE)
            k = kernel(z[rows], s[rows], self.z, self.s, self.growth, self.diagonal)
            np.matmul(k, -self.alpha, out=g[rows])
        return g
