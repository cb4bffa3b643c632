r"""The identity, and the coordinates it is used in.

For a smooth density $p$ on R^dim with score $s = \nabla \log p$, and a vector field $\Phi$ with
$p\,\Phi \to 0$ at infinity,

$$ g(x) = \nabla \cdot \Phi(x) + \Phi(x) \cdot s(x) $$

has mean zero under $p$, whatever the parameters of $\Phi$. Every method here is a choice of $\Phi$.
"""

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from ..runtime.validation import InputError
from ..samples.samples import Samples

# No density that a sampler explores has draws or scores this large in standard coordinates, where both are of
# order one, and products of ten of them are still finite.
LARGEST = 1e30
# Larger samples are gone through so many draws at a time: what is made on the way then takes no more memory.
TILE = 20_000
# Numbers that are made on the way and stay in the cache.
CACHED = 2**17


class Limits(NamedTuple):
    """When a draw is alone, and when a covariance matrix is more noise than shape.

    - `far`: a draw that is so many times as far out as all others decides alone what is large.
    - `draws_per_dimension`: with fewer, coordinates are only scaled one by one.
    """

    far: float = 1e6
    draws_per_dimension: int = 2


LIMITS = Limits()


def stein(divergence: Any, trial: Any, scores: Any) -> Any:
    r"""$g = \nabla \cdot \Phi + \Phi \cdot s$, for NumPy and JAX arrays alike."""
    return divergence + (trial * scores).sum(-1)


