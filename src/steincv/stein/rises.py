"""Where an output of f rises, and along what: one coordinate, its gradient, or what a regression finds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from ..samples.derivatives import Derivatives
from .steps import Rise, along_coordinate, along_line, along_one

How = Literal["coordinate", "linear", "gradient", "lines", "regression"]


class Finding(NamedTuple):
    """Numbers that decide along what an output rises; none of them was swept."""

    screened: int = 64  # draws on which an output is first compared with every coordinate
    exact: float = 1e-9  # share of the deviation that a linear function may leave
    slope: float = 0.05  # the least slope along a coordinate, in standard deviations per standard deviation
    explained: float = 0.5  # share of the variance that a linear regression must explain to be of use
    knots: int = 200  # points on a curve through all draws; near a place, so many on either side make a polynomial
    near: int = 4
    tried: int = 4  # coordinates in which f may be linear, those that it changes most with
    steps: tuple[float, ...] = (-3.0, -1.0, 1.0, 3.0)  # in standard deviations, at which that is checked
    far: float = 50.0  # standard deviations: a cut there is one that is never met
    grid: int = 49  # places on every line, from end to end of all draws, between which crossings are looked for
    crossings: int = 3  # on a line, at most: of others the jump stays
    rounds: int = 4  # of false position


FINDING = Finding()


class Crossing(NamedTuple):
    """Where f crosses a cut along the lines of a field: there h is `at`, f rises or falls, and `at` moves with the cut.

    Each is given for every point and cut, or for all points at once.
    """

    at: Float[np.ndarray, "#n cut"]
    sign: Float[np.ndarray, "#n cut"]
    rate: Float[np.ndarray, "#n cut"]

    def part(self, rows: np.ndarray) -> "Crossing":
        """Return the same at some of the points."""
        return Crossing(*(one if len(one) == 1 else one[rows] for one in self))


@dataclass(frozen=True, eq=False)
class Lines:
    """f on lines of one direction, one through every point, at the same places of h on all of them.

    A crossing depends on the line alone, not on where on it the point is: so the field is as smooth along its lines as
    it has to be, whatever kinks and jumps f has.
    """

    derivatives: Derivatives
    output: int
    direction: Float[np.ndarray, " dim"]
    h: Float[np.ndarray, " n"]
    places: Float[np.ndarray, " place"]
    values: Float[np.ndarray, "n place"]

    @classmethod
    def of(cls, derivatives: Derivatives, output: int, direction: np.ndarray, h: np.ndarray) -> "Lines":
        places = np.linspace(h.min() - h.std() / 2, h.max() + h.std() / 2, FINDING.grid)
        return cls(derivatives, output, direction, h, places, derivatives.along(output, direction, places - h[:, None]))

    def crossings(self, c: np.ndarray) -> list[Crossing]:
        """Return the first crossings of every line, as many as any of them has."""
        values, far = self.values, np.full((1, len(c)), self.places[0] - FINDING.far * self.h.std())
        above = values[:, :, None] > c
        change = (above[:, 1:] != above[:, :-1]) & np.isfinite(values[:, 1:] + values[:, :-1])[..., None]
        number = np.cumsum(change, axis=1, dtype=np.int8)
        found = []
        for k in range(min(FINDING.crossings, int(number[:, -1].max(initial=0)))):
            cell = np.argmax(number == k + 1, axis=1)
            there = number[:, -1] > k
            low, high = ((self.places[j], np.take_along_axis(values, j, axis=1) - c) for j in (cell, cell + 1))
            at, rate = self._between(low, high, c)
            sign = np.where(low[1] > 0, -1.0, 1.0)
            found.append(Crossing(np.where(there, at, far), np.where(there, sign, 0.0), np.where(there, rate, 0.0)))
        return found or [Crossing(far, 0 * far, 0 * far)]

    def _between(
        self, low: tuple[np.ndarray, np.ndarray], high: tuple[np.ndarray, np.ndarray], c: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return where f - c is zero between two places where it is not of the same sign, and how that moves with c.

        By false position; the value at an end that has stayed twice is halved (the Illinois rule).
        """
        (a, fa), (b, fb) = low, high
        here = self.h[:, None]
        rate = np.divide(b - a, np.abs(fb - fa), out=np.zeros_like(fa), where=fb != fa)
        for _ in range(FINDING.rounds):
            at = np.where(fb != fa, b - fb * np.divide(b - a, fb - fa, out=np.zeros_like(fa), where=fb != fa), a)
            value = self.derivatives.along(self.output, self.direction, at - here) - c
            same = (value > 0) == (fb > 0)
            a, fa, b, fb = np.where(same, a, b), np.where(same, fa / 2, fb), at, value
        return at, rate


