r"""Find which coordinates act as the scale of which others, and which bend the location of which.

Moving the log scale of coordinate i along coordinate k changes the Fisher divergence at the rate

$$ 2 E[(e_i s_i - (A^{-1}e)_i z_i) z_k + e_k (z_i s_i + 1)], \qquad e = z + A s, $$

and moving its location along $q(z_k) = (z_k^2 - 1) / \sqrt 2$ at the rate $2 E[e_k q'(z_k) s_i - (A^{-1}e)_i q(z_k)]$.
Both vanish draw by draw for a normal distribution, so their noise is small where there is nothing to find. The
matrices of all pairs cost two products of matrices each. (The simpler $E[(z_i s_i + 1) z_k]$ will not do: by Stein's
identity it is zero under every density.)
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .fitting import Metric, Shape, is_dense, robust_metric
from .layers import Pair


class Screening(NamedTuple):
    """Numbers that decide which pairs enter."""

    batches: int = 20  # of draws, to see how far a rate varies; long stretches of chains, since neighbours are alike
    sure: float = 3.0  # standard errors of a rate that count
    least: float = 0.01  # the smallest log scale per standard deviation that is worth its noise
    share: float = 0.01  # of the divergence that a parent must promise to remove,
    chance: float = 0.5  # of what noise alone would (three times what is expected from pairs that are seen by chance),
    beside: float = 0.25  # and of what the strongest parent promises, to enter together with it
    most: int = 8  # parents that scale
    also: int = 8  # parents that only locate
    # A bent location counts if it alone lowers the divergence by so much, and by this part of what its two coordinates
    # have. Weaker ones cost a tenth to a quarter of the gain in rats and random effects.
    bow: float = 0.1
    bow_of_two: float = 0.25
    hub: float = 0.02  # their least mean squared partial correlation with the children, or, with many children, this
    hub_of_all: float = 0.25  # over their number: the mean of k effects shares about 1 / k with each
    candidates: int = 64  # parents looked at in more than `wide` dimensions
    wide: int = 400


SCREENING = Screening()


class Falls(NamedTuple):
    """How far a Newton step in a log scale or a location lowers the divergence, `(child, parent)`, and that of noise.

    Zero where a rate is within its noise.
    """

    scale: Float[np.ndarray, "child parent"]
    location: Float[np.ndarray, "child parent"]
    noise: Float[np.ndarray, "child parent"]


def falls(z: np.ndarray, s: np.ndarray, a: Metric, weights: np.ndarray, parents: np.ndarray) -> Falls:
    """Return what each pair alone promises."""
    e, inner = a.residuals(z, s)
    z = z - a.mean
    parent, pull = z[:, parents], e[:, parents]
    square = np.maximum(weights @ parent**2, 1e-300)  # of a coordinate that stands still
    unit = parent / np.sqrt(square)
    bow, bend = (unit**2 - 1) / np.sqrt(2), unit * np.sqrt(2 / square)  # q and its slope
    work, heavy = z * s + 1, weights[:, None] * len(z)
    spread, precision = (m if m.ndim == 1 else np.diag(m) for m in (a.spread, a.precision))
    stiff = spread * (weights @ s**2) + precision * (weights @ z**2) + 2
    scale = _newton(
        [((e * s - inner * z) * heavy, parent), (work * heavy, pull)],
        np.outer(stiff, square) + np.outer(weights @ work**2, spread[parents]),
        np.sqrt(square),
        parents,
    )
    lowered, by_chance = _newton(
        [(-inner * heavy, bow), (s * heavy, pull * bend)],
        np.outer(precision, weights @ bow**2) + (s**2 * heavy / len(z)).T @ bend**2 * spread[parents],
        1.0,
        parents,
    )
    own = weights @ (e * inner)
    enough = np.maximum(SCREENING.bow, SCREENING.bow_of_two * np.add.outer(own, own[parents]))
    bowed = lowered > enough
    return Falls(scale[0], np.where(bowed, lowered, 0.0), scale[1] + np.where(bowed, by_chance, 0.0))


def _newton(terms: list[Pair], curvature: np.ndarray, size: np.ndarray | float, parents: np.ndarray) -> Pair:
    """Return the falls of Newton steps whose rates are sums of products, and those of noise; `size`: of a parent."""
    n, dim = terms[0][0].shape
    total = np.zeros((dim, len(parents)))
    squares = np.zeros_like(total)
    edges = np.linspace(0, n, min(SCREENING.batches, n // 4) + 1).astype(int)
    for start, stop in pairwise(edges):
        one = sum((child[start:stop].T @ parent[start:stop] for child, parent in terms), np.zeros_like(total))
        one /= stop - start
        total += one
        squares += one**2
    count = len(edges) - 1
    mean = total / count
    variance = np.maximum(squares / count - mean**2, 0) / (count - 1)
    mean[parents, np.arange(len(parents))] = 0.0  # a coordinate is not its own parent
    unit = np.abs(mean / curvature) * size
    seen = (mean**2 > SCREENING.sure**2 * variance) & (unit > SCREENING.least)
    return np.where(seen, (mean**2 - variance) / curvature, 0.0), variance / curvature


def find_parents(z: np.ndarray, s: np.ndarray, bent: np.ndarray) -> Shape | None:
    """Return what a coupling may fit, or None if no coordinate is seen to scale or bend others."""
    dim = z.shape[1]
    candidates = np.arange(dim)
    a, weights = robust_metric(z, s, is_dense(*z.shape))
    e, inner = a.residuals(z, s)
    by_coordinate = weights @ (e * inner)
    if dim > SCREENING.wide:
        candidates = np.sort(np.argsort(-by_coordinate)[: SCREENING.candidates])
    fall = falls(z, s, a, weights, candidates)
    left = fall.scale + fall.location
    chosen: list[int] = []  # positions among the candidates, strongest first; a parent is nobody's child
    first = left.sum(axis=0).max()
    least = np.maximum(SCREENING.share * by_coordinate.sum(), SCREENING.chance * fall.noise.sum(axis=0))
    while len(chosen) < SCREENING.most:
        promise = left.sum(axis=0)
        promise[promise < np.maximum(least, SCREENING.beside * first)] = 0.0
        best = int(np.argmax(promise))
        if promise[best] <= 0:
            break
        chosen.append(best)
        left[:, best] = 0.0
        left[candidates[best]] = 0.0
    if not chosen:
        return None
    scales = candidates[chosen]
    pairs, bowed = fall.scale[:, chosen] > 0, fall.location[:, chosen] > 0
    pairs[scales] = bowed[scales] = False
    hubs = _hubs(a, np.asarray(pairs.any(axis=1)), scales)
    pairs[hubs] = bowed[hubs] = False
    children = np.flatnonzero((pairs | bowed).any(axis=1))
    if not len(children):
        return None
    parents = np.concatenate([scales, hubs])
    terms = _terms(len(scales), len(parents))
    scaled = np.zeros((len(children), len(terms)), bool)
    for k in range(len(scales)):
        own = (terms[:, 0] == 0) & ((terms[:, 1] == 1 + k) | (terms[:, 1] == 1 + len(parents) + k))
        scaled[:, own] = pairs[children, k][:, None]
    location = np.zeros(scaled.shape)
    location[:, 1 : 1 + len(parents)] = _regression(z, parents, children)
    return Shape(bent, parents, children, terms, scaled, location)


def _terms(scales: int, parents: int) -> np.ndarray:
    """Return pairs of factors: 1, each parent, the curve of each scale, and products of scales with all parents."""
    linear = [(0, k) for k in range(parents + 1)]
    curves = [(0, 1 + parents + k) for k in range(scales)]
    return np.array(linear + curves + [(i, k) for i in range(1, scales + 1) for k in range(i, parents + 1)])


def _hubs(a: Metric, children: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return coordinates that many children depend on given all others: the means of hierarchical models.

    Their partial correlations with the children stand out; those of the children with each other are near 0.
    """
    partial = partial_correlations(a)
    if partial is None:
        return np.zeros(0, int)
    found: list[int] = []
    children = children.copy()
    for _ in range(SCREENING.also):
        if children.sum() < 3:
            break
        score = partial[:, children].mean(axis=1)
        score[scales] = 0.0
        score[found] = 0.0
        best = int(np.argmax(score))
        least = min(SCREENING.hub, SCREENING.hub_of_all / children.sum())
        if score[best] < max(least, 3 * np.median(score)):
            break
        found.append(best)
        children[best] = False
    return np.array(found, int)


def partial_correlations(a: Metric) -> Float[np.ndarray, "dim dim"] | None:
    """Return the squared partial correlations of all pairs of coordinates, where the metric knows them."""
    if a.precision.ndim == 1:
        return None
    size = np.sqrt(np.diag(a.precision))
    partial = (a.precision / np.outer(size, size)) ** 2
    np.fill_diagonal(partial, 0.0)
    return partial


def _regression(z: np.ndarray, parents: np.ndarray, children: np.ndarray) -> Float[np.ndarray, "child parent"]:
    """Return the coefficients of the children on the parents, drawn a little towards 0."""
    away = z - z.mean(axis=0)
    h = away[:, parents]
    gram = h.T @ h
    gram[np.diag_indices_from(gram)] *= 1 + 5 / len(z)
    return np.linalg.solve(gram, h.T @ away[:, children]).T
