r"""Take the jump out of an indicator: a control variate that jumps where $1\{h(x) \le c\}$ does, by as much.

Let $w$ be a field along which h rises at rate one, $w\cdot\nabla h = 1$. For every function $\psi$ of h the field
$\psi(h)\,w$ gives $g = \psi'(h) + \psi(h) A$ with $A = \nabla\cdot w + w\cdot s$, of mean zero. If $u = T(h)$ is normal
along $w$, of mean $m$ and deviation $\sigma$ that do not change along it, then $\psi = \sigma\varphi_q(t)/T'$,
$t = (u - m)/\sigma$, with the Stein solution of a half-line

$$ \varphi_q(t) = \sqrt{2\pi}\,e^{t^2/2} F(\min(t, q))\,(1 - F(\max(t, q))), \quad
   \varphi_q' = t\varphi_q + 1\{t \le q\} - F(q), $$

(F the normal distribution function) leaves $1\{h \le c\} + g_0 = F(q) - \varphi_q(t)\,(t + \sigma A_u)$: the
conditional probability, which is smooth, and a remainder that is zero where the normal distribution is the right one,
and else small and continuous. $A_u = (A - T''/T')/T'$ is A in units of u.

$w$, $m$ and $\sigma$ are found by one linear regression, $A_u \approx -(u - m)/\sigma^2$: it is the score of h along w.
Whatever it finds, the mean of $g_0$ is zero.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import least_squares
from scipy.special import erfcx, ndtr


class Fitting(NamedTuple):
    """Numbers of the regression: the degree was chosen on eight runs of benchmarks/steps.py, the others not swept."""

    degree: int = 3  # of what depends on the coordinates that are held
    draws_per_feature: int = 20
    held: int = 2  # the most coordinates that w does not move, and on which m, sigma and w depend
    candidates: int = 2  # looked at for each of them
    gain: float = 0.9  # a coordinate is held only if the remainder falls to this share
    ridge: float = 1e-8
    widest: float = 10.0  # the precision stays within this factor of its mean
    farthest: float = 4.0  # m stays within so many deviations
    quantiles: int = 41  # at which the bent transform is matched to a normal distribution
    outermost: float = 2.3  # the last of them, in standard deviations
    weight: float = 0.02  # of a prior that bends nothing
    levels: tuple[float, ...] = (0.1, 0.5, 0.9)  # at which remainders are compared
    compared: int = 1000  # points, or up to twice as many, on which choices are


FITTING = Fitting()
ROOT_HALF, ROOT_PI = np.sqrt(0.5), np.sqrt(np.pi / 2)


def half_line(t: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return the Stein solution of the half-line t <= q at t; it is between 0 and 1 / |t| everywhere."""
    low = t <= q
    t, q = np.where(low, t, -t), np.where(low, q, -q)  # by symmetry
    left = t <= 0
    fall = np.where(left, 0.0, np.minimum((t - q) * (t + q) / 2, 0.0))
    tails = erfcx(ROOT_HALF * np.where(left, -t, np.maximum(q, 0.0))) * ndtr(np.where(left, -q, t))
    return ROOT_PI * np.exp(fall) * tails


