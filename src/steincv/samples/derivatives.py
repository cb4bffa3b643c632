"""Derivatives of f in the unconstrained coordinates, where f is a function that JAX can differentiate."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .samples import Samples

if TYPE_CHECKING:
    from jax import Array


class Comparison(NamedTuple):
    """Where a differentiable f is compared with the values that are averaged, and with its own derivatives.

    At so many draws, to such a part of its size; and on lines between so many pairs of draws, at so many places each.
    On a smooth line all but a part `kinked` of its change is the integral of its slope, and that of its slope the
    integral of its curvature; of all lines a share `odd` may be otherwise. (Of ten smooth f nine lines of ten leave at
    most .005, of eight with kinks .68 and more.)
    """

    draws: int = 8
    close: float = 1e-6
    lines: int = 128
    places: int = 64
    kinked: float = 0.1
    odd: float = 0.04
    held: int = 1 << 24  # numbers of all the points on lines that are made at a time


COMPARISON = Comparison()


@dataclass(frozen=True, eq=False)
class Derivatives:
    """First and second derivatives of every output of f at some points; `known` says of which outputs."""

    function: Callable[[Any], Any]
    points: Float[np.ndarray, "n dim"]
    outputs: int
    known: Bool[np.ndarray, " out"]
    _programs: dict[tuple, Callable] = field(default_factory=dict)

    @classmethod
    def of(
        cls, f: Any, samples: Samples, points: Float[np.ndarray, "n dim"], values: Float[np.ndarray, "n out"]
    ) -> "Derivatives | None":
        """Return them, or None if f cannot be differentiated; f at the points is compared with its `values`."""
        function = _flat(f, samples)
        if function is None:
            return None
        some = np.linspace(0, len(points) - 1, COMPARISON.draws).astype(int)
        try:
            tools = _tools()
            each = (function, tools.jax.jacfwd(function))
            found, slopes = (tools.mapped(one, points[some]) for one in each)
        except Exception:  # whatever JAX cannot trace, or f cannot be asked for outside the sampler's library
            return None
        if found.shape != values[some].shape:
            return None
        close = np.abs(found - values[some]) <= COMPARISON.close * (np.abs(values[some]) + values.std(axis=0))
        known = close.all(axis=0) & np.isfinite(slopes).all(axis=(0, 2))
        return cls(function, points, values.shape[1], known) if known.any() else None

    def smooth(self, output: int) -> bool:
        """Return whether an output has neither jumps nor kinks: fields along its gradient would not have mean zero."""
        tools = _tools()
        jax, jnp = tools.jax, tools.jax.numpy
        n, steps = len(self.points), COMPARISON.places
        first = np.linspace(0, n - 1, min(n, COMPARISON.lines)).astype(int)
        ends = self.points[first], self.points[np.random.default_rng(0).permutation(n)[first]]

        def along(row: "tuple[Array, Array]") -> "Array":
            def value(t: "Array") -> "Array":
                return self.function(row[0] + t * (row[1] - row[0]))[output]

            slope = jax.grad(value)
            places = jnp.linspace(0.0, 1.0, steps + 1)
            return jnp.stack([jax.vmap(each)(places) for each in (value, slope, jax.grad(slope))])

        lines = tools.mapped(along, ends)
        if not np.isfinite(lines).all():
            return False
        change, integral = np.diff(lines[:, :2]), (lines[:, 1:, 1:] + lines[:, 1:, :-1]) / 2 / steps
        size = np.stack([np.ptp(lines[:, 0], axis=-1), np.abs(lines[:, 1]).max(axis=-1)], axis=1)
        odd = np.abs(change - integral).max(axis=-1) > COMPARISON.kinked * size
        return bool(odd.any(axis=1).mean() <= COMPARISON.odd)

    def gradient(self, output: int) -> Float[np.ndarray, "n dim"]:
        """Return the gradient of an output."""
        jax = _tools().jax

        def at(row: "tuple[Array, Array]") -> "Array":
            return jax.vjp(self.function, row[0])[1](row[1])[0]

        return self._pieces(at, self._unit(output))

    def turned(self, output: int, directions: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
        """Return the second derivatives of an output times a direction, another one at every point."""
        jax = _tools().jax

        def at(row: "tuple[Array, Array, Array]") -> "Array":
            return jax.jvp(lambda x: jax.vjp(self.function, x)[1](row[1])[0], (row[0],), (row[2],))[1]

        return self._pieces(at, self._unit(output), directions)

    def along(
        self, output: int, direction: Float[np.ndarray, " dim"], steps: Float[np.ndarray, "n step"]
    ) -> Float[np.ndarray, "n step"]:
        """Return an output at so many places on a line through every point."""
        tools = _tools()

        def at(point: "Array", steps: "Array", direction: "Array") -> "Array":
            return tools.jax.vmap(lambda step: self.function(point + step * direction)[output])(steps)

        count, key = len(steps), (output, steps.shape)
        size = min(count, max(1, COMPARISON.held // (steps.shape[1] * self.points.shape[1])))
        pieces = ((*tools.piece((self.points, steps), i, size), direction) for i in range(0, count, size))
        found = []
        for each in pieces:
            if key not in self._programs:
                self._programs[key] = tools.program(tools.jax.vmap(at, in_axes=(0, 0, None)), *each)
            found.append(tools.in_double(self._programs[key], *each))
        return np.concatenate(found)[:count]

    def _unit(self, output: int) -> np.ndarray:
        return np.broadcast_to(np.eye(self.outputs)[output], (len(self.points), self.outputs))

    def _pieces(self, at: Callable, *others: np.ndarray) -> np.ndarray:
        return _tools().in_pieces(at, (self.points, *others))


def _tools() -> ModuleType:
    from . import mapped  # brings JAX

    return mapped


def _flat(f: Any, samples: Samples) -> Callable[[Any], Any] | None:
    """Return f as a function from one unconstrained vector to one vector of outputs, in the order of the labels."""
    if samples.constrain is None and (f is None or samples.parameters is not None):
        return None  # coordinates, whose derivatives nobody needs, or arrays
    names = [f] if isinstance(f, str) else f
    if f is None and samples.parameters is not None:
        names = samples.parameters.shown
    by_name = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if not (f is None or by_name or callable(f) or isinstance(f, Mapping)):
        return None
    if isinstance(f, Mapping) and not all(map(callable, f.values())):
        return None

    def function(x: "Array") -> "Array":
        jnp = _tools().jax.numpy
        known = x if samples.constrain is None else samples.constrain(x)
        if by_name:
            found: Any = [known[name] for name in names]
        elif isinstance(f, Mapping):
            found = [g(known) for g in f.values()]
        else:
            found = known if f is None else f(known)
        parts = list(found.values()) if isinstance(found, Mapping) else found if isinstance(found, list) else [found]
        return jnp.concatenate([jnp.ravel(jnp.asarray(part, dtype=x.dtype)) for part in parts])

    return function
