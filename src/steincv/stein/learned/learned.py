"""Coordinates learned from draws and scores, in which a posterior is closer to normal than any affine map makes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .fisher import DRAWS_PER_DIMENSION, bounded, robust_metric
from .fitting import Fitting, Shape, is_dense
from .layers import Affine, Bend, Couple, Layer, Pair
from .screen import find_parents


class Scale(NamedTuple):
    """Coordinate `parent` scales coordinate `child` by exp(`exponent` times the parent's value)."""

    parent: int
    child: int
    exponent: float


class Fisher(NamedTuple):
    """Fisher divergence per coordinate on draws that a map has not seen: of the best affine map, and of the learned."""

    affine: float
    learned: float


class Requirements(NamedTuple):
    """When a map is worth having. Set on the league's benchmark."""

    draws: int = 100
    fall: float = 0.95  # held-out divergence, learned over affine, at most
    sure: float = 2.0  # standard errors of the fall
    batches: int = 10
    fitted: int = 2000  # draws that a fit looks at, evenly spaced
    held: float = 1 / 3  # of the draws of a single chain


REQUIREMENTS = Requirements()
KINDS = ("bent", "coupled", "bent and coupled")


@dataclass(frozen=True, eq=False)
class Learned:
    r"""A smooth bijection $x \mapsto z$ of layers, fitted by minimising the Fisher divergence $E|s_z + z|^2$.

    `learned(x, s)` gives draws and scores in z, of mean 0 and deviation 1 (covariance 1 where the draws are enough);
    the density there is $\log p_z(z) = \log p_x(x) + $ `log_jacobian(z)` at $x$ = `inverse(z)`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> h, w = rng.normal(size=(2, 1000))
    >>> x = np.stack([h, np.exp(0.5 * h) * w], axis=1)            # w has the scale exp(h / 2)
    >>> s = np.stack([-h + 0.5 * (w**2 - 1), -np.exp(-0.5 * h) * w], axis=1)
    >>> learned = Learned.of(x, s, chains=4)
    >>> z, sz = learned(x, s)
    >>> bool(np.abs(z + sz).max() < 0.2)                         # standard normal, nearly
    True
    """

    layers: tuple[Layer, ...]
    kind: str
    fisher: Fisher

    @classmethod
    def of(cls, x: np.ndarray, s: np.ndarray, *, chains: int = 1, kinds: Sequence[str] = KINDS) -> "Learned | None":
        """Return the map with the smallest held-out divergence, or None if none is clearly below the affine one's."""
        found = cls.candidates(x, s, chains=chains, kinds=kinds)
        return found[0] if found else None

    @classmethod
    def candidates(
        cls, x: np.ndarray, s: np.ndarray, *, chains: int = 1, kinds: Sequence[str] = KINDS
    ) -> "list[Learned]":
        """Return all maps that lower the held-out divergence clearly, best first.

        **Arguments:**

        - `x`, `s`: draws and scores `(n, dim)` in the parameters of the model, chain after chain.
        - `chains`: how many equally long chains they are. One of three is held out to judge by.
        """
        n, dim = x.shape
        if n < REQUIREMENTS.draws or n < 2 * dim:
            return []
        rows = _spaced(n, chains)
        train, test = _halves(rows, n, chains)
        x, s = np.asarray(x, float), np.asarray(s, float)
        good = []
        for kind in kinds:
            layers = _fit(kind, x[train], s[train])
            if layers is None:
                continue
            fisher, sure = _judge(layers, (x[train], s[train]), (x[test], s[test]))
            if fisher.learned < REQUIREMENTS.fall * fisher.affine and sure:
                good.append((fisher, kind))
        made = []
        for fisher, kind in sorted(good, key=lambda pair: pair[0].learned):
            layers = _fit(kind, x[rows], s[rows])
            if layers is not None:
                last = Affine.of(_through(layers, x, s)[0], n > DRAWS_PER_DIMENSION * dim)
                made.append(cls((*layers, last), kind, fisher))
        return made

    def __call__(self, x: np.ndarray, s: np.ndarray) -> Pair:
        """Return draws and scores in the learned coordinates."""
        return _through(self.layers, x, s)

    def inverse(self, z: np.ndarray) -> np.ndarray:
        """Return the draws that the map takes to z."""
        for layer in reversed(self.layers):
            z = layer.inverse(z)
        return z

    def log_jacobian(self, z: np.ndarray) -> np.ndarray:
        """Return log |det dx/dz| at z, `(n,)`."""
        total = np.zeros(len(z))
        for layer in reversed(self.layers):
            total += layer.log_jacobian(z)
            z = layer.inverse(z)
        return total

    @property
    def scales(self) -> tuple[Scale, ...]:
        """Which coordinate of the model scales which others."""
        found = []
        first = self.layers[0]
        assert isinstance(first, Affine)
        for couple in (layer for layer in self.layers[:2] if isinstance(layer, Couple)):
            linear = np.arange(1, 1 + len(couple.parents))  # of the terms
            for b, k in zip(*np.nonzero(couple.log_scale[:, linear]), strict=True):
                parent = int(couple.parents[couple.terms[linear[k], 1] - 1])
                exponent = float(couple.log_scale[b, linear[k]] / first.scale[parent])
                found.append(Scale(parent, int(couple.children[b]), exponent))
        return tuple(found)


def _through(layers: Sequence[Layer], x: np.ndarray, s: np.ndarray) -> Pair:
    for layer in layers:
        x, s = layer(x, s)
    return x, s


def _spaced(n: int, chains: int) -> np.ndarray:
    """Return the rows that fits look at: all, or every so many of each chain."""
    every = max(1, n // REQUIREMENTS.fitted)
    length = n // chains
    return np.flatnonzero(np.arange(n) % length % every == 0)


def _halves(rows: np.ndarray, n: int, chains: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to fit on and rows to judge by: other chains, or the end of a single one."""
    length = n // chains
    held = max(1, chains // 3)
    cut = (chains - held) * length if chains > 1 else round(n * (1 - REQUIREMENTS.held))
    return rows[rows < cut], rows[rows >= cut]


def _fit(kind: str, x: np.ndarray, s: np.ndarray) -> list[Layer] | None:
    """Return the layers of that kind, fitted; None if there is nothing to fit."""
    n, dim = x.shape
    layers: list[Layer] = [Affine.of(x, False)]
    x, s = layers[0](x, s)
    none, every = np.zeros(0, int), np.arange(dim)
    if kind == "bent":
        made = _solve(x, s, Shape.of_bends(every))
        layers += made
        return layers
    bends = every if kind == "bent and coupled" else none
    for _ in range(2):
        shape = find_parents(x, s, bends)
        if shape is None:
            break
        made = _solve(x, s, shape)
        layers += made
        x, s = _through(made, x, s)
        bends = none
    if len(layers) == 1:
        return None
    middle = Affine.of(x, n > DRAWS_PER_DIMENSION * dim)
    layers.append(middle)
    x, s = middle(x, s)
    return layers


def _solve(x: np.ndarray, s: np.ndarray, shape: Shape) -> list[Bend | Couple]:
    fitting = Fitting(x, s, shape)
    return fitting.layers(fitting.solve())


def _judge(layers: Sequence[Layer], train: Pair, test: Pair) -> tuple[Fisher, bool]:
    """Return the divergence on the test draws before and after, and whether it fell for sure."""
    n, dim = train[0].shape
    norms = []
    for some in (layers[:1], layers):
        z, s = _through(some, *train)
        norms.append(robust_metric(z, s, is_dense(n, dim))[0].norms(*_through(some, *test)))
    typical = float(np.median(norms[0]))
    before, after = (bounded(norm, typical) for norm in norms)
    fall = [part.mean() for part in np.array_split(before - after, REQUIREMENTS.batches)]
    error = np.std(fall, ddof=1) / np.sqrt(len(fall))
    sure = bool(np.isfinite(after).all() and np.mean(fall) > REQUIREMENTS.sure * error)
    return Fisher(float(before.mean()) / dim, float(after.mean()) / dim), sure
