"""How a function of the parameters becomes normal: transforms that rise, with two derivatives."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import leastsq
from scipy.special import ndtr


class Bending(NamedTuple):
    """Numbers of the fit of a bent transform; none of them was swept."""

    quantiles: int = 41  # at which it is matched to a normal distribution
    outermost: float = 2.3  # the last of them, in standard deviations
    weight: float = 0.02  # of a prior that bends nothing
    near: float = 1e-3  # how near the best is near enough, after so many evaluations at most, from anywhere or nearby
    evaluations: tuple[int, int] = (50, 4)


BENDING = Bending()


def quantiles(h: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return what np.quantile does, by one sort."""
    return np.interp(levels * (len(h) - 1), np.arange(len(h)), np.sort(h))


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
    def of(cls, h: np.ndarray, like: "Bent | None" = None) -> "Bent":
        """Return the transform under which the quantiles of h are those of a normal distribution, nearly.

        `like`: one that is nearly the same, to begin with.
        """
        normal = np.linspace(-BENDING.outermost, BENDING.outermost, BENDING.quantiles)
        found = quantiles(h, ndtr(normal))
        straight = Straight(float(found[BENDING.quantiles // 2]), float(h.std()))
        y = straight(found)[0]

        def misfit(p: np.ndarray) -> np.ndarray:
            bent = p[0] + np.exp(p[1]) * np.sinh(np.exp(p[2]) * np.arcsinh(y - p[4]) + p[3])
            return np.append(bent - normal, BENDING.weight * p[1:])

        def slopes(p: np.ndarray) -> np.ndarray:
            size, tail, away = np.exp(p[1]), np.exp(p[2]), y - p[4]
            inner = tail * np.arcsinh(away) + p[3]
            high, steep = size * np.sinh(inner), size * np.cosh(inner)
            columns = [np.ones(len(y)), high, steep * (inner - p[3]), steep, -steep * tail / np.sqrt(1 + away**2)]
            return np.vstack([np.column_stack(columns), BENDING.weight * np.eye(5)[1:]])

        start = (0.0,) * 5 if like is None else (like.shift, np.log(like.size), np.log(like.tail), *like[4:])
        most = BENDING.evaluations[like is not None]
        near = {"ftol": BENDING.near, "xtol": BENDING.near}
        with np.errstate(over="ignore", invalid="ignore"):  # steps that go too far are taken back
            p = leastsq(misfit, start, Dfun=slopes, full_output=True, maxfev=most, **near)[0]
        return cls(straight, p[0], float(np.exp(p[1])), float(np.exp(p[2])), p[3], p[4])

    def __call__(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return T, T' and T''/T'."""
        y = self.straight(h)[0] - self.place
        square, scale = 1 + y * y, self.straight.scale
        first = self.tail / np.sqrt(square)
        grown = np.exp(self.tail * np.arcsinh(y) + self.skew)
        shrunk = 1 / grown
        sinh, cosh = (grown - shrunk) / 2, (grown + shrunk) / 2
        curve = (sinh / cosh * first - y / square) / scale
        return self.shift + self.size * sinh, (self.size / scale) * cosh * first, curve


Transform = Straight | Bent
