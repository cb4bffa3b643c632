r"""Take the jump out of an indicator: a control variate that jumps where $1\{h(x) \le c\}$ does, by as much.

Let $w$ be a field along which h rises at rate one, $w\cdot\nabla h = 1$. For every function $\psi$ of h the field
$\psi(h)\,w$ gives $g = \psi'(h) + \psi(h) A$ with $A = \nabla\cdot w + w\cdot s$, of mean zero. If $u = T(h)$ is normal
along $w$, of mean $m$ and deviation $\sigma$ that do not change along it, then $\psi = \sigma\varphi_q(t)/T'$,
$t = (u - m)/\sigma$, with the Stein solution of a half-line

$$ \varphi_q(t) = \sqrt{2\pi}\,e^{t^2/2} F(\min(t, q))\,(1 - F(\max(t, q))), \quad
   \varphi_q' = t\varphi_q + 1\{t \le q\} - F(q), $$

(F the normal distribution function) leaves $1\{h \le c\} + g_0 = F(q) - \varphi_q(t)\,(t + \sigma A_u)$: the
conditional probability, which is smooth, and a remainder that is zero where the normal distribution is the right one,
and else small and continuous. $A_u = (A - T''/T')/T'$ is A in units of u. With $M(t) = \sqrt{2\pi}\,e^{t^2/2}F(t)$,

$$ g_0 = \big(F(q) - 1\{t \le q\}\big)\,\big(1 \pm M(\pm t)\,(t + \sigma A_u)\big), $$

plus where $t \le q$: only F has to be found again for another cut.

$w$, $m$ and $\sigma$ are found by one linear regression, $A_u \approx -(u - m)/\sigma^2$: it is the score of h along w.
Whatever it finds, the mean of $g_0$ is zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import erfcx, ndtr

from .bending import Bent, Straight, Transform, quantiles


class Fitting(NamedTuple):
    """Numbers of the regression: the degree was chosen on eight runs of benchmarks/steps.py, the others not swept."""

    degree: int = 3  # of what depends on the coordinates that are held
    draws_per_feature: int = 20
    enough: int = 40  # draws per feature, beyond which the field of a fold is no better
    held: int = 2  # the most coordinates that w does not move, and on which m, sigma and w depend
    candidates: int = 2  # looked at for each of them
    promise: float = 0.03  # share of what is left that each of them explains, at least
    gain: float = 0.9  # a coordinate is held only if the remainder falls to this share
    ridge: float = 1e-8
    widest: float = 10.0  # the precision stays within this factor of its mean
    farthest: float = 4.0  # m stays within so many deviations
    levels: tuple[float, ...] = (0.1, 0.5, 0.9)  # at which remainders are compared
    compared: int = 1000  # points, or up to twice as many, on which choices are


FITTING = Fitting()
ROOT_HALF, ROOT_PI = np.sqrt(0.5), np.sqrt(np.pi / 2)
FAR = 30.0  # M(t) is no longer a number a little beyond


def half_line(t: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return the Stein solution of the half-line t <= q at t; it is between 0 and 1 / |t| everywhere."""
    low = t <= q
    t, q = np.where(low, t, -t), np.where(low, q, -q)  # by symmetry
    left = t <= 0
    fall = np.where(left, 0.0, np.minimum((t - q) * (t + q) / 2, 0.0))
    tails = erfcx(ROOT_HALF * np.where(left, -t, np.maximum(q, 0.0))) * ndtr(np.where(left, -q, t))
    return ROOT_PI * np.exp(fall) * tails


class Rise(NamedTuple):
    r"""h at n points, and a field w with $w\cdot\nabla h = 1$.

    - `score`: $A = \nabla\cdot w + w\cdot s$.
    - `tangents`: the same of the fields $e_k - (\partial_k h)\,w$, along which h does not change.
    - `moved`: the coordinates that w moves. `fixed`: those that nothing may move, for cuts depend on them.
    """

    h: Float[np.ndarray, " n"]
    score: Float[np.ndarray, " n"]
    tangents: Float[np.ndarray, "n dim"]
    moved: tuple[int, ...]
    fixed: tuple[int, ...] = ()

    def part(self, rows: np.ndarray) -> "Rise":
        """Return the same at some of the points."""
        return self._replace(h=self.h[rows], score=self.score[rows], tangents=self.tangents[rows])


