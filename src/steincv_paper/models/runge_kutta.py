"""The classical fourth-order Runge-Kutta method, in equal steps: one short loop, fast for many draws at once."""

from collections.abc import Callable
from typing import Any

import jax


def solve(field: Callable[[Any], Any], x: Any, steps: int, skip: int, units: int) -> Any:
    """Return x at the times skip + 1, ..., skip + units, `(units, component, ...)`, from x at time 0.

    `field(x)` is dx/ds; `steps` are taken in every unit of time. Components come first and draws last, which is the
    layout in which the loop runs fastest. For gradients only x at whole times is kept, and everything between computed
    again on the way back: several times faster than to store it.
    """
    h = 1.0 / steps

    def step(x: Any, _: Any) -> tuple[Any, None]:
        k1 = field(x)
        k2 = field(x + h / 2 * k1)
        k3 = field(x + h / 2 * k2)
        k4 = field(x + h * k3)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    def unit(x: Any, _: Any) -> tuple[Any, Any]:
        x, _ = jax.lax.scan(jax.checkpoint(step), x, None, length=steps)
        return x, x

    unit_again = jax.checkpoint(unit)
    if skip:
        x, _ = jax.lax.scan(lambda x, _: (unit_again(x, _)[0], None), x, None, length=skip)
    return jax.lax.scan(unit_again, x, None, length=units)[1]


def euler(field: Callable[[Any], Any], x: Any, skip: int, units: int) -> Any:
    """Return x at the same times by Euler's method, with steps of one unit of time."""

    def step(x: Any, _: Any) -> tuple[Any, Any]:
        x = x + field(x)
        return x, x

    if skip:
        x, _ = jax.lax.scan(lambda x, _: (step(x, _)[0], None), x, None, length=skip)
    return jax.lax.scan(step, x, None, length=units)[1]