@dataclass(frozen=True, eq=False)
class Place:
    """A rise in place of an output of f, which is the same, or rises or falls with it, or crosses cuts where it says.

    - `falls`: f falls where h rises.
    - `knots`: h and f at the points, both in increasing order of h, where h is not f itself.
    - `slope`: f is h times it, and it does not change along the field.
    - `lines`: f along the field, where its crossings have to be looked for.
    - `elsewhere`: the rise at other points from draws and scores, where these are enough.
    - `within`: the place that some rows choose, where the field is chosen by draws: every fold then has its own.
    """

    rise: Rise
    how: How
    falls: bool = False
    knots: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]] | None = None
    slope: Float[np.ndarray, " n"] | None = None
    lines: Lines | None = None
    elsewhere: Callable[[np.ndarray, np.ndarray], Rise] | None = None
    within: Callable[[np.ndarray], "Place"] | None = None

    def crossings(self, c: Float[np.ndarray, " cut"]) -> list[Crossing]:
        """Return where h is when f passes c along the field."""
        one = np.ones((1, len(c)))
        if self.lines is not None:
            return self.lines.crossings(c)
        if self.slope is not None:
            slope, far = self.slope[:, None], FINDING.far * self.rise.h.std()
            middle = self.rise.h.mean()
            return [Crossing(np.clip(c / slope, middle - far, middle + far), np.sign(slope) * one, one / np.abs(slope))]
        if self.knots is None:
            return [Crossing(c[None], one, one)]
        return [Crossing(self.cut(c)[None], -one if self.falls else one, one)]

    def cut(self, c: Float[np.ndarray, " cut"]) -> Float[np.ndarray, " cut"]:
        """Return where h is cut when f is cut at c: between the same two points."""
        if self.knots is None:
            return c
        h, f = self.knots
        if self.falls:
            h, f = h[::-1], f[::-1]
        beyond = np.abs(h[-1] - h[0]) * (-1.0 if self.falls else 1.0)
        inside = [_curve(f, h, at)[0] for at in np.clip(c, f[0], f[-1])]
        return np.array(inside) + beyond * (1.0 * (c > f[-1]) - 1.0 * (c < f[0]))

    def doubt(self, c: Float[np.ndarray, " cut"]) -> Float[np.ndarray, " cut"]:
        """Return how far the cut of h may be off, 0 where h is f itself.

        By as much as it would be elsewhere, had there been half as many points; beside a plateau of f, where no curve
        helps, by the distance of the two points.
        """
        if self.knots is None:
            return np.zeros_like(c)
        h, f = (a[::-1] for a in self.knots) if self.falls else self.knots
        fewer = Place(self.rise, self.how, self.falls, (self.knots[0][::2], self.knots[1][::2]))
        after = np.clip(np.searchsorted(f, c, side="right"), 1, len(f) - 1)
        level = (f[after - 1] == f[np.maximum(after - 2, 0)]) | (f[after] == f[np.minimum(after + 1, len(f) - 1)])
        return np.maximum(np.abs(self.cut(c) - fewer.cut(c)), np.where(level, np.abs(h[after] - h[after - 1]), 0.0))

    def back(self, cut: Float[np.ndarray, " cut"]) -> tuple[np.ndarray, np.ndarray]:
        """Return f where h has these values, and the size of the slope of f in h there."""
        if self.knots is None:
            return cut, np.ones_like(cut)
        h, f = self.knots
        found = np.array([_curve(h, f, at) for at in np.clip(cut, h[0], h[-1])])
        return found[:, 0], np.abs(found[:, 1])