def along_coordinate(x: Float[np.ndarray, "n dim"], s: Float[np.ndarray, "n dim"], i: int) -> Rise:
    """Return the rise of coordinate i along itself."""
    tangents = s.copy()
    tangents[:, i] = 0.0
    return Rise(x[:, i], s[:, i], tangents, (i,))


def along_one(
    h: Float[np.ndarray, " n"],
    gradient: Float[np.ndarray, "n dim"],
    row: Float[np.ndarray, "n dim"],
    s: Float[np.ndarray, "n dim"],
    i: int,
    fixed: tuple[int, ...] = (),
) -> Rise:
    r"""Return the rise of h along coordinate i, $w = e_i / \partial_i h$. `row`: that of the second derivatives."""
    slope = gradient[:, i]
    score = s[:, i] / slope - row[:, i] / slope**2
    tangents = s - gradient * score[:, None] - row / slope[:, None]
    tangents[:, i] = 0.0
    return Rise(h, score, tangents, (i,), fixed)


def along_line(
    x: Float[np.ndarray, "n dim"],
    s: Float[np.ndarray, "n dim"],
    normal: Float[np.ndarray, " dim"],
    direction: Float[np.ndarray, " dim"],
) -> Rise:
    """Return the rise of `normal` . x along the same direction everywhere; `normal` . `direction` is one."""
    return Rise(x @ normal, s @ direction, np.zeros_like(x), tuple(range(x.shape[1])))


# The regression --------------------------------------------------------------------------------------


class Normal(NamedTuple):
    """Of u along the field, at every point: its value, mean, deviation and score."""

    u: Float[np.ndarray, "n 1"]
    mean: Float[np.ndarray, "#n 1"]
    deviation: Float[np.ndarray, "#n 1"]
    score: Float[np.ndarray, "n 1"]

    @property
    def t(self) -> np.ndarray:
        return (self.u - self.mean) / self.deviation

    @property
    def misfit(self) -> np.ndarray:
        """What would be zero if the law were right."""
        return self.t + self.deviation * self.score


