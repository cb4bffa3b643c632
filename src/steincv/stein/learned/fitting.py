"""Fit bends and a coupling together by minimising the Fisher divergence of what the best affine map makes of them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize

from .fisher import Metric, huber_weights, metric
from .layers import Bend, Couple, Pair


class Limits(NamedTuple):
    """Bounds that keep a fit tame; draws are in units of their standard deviations. Set on the league's benchmark."""

    start: float = 0.5  # rate and tail of the bend that a fit starts from, which is the identity
    rate: tuple[float, float] = (0.02, 3.0)
    tail: tuple[float, float] = (0.02, 3.0)
    skew: float = 6.0
    log_scale: float = 3.0
    penalty: float = 5.0  # prior observations of no effect
    beyond: float = 0.25  # the straight continuation begins so many standard deviations outside of the draws
    profiled: int = 64  # up to this dimension the best affine map is found anew at every step
    dense: int = 400  # up to this one, between rounds; above, coordinates are scaled one by one


LIMITS = Limits()


@dataclass(frozen=True, eq=False)
class Shape:
    """What may be fitted: coordinates to bend, parents and children, and which parents scale which children."""

    bent: Int[np.ndarray, " bent"]
    parents: Int[np.ndarray, " parent"]
    children: Int[np.ndarray, " child"]
    scaled: Bool[np.ndarray, "child parent"]
    location: Float[np.ndarray, "child parent"]  # where the fit of locations starts

    @property
    def size(self) -> int:
        child, parent = self.scaled.shape
        return 3 * len(self.bent) + int(self.scaled.sum()) + child * parent + child


