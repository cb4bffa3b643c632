"""What a new observation of a regression network will be, its noise integrated out: above a point, or a quantile."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import scipy.special
from jax.scipy.special import ndtr
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..runtime.validation import InputError
from ..samples.samples import finite_array
from .collapsed import Collapsed
from .gauss_newton import gauss_newton_fields
from .model import Array


@dataclass(frozen=True, eq=False)
class Prediction:
    """A function of a regression network's output, and the fields that go with it.

    `of(mean, variance)` is the mean of what is asked of a normal y.
    """

    model: Any  # a `Network`
    of: Callable[[Array, Array | float], Array]

    def predict(self, theta: Array, inputs: Array) -> Array:
        return self.of(self.model.outputs(theta, inputs)[:, 0], self.model.noise**2)

    def fields(self, theta: Array, score: Array, inputs: Array) -> jax.Array:
        return gauss_newton_fields(self.model, self.predict, theta, score, inputs)

    @property
    def collapsed(self) -> Collapsed | None:
        found = self.model.collapsed
        return found and replace(
            found, predict=self.predict, of=lambda mean, variance: self.of(mean, variance + self.model.noise**2)
        )


def observed(model: Any, outputs: np.ndarray, inputs: int, above: ArrayLike | None, level: float | None) -> Prediction:
    """Return what is asked of a new y at every input: the probability that it is above a point, or a quantile."""
    if getattr(model, "noise", None) is None or outputs.ndim != 3:
        raise InputError(
            "`above` and `quantile` are for regression networks whose noise is known: a Network with `noise`."
        )
    if above is not None and level is not None:
        raise InputError("`above` and `quantile` are two questions: ask one at a time.")
    if level is not None:
        if not 0 < level < 1:
            raise InputError(f"`quantile` must be a level between 0 and 1, got {level!r}.")
        return _quantile(model, level, outputs)
    cut = finite_array("above", above)
    if cut.shape not in ((), (inputs,)):
        raise InputError(f"`above` has shape {cut.shape}, expected a number, or one for each of {inputs} inputs.")
    return Prediction(model, lambda mean, variance: ndtr((mean - cut) / variance**0.5))


def _quantile(model: Any, level: float, values: Float[np.ndarray, "chain draw n"]) -> Prediction:
    r"""Return a function whose mean is the quantile of a new y at every input, to first order.

    `values` are the outputs at the draws. With F and p the distribution function and the density of y, given the draws,
    and F(q) the level, it is $q + (F(q) - N((q - o)/\sigma))/p(q)$: one step of Newton's method.
    """
    o = values.reshape(-1, values.shape[-1])
    low, high = o.min(0) + scipy.special.ndtri(level) * model.noise, o.max(0) + scipy.special.ndtri(level) * model.noise
    for _ in range(60):  # halved so often, the bracket is round-off
        q = (low + high) / 2
        below = scipy.special.ndtr((q - o) / model.noise).mean(0) < level
        low, high = np.where(below, q, low), np.where(below, high, q)
    density = np.exp(-0.5 * ((q - o) / model.noise) ** 2).mean(0) / (model.noise * np.sqrt(2 * np.pi))
    return Prediction(model, lambda mean, variance: q + (level - ndtr((q - mean) / variance**0.5)) / density)