class Sides(NamedTuple):
    """What takes the jump out at n points, for any cut: of g the factors where h is beneath the cut, and over it."""

    transform: Transform
    h: Float[np.ndarray, "n 1"]
    law: Normal
    beneath: Float[np.ndarray, "n 1"]
    over: Float[np.ndarray, "n 1"]
    far: bool  # whether some points are so far out that these are not numbers

    @classmethod
    def of(cls, transform: Transform, h: Float[np.ndarray, " n"], law: Normal) -> "Sides":
        t = law.t
        misfit, far = t + law.deviation * law.score, max(t.max(), -t.min()) > FAR
        near = ROOT_HALF * (np.clip(t, -FAR, FAR) if far else t)
        beneath, over = 1 + ROOT_PI * erfcx(-near) * misfit, 1 - ROOT_PI * erfcx(near) * misfit
        return cls(transform, h[:, None], law, beneath, over, far)

    def part(self, rows: np.ndarray) -> "Sides":
        """Return the same at some of the points."""
        law = Normal(*(one if len(one) == 1 else one[rows] for one in self.law))
        return Sides(self.transform, self.h[rows], law, self.beneath[rows], self.over[rows], self.far)

    def __call__(self, cuts: Float[np.ndarray, "*n cut"], rate: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return g, and if asked for its `rate`: the derivative of 1{h <= c} + g in c, whose mean is the density of h.

        Every point may have cuts of its own, as long as they do not change along the field.
        """
        q, slope = self.cut(cuts)
        below = self.h <= cuts
        side, reached = np.where(below, self.beneath, self.over), ndtr(np.where(below, -q, q))
        g = np.where(below, -reached, reached) * side  # F(q) - 1 is -F(-q), which is not rounded away
        far = np.flatnonzero(np.abs(self.law.t) > FAR) if self.far else np.zeros(0, dtype=int)
        if len(far):
            there = np.broadcast_to(q, g.shape)[far]
            g[far] = ndtr(there) - below[far] - half_line(self.law.t[far], there) * self.law.misfit[far]
        if not rate:
            return g, np.zeros(0)
        side *= slope * np.exp(-(q**2) / 2) / np.sqrt(2 * np.pi)
        side[far] = 0.0  # nothing of a density is left there
        return g, side

    def cut(self, cuts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the cuts in units of t at every point, and how fast they move with c."""
        place, slope, _ = self.transform(cuts)
        return (place - self.law.mean) / self.law.deviation, slope / self.law.deviation


@dataclass(frozen=True, eq=False)
class Step:
    """A fitted field: for any cut c it gives the g that takes the jump out of 1{h <= c}.

    - `held`: coordinates that stay where they are along the field; the law along it depends on them by bounded
      polynomials of degree `degree`, whose coefficients are those of precision, precision times mean, and `free`
      tangents.
    """

    transform: Transform
    center: Float[np.ndarray, " dim"]
    scale: Float[np.ndarray, " dim"]
    held: tuple[int, ...]
    free: tuple[int, ...]
    degree: int
    coefficients: Float[np.ndarray, " feature"]
    precision: float

    def __call__(
        self, rise: Rise, x: Float[np.ndarray, "n dim"], cuts: Float[np.ndarray, "#n cut"]
    ) -> Float[np.ndarray, "n cut"]:
        """Return g at every point, which may have cuts of its own, as long as they do not change along the field."""
        return self.sides(rise, x)(cuts)[0]

    def sides(self, rise: Rise, x: Float[np.ndarray, "n dim"]) -> Sides:
        """Return what gives g at these points, for any cuts."""
        return Sides.of(self.transform, rise.h, self._law(rise, x))

    def _law(self, rise: Rise, x: np.ndarray) -> Normal:
        """Return what is known along the field, with an axis for cuts."""
        u, slope, curve = self.transform(rise.h)
        basis = _basis(x, self.center, self.scale, self.held, self.degree)
        score, k = rise.score - curve, basis.shape[1]
        if self.free:
            moves = np.zeros((x.shape[1], k))
            moves[list(self.free)] = self.scale[list(self.free), None] * self.coefficients[2 * k :].reshape(-1, k)
            score = score + np.einsum("nk,nk->n", rise.tangents @ moves, basis)
        score /= slope
        basis = basis[:1] if k == 1 else basis  # the law is then the same everywhere
        widest, farthest = FITTING.widest, FITTING.farthest
        precision = np.clip(basis @ self.coefficients[:k], self.precision / widest, self.precision * widest)
        mean = np.clip((basis @ self.coefficients[k : 2 * k]) / precision, -farthest, farthest)
        return Normal(*(part[:, None] for part in (u, mean, 1 / np.sqrt(precision), score)))


def _basis(x: np.ndarray, center: np.ndarray, scale: np.ndarray, held: Sequence[int], degree: int) -> np.ndarray:
    """Return powers of the held coordinates, each bounded by tanh: what depends on a scale is level at both ends."""
    if not held:
        return np.ones((len(x), 1))
    y = np.tanh((x[:, list(held)] - center[list(held)]) / scale[list(held)])
    return np.concatenate([np.ones((len(x), 1)), *(y**power for power in range(1, degree + 1))], axis=1)


def _tangents(rise: Rise, scale: np.ndarray, free: Sequence[int], slope: np.ndarray) -> np.ndarray:
    """Return the scores of the tangent fields, in units of u and of each coordinate."""
    return rise.tangents[:, list(free)] * scale[list(free)] / slope[:, None]


def fit_steps(rise: Rise, x: Float[np.ndarray, "n dim"], parts: Sequence[np.ndarray]) -> list[Step]:
    """Fit the field on several parts of the points; the first decides what it depends on, for all of them."""
    some = _spaced(parts[0], FITTING.compared)
    like = fit_step(rise.part(some), x[some])
    free = x.shape[1] - len(rise.moved) - len(like.held)
    most = max(FITTING.compared, FITTING.enough * (2 + free) * (1 + FITTING.degree * len(like.held)))
    return [_again(like, rise, x, _spaced(rows, most)) for rows in parts]


def _spaced(rows: np.ndarray, most: int) -> np.ndarray:
    """Return so many of the rows, or up to twice as many, evenly spaced."""
    return rows[:: max(1, len(rows) // most)]


def _again(like: Step, rise: Rise, x: np.ndarray, rows: np.ndarray) -> Step:
    rise, x, before, held = rise.part(rows), x[rows], like.transform, list(like.held)
    transform = Bent.of(rise.h, before) if isinstance(before, Bent) else Straight.of(rise.h)
    center, scale = like.center.copy(), like.scale.copy()
    center[held], scale[held] = x[:, held].mean(axis=0), x[:, held].std(axis=0)
    return _fit(rise, x, center, scale, transform, like.held)


def fit_step(rise: Rise, x: Float[np.ndarray, "n dim"]) -> Step:
    """Fit the field on these points: of a few choices that which leaves the smallest remainders."""
    center, scale = x.mean(axis=0), x.std(axis=0)
    straight, bent = Straight.of(rise.h), Bent.of(rise.h)

    def tried(transform: Transform, held: tuple[int, ...]) -> tuple[Step, float]:
        step = _fit(rise, x, center, scale, transform, held)
        return step, _remainder(step, rise, x)

    best = min((tried(transform, ()) for transform in (straight, bent)), key=lambda one: one[1])
    while len(best[0].held) < min(FITTING.held, x.shape[1] - len(rise.moved)):
        step, left = best
        more = [tried(straight, (*step.held, k)) for k in _promising(step, rise, x)]
        if not more:
            break
        found = min(more, key=lambda one: one[1])
        found = min(found, tried(bent, found[0].held), key=lambda one: one[1])
        if found[1] > FITTING.gain * left:
            break
        best = found
    return best[0]


def _remainder(step: Step, rise: Rise, x: np.ndarray) -> float:
    """Return the mean square of what the field leaves besides conditional probabilities, at a few quantiles of h."""
    sides, cuts = step.sides(rise, x), quantiles(rise.h, np.array(FITTING.levels))
    left = sides(cuts)[0] + (sides.h <= cuts) - ndtr(sides.cut(cuts)[0])
    return float(np.square(left).mean())


def _fit(
    rise: Rise, x: np.ndarray, center: np.ndarray, scale: np.ndarray, transform: Transform, held: tuple[int, ...]
) -> Step:
    """Return the field with these coordinates held."""
    n, dim = x.shape
    u, slope, curve = transform(rise.h)
    target = (rise.score - curve) / slope
    free = [k for k in range(dim) if k not in (*held, *rise.moved, *rise.fixed)]
    most = n / FITTING.draws_per_feature
    degree = FITTING.degree if held else 0
    while degree > 1 and 2 * (1 + degree * len(held)) + (1 + degree * len(held)) * min(len(free), 4) > most:
        degree -= 1
    basis = _basis(x, center, scale, held, degree)
    k = basis.shape[1]
    tangents = _tangents(rise, scale, free, slope)
    room = max(0, int(most / k) - 2)
    if room < len(free):  # those that matter most for a normal distribution
        product = tangents.T @ (target + u)
        power = np.einsum("nk,nk->k", tangents, tangents)
        order = np.sort(np.argsort(-(product**2) / np.maximum(power, 1e-300))[:room])
        free, tangents = [free[j] for j in order], tangents[:, order]
    features = np.column_stack([u, -np.ones(n), tangents])
    if k > 1:
        features = (features[:, :, None] * basis[:, None, :]).reshape(n, -1)
    gram = features.T @ features
    size = np.sqrt(np.maximum(gram.diagonal() / n, 1e-300))
    system = gram / (size * size[:, None]) + FITTING.ridge * n * np.eye(len(size))
    coefficients = -np.linalg.solve(system, (features.T @ target) / size) / size
    precision = float(np.maximum(basis @ coefficients[:k], 0.1).mean())
    return Step(transform, center, scale, held, tuple(free), degree, coefficients, precision)


def _promising(step: Step, rise: Rise, x: np.ndarray) -> list[int]:
    """Return the coordinates that what is left depends on most, by its products with each of them."""
    law = step._law(rise, x)
    left = (law.misfit / law.deviation)[:, 0]
    _, slope, _ = step.transform(rise.h)
    tangents = _tangents(rise, step.scale, step.free, slope)
    parts = np.column_stack([law.u[:, 0], np.ones(len(left)), tangents]) * left[:, None]
    parts /= np.sqrt(np.maximum(np.einsum("nk,nk->k", parts, parts), 1e-300))
    y = np.tanh((x - step.center) / step.scale)
    y -= y.mean(axis=0)
    strength = np.square(parts.T @ y).sum(axis=0)
    strength[list({*rise.moved, *step.held})] = -np.inf
    order = np.argsort(-strength)[: FITTING.candidates]
    return [int(k) for k in order if strength[k] > FITTING.promise * len(y) * y[:, k].var()]