def _curve(x: np.ndarray, y: np.ndarray, at: float) -> tuple[float, float]:
    """Return a smooth curve and its slope at a place between points whose x ascends: a polynomial through some near it.

    The value stays between those of the two neighbours.
    """
    near = int(np.clip(np.searchsorted(x, at, side="right"), 1, len(x) - 1))  # of equal ones after the last
    step = max(1, len(x) // FINDING.knots)
    some = np.clip(near + step * np.arange(-FINDING.near, FINDING.near), 0, len(x) - 1)
    some = np.unique(np.append(some, [near - 1, near]))
    some = some[np.append(np.diff(x[some]) > 1e-3 * (x[some[-1]] - x[some[0]]), True)]
    if len(some) < 2:
        return float(y[near]), 0.0
    middle, half = (x[some[0]] + x[some[-1]]) / 2, (x[some[-1]] - x[some[0]]) / 2
    curve = np.polynomial.Polynomial.fit(x[some], y[some], len(some) - 1, domain=[middle - half, middle + half])
    low, high = sorted((y[near - 1], y[near]))
    return float(np.clip(curve(at), low, high)), float(curve.deriv()(at))


def monotone_in(x: Float[np.ndarray, "n dim"], values: Float[np.ndarray, "n out"]) -> list[int]:
    """Return for every output the coordinate that it rises or falls with in every draw, -1 where there is none."""
    some = np.linspace(0, len(x) - 1, min(len(x), FINDING.screened)).astype(int)
    found = np.full(values.shape[1], -1)
    for i in range(x.shape[1]):
        steps = np.diff(values[some[np.argsort(x[some, i], kind="stable")]], axis=0)
        likely = ((steps >= 0).all(axis=0) | (steps <= 0).all(axis=0)) & (found < 0)
        if likely.any():
            order = np.argsort(x[:, i], kind="stable")
            for o in np.flatnonzero(likely):
                steps = np.diff(values[order, o])
                if (steps >= 0).all() != (steps <= 0).all():
                    found[o] = i
    return [int(i) for i in found]


def find_place(
    output: int,
    x: Float[np.ndarray, "n dim"],
    s: Float[np.ndarray, "n dim"],
    f: Float[np.ndarray, " n"],
    coordinate: int,
    derivatives: Derivatives | None,
) -> Place | None:
    """Return the rise of one output, or None if nothing is known of where it rises."""
    if coordinate >= 0:
        return _monotone(x, s, f, coordinate)
    if f.std() == 0:
        return None
    slopes, left = _regression(x, f)
    if left <= FINDING.exact:
        elsewhere = _elsewhere(slopes, x, f)
        return Place(elsewhere(x, s)._replace(h=f), "linear", elsewhere=elsewhere)
    if derivatives is not None and derivatives.known[output]:
        place = _by_gradient(output, x, s, f, derivatives)
        if place is not None:
            return place
    if left**2 > 1 - FINDING.explained:
        return None
    elsewhere = _elsewhere(slopes, x, f)
    rise = elsewhere(x, s)
    return Place(rise, "regression", knots=(np.sort(rise.h), np.sort(f)), elsewhere=elsewhere)


def _elsewhere(slopes: np.ndarray, x: np.ndarray, f: np.ndarray) -> Callable[[np.ndarray, np.ndarray], Rise]:
    """Return the rise of the linear function with these slopes that is f on average, at any points."""
    shift, i = float((f - x @ slopes).mean()), int(np.argmax(np.abs(slopes) * x.std(axis=0)))

    def rise(x: np.ndarray, s: np.ndarray) -> Rise:
        return along_one(shift + x @ slopes, np.broadcast_to(slopes, x.shape), np.zeros_like(x), s, i)

    return rise


def _monotone(x: np.ndarray, s: np.ndarray, f: np.ndarray, i: int) -> Place:
    def elsewhere(x: np.ndarray, s: np.ndarray) -> Rise:
        return along_coordinate(x, s, i)

    rise = elsewhere(x, s)
    if np.array_equal(x[:, i], f):
        return Place(rise, "coordinate", elsewhere=elsewhere)
    order = np.argsort(x[:, i], kind="stable")
    knots = x[order, i], f[order]
    return Place(rise, "coordinate", bool(knots[1][0] > knots[1][-1]), knots, elsewhere=elsewhere)


def _regression(x: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the slopes of a linear regression, and the share of the deviation that it leaves."""
    center, scale = x.mean(axis=0), x.std(axis=0)
    z, y = (x - center) / scale, (f - f.mean()) / f.std()
    if len(z) <= 2 * z.shape[1]:
        return np.zeros(z.shape[1]), 1.0
    slopes = np.linalg.lstsq(z, y, rcond=None)[0]
    return slopes / scale * f.std(), float((y - z @ slopes).std())


def _by_gradient(output: int, x: np.ndarray, s: np.ndarray, f: np.ndarray, derivatives: Derivatives) -> Place | None:
    """Return the rise along a coordinate in which f is linear or has a steady slope, or of crossings along lines."""
    gradient = derivatives.gradient(output)
    if not np.isfinite(gradient).all() or not gradient.any():
        return None
    scale = x.std(axis=0)
    if derivatives.smooth(output):
        steady = np.where((gradient > 0).all(axis=0) | (gradient < 0).all(axis=0), np.abs(gradient).min(axis=0), 0.0)
        i = int(np.argmax(steady * scale))
        if steady[i] * scale[i] > FINDING.slope * f.std():
            row = derivatives.turned(output, np.broadcast_to(np.eye(x.shape[1])[i], x.shape))
            if np.isfinite(row).all():
                return Place(along_one(f, gradient, row, s, i), "gradient")
        most = np.argsort(-np.abs(gradient).mean(axis=0) * scale)[: FINDING.tried]
        tried = [_linear(output, x, s, f, int(i), gradient, derivatives) for i in most]
        found = [place for place in tried if place is not None]
        if found:
            return min(found, key=lambda place: len(place.rise.fixed))
    return _across(output, x, s, gradient * scale, derivatives)


def _linear(
    output: int, x: np.ndarray, s: np.ndarray, f: np.ndarray, i: int, gradient: np.ndarray, derivatives: Derivatives
) -> Place | None:
    r"""Return the rise of $h = f/\kappa$ along coordinate i, in which f is linear with slope $\kappa$, if so.

    The coordinates on which $\kappa$ depends are fixed, and so is the cut $c/\kappa$.
    """
    slope, scale, unit = gradient[:, i], x.std(axis=0), np.eye(x.shape[1])[i]
    if not slope.all():
        return None
    ways = scale[i] * np.array(FINDING.steps)
    changed = derivatives.along(output, unit, np.broadcast_to(ways, (len(x), len(ways)))) - f[:, None]
    if not (np.abs(changed - slope[:, None] * ways) <= FINDING.exact * f.std()).all():
        return None
    row = derivatives.turned(output, np.broadcast_to(unit, x.shape))
    changes = np.abs(row).max(axis=0) * scale * scale[i] > FINDING.exact * f.std()
    if not np.isfinite(row).all() or changes[i]:
        return None
    rise = along_one(
        f / slope, gradient / slope[:, None], np.zeros_like(x), s, i, tuple(np.flatnonzero(changes).tolist())
    )
    return Place(rise, "gradient", slope=slope)


def _across(output: int, x: np.ndarray, s: np.ndarray, gradient: np.ndarray, derivatives: Derivatives) -> Place:
    """Return the rise of the linear function that f changes most with, along the direction in which the draws do.

    Both come from the rows of a fold's training draws: a direction that has seen the test draws is correlated with
    their scores, and what it takes out there has no mean of zero.
    """

    def rise(rows: np.ndarray | slice) -> tuple[Rise, np.ndarray]:
        some, slopes = x[rows], gradient[rows]
        scale = some.std(axis=0)
        normal = np.linalg.eigh(slopes.T @ slopes)[1][:, -1] / scale
        dense = len(some) > 2 * len(scale)
        spread = np.cov(some, rowvar=False).reshape(len(scale), -1) if dense else np.diag(scale**2)
        direction = spread @ normal / (normal @ spread @ normal)
        return along_line(x, s, normal, direction), direction

    def within(rows: np.ndarray) -> Place:
        found, direction = rise(rows)
        return Place(found, "lines", lines=Lines.of(derivatives, output, direction, found.h))

    return Place(rise(slice(None))[0], "lines", within=within)
