"""Standard deviations of f under the density: f and its square are controlled, and the delta method joins them."""

from dataclasses import dataclass

import numpy as np

from .error_bars import Average, average, most_effective_draws
from .series import Series


@dataclass(frozen=True, eq=False)
class Unit:
    """f about its plain mean, in [-1, 1]: a raw second moment loses the digits that matter, or overflows."""

    center: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, array: np.ndarray) -> "Unit":
        center = array.mean(axis=(0, 1))
        largest = np.abs(array - center).max(axis=(0, 1))
        return cls(center, np.where(largest > 0, largest, 1.0))

    def __call__(self, array: np.ndarray) -> np.ndarray:
        return (array - self.center) / self.scale


@dataclass(frozen=True, eq=False)
class Targets:
    """The functions that are controlled: f, and its square about the mean where a standard deviation is asked for."""

    unit: Unit | None

    @classmethod
    def of(cls, array: np.ndarray, sd: bool) -> "Targets":
        return cls(Unit.of(array) if sd else None)

    def __call__(self, array: np.ndarray) -> np.ndarray:
        return array if self.unit is None else np.concatenate([array, self.unit(array) ** 2], axis=-1)

    def columns(self, targets: np.ndarray) -> np.ndarray:
        """Return what is averaged: the targets, and sums by whose variance that of any combination of both is known."""
        if self.unit is None:
            return targets
        first, second = np.split(targets, 2, axis=-1)
        return np.concatenate([targets, self.unit(first) + second], axis=-1)

    def change(self, sums: np.ndarray) -> np.ndarray:
        """Return by how much sums of `columns` change where these sums are added to those of the targets."""
        return sums if self.unit is None else self.columns(sums) - self.columns(np.zeros_like(sums))

    def variance(self, targets: np.ndarray) -> np.ndarray:
        """Return the variance of `columns` at some draws."""
        with np.errstate(over="ignore"):
            return self.columns(targets).var(axis=(0, 1), ddof=1)


def deviation(unit: Unit, targets: np.ndarray, outputs: int) -> np.ndarray:
    r"""Return draws whose mean is the standard deviation of f, by the delta method.

    With $u = (f - c)/r$ for constants $c$ and $r$, $\sigma^2/r^2 = E[u^2] - (E u)^2$, and the draws
    $\hat\sigma + (v_i - \bar v)\,r^2 / 2\hat\sigma$, $v = u^2 - 2 \bar u u$ (both controlled or both plain), have mean
    $\hat\sigma$ and its standard error. `targets` holds the draws of f and then those of $u^2$.
    """
    first, second = unit(targets[..., :outputs]), targets[..., outputs:]
    mean = first.mean(axis=(0, 1))
    variance = second.mean(axis=(0, 1)) - mean**2
    sd = np.sqrt(np.where(variance > 0, variance, np.nan))
    v = second - 2 * mean * first
    with np.errstate(invalid="ignore"):
        draws = sd + (v - v.mean(axis=(0, 1))) / (2 * sd)
    return unit.scale * np.where(second.max(axis=(0, 1)) > 0, draws, 0.0)


def block_deviation(unit: Unit, series: Series, outputs: int) -> tuple[np.ndarray, Average]:
    """Return draws, or block means, whose mean is the standard deviation of f, from a series of `Targets.columns`."""
    draws = deviation(unit, series.means()[..., : 2 * outputs], outputs)
    found = average(draws)
    if series.blocks.size == 1:
        return draws, found
    each = series.variance()
    first, second, both = each[:outputs] / unit.scale**2, each[outputs : 2 * outputs], each[2 * outputs :]
    mean = unit(series.means()[..., :outputs]).mean(axis=(0, 1))
    # the variance of second - 2 mean first, where 2 cov(first, second) = var(first + second) - var(first) - var(second)
    variance = second + 4 * mean**2 * first - 2 * mean * (both - first - second)
    sd = found.mean / unit.scale
    variance = np.divide(variance, 4 * sd**2, out=np.zeros(outputs), where=sd > 0) * unit.scale**2
    # an exact answer has no variance but that of round-off
    ess = np.clip(series.effective(variance, found), found.ess, most_effective_draws(series.size))
    return draws, Average(found.mean, found.standard_error, ess, found.error_ess, tail=found.tail)