class Coordinates(abc.ABC):
    """A smooth bijection x = T(z) of R^dim, seen from z, where draws and scores are of order one."""

    mean: Float[np.ndarray, " dim"]

    @abc.abstractmethod
    def rows(self, samples: Samples, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return some of the draws, counted chain after chain, with their scores; refuse those that are too large."""

    @abc.abstractmethod
    def pull(self, x: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return any `(n, dim)` points with their scores, whatever their size."""

    @abc.abstractmethod
    def inverse(self, z: np.ndarray) -> np.ndarray:
        """Return the points x = T(z)."""

    @abc.abstractmethod
    def log_jacobian(self, z: np.ndarray) -> np.ndarray:
        """Return log |det dT/dz| at every point."""

    def __call__(self, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
        """Return draws and scores in these coordinates, each `(chain * draw, dim)`."""
        return self.rows(samples, slice(None))

    def tiles(self, samples: Samples, size: int = TILE) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Yield (rows, z, s) in tiles of `size` draws, counted chain after chain."""
        for start in range(0, samples.draws.shape[0] * samples.draws.shape[1], size):
            part = slice(start, start + size)
            yield part, *self.rows(samples, part)


@dataclass(frozen=True, eq=False)
class Standardise(Coordinates):
    r"""The affine map $z = L^{-1}(x - m)$ to coordinates of mean 0 and covariance 1.

    $m$ and $L$ are the mean and the Cholesky factor of the covariance of the draws it was made from;
    scores transform by the transpose, $s_z = L^T s_x$. Length scales, penalties and learning rates
    then mean the same on every problem. $L$ is kept as `scale` (a diagonal) times `factor`, so that
    coordinates of size 1e-300 and 1e300 live side by side.
    """

    mean: Float[np.ndarray, " dim"]
    scale: Float[np.ndarray, " dim"]
    factor: Float[np.ndarray, "dim dim"] | None

    @classmethod
    def of(cls, samples: Samples) -> "Standardise":
        draws = samples.draws.reshape(-1, samples.dim)
        first = draws[0]
        tiles = [draws[i : i + TILE] for i in range(0, len(draws), TILE)]
        spread = np.max([np.abs(tile - first).max(axis=0) for tile in tiles], axis=0)
        constant = spread <= 1e-13 * np.abs(first)
        if constant.any():
            i = int(np.argmax(constant))
            raise InputError(
                f"Coordinate {i} ({samples.names[i]}) has the value {first[i]:.6g} in every draw: it is not "
                f"random. Leave it out of `draws` and `scores`."
            )
        n = len(draws)
        offset = sum(((tile - first) / spread).sum(axis=0) for tile in tiles) / n
        mean = first + spread * offset

        def unit(tile: np.ndarray) -> np.ndarray:
            return (tile - first) / spread - offset

        deviation = np.sqrt(sum((unit(tile) ** 2).sum(axis=0) for tile in tiles) / n)
        scale = spread * deviation
        if n <= LIMITS.draws_per_dimension * samples.dim:
            return cls(mean, scale, None)
        correlation = np.zeros((samples.dim, samples.dim))
        for tile in tiles:
            z = unit(tile) / deviation
            correlation += z.T @ z / n
        return cls(mean, scale, _factor(correlation, samples.names))

    def rows(self, samples: Samples, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        dim = len(self.mean)
        with np.errstate(over="ignore", invalid="ignore"):
            z = (samples.draws.reshape(-1, dim)[rows] - self.mean) / self.scale
            s = samples.scores.reshape(-1, dim)[rows] * self.scale
        start = rows.start or 0
        far = "standard deviations from the mean of those fitted on: the chains have not mixed"
        _check_size("draws", z, samples, start, far)
        large = "over the standard deviation of its coordinate, where correct scores are of order 1"
        _check_size("scores", s, samples, start, large)
        return self._whiten(z, s)

    def pull(self, x: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._whiten((x - self.mean) / self.scale, scores * self.scale)

    def _whiten(self, z: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.factor is None:
            return z, s
        return z @ np.linalg.inv(self.factor).T, s @ self.factor

    def products(self, samples: Samples, starts: Int[np.ndarray, " part"]) -> Float[np.ndarray, "part left right"]:
        r"""Return sums of $(1, t)\,(1, u)^T$ over parts of a chain; its t and u are only scaled, not whitened.

        The parts begin at `starts`; all but the first and the last have the same length. Sums of every `Bilinear`
        follow from them.
        """
        x, scores = samples.draws[0], samples.scores[0]
        left, right = np.empty((2, len(x), 1 + len(self.mean)))
        left[:, 0] = right[:, 0] = 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            np.divide(x - self.mean, self.scale, out=left[:, 1:])
            np.multiply(scores, self.scale, out=right[:, 1:])
            found = np.empty((len(starts), left.shape[1], left.shape[1]))
            if len(starts) > 2:
                a, b = (
                    each[starts[1] : starts[-1]].reshape(len(starts) - 2, -1, each.shape[1]) for each in (left, right)
                )
                np.matmul(a.transpose(0, 2, 1), b, out=found[1:-1])
            edges = [*starts.tolist(), len(x)]
            for part in {0, len(starts) - 1}:
                rows = slice(edges[part], edges[part + 1])
                np.matmul(left[rows].T, right[rows], out=found[part])
        if not (np.abs(found) < LARGEST).all():
            self(samples)  # which says where
        return found

    def stein_sums(self, products: Float[np.ndarray, "part left right"]) -> Float[np.ndarray, "part column"]:
        r"""Return sums of $s_i$, of $z_i s_i + 1$ and of all of the latter."""
        dim = len(self.mean)
        found = np.empty((len(products), 2 * dim + 1))
        score, product = products[:, 0, 1:], products[:, 1:, 1:]
        if self.factor is None:
            found[:, :dim], found[:, dim:-1] = score, np.einsum("pii->pi", product)
        else:
            found[:, :dim] = score @ self.factor
            found[:, dim:-1] = np.einsum("pij,ji->pi", np.linalg.inv(self.factor) @ product, self.factor)
        found[:, dim:-1] += products[:, :1, 0]
        found[:, -1] = found[:, dim:-1].sum(axis=1)
        return found

    def inverse(self, z: np.ndarray) -> np.ndarray:
        return self.mean + self.scale * (z if self.factor is None else z @ self.factor.T)

    def log_jacobian(self, z: np.ndarray) -> np.ndarray:
        factor = 0.0 if self.factor is None else np.log(np.diag(self.factor)).sum()
        return np.full(len(z), np.log(self.scale).sum() + factor)


@dataclass(frozen=True, eq=False)
class Bilinear:
    r"""Functions $(1, z)^T M (1, s)$ of points and their scores; their sums are those of the sums of products."""

    matrix: Float[np.ndarray, "out left right"]

    def __call__(self, z: Float[np.ndarray, "n dim"], s: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n out"]:
        outputs, size, _ = self.matrix.shape
        flat, found = self.matrix.transpose(1, 0, 2).reshape(size, -1), np.empty((len(z), outputs))
        length = max(64, CACHED // flat.shape[1])
        for start in range(0, len(z), length):
            rows = slice(start, start + length)
            left, right = np.ones((2, len(z[rows]), size))
            left[:, 1:], right[:, 1:] = z[rows], s[rows]
            found[rows] = np.matmul((left @ flat).reshape(-1, outputs, size), right[:, :, None])[:, :, 0]
        return found

    def sums(self, products: Float[np.ndarray, "part left right"]) -> Float[np.ndarray, "part out"]:
        """Return sums over draws from those of `Standardise.products`."""
        return products.reshape(len(products), -1) @ self.matrix.reshape(len(self.matrix), -1).T

    def seen_from(self, scaled: Standardise, own: Standardise) -> "Bilinear":
        """Return the same functions, which are of coordinates `own`, of others that are only scaled."""
        size = len(self.matrix[0])
        left, right = np.eye(size), np.eye(size)
        ratio, factor = scaled.scale / own.scale, np.eye(size - 1) if own.factor is None else own.factor
        left[1:, 0], left[1:, 1:] = (scaled.mean - own.mean) / own.scale, np.diag(ratio)
        left[1:] = np.linalg.solve(factor, left[1:])
        right[1:, 1:] = factor.T / ratio
        return Bilinear(left.T @ self.matrix @ right)


@runtime_checkable
class Evaluator(Protocol):
    """A fitted g as a function of samples, and as a `Bilinear` of coordinates that are only scaled, if it is one."""

    def __call__(self, samples: Samples) -> Float[np.ndarray, "chain draw out"]: ...

    def form(self, scaled: Standardise) -> Bilinear | None: ...


def check_standard(samples: Samples) -> None:
    """Refuse draws and scores that have no standard coordinates, or are too large in them."""
    for _ in Standardise.of(samples).tiles(samples):
        pass


def _check_size(name: str, standard: np.ndarray, samples: Samples, start: int, unit: str) -> None:
    """Refuse numbers whose products would overflow further on. The first of them belong to draw number `start`."""
    if standard.min() > -LARGEST and standard.max() < LARGEST:  # neither of a NaN
        return
    row, i = (int(k) for k in np.unravel_index(np.argmin(np.abs(standard) < LARGEST), standard.shape))
    chain, draw = divmod(start + row, samples.draws.shape[1])
    much = f"{standard[row, i]:.1e} {unit}"
    far, times = _farthest(samples.draws[..., i])
    if times > LIMITS.far:  # the scores may be right, and a single draw make the unit that they are measured in
        name, (chain, draw), much = "draws", far, f"{times:.1e} times as far from the median as any other draw"
    raise InputError(
        f"`{name}` holds {getattr(samples, name)[chain, draw, i]:.3g} at index {(chain, draw, i)}, which is {much}; "
        f"arithmetic with it overflows. Look at that draw, or at the units."
    )


def _farthest(x: np.ndarray) -> tuple[tuple[int, int], float]:
    """Return where the draw farthest from the median is, and how many times as far as the next."""
    distance = np.abs(x / np.abs(x).max() - np.median(x / np.abs(x).max()))
    second, first = np.partition(distance, -2, axis=None)[-2:]
    chain, draw = np.unravel_index(np.argmax(distance), x.shape)
    return (int(chain), int(draw)), float(first / second) if second > 0 else np.inf


def _factor(correlation: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """The Cholesky factor, if there is one."""
    values, vectors = np.linalg.eigh(correlation)
    if values[0] < 1e-12 * len(names):
        most = np.argsort(-np.abs(vectors[:, 0]))[:4]
        shown = ", ".join(f"{i} ({names[i]})" for i in most if abs(vectors[i, 0]) > 0.1)
        raise InputError(
            f"The coordinates {shown} are linearly dependent in every draw (smallest eigenvalue of the "
            f"correlation {values[0]:.1e}): the density has no score in all {len(names)} dimensions. "
            f"Leave out the redundant coordinate."
        )
    return np.linalg.cholesky(correlation)
