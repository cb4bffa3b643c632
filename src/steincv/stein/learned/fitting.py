r"""Fit bends and a coupling together by minimising the Fisher divergence of what the best affine map makes of them.

The Fisher divergence to a normal distribution is $E|s + z|^2$. Among all affine maps it is smallest at
$z = W^{-1}(x - m)$ with $W W^T = A$ the geometric mean of the covariance of the draws and the inverse covariance of the
scores (as in the adaptation of nutpie).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from ...runtime.threads import alone
from ..coordinates import LIMITS as COORDINATES
from .layers import Bend, Couple, Pair, factors, products, to_factors, to_parents

# The best affine map -------------------------------------------------------------------------------


class Robust(NamedTuple):
    """How far single draws may decide."""

    bound: float = 4.0  # a draw that is so many times as far from normal as the median draw counts half,
    rounds: int = 3  # with weights and metric found in so many turns


ROBUST = Robust()


@dataclass(frozen=True, eq=False)
class Metric:
    """A and its inverse (vectors if diagonal), the mean draw and score, and the divergence where they were made."""

    spread: np.ndarray
    precision: np.ndarray
    mean: Float[np.ndarray, " dim"]
    drift: Float[np.ndarray, " dim"]
    divergence: float

    def residuals(self, z: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return e = z + A s and A^-1 e, both of them 0 for a normal distribution; their product is |s + z|^2."""
        away, drift = z - self.mean, s - self.drift
        if self.spread.ndim == 1:
            e = away + drift * self.spread
            return e, e * self.precision
        inner = drift + away @ self.precision
        return inner @ self.spread, inner

    def norms(self, z: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Return |s + z|^2 of every draw, in the coordinates in which A is 1."""
        return np.maximum(np.einsum("ni,ni->n", *self.residuals(z, s)), 0.0)


def metric(z: np.ndarray, s: np.ndarray, weights: np.ndarray, dense: bool) -> Metric:
    """Return the best affine map's A for draws with these weights (which sum to 1)."""
    mean, drift = weights @ z, weights @ s
    away, pull = z - mean, s - drift
    heavy = pull * weights[:, None]
    cross = 2 * np.einsum("ni,ni->", heavy, away)
    if dense:
        factor, draws = _cholesky(heavy.T @ pull), (away * weights[:, None]).T @ away
        if factor is not None:
            values, vectors = np.linalg.eigh(factor.T @ draws @ factor)
            roots = np.sqrt(np.maximum(values, 1e-30))
            half = solve_triangular(factor, vectors, trans="T", lower=True, check_finite=False)
            right = factor @ vectors
            spread, precision = (half * roots) @ half.T, (right / roots) @ right.T
            return Metric(spread, precision, mean, drift, float(2 * roots.sum() + cross))
    vz, vs = np.einsum("n,ni,ni->i", weights, away, away), np.einsum("ni,ni->i", heavy, pull)
    vz, vs = np.maximum(vz, 1e-300), np.maximum(vs, 1e-300)
    return Metric(np.sqrt(vz / vs), np.sqrt(vs / vz), mean, drift, float(2 * np.sqrt(vz * vs).sum() + cross))


def _cholesky(matrix: np.ndarray) -> np.ndarray | None:
    """Return the factor, or None if the matrix has none to round-off."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None


def robust_metric(z: np.ndarray, s: np.ndarray, dense: bool) -> tuple[Metric, np.ndarray]:
    """Return the metric of draws weighted by how usual they are, and the weights.

    In the neck of a funnel scores are a thousand times those elsewhere: unweighted, a few such draws decide all.
    """
    middle = np.median(z, axis=0), np.median(s, axis=0)
    scale = np.median(np.abs(z - middle[0]), axis=0) / np.maximum(np.median(np.abs(s - middle[1]), axis=0), 1e-300)
    scale = np.where(scale > 0, scale, 1.0)
    found = Metric(scale, 1 / scale, *middle, np.nan)
    for _ in range(ROBUST.rounds):
        weights = usual(found.norms(z, s))
        found = metric(z, s, weights, dense)
    return found, weights


def usual(norms: np.ndarray) -> np.ndarray:
    """Return weights, summing to 1, of draws with these |s + z|^2: as of a Cauchy loss on several times the median."""
    weights = 1 / (ROBUST.bound * np.median(norms) + norms + 1e-300)
    return weights / weights.sum()


def bounded(norms: np.ndarray, typical: float) -> np.ndarray:
    """Return the norms with those above the typical ones growing like their logarithm only."""
    bound = ROBUST.bound * typical + 1e-300
    return bound * np.log1p(norms / bound)


# The fit -------------------------------------------------------------------------------------------


class Limits(NamedTuple):
    """Bounds that keep a fit tame; draws are in units of their standard deviations.

    Steps, rounds and entries were compared on six posteriors of the league.
    """

    start: float = 0.5  # rate and tail of the bend that a fit starts from, which is the identity
    rate: tuple[float, float] = (0.02, 3.0)
    tail: tuple[float, float] = (0.02, 3.0)
    skew: float = 6.0
    log_scale: float = 3.0
    location: float = 1e3
    largest: float = 1e60  # their squares and products are still finite
    penalty: float = 5.0  # prior observations of no effect, at most: half of one per coordinate, whose noise adds up
    steps: tuple[int, int] = (12, 80)  # of L-BFGS per round, at least and at most: as many as `work` over the dimension
    work: int = 300
    enough: float = 1e-4  # a step that lowers the divergence by less, relative to it, is the last of its round
    rounds: int = 2  # more steps or rounds change the held-out divergence by less than a tenth
    entries: int = 30_000  # of the table of draws that steps look at, evenly spaced,
    fewest: int = 300  # which has at least so many draws,
    most: int = 600  # and at most about so many (1000 gained no more on six posteriors), but `least` entries
    least: int = 6_000
    bends: int = 64  # coordinates that are bent at most, those farthest from normal
    beyond: float = 0.25  # the straight continuation begins so many standard deviations outside of the draws
    profiled: int = 300  # up to this dimension the best affine map is found anew at every step,
    per_dimension: int = 10  # from so many draws per coordinate, if there are: fewer do not carry it
    dense: int = 400  # up to this one, between rounds; above, coordinates are scaled one by one


LIMITS = Limits()
# The value of parameters for which numbers overflow: a line search then takes a shorter step.
REFUSED = 1e30


@dataclass(frozen=True, eq=False)
class Shape:
    """What may be fitted: coordinates to bend, parents and children, and which terms scale which children."""

    bent: Int[np.ndarray, " bent"]
    parents: Int[np.ndarray, " parent"]
    children: Int[np.ndarray, " child"]
    terms: Int[np.ndarray, "term 2"]
    scaled: Bool[np.ndarray, "child term"]
    location: Float[np.ndarray, "child term"]  # where the fit of locations starts

    @classmethod
    def of_bends(cls, bent: np.ndarray) -> "Shape":
        """Return the shape without a coupling."""
        none, empty = np.zeros(0, int), np.zeros((0, 0))
        return cls(bent, none, none, np.zeros((0, 2), int), empty.astype(bool), empty)


@dataclass(frozen=True, eq=False)
class Fitting:
    """A fit under way: draws and scores of mean 0 and deviation 1, and what may be fitted to them."""

    x: Float[np.ndarray, "n dim"]
    s: Float[np.ndarray, "n dim"]
    shape: Shape

    def start(self) -> np.ndarray:
        """Return the parameters of the identity."""
        k, scales = len(self.shape.bent), int(self.shape.scaled.sum())
        level = np.full(k, np.log(LIMITS.start))
        return np.concatenate([level, np.zeros(k), level, np.zeros(scales), self.shape.location.ravel()])

    def bounds(self) -> list[tuple[float, float]]:
        k, scales = len(self.shape.bent), int(self.shape.scaled.sum())
        rate, tail = ((float(np.log(a)), float(np.log(b))) for a, b in (LIMITS.rate, LIMITS.tail))
        most, free = (-LIMITS.log_scale, LIMITS.log_scale), (-LIMITS.location, LIMITS.location)
        skew = (-LIMITS.skew, LIMITS.skew)
        return [rate] * k + [skew] * k + [tail] * k + [most] * scales + [free] * self.shape.location.size

    def split(self, theta: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return rate, skew and tail of the bends, log scales and locations by term."""
        k, scaled = len(self.shape.bent), self.shape.scaled
        rate, skew, tail, scales, location = np.split(theta, np.cumsum([k, k, k, int(scaled.sum())]))
        log_scale = np.zeros(scaled.shape)
        log_scale[scaled] = scales
        return np.exp(rate), skew, np.exp(tail), log_scale, location.reshape(scaled.shape)

    def layers(self, theta: np.ndarray) -> list[Bend | Couple]:
        """Return the fitted layers."""
        shape = self.shape
        rate, skew, tail, log_scale, location = self.split(theta)
        x, s = self.x, self.s
        made: list[Bend | Couple] = []
        if len(shape.bent):
            dim = x.shape[1]
            full = [np.full(dim, LIMITS.start), np.zeros(dim), np.full(dim, LIMITS.start)]
            for whole, part in zip(full, (rate, skew, tail), strict=True):
                whole[shape.bent] = part
            low, high = _range(x)
            bend = Bend(full[0], full[1], full[2], low, high)
            made.append(bend)
            x, s = bend(x, s)
        if len(shape.children):
            low, high = _range(x[:, shape.parents])
            made.append(Couple(shape.parents, shape.children, shape.terms, location, log_scale, low, high))
        return made

    def value(self, theta: np.ndarray, weights: np.ndarray, fixed: Metric | None) -> tuple[float, np.ndarray]:
        """Return the divergence with its penalty, and the gradient."""
        shape = self.shape
        rate, skew, tail, log_scale, location = self.split(theta)
        x, sx = self.x, self.s
        if len(shape.bent):
            bend = _Curve(x[:, shape.bent], sx[:, shape.bent], rate, skew, tail)
            x, sx = x.copy(), sx.copy()
            x[:, shape.bent], sx[:, shape.bent] = bend.z, bend.s
        z, s = x, sx
        if len(shape.children):
            link = _Link(x[:, shape.parents], x[:, shape.children], sx[:, shape.children], shape, location, log_scale)
            z, s = x.copy(), sx.copy()
            z[:, shape.children], s[:, shape.children] = link.z, link.s
            s[:, shape.parents] += link.to_parents
        if not (np.abs(z).max() < LIMITS.largest and np.abs(s).max() < LIMITS.largest):
            return REFUSED, np.zeros_like(theta)
        found = fixed or metric(z, s, weights, is_profiled(*self.x.shape))
        by_s, by_z = found.residuals(z, s)
        value = found.divergence if fixed is None else float(weights @ np.einsum("ni,ni->n", by_s, by_z))
        by_s *= 2 * weights[:, None]
        by_z *= 2 * weights[:, None]
        parts: list[np.ndarray] = []
        if len(shape.children):
            parts = link.pull(by_z, by_s, shape)
        if len(shape.bent):
            parts = [*bend.pull(by_z[:, shape.bent], by_s[:, shape.bent]), *parts]
        moved = theta - self.start()
        penalty = min(LIMITS.penalty, self.x.shape[1] / 2) / len(self.x)
        value += penalty * float(moved @ moved)
        gradient = np.concatenate(parts) + 2 * penalty * moved
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return REFUSED, np.zeros_like(theta)
        return value, gradient

    def solve(self) -> np.ndarray:
        """Return the best parameters after some steps of L-BFGS in each of a few rounds of weights."""
        theta, dim = self.start(), self.x.shape[1]
        steps = int(np.clip(LIMITS.work // dim, *LIMITS.steps))
        dense = is_dense(*self.x.shape)
        most = max(LIMITS.most, LIMITS.least // dim)
        wanted = max(LIMITS.fewest, min(most, LIMITS.entries // dim))
        if is_profiled(*self.x.shape):
            wanted = max(wanted, LIMITS.per_dimension * dim)
        rows = np.arange(0, len(self.x), -(-len(self.x) // wanted))
        few = Fitting(self.x[rows], self.s[rows], self.shape)
        for _ in range(LIMITS.rounds):
            z, s = self.x, self.s
            for layer in self.layers(theta):
                z, s = layer(z, s)
            found, weights = robust_metric(z, s, dense)
            fixed = None if is_profiled(*few.x.shape) or not dense else found
            with alone(few.x.size), np.errstate(all="ignore"):
                best = minimize(
                    few.value,
                    theta,
                    (weights[rows] / weights[rows].sum(), fixed),
                    "L-BFGS-B",
                    jac=True,
                    bounds=self.bounds(),
                    options={"maxiter": steps, "maxfun": 2 * steps, "ftol": LIMITS.enough},
                )
            theta = np.where(np.isfinite(best.x), best.x, theta)
        return theta


def is_dense(n: int, dim: int) -> bool:
    """Return whether n draws carry, and time allows, a full matrix between coordinates."""
    return n > COORDINATES.draws_per_dimension * dim and dim <= LIMITS.dense


def is_profiled(n: int, dim: int) -> bool:
    """Return whether the best affine map of n draws is cheap and steady enough to find at every step."""
    return is_dense(n, dim) and dim <= LIMITS.profiled


class _Link:
    """A coupling of some children to their parents with the derivatives by its parameters."""

    def __init__(
        self, h: np.ndarray, x: np.ndarray, s: np.ndarray, shape: Shape, location: np.ndarray, log_scale: np.ndarray
    ) -> None:
        self.location, self.log_scale, self.pull_x = location, log_scale, s
        self.h, self.given = h, factors(h)
        self.terms = products(self.given, shape.terms)
        self.away = x - self.terms @ location.T
        self.scale = np.exp(self.terms @ log_scale.T)
        self.work = self.away * s + 1
        self.z, self.s = self.away / self.scale, s * self.scale
        self.by_terms = s @ location + self.work @ log_scale
        self.by_factors = to_factors(self.by_terms, self.given, shape.terms)
        self.to_parents = to_parents(self.by_factors, h)

    def pull(self, by_z: np.ndarray, by_s: np.ndarray, shape: Shape) -> list[np.ndarray]:
        """Return the derivatives by log scales and locations; turn `by_z`, `by_s` into those before the coupling."""
        gz, gs, s = by_z[:, shape.children], by_s[:, shape.children], self.pull_x
        up, root = by_s[:, shape.parents], np.sqrt(1 + self.h**2)
        parents = np.concatenate([np.zeros((len(by_s), 1)), up, up * self.h / root], axis=1)
        i, j = shape.terms.T
        reached = parents[:, i] * self.given[:, j] + parents[:, j] * self.given[:, i]
        lifted = reached @ self.log_scale.T
        stretch = gs * self.s - gz * self.z
        by_away = gz / self.scale + lifted * s
        to_scale = stretch.T @ self.terms + self.work.T @ reached
        to_location = s.T @ reached - by_away.T @ self.terms
        if len(shape.bent):
            by_z[:, shape.children] = by_away
            by_s[:, shape.children] = gs * self.scale + reached @ self.location.T + lifted * self.away
            along = stretch @ self.log_scale - by_away @ self.location
            back = to_factors(along, self.given, shape.terms) + to_factors(self.by_terms, parents, shape.terms)
            curved = self.by_factors[:, 1 + self.h.shape[1] :]
            by_z[:, shape.parents] += to_parents(back, self.h) + up * curved / root**3
        return [to_scale[shape.scaled], to_location.ravel()]


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
