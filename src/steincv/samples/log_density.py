"""The model itself: a log density with its gradient, at many points at once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..runtime.validation import InputError


class At(NamedTuple):
    """The log density, up to a constant, and its gradient at some points; not finite outside the support."""

    value: Float[np.ndarray, " n"]
    gradient: Float[np.ndarray, "n dim"]


@dataclass(frozen=True, eq=False)
class LogDensity:
    """A log density on R^dim with its gradient: `batch(x)` gives both at the rows of x. `spent` counts gradients."""

    batch: Callable[[np.ndarray], tuple[Any, Any]]
    spent: list[int] = field(default_factory=lambda: [0])

    @classmethod
    def of(cls, given: object, point: Float[np.ndarray, " dim"]) -> "LogDensity":
        """Take a function of one vector that returns value and gradient, or one for JAX to differentiate.

        Which of them it is shows at `point`, a draw. A `LogDensity` is taken as it is.
        """
        if isinstance(given, cls):
            return given
        if not callable(given):
            raise InputError(f"`log_density` must be a function of one vector, got {type(given).__name__}.")
        made, failure = cls(_differentiated(given)), None
        try:
            made(point[None])
            return made
        except InputError as error:
            failure = error
        try:
            found = given(point)
        except Exception as error:
            raise InputError(f"`log_density` failed at the first draw: {type(error).__name__}: {error}") from error
        if not isinstance(found, tuple | list):
            if np.ndim(found) == 0:
                raise failure
            raise InputError(
                f"`log_density` returned an array of shape {np.shape(found)} at one draw; expected a number, or a "
                f"pair of the log density and its gradient."
            )

        def one_by_one(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            pairs = [given(row) for row in x]
            return np.array([float(value) for value, _ in pairs]), np.array([gradient for _, gradient in pairs])

        made = cls(one_by_one)
        made(point[None])
        return made

    def __call__(self, x: Float[np.ndarray, "n dim"]) -> At:
        self.spent[0] += len(x)
        try:
            value, gradient = self.batch(x)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"`log_density` failed at a draw: {type(error).__name__}: {error}") from error
        found = At(np.asarray(value, dtype=np.float64), np.asarray(gradient, dtype=np.float64))
        if found.value.shape != x.shape[:1] or found.gradient.shape != x.shape:
            raise InputError(
                f"`log_density` of {len(x)} points returned values of shape {found.value.shape} and gradients of shape "
                f"{found.gradient.shape}, expected {x.shape[:1]} and {x.shape}."
            )
        return found


def _differentiated(f: Callable[[Any], Any]) -> Callable[[np.ndarray], tuple[Any, Any]]:
    import jax

    from ..runtime.rows import over_rows  # which needs JAX

    def value(x: Any) -> Any:
        found = f(x)
        if isinstance(found, tuple | list) or np.ndim(found) != 0:
            raise InputError("it is no function to differentiate")
        return found

    return over_rows(jax.vmap(jax.value_and_grad(value)))
