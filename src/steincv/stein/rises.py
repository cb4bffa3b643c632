"""Where an output of f rises, and along what: one coordinate, its gradient, or what a regression finds."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from ..samples.derivatives import Derivatives
from .steps import Rise, along_coordinate, along_gradient, along_one

How = Literal["coordinate", "linear", "gradient", "regression"]


class Finding(NamedTuple):
    """Numbers that decide along what an output rises; none of them was swept."""

    screened: int = 64  # draws on which an output is first compared with every coordinate
    exact: float = 1e-9  # share of the deviation that a linear function may leave
    slope: float = 0.05  # the least slope along a coordinate, in standard deviations per standard deviation
    explained: float = 0.5  # share of the variance that a linear regression must explain to be of use
    knots: int = 200  # points on a curve through all draws; near a place, so many on either side make a polynomial
    near: int = 4
    dimensions: int = 64  # the most in which second derivatives are summed


FINDING = Finding()


@dataclass(frozen=True, eq=False)
class Place:
    """A rise in place of an output of f, which is the same, or rises or falls with it.

    - `falls`: f falls where h rises.
    - `knots`: h and f at the points, both in increasing order of h, where h is not f itself.
    """

    rise: Rise
    how: How
    falls: bool = False
    knots: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]] | None = None

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
        gradient = np.broadcast_to(slopes, x.shape)
        i = int(np.argmax(np.abs(slopes) * x.std(axis=0)))
        return Place(along_one(f, gradient, np.zeros_like(x), s, i), "linear")
    if derivatives is not None and derivatives.known[output]:
        place = _by_gradient(output, x, s, f, derivatives)
        if place is not None:
            return place
    if left**2 > 1 - FINDING.explained:
        return None
    h = x @ slopes
    i = int(np.argmax(np.abs(slopes) * x.std(axis=0)))
    rise = along_one(h, np.broadcast_to(slopes, x.shape), np.zeros_like(x), s, i)
    return Place(rise, "regression", knots=(np.sort(h), np.sort(f)))


def _monotone(x: np.ndarray, s: np.ndarray, f: np.ndarray, i: int) -> Place:
    rise = along_coordinate(x, s, i)
    if np.array_equal(x[:, i], f):
        return Place(rise, "coordinate")
    order = np.argsort(x[:, i], kind="stable")
    knots = x[order, i], f[order]
    return Place(rise, "coordinate", bool(knots[1][0] > knots[1][-1]), knots)


def _regression(x: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the slopes of a linear regression, and the share of the deviation that it leaves."""
    center, scale = x.mean(axis=0), x.std(axis=0)
    z, y = (x - center) / scale, (f - f.mean()) / f.std()
    if len(z) <= 2 * z.shape[1]:
        return np.zeros(z.shape[1]), 1.0
    slopes = np.linalg.lstsq(z, y, rcond=None)[0]
    return slopes / scale * f.std(), float((y - z @ slopes).std())


def _by_gradient(output: int, x: np.ndarray, s: np.ndarray, f: np.ndarray, derivatives: Derivatives) -> Place | None:
    """Return the rise along the coordinate in which f has the steadiest slope, or along the whole gradient."""
    if not derivatives.smooth(output):
        return None
    gradient = derivatives.gradient(output)
    if not np.isfinite(gradient).all() or not gradient.any():
        return None
    scale = x.std(axis=0)
    steady = np.where((gradient > 0).all(axis=0) | (gradient < 0).all(axis=0), np.abs(gradient).min(axis=0), 0.0)
    i = int(np.argmax(steady * scale))
    if steady[i] * scale[i] > FINDING.slope * f.std():
        unit = np.broadcast_to(np.eye(x.shape[1])[i], x.shape)
        row = derivatives.turned(output, unit)
        return Place(along_one(f, gradient, row, s, i), "gradient") if np.isfinite(row).all() else None
    if x.shape[1] > FINDING.dimensions:
        return None
    turned = derivatives.turned(output, gradient * scale**2)
    units = (np.broadcast_to(unit, x.shape) for unit in np.eye(x.shape[1]))
    laplacian = sum(scale[k] ** 2 * derivatives.turned(output, unit)[:, k] for k, unit in enumerate(units))
    if not (np.isfinite(turned).all() and np.isfinite(laplacian).all()):
        return None
    typical = float(np.median((gradient**2 * scale**2).sum(axis=1)))
    if typical == 0:
        return None
    return Place(along_gradient(f, gradient, turned, laplacian, s, scale, typical), "gradient")