@dataclass(frozen=True, eq=False)
class Fitting:
    """A fit under way: draws and scores of mean 0 and deviation 1, and what may be fitted to them."""

    x: Float[np.ndarray, "n dim"]
    s: Float[np.ndarray, "n dim"]
    shape: Shape

    def start(self) -> np.ndarray:
        """Return the parameters of the identity."""
        shape = self.shape
        k, rest = len(shape.bent), int(shape.scaled.sum())
        level = np.full(k, np.log(LIMITS.start))
        return np.concatenate(
            [level, np.zeros(k), level, np.zeros(rest), shape.location.ravel(), np.zeros(len(shape.children))]
        )

    def bounds(self) -> list[tuple[float, float]]:
        shape = self.shape
        k, rest = len(shape.bent), int(shape.scaled.sum())
        free = shape.location.size + len(shape.children)
        rate, tail = (tuple(np.log(pair)) for pair in (LIMITS.rate, LIMITS.tail))
        most = (-LIMITS.log_scale, LIMITS.log_scale)
        return [rate] * k + [(-LIMITS.skew, LIMITS.skew)] * k + [tail] * k + [most] * rest + [(-1e3, 1e3)] * free

    def split(self, theta: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return rate, skew, tail, log scales, locations and offsets."""
        shape = self.shape
        k, rest = len(shape.bent), int(shape.scaled.sum())
        ends = np.cumsum([k, k, k, rest, shape.location.size])
        rate, skew, tail, scales, location, offset = np.split(theta, ends)
        log_scale = np.zeros(shape.scaled.shape)
        log_scale[shape.scaled] = scales
        return np.exp(rate), skew, np.exp(tail), log_scale, location.reshape(shape.scaled.shape), offset

    def layers(self, theta: np.ndarray) -> list[Bend | Couple]:
        """Return the fitted layers."""
        shape = self.shape
        rate, skew, tail, log_scale, location, offset = self.split(theta)
        x, s = self.x, self.s
        made: list[Bend | Couple] = []
        if len(shape.bent):
            dim = x.shape[1]
            full = [np.full(dim, LIMITS.start), np.zeros(dim), np.full(dim, LIMITS.start)]
            for whole, part in zip(full, (rate, skew, tail), strict=True):
                whole[shape.bent] = part
            bend = Bend(*full, *_range(x))
            made.append(bend)
            x, s = bend(x, s)
        if len(shape.children):
            low, high = _range(x[:, shape.parents])
            made.append(Couple(shape.parents, shape.children, offset, location, log_scale, low, high))
        return made

    def value(self, theta: np.ndarray, weights: np.ndarray, fixed: Metric | None) -> tuple[float, np.ndarray]:
        """Return the divergence with its penalty, and the gradient."""
        shape = self.shape
        rate, skew, tail, log_scale, location, offset = self.split(theta)
        z, s = self.x, self.s
        bend = None
        if len(shape.bent):
            bend = _Curve(z[:, shape.bent], s[:, shape.bent], rate, skew, tail)
            z, s = z.copy(), s.copy()
            z[:, shape.bent], s[:, shape.bent] = bend.z, bend.s
        x, sx = z, s
        if len(shape.children):
            h, children = x[:, shape.parents], sx[:, shape.children]
            away = x[:, shape.children] - offset - h @ location.T
            scale = np.exp(h @ log_scale.T)
            work = away * children + 1
            z, s = x.copy(), sx.copy()
            z[:, shape.children] = away / scale
            s[:, shape.children] = children * scale
            s[:, shape.parents] += children @ location + work @ log_scale
        found = fixed or metric(z, s, weights, self.x.shape[1] <= LIMITS.profiled)
        by_s, by_z = found.residuals(z, s)
        value = found.divergence if fixed is None else float(weights @ np.einsum("ni,ni->n", by_s, by_z))
        by_s *= 2 * weights[:, None]
        by_z *= 2 * weights[:, None]
        parts: list[np.ndarray] = []
        if len(shape.children):
            to_parents = by_s[:, shape.parents]
            zb, sb, gz, gs = (
                z[:, shape.children],
                s[:, shape.children],
                by_z[:, shape.children],
                by_s[:, shape.children],
            )
            lifted, moved = to_parents @ log_scale.T, to_parents @ location.T
            stretch = gs * sb - gz * zb
            by_away = gz / scale + lifted * children
            to_scale = stretch.T @ h + work.T @ to_parents
            to_location = children.T @ to_parents - by_away.T @ h
            parts = [to_scale[shape.scaled], to_location.ravel(), -by_away.sum(axis=0)]
            if bend is not None:
                by_z[:, shape.children] = by_away
                by_s[:, shape.children] = gs * scale + moved + lifted * away
                by_z[:, shape.parents] += stretch @ log_scale - by_away @ location
        else:
            parts = [np.zeros(0)]
        if bend is not None:
            parts = [*bend.pull(by_z[:, shape.bent], by_s[:, shape.bent]), *parts]
        away_from_start = theta - self.start()
        penalty = LIMITS.penalty / len(self.x)
        value += penalty * float(away_from_start @ away_from_start)
        gradient = np.concatenate(parts) + 2 * penalty * away_from_start
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return 1e30, np.zeros_like(theta)
        return value, gradient

    def solve(self, steps: int, rounds: int = 2) -> np.ndarray:
        """Return the best parameters after so many steps of L-BFGS in each of some rounds of Huber weights."""
        theta, dim = self.start(), self.x.shape[1]
        dense = dim <= LIMITS.dense and len(self.x) > 2 * dim
        for _ in range(rounds):
            z, s = self.x, self.s
            for layer in self.layers(theta):
                z, s = layer(z, s)
            even = np.full(len(z), 1 / len(z))
            weights = huber_weights(metric(z, s, even, dense).norms(z, s))
            fixed = metric(z, s, weights, True) if dense and dim > LIMITS.profiled else None
            options = {"maxiter": steps, "maxfun": 2 * steps}
            with np.errstate(all="ignore"):
                found = minimize(
                    self.value, theta, (weights, fixed), "L-BFGS-B", jac=True, bounds=self.bounds(), options=options
                )
            theta = np.where(np.isfinite(found.x), found.x, theta)
        return theta


class _Curve:
    """A bend of some columns with the derivatives by its parameters."""

    def __init__(self, x: np.ndarray, s: np.ndarray, rate: np.ndarray, skew: np.ndarray, tail: np.ndarray) -> None:
        self.x, self.rate, self.tail = x, rate, tail
        self.r = np.sqrt(1 + (tail * x) ** 2)
        self.t = np.arcsinh(tail * x) / tail
        up = np.exp(rate * self.t + skew)
        down = 1 / up
        self.cosh, sinh = (up + down) / 2, (up - down) / 2
        self.tanh = sinh / self.cosh
        self.level = np.cosh(skew)
        self.skew_tanh = np.tanh(skew)
        self.z = (sinh - np.sinh(skew)) / (rate * self.level)
        self.speed = self.r * self.level / self.cosh
        self.s = self.speed * (s + tail**2 * x / self.r**2 - rate * self.tanh / self.r)

    def pull(self, by_z: np.ndarray, by_s: np.ndarray) -> list[np.ndarray]:
        """Return the derivatives by log rate, skew and log tail, given those by z and by s."""
        a, w, x, r, t, tanh = self.rate, self.tail, self.x, self.r, self.t, self.tanh
        sharp = 1 / self.cosh**2
        steep = self.cosh / self.level  # dz/dy times the rate
        with_s, with_v = by_s * self.s, by_s * self.speed
        rate = by_z * (steep * t - self.z) - a * (with_s * tanh * t + with_v * (tanh + a * sharp * t) / r)
        skew = by_z * ((self.cosh - self.level) / (a * self.level) - self.z * self.skew_tanh)
        skew += with_s * (self.skew_tanh - tanh) - with_v * a * sharp / r
        dt = x / r - t  # by log tail
        dr = (w * x) ** 2 / r
        slope = 2 * w**2 * x / r**2 * (1 - dr / r) - a * a * sharp * dt / r + a * tanh * dr / r**2
        tail = by_z * steep * dt + with_s * (dr / r - a * tanh * dt) + with_v * slope
        return [rate.sum(axis=0), skew.sum(axis=0), tail.sum(axis=0)]


def _range(x: np.ndarray) -> Pair:
    return x.min(axis=0) - LIMITS.beyond, x.max(axis=0) + LIMITS.beyond
