r"""Stein features of the Hermite basis, by recurrence.

$He_a(z) = \prod_i He_{a_i}(z_i)$ for multi-indices $a$ of total degree 1..degree. With
$\mathcal{L}u = \Delta u + \nabla u \cdot s$, the product rule
$\mathcal{L}(uv) = u\mathcal{L}v + v\mathcal{L}u + 2\nabla u\cdot\nabla v$ and $a = p + e_i$,

$$ He_a = z_i He_p - p_i He_{p-e_i}, \qquad
   \mathcal{L}He_a = z_i \mathcal{L}He_p + s_i He_p + p_i (2 He_{p-e_i} - \mathcal{L}He_{p-e_i}), $$

so a feature costs a handful of multiplications a draw, whatever the degree. On a standard Gaussian
the features are uncorrelated. Divided by $|a|\sqrt{a!}$ they have variance one there, and a sum of
squared coefficients over one degree does not change when the coordinates are rotated: ridge
penalties, one a degree, mean the same on every problem.
"""

import functools
import math

import numpy as np

from ...stein.coordinates import CACHED, Bilinear

# More than any memory holds, and still a float.
MOST_FEATURES = 10**18


def feature_count(dim: int, degree: int) -> int:
    """How many multi-indices of total degree 1..degree there are in `dim` dimensions, or `MOST_FEATURES`."""
    return min(math.comb(dim + degree, min(dim, degree)) - 1, MOST_FEATURES)


def degrees(dim: int, degree: int) -> np.ndarray:
    """The total degree of every feature, in the order of `stein_features`."""
    return np.repeat(np.arange(1, degree + 1), [math.comb(dim + k - 1, k) for k in range(1, degree + 1)])


@functools.lru_cache(maxsize=64)
def _recipe(dim: int, degree: int) -> tuple[list[list[tuple]], np.ndarray]:
    """How every block of multi-indices follows from shorter ones, and each feature's normalisation.

    Children by coordinate i are all parents of one degree less that use coordinates 0..i only. In
    this order those are a prefix of the parents, so a block of children is a few array operations.
    """
    level: dict[tuple[int, ...], int] = {(0,) * dim: 0}
    before: dict[tuple[int, ...], int] = {}
    steps: list[list[tuple]] = []
    norms: list[float] = []
    for k in range(1, degree + 1):
        parents, blocks, children = list(level), [], []
        for i in range(dim):
            block = [p for p in parents if not any(p[i + 1 :])]
            power = np.array([p[i] for p in block])
            rows = np.flatnonzero(power)
            lower = [before[_minus(block[r], i)] for r in rows]
            blocks.append((i, len(block), rows, np.array(lower, dtype=int), power[rows].astype(float)[:, None]))
            children += [(*p[:i], p[i] + 1, *p[i + 1 :]) for p in block]
        steps.append(blocks)
        norms += [1 / (k * math.sqrt(math.prod(math.factorial(j) for j in a))) for a in children]
        before, level = level, {a: n for n, a in enumerate(children)}
    return steps, np.array(norms)


def _minus(index: tuple[int, ...], i: int) -> tuple[int, ...]:
    return (*index[:i], index[i] - 1, *index[i + 1 :])


def stein_features(z: np.ndarray, s: np.ndarray, degree: int) -> np.ndarray:
    r"""$\mathcal{L}He_a / (|a|\sqrt{a!})$ at every draw, `(n, feature)`: for each a a mean-zero function."""
    n, dim = z.shape
    steps, norms = _recipe(dim, degree)
    out = np.empty((n, feature_count(dim, degree)))
    tile_size = max(64, CACHED // out.shape[1])
    for start in range(0, n, tile_size):
        tile = slice(start, start + tile_size)
        _fill(out[tile], np.ascontiguousarray(z[tile].T), np.ascontiguousarray(s[tile].T), steps, norms)
    return out


def hermite_basis(z: np.ndarray, degree: int) -> np.ndarray:
    r"""$He_a / \sqrt{a!}$ at every draw, `(n, feature)`: of variance one on a standard Gaussian."""
    steps, norms = _recipe(z.shape[1], degree)
    out, start = np.empty((len(z), len(norms))), 0
    he, before = np.ones((1, len(z))), np.empty((0, len(z)))
    for k, blocks in enumerate(steps, start=1):
        children = []
        for i, count, rows, lower, power in blocks:
            child = he[:count] * z[:, i]
            child[rows] -= power * before[lower]
            children.append(child)
        before, he = he, np.concatenate(children)
        here = slice(start, start + len(he))
        out[:, here] = (k * norms[here, None] * he).T
        start += len(he)
    return out


def _fill(out: np.ndarray, z: np.ndarray, s: np.ndarray, steps: list, norms: np.ndarray) -> None:
    """Features of one tile of draws, coordinates first so that every operation runs along the draws."""
    n, start = z.shape[1], 0
    he, before = np.ones((1, n)), np.empty((0, n))
    stein, stein_before = np.zeros((1, n)), np.empty((0, n))
    for blocks in steps:
        size = sum(block[1] for block in blocks)
        child, child_stein = np.empty((size, n)), np.empty((size, n))
        at = 0
        for i, count, rows, lower, power in blocks:
            here = slice(at, at + count)
            np.multiply(he[:count], z[i], out=child[here])
            np.multiply(stein[:count], z[i], out=child_stein[here])
            child_stein[here] += he[:count] * s[i]
            if len(rows):
                child[at + rows] -= power * before[lower]
                child_stein[at + rows] += power * (2 * before[lower] - stein_before[lower])
            at += count
        out[:, start : start + size] = (child_stein * norms[start : start + size, None]).T
        before, he, stein_before, stein = he, child, stein, child_stein
        start += size


def quadratic_form(coefficients: np.ndarray, dim: int) -> Bilinear:
    r"""Return a combination of all Stein features of degree 1 and 2, with coefficients `(feature, out)`.

    They are $s_i$, and $z_p s_i + z_i s_p$ for $p \le i$ up to constants, of which those with $p = i$ have one.
    """
    weights = (coefficients * _recipe(dim, 2)[1][:, None]).T
    form = np.zeros((len(weights), 1 + dim, 1 + dim))
    i, p = np.tril_indices(dim)
    form[:, 0, 1:] = weights[:, :dim]
    form[:, 1 + p, 1 + i] += weights[:, dim:]
    form[:, 1 + i, 1 + p] += weights[:, dim:]
    form[:, 0, 0] = 2 * weights[:, dim:][:, i == p].sum(axis=1)
    return Bilinear(form)
