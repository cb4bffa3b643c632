r"""From R^n to where parameters live, with the log determinant of the Jacobian.

A density of constrained parameters $\theta = T(x)$ is, in the unconstrained $x$,
$\log p(T(x)) + \log|\det \partial T/\partial x|$. Scores are taken of that, or Stein's identity is false.
"""

import abc
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ..runtime.validation import InputError

Vector = Array | np.ndarray


class Bijection(abc.ABC):
    """A smooth one-to-one map from `size` unconstrained numbers onto the values of one parameter.

    **The law.** `forward(x)` is the value, of `shape`, and the log determinant of its Jacobian; `inverse` undoes it.
    """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the parameter."""

    @property
    def size(self) -> int:
        """How many unconstrained numbers there are."""
        return math.prod(self.shape)

    @abc.abstractmethod
    def forward(self, x: Vector) -> tuple[Vector, Vector | float]:
        """Return the value at the vector x, and log |det Jacobian|."""

    @abc.abstractmethod
    def inverse(self, y: ArrayLike) -> Array:
        """Return the unconstrained vector of a value."""


class _Entrywise(Bijection):
    """One number for every entry of an array whose `shape` is a field."""

    def __post_init__(self) -> None:
        single = isinstance(self.shape, int | np.integer) and not isinstance(self.shape, bool)
        shape: Any = (self.shape,) if single else self.shape
        if not isinstance(shape, tuple | list) or not all(isinstance(n, int | np.integer) and n >= 1 for n in shape):
            raise InputError(
                f"The 'shape' of {type(self).__name__} must be a tuple of whole numbers of at least 1. "
                f"Got {self.shape!r} instead."
            )
        object.__setattr__(self, "shape", tuple(map(int, shape)))


@dataclass(frozen=True)
class Real(_Entrywise):
    """Any real numbers: nothing to do."""

    shape: Any = ()

    def forward(self, x: Vector) -> tuple[Vector, Vector | float]:
        return x.reshape(self.shape), 0.0

    def inverse(self, y: ArrayLike) -> Array:
        return jnp.reshape(y, (self.size,))


@dataclass(frozen=True)
class Positive(_Entrywise):
    r"""Positive numbers, $y = e^x$."""

    shape: Any = ()

    def forward(self, x: Vector) -> tuple[Vector, Vector | float]:
        return jnp.exp(x).reshape(self.shape), x.sum()

    def inverse(self, y: ArrayLike) -> Array:
        return jnp.log(jnp.reshape(y, (self.size,)))


@dataclass(frozen=True)
class Interval(_Entrywise):
    r"""Numbers between `low` and `high`, $y = l + (h - l)/(1 + e^{-x})$."""

    low: float
    high: float
    shape: Any = ()

    def __post_init__(self) -> None:
        if not (np.isfinite([self.low, self.high]).all() and self.low < self.high):
            raise InputError(f"Interval needs finite low < high. Got {self.low!r} and {self.high!r} instead.")
        super().__post_init__()

    def forward(self, x: Vector) -> tuple[Vector, Vector | float]:
        width = self.high - self.low
        y = self.low + width * jax.nn.sigmoid(x)
        slope = math.log(width) + jax.nn.log_sigmoid(x) + jax.nn.log_sigmoid(-x)
        return y.reshape(self.shape), slope.sum()

    def inverse(self, y: ArrayLike) -> Array:
        y = jnp.reshape(y, (self.size,))
        return jnp.log(y - self.low) - jnp.log(self.high - y)


@dataclass(frozen=True)
class Simplex(Bijection):
    r"""`parts` positive numbers that sum to one, from parts - 1 numbers, by breaking a stick.

    The k-th piece is the share $b_k = 1/(1 + e^{-(x_k - \log(\text{parts} - 1 - k))})$ of what is left, so that x = 0
    is the middle of the simplex. The Jacobian is triangular, with $b_k (1 - b_k)$ times what was left on its diagonal.
    """

    parts: int

    def __post_init__(self) -> None:
        if isinstance(self.parts, bool) or not isinstance(self.parts, int | np.integer) or self.parts < 2:
            raise InputError(f"Simplex needs a whole number of at least 2 parts. Got {self.parts!r} instead.")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.parts,)

    @property
    def size(self) -> int:
        return self.parts - 1

    def _offset(self) -> np.ndarray:
        return np.log(np.arange(self.parts - 1, 0, -1))

    def forward(self, x: Vector) -> tuple[Vector, Vector | float]:
        z = x - self._offset()
        log_share, log_rest = jax.nn.log_sigmoid(z), jax.nn.log_sigmoid(-z)
        log_left = jnp.concatenate([jnp.zeros_like(log_rest[:1]), jnp.cumsum(log_rest)])
        y = jnp.exp(jnp.concatenate([log_left[:-1] + log_share, log_left[-1:]]))
        return y, (log_left[:-1] + log_share + log_rest).sum()

    def inverse(self, y: ArrayLike) -> Array:
        y = jnp.asarray(y)
        # what is left after each piece, from the small end, where a difference from 1 would lose digits
        left = jnp.cumsum(y[::-1])[::-1]
        return jnp.log(y[:-1]) - jnp.log(left[1:]) + self._offset()
