"""Coordinates learned from draws and scores, in which a posterior is closer to normal than any affine map makes it.

Families see them as any other coordinates; where there is no map, the affine ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...samples.samples import Samples
from ..coordinates import LARGEST, LIMITS as COORDINATES, Coordinates, Standardise
from .fitting import LIMITS, Fitting, Shape, bounded, is_dense, robust_metric
from .grouped import Grouped, fit_groups
from .layers import Affine, Bend, Couple, Pair
from .screen import find_parents


class Scale(NamedTuple):
    """Coordinate `parent` scales coordinate `child` by exp(`exponent` times the parent's value)."""

    parent: int
    child: int
    exponent: float


class Group(NamedTuple):
    """Parameter `parent` scales the `children` by exp(`exponents` times the parent's value).

    `strength` is the sum of squared changes of the children's log scales per standard deviation of the parent: about 0
    is a normal distribution, over 1 a funnel. `share` is its part of the divergence that the whole map removes.
    """

    parent: str
    children: tuple[str, ...]
    exponents: tuple[float, ...]
    strength: float
    share: float


class Fisher(NamedTuple):
    """Fisher divergence per coordinate on draws that a map has not seen: of the best affine map, and of the learned."""

    affine: float
    learned: float


class Requirements(NamedTuple):
    """When a map is worth having."""

    draws: int = 100
    per_dimension: float = 1.0  # draws; with fewer, whatever is found is noise
    fall: float = 0.95  # held-out divergence, learned over affine, at most
    sure: float = 2.0  # standard errors of the fall
    least: float = 1e-12  # affine divergence per coordinate; below it the draws are normal to round-off
    batches: int = 10
    fitted: int = 2000  # draws that a fit looks at, evenly spaced
    held: float = 1 / 3  # of the draws of a single chain


REQUIREMENTS = Requirements()
Layer = Affine | Bend | Couple | Grouped
# Couplings in a map at most: the second finds parents among the children of the first, and those that it missed.
COUPLINGS = 2
# Groups of effects with bends and couplings of what is left; bends and couplings fitted together; couplings; bends.
KINDS = ("grouped", "bent and coupled", "coupled", "bent")


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
        """Return the first kind of map that is clearly better than the best affine one on draws held out, or None.

        **Arguments:**

        - `x`, `s`: draws and scores `(n, dim)` in the parameters of the model, chain after chain.
        - `chains`: how many equally long chains they are. One of three is held out to judge by.
        - `kinds`: which kinds of map to try, in this order.
        """
        if not _enough(x):
            return None
        rows = _spaced(len(x), chains)
        train, test = _parts(rows, len(x), chains)
        best: tuple[str, Fisher] | None = None
        for kind in kinds:
            if best is not None and best[0] != KINDS[0]:
                break  # groups are compared with the next best, others are as good as what comes after them
            layers = _fit(kind, x[train], s[train])
            if layers is None:
                continue
            fisher, sure = _judge(layers, (x[train], s[train]), (x[test], s[test]))
            if fisher.affine < REQUIREMENTS.least:
                return None
            if sure and fisher.learned < REQUIREMENTS.fall * fisher.affine:
                best = (kind, fisher) if best is None or fisher.learned < best[1].learned else best
                if kind != KINDS[0]:
                    break
        return None if best is None else cls._of_rows(x, s, rows, *best)

    @classmethod
    def fit(cls, x: np.ndarray, s: np.ndarray, *, chains: int = 1, kind: str = KINDS[0]) -> "Learned | None":
        """Return a map of that kind without judging it, its `fisher` NaN: where another fold's was judged already.

        None if the draws are too few or there is nothing to fit.
        """
        return cls._of_rows(x, s, _spaced(len(x), chains), kind, Fisher(np.nan, np.nan)) if _enough(x) else None

    @classmethod
    def _of_rows(cls, x: np.ndarray, s: np.ndarray, rows: np.ndarray, kind: str, fisher: Fisher) -> "Learned | None":
        layers = _fit(kind, x[rows], s[rows])
        if layers is None:
            return None
        last = Affine.of(_through(layers, x, s)[0], len(x) > COORDINATES.draws_per_dimension * x.shape[1])
        return cls((*layers, last), kind, fisher)

    def __call__(self, x: np.ndarray, s: np.ndarray) -> Pair:
        """Return draws and scores in the learned coordinates."""
        return _through(self.layers, x, s)

    def unmixed(self, x: np.ndarray, s: np.ndarray) -> "Learned":
        """Return the map without its last whitening: its coordinates are scaled by these draws one by one."""
        before = self.layers[:-1]
        return replace(self, layers=(*before, Affine.of(_through(before, x, s)[0], False)))

    def groups_alone(self, x: np.ndarray, s: np.ndarray) -> "Learned | None":
        """Return the map up to its groups, its coordinates whitened by these draws, if it has any."""
        if self.kind != KINDS[0]:
            return None
        before = self.layers[: 1 + next(k for k, layer in enumerate(self.layers) if isinstance(layer, Grouped))]
        dense = len(x) > COORDINATES.draws_per_dimension * x.shape[1]
        return replace(self, layers=(*before, Affine.of(_through(before, x, s)[0], dense)))

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
        """Which coordinate of the model scales which others, and how strongly in the middle of its range."""
        found = []
        first = self.layers[0]
        assert isinstance(first, Affine)
        for couple in (layer for layer in self.layers if isinstance(layer, Couple)):
            linear = np.arange(1, 1 + len(couple.parents))  # of the terms
            for b, k in zip(*np.nonzero(couple.log_scale[:, linear]), strict=True):
                parent = int(couple.parents[couple.terms[linear[k], 1] - 1])
                exponent = float(couple.log_scale[b, linear[k]] / first.scale[parent])
                found.append(Scale(parent, int(couple.children[b]), exponent))
        for groups in (layer for layer in self.layers if isinstance(layer, Grouped)):
            found += [Scale(p, child, rate / float(first.scale[p])) for p, child, rate in groups.exponents()]
        return tuple(found)

    def geometry(self, names: Sequence[str]) -> tuple[Group, ...]:
        """Return what scales what, by the parameters' names, the strongest first.

        The divergence that the map removes is shared among parents in proportion to their strengths.
        """
        first = self.layers[0]
        assert isinstance(first, Affine)
        by_parent: dict[int, dict[int, float]] = {}
        for scale in self.scales:
            children = by_parent.setdefault(scale.parent, {})
            children[scale.child] = children.get(scale.child, 0.0) + scale.exponent
        strength = {k: float(sum((e * first.scale[k]) ** 2 for e in of.values())) for k, of in by_parent.items()}
        removed, total = 1 - self.fisher.learned / self.fisher.affine, sum(strength.values())
        return tuple(
            Group(
                names[parent],
                tuple(names[child] for child in children),
                tuple(children.values()),
                strength[parent],
                removed * strength[parent] / total if total > 0 else 0.0,
            )
            for parent, children in sorted(by_parent.items(), key=lambda item: -strength[item[0]])
        )


def affine_divergence(x: np.ndarray, s: np.ndarray, chains: int = 1) -> float:
    """Return the Fisher divergence per coordinate of the best affine map, at the draws it is made of."""
    rows = _spaced(len(x), chains)
    z, s = Affine.of(x[rows], False)(x[rows], s[rows])
    norms = robust_metric(z, s, is_dense(*z.shape))[0].norms(z, s)
    return float(bounded(norms, float(np.median(norms))).mean()) / z.shape[1]


def _through(layers: Sequence[Layer], x: np.ndarray, s: np.ndarray) -> Pair:
    for layer in layers:
        x, s = layer(x, s)
    return x, s


def _enough(x: np.ndarray) -> bool:
    n, dim = x.shape
    return n >= max(REQUIREMENTS.draws, REQUIREMENTS.per_dimension * dim)


def _spaced(n: int, chains: int) -> np.ndarray:
    """Return the rows that fits look at: all, or every so many of each chain."""
    every = -(-n // REQUIREMENTS.fitted)
    length = n // chains
    return np.flatnonzero(np.arange(n) % length % every == 0)


def _parts(rows: np.ndarray, n: int, chains: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to fit on and rows to judge by: other chains, or the end of a single one."""
    length = n // chains
    held = max(1, chains // 3)
    cut = (chains - held) * length if chains > 1 else round(n * (1 - REQUIREMENTS.held))
    return rows[rows < cut], rows[rows >= cut]


def _fit(kind: str, x: np.ndarray, s: np.ndarray) -> list[Layer] | None:
    """Return the layers of that kind, fitted; None if there is nothing to fit."""
    first = Affine.of(x, False)
    layers: list[Layer] = [first]
    x, s = first(x, s)
    none = np.zeros(0, int)
    if kind == KINDS[0]:
        shape = find_parents(x, s, none)
        groups = None if shape is None else fit_groups(x, s, first.scale, shape)
        if groups is None:
            return None
        layers += [groups, Affine.of(groups(x, s)[0], False)]
        x, s = _through(layers[1:], x, s)
    curved = _least_normal(x, s)
    bends = none if kind == "coupled" else curved
    for _ in range(COUPLINGS):
        shape = None if kind == "bent" else find_parents(x, s, bends)
        if shape is None and not len(bends):
            break
        made = _solve(x, s, shape or Shape.of_bends(bends))
        layers += made
        x, s = _through(made, x, s)
        bends = none
    return layers if len(layers) > 1 else None


def _least_normal(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return the coordinates that are worth bending."""
    if x.shape[1] <= LIMITS.bends:
        return np.arange(x.shape[1])
    found, weights = robust_metric(x, s, is_dense(*x.shape))
    e, inner = found.residuals(x, s)
    return np.sort(np.argsort(-(weights @ (e * inner)))[: LIMITS.bends])


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


# As every family sees them --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LearnedCoordinates(Coordinates):
    """Draws and scores seen through a learned map; `scaled` refuses what is too large before it."""

    scaled: Standardise
    learned: Learned

    @property
    def mean(self) -> Float[np.ndarray, " dim"]:  # type: ignore[override]
        return self.scaled.mean

    def rows(self, samples: Samples, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        self.scaled.rows(samples, rows)
        dim = len(self.mean)
        return self.learned(samples.draws.reshape(-1, dim)[rows], samples.scores.reshape(-1, dim)[rows])

    def pull(self, x: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.learned(x, scores)

    def inverse(self, z: np.ndarray) -> np.ndarray:
        return self.learned.inverse(z)

    def log_jacobian(self, z: np.ndarray) -> np.ndarray:
        return self.learned.log_jacobian(z)

    def unmixed(self, samples: Samples) -> "LearnedCoordinates":
        """Return the same map without its last whitening, scaled by these draws."""
        return replace(self, learned=self.learned.unmixed(*self._flat(samples)))

    def beside(self, affine: Coordinates, samples: Samples) -> "SideBySide":
        """Return these beside simpler coordinates: groups alone where there are any, or affine ones.

        Of eight schools and random effects that gained 1.2 to 1.3 times as much as affine ones beside them.
        """
        groups = self.learned.groups_alone(*self._flat(samples))
        return SideBySide(affine if groups is None else replace(self, learned=groups), self)

    def _flat(self, samples: Samples) -> Pair:
        dim = len(self.mean)
        return samples.draws.reshape(-1, dim), samples.scores.reshape(-1, dim)


def learned_coordinates(fitted: Samples, everywhere: Samples, like: Coordinates | None = None) -> Coordinates:
    """Return coordinates learned from some draws, or affine ones where they show no shape.

    So they are where the map is out of bounds at any draw that it will be used at. `like`: those of another fold, of
    which the kind is taken, so that it is not looked for again.
    """
    affine = Standardise.of(fitted)
    dim, chains = len(affine.mean), len(fitted.draws)
    flat = fitted.draws.reshape(-1, dim), fitted.scores.reshape(-1, dim)
    if isinstance(like, LearnedCoordinates):
        found = Learned.fit(*flat, chains=chains, kind=like.learned.kind)
    else:
        found = Learned.of(*flat, chains=chains) if like is None else None
    if found is None:
        return affine
    with np.errstate(all="ignore"):
        z, s = found(everywhere.draws.reshape(-1, dim), everywhere.scores.reshape(-1, dim))
    if not ((np.abs(z) < LARGEST).all() and (np.abs(s) < LARGEST).all()):
        return affine
    return LearnedCoordinates(replace(affine, factor=None), found)


@dataclass(frozen=True, eq=False)
class SideBySide(Coordinates):
    """Two systems of coordinates beside each other: twice as many columns, for regressions on the features of both."""

    first: Coordinates
    second: Coordinates

    @property
    def mean(self) -> Float[np.ndarray, " dim"]:  # type: ignore[override]
        return self.first.mean

    def rows(self, samples: Samples, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        (z, s), (w, t) = self.first.rows(samples, rows), self.second.rows(samples, rows)
        return np.hstack([z, w]), np.hstack([s, t])

    def pull(self, x: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (z, s), (w, t) = self.first.pull(x, scores), self.second.pull(x, scores)
        return np.hstack([z, w]), np.hstack([s, t])

    def inverse(self, z: np.ndarray) -> np.ndarray:
        return self.first.inverse(z[:, : len(self.mean)])

    def log_jacobian(self, z: np.ndarray) -> np.ndarray:
        return self.first.log_jacobian(z[:, : len(self.mean)])
