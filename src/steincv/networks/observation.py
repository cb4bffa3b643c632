"""What a new observation of a regression network will be, its noise integrated out: above a point, or a quantile."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.scipy.special import ndtr
from jax.scipy.stats import norm
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..runtime.validation import InputError
from ..samples.samples import finite_array
from .collapsed import network_fields
from .model import Array


@dataclass(frozen=True, eq=False)
class Prediction:
    """A function of a regression network's output, and the fields that go with it."""

    model: Any  # a `Network`
    predict: Callable[[Array, Array], Array]

    def fields(self, theta: Array, score: Array, inputs: Array) -> jax.Array:
        return network_fields(self.model, self.predict, theta, score, inputs)


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
    return Prediction(model, lambda theta, x: ndtr((model.outputs(theta, x)[:, 0] - cut) / model.noise))


def _quantile(model: Any, level: float, values: Float[np.ndarray, "chain draw n"]) -> Prediction:
    r"""Return a function whose mean is the quantile of a new y at every input, to first order.

    `values` are the outputs at the draws. With F and p the distribution function and the density of y, given the draws,
    and F(q) the level, it is $q + (F(q) - N((q - o)/\sigma))/p(q)$: one step of Newton's method.
    """
    o = values.reshape(-1, values.shape[-1])
    low, high = o.min(0) + norm.ppf(level) * model.noise, o.max(0) + norm.ppf(level) * model.noise
    for _ in range(60):  # halved so often, the bracket is round-off
        q = (low + high) / 2
        below = np.asarray(ndtr((q - o) / model.noise)).mean(0) < level
        low, high = np.where(below, q, low), np.where(below, high, q)
    density = np.asarray(norm.pdf((q - o) / model.noise)).mean(0) / model.noise
    return Prediction(
        model, lambda theta, x: q + (level - ndtr((q - model.outputs(theta, x)[:, 0]) / model.noise)) / density
    )
