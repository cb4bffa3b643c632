r"""Find which coordinates act as the scale of which others.

Moving the log scale of coordinate i along coordinate k changes the Fisher divergence at the rate

$$ 2 E[(e_i s_i - (A^{-1}e)_i z_i) z_k + e_k (z_i s_i + 1)], \qquad e = z + A s, $$

which vanishes draw by draw for a normal distribution, so its noise is small where there is nothing to find. The
matrix of all pairs costs two products of matrices. (The simpler $E[(z_i s_i + 1) z_k]$ will not do: by Stein's
identity it is zero under every density.)
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .fisher import Metric
from .fitting import Shape


class Screening(NamedTuple):
    """Numbers that decide which pairs enter. Set on the league's benchmark."""

    batches: int = 20  # of draws, to see how far a rate varies; whole stretches of chains, so that it counts fewer
    sure: float = 4.0  # standard errors of a rate that count
    least: float = 0.03  # the smallest log scale per standard deviation that is worth its noise
    column: float = 0.01  # the least sum of squared log scales of a parent
    most: int = 8  # parents that scale
    also: int = 8  # parents that only locate
    shared: float = 0.02  # their least mean squared correlation with the children
    candidates: int = 64  # parents looked at in more than `wide` dimensions
    wide: int = 400


SCREENING = Screening()
# The second derivative of the divergence by a log scale, of a normal distribution: 4 by the child, 2 by the parent.
CURVATURE = 6.0


def rates(z: np.ndarray, s: np.ndarray, a: Metric, parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each pair (child, parent) the log scale per unit of the parent to expect, and its standard error."""
    e, inner = a.residuals(z, s)
    z = z - a.mean
    child, work, pull = e * s - inner * z, z * s + 1, e[:, parents]
    parent = z[:, parents]
    total = np.zeros((z.shape[1], len(parents)))
    squares = np.zeros_like(total)
    edges = np.linspace(0, len(z), min(SCREENING.batches, len(z) // 4) + 1).astype(int)
    for start, stop in zip(edges[:-1], edges[1:], strict=True):
        rows = slice(start, stop)
        one = (child[rows].T @ parent[rows] + work[rows].T @ pull[rows]) / (stop - start)
        total += one
        squares += one**2
    count = len(edges) - 1
    mean = total / count
    error = np.sqrt(np.maximum(squares / count - mean**2, 0) / (count - 1))
    mean[parents, np.arange(len(parents))] = 0.0  # a coordinate is not its own scale
    return -mean / CURVATURE, error / CURVATURE


def find_parents(z: np.ndarray, s: np.ndarray, a: Metric, bent: np.ndarray) -> Shape | None:
    """Return what a coupling may fit, or None if no coordinate is seen to scale another."""
    dim = z.shape[1]
    candidates = np.arange(dim)
    if dim > SCREENING.wide:
        e, inner = a.residuals(z, s)
        candidates = np.sort(np.argsort(-(e * inner).mean(axis=0))[: SCREENING.candidates])
    found, error = rates(z, s, a, candidates)
    sure = (np.abs(found) > SCREENING.sure * error) & (np.abs(found) > SCREENING.least)
    parents: list[int] = []  # positions among the candidates, strongest first; a parent is nobody's child
    strength = np.where(sure, found**2, 0.0)
    for _ in range(SCREENING.most):
        scores = strength.sum(axis=0)
        best = int(np.argmax(scores))
        if scores[best] < SCREENING.column:
            break
        parents.append(best)
        strength[:, best] = 0.0
        strength[candidates[best]] = 0.0
    if not parents:
        return None
    scales = candidates[parents]
    pairs = sure[:, parents]
    pairs[scales] = False
    children = np.flatnonzero(pairs.any(axis=1))
    if not len(children):
        return None
    unit = (z - z.mean(axis=0)) / z.std(axis=0)
    correlation = unit.T @ unit[:, children] / len(z)
    shared = (correlation**2).mean(axis=1)
    shared[children] = 0.0
    shared[scales] = 0.0
    others = np.argsort(-shared)[: SCREENING.also]
    others = others[shared[others] > SCREENING.shared]
    everyone = np.concatenate([scales, others])
    scaled = np.zeros((len(children), len(everyone)), bool)
    scaled[:, : len(scales)] = pairs[children]
    return Shape(bent, everyone, children, scaled, _regression(z, everyone, children))


def _regression(z: np.ndarray, parents: np.ndarray, children: np.ndarray) -> Float[np.ndarray, "child parent"]:
    """Return the coefficients of the children on the parents, drawn a little towards 0."""
    away = z - z.mean(axis=0)
    h = away[:, parents]
    gram = h.T @ h
    gram[np.diag_indices_from(gram)] *= 1 + 5 / len(z)
    return np.linalg.solve(gram, h.T @ away[:, children]).T