def half_line_in_cut(t: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return the derivative of `half_line` with respect to q."""
    low = t <= q
    t, r = np.where(low, t, -t), np.where(low, q, -q)
    below = 0.5 * erfcx(-ROOT_HALF * np.minimum(t, 0.0)) * np.exp(-(r**2) / 2)
    above = np.exp(np.minimum((t - r) * (t + r) / 2, 0.0)) * ndtr(t)
    return np.where(low, -1.0, 1.0) * np.where(t <= 0, below, above)


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


# How h becomes normal --------------------------------------------------------------------------------


class Straight(NamedTuple):
    """T(h) = (h - center) / scale."""

    center: float
    scale: float

    @classmethod
    def of(cls, h: np.ndarray) -> "Straight":
        return cls(float(h.mean()), float(h.std()))

    def __call__(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return T, T' and T''/T'."""
        return (h - self.center) / self.scale, np.full(h.shape, 1 / self.scale), np.zeros(h.shape)


class Bent(NamedTuple):
    r"""$T(h) = a + b\sinh(\delta\,\mathrm{asinh}(y - \xi) + \epsilon)$, $y$ being h in standard units.

    Reference: Jones, Pewsey (2009), Sinh-arcsinh distributions, Biometrika 96.
    """

    straight: Straight
    shift: float
    size: float
    tail: float
    skew: float
    place: float

    @classmethod
    def of(cls, h: np.ndarray) -> "Bent":
        """Return the transform under which the quantiles of h are those of a normal distribution, nearly."""
        straight = Straight(float(np.median(h)), float(h.std()))
        normal = np.linspace(-FITTING.outermost, FITTING.outermost, FITTING.quantiles)
        y = _quantiles(straight(h)[0], ndtr(normal))

        def misfit(p: np.ndarray) -> np.ndarray:
            bent = p[0] + np.exp(p[1]) * np.sinh(np.exp(p[2]) * np.arcsinh(y - p[4]) + p[3])
            return np.append(bent - normal, FITTING.weight * p[1:])

        def slopes(p: np.ndarray) -> np.ndarray:
            size, tail, away = np.exp(p[1]), np.exp(p[2]), y - p[4]
            inner = tail * np.arcsinh(away) + p[3]
            high, steep = size * np.sinh(inner), size * np.cosh(inner)
            columns = [np.ones(len(y)), high, steep * (inner - p[3]), steep, -steep * tail / np.sqrt(1 + away**2)]
            return np.vstack([np.column_stack(columns), FITTING.weight * np.eye(5)[1:]])

        p = least_squares(misfit, np.zeros(5), slopes, method="lm", max_nfev=50).x
        return cls(straight, p[0], float(np.exp(p[1])), float(np.exp(p[2])), p[3], p[4])

    def __call__(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return T, T' and T''/T'."""
        y = self.straight(h)[0] - self.place
        root = np.sqrt(1 + y**2)
        inner, first = self.tail * np.arcsinh(y) + self.skew, self.tail / root
        curve = np.tanh(inner) * first - y / root**2
        scale = self.straight.scale
        slope = self.size * np.cosh(inner) * first
        return self.shift + self.size * np.sinh(inner), slope / scale, curve / scale


Transform = Straight | Bent


# The regression --------------------------------------------------------------------------------------


class Normal(NamedTuple):
    """Of u along the field, at every point: its value, mean, deviation and score."""

    u: Float[np.ndarray, "n 1"]
    mean: Float[np.ndarray, "n 1"]
    deviation: Float[np.ndarray, "n 1"]
    score: Float[np.ndarray, "n 1"]

    @property
    def misfit(self) -> np.ndarray:
        """What would be zero if the law were right."""
        return self.t + self.deviation * self.score

    @property
    def t(self) -> np.ndarray:
        return (self.u - self.mean) / self.deviation


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
        return self.controls(rise, x)(cuts)[0]

    def controls(self, rise: Rise, x: Float[np.ndarray, "n dim"]) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
        """Return a function of cuts: g, and if asked for its `rate`.

        That is the derivative of 1{h <= c} + g in c, whose mean is the density of h.
        """
        law = self._law(rise, x)
        t, misfit = law.t, law.misfit

        def at(cuts: np.ndarray, rate: bool = False) -> tuple[np.ndarray, np.ndarray]:
            q, slope = self._cut(law, cuts)
            g = ndtr(q) - (rise.h[:, None] <= cuts) - half_line(t, q) * misfit
            if not rate:
                return g, np.zeros(0)
            normal = np.exp(-(q**2) / 2) / np.sqrt(2 * np.pi)
            return g, slope * (normal - half_line_in_cut(t, q) * misfit)

        return at

    def _cut(self, law: Normal, cuts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the cuts in units of t at every point, and how fast they move with c."""
        place, slope, _ = self.transform(cuts)
        return (place - law.mean) / law.deviation, slope / law.deviation

    def _law(self, rise: Rise, x: np.ndarray) -> Normal:
        """Return what is known along the field, with an axis for cuts."""
        u, slope, curve = self.transform(rise.h)
        basis = _basis(x, self.center, self.scale, self.held, self.degree)
        return self._law_of(u, (rise.score - curve) / slope, basis, _tangents(rise, self.scale, self.free, slope))

    def _law_of(self, u: np.ndarray, score: np.ndarray, basis: np.ndarray, tangents: np.ndarray) -> Normal:
        k = basis.shape[1]
        if self.free:
            moves = basis @ self.coefficients[2 * k :].reshape(-1, k).T
            score = score + np.einsum("nj,nj->n", tangents, moves)
        widest, farthest = FITTING.widest, FITTING.farthest
        precision = np.clip(basis @ self.coefficients[:k], self.precision / widest, self.precision * widest)
        mean = np.clip((basis @ self.coefficients[k : 2 * k]) / precision, -farthest, farthest)
        return Normal(*(part[:, None] for part in (u, mean, 1 / np.sqrt(precision), score)))


def _quantiles(h: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return what np.quantile does, by one sort."""
    return np.interp(levels * (len(h) - 1), np.arange(len(h)), np.sort(h))


def _basis(x: np.ndarray, center: np.ndarray, scale: np.ndarray, held: Sequence[int], degree: int) -> np.ndarray:
    """Return powers of the held coordinates, each bounded by tanh: what depends on a scale is level at both ends."""
    y = np.tanh((x[:, list(held)] - center[list(held)]) / scale[list(held)])
    return np.concatenate([np.ones((len(x), 1)), *(y**power for power in range(1, degree + 1))], axis=1)


def _tangents(rise: Rise, scale: np.ndarray, free: Sequence[int], slope: np.ndarray) -> np.ndarray:
    """Return the scores of the tangent fields, each times the scale of its coordinate, in units of u."""
    return rise.tangents[:, list(free)] * scale[list(free)] / slope[:, None]


def fit_steps(rise: Rise, x: Float[np.ndarray, "n dim"], parts: Sequence[np.ndarray]) -> list[Step]:
    """Fit the field on several parts of the points; the first decides what it depends on, for all of them."""
    some = parts[0][:: max(1, len(parts[0]) // FITTING.compared)]
    like = fit_step(rise.part(some), x[some])
    return [_again(like, rise.part(rows), x[rows]) for rows in parts]


def _again(like: Step, rise: Rise, x: np.ndarray) -> Step:
    return _fit(rise, x, x.mean(axis=0), x.std(axis=0), type(like.transform).of(rise.h), like.held)[0]


def fit_step(rise: Rise, x: Float[np.ndarray, "n dim"]) -> Step:
    """Fit the field on these points: of a few choices that which leaves the smallest remainders."""
    center, scale = x.mean(axis=0), x.std(axis=0)
    transforms: list[Transform] = [Straight.of(rise.h), Bent.of(rise.h)]
    tried = [_fit(rise, x, center, scale, transform, ()) for transform in transforms]
    best = min(tried, key=lambda one: one[1])
    while len(best[0].held) < min(FITTING.held, x.shape[1] - len(rise.moved)):
        more = [
            _fit(rise, x, center, scale, transform, (*best[0].held, k))
            for k in _promising(best[0], rise, x)
            for transform in transforms
        ]
        if not more or min(one[1] for one in more) > FITTING.gain * best[1]:
            break
        best = min(more, key=lambda one: one[1])
    return best[0]


def _fit(
    rise: Rise, x: np.ndarray, center: np.ndarray, scale: np.ndarray, transform: Transform, held: tuple[int, ...]
) -> tuple[Step, float]:
    """Return the field with these coordinates held, and the mean square of its remainders."""
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
    columns = np.column_stack([u, -np.ones(n), tangents])
    features = (columns[:, :, None] * basis[:, None, :]).reshape(n, -1)
    size = np.sqrt(np.maximum(np.einsum("nk,nk->k", features, features) / n, 1e-300))
    features /= size
    system = features.T @ features + FITTING.ridge * n * np.eye(len(size))
    coefficients = -np.linalg.solve(system, features.T @ target) / size
    precision = float(np.maximum(basis @ coefficients[:k], 0.1).mean())
    step = Step(transform, center, scale, held, tuple(free), degree, coefficients, precision)
    law = step._law_of(u, target, basis, tangents)
    q, _ = step._cut(law, _quantiles(rise.h, np.array(FITTING.levels)))
    return step, float(np.square(half_line(law.t, q) * law.misfit).mean())


def _promising(step: Step, rise: Rise, x: np.ndarray) -> list[int]:
    """Return the coordinates that what is left depends on most, by its products with each of them."""
    law = step._law(rise, x)
    left = (law.misfit / law.deviation)[:, 0]
    _, slope, _ = step.transform(rise.h)
    tangents = _tangents(rise, step.scale, step.free, slope)
    parts = np.column_stack([law.u[:, 0], np.ones(len(left)), tangents]) * left[:, None]
    parts /= np.sqrt(np.maximum(np.einsum("nk,nk->k", parts, parts), 1e-300))
    y = np.tanh((x - step.center) / step.scale)
    strength = np.square(parts.T @ (y - y.mean(axis=0))).sum(axis=0)
    strength[list({*rise.moved, *step.held})] = -np.inf
    order = np.argsort(-strength)[: FITTING.candidates]
    return [int(k) for k in order if np.isfinite(strength[k])]
