r"""One network for a whole family of test functions indexed by x: a control variate for inputs never seen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steincv.families.method import Control, Fitted, Problem
from steincv.families.neural.fields import ACTIVATIONS as FUNCTIONS, dense
from steincv.families.neural.neural import CHOICES, Neural
from steincv.families.neural.trials import ACTIVATIONS, Trial
from steincv.runtime.validation import InputError, whole_number
from steincv.samples.samples import finite_array

SHAPES = ("scalar", "field", "potential")


@dataclass(frozen=True)
class Embedding:
    r"""$\psi(x)$ for contexts of any shape, flattened: one hidden layer of relu."""

    width: int = 64

    def init(self, key: Any, context: Any, out: int) -> Any:
        return dense(key, [int(np.prod(context.shape[1:])), self.width, out])

    def __call__(self, params: Any, context: Any) -> Any:
        (w1, b1), (w2, b2) = params
        return jax.nn.relu(context.reshape(len(context), -1) @ w1.T + b1) @ w2.T + b2


@dataclass(frozen=True, eq=False)
class Amortised(Trial):
    r"""$\Phi(\theta, x)$ with hidden units $h_k = h(w_k\cdot\theta + \psi_k(x))$, fitted over draws and inputs at once.

    **Arguments:**

    - `context`: `(out, ...)`, what the outputs of f are indexed by, in their order.
    - `width`: hidden units.
    - `shape`: "scalar", the paper's $\phi = \alpha\cdot h$ for every coordinate of $\Phi$; "field", $\Phi = V h$ with a
      matrix $V$, a vector field of rank `width`; "potential", the gradient of
      $\sum_k \alpha_k H(w_k\cdot\theta + \psi_k)$ with $H' = h$.
    - `embed`: $\psi$, an object with `init(key, context, out)` and `(params, context)`; `Embedding()` if not given.
    - `contexts`: inputs of a minibatch.
    - `judged`: the last so many inputs are not trained on, they decide when to stop; 0: all do both.

    `Neural(Amortised(inputs)).fit(samples, values)` gives g at `inputs`; `unseen(fitted, others, values)` at others.
    """

    context: Any
    width: int = 147
    shape: str = "scalar"
    activation: str = "sigmoid"
    embed: Any = None
    contexts: int = 64
    judged: int = 0

    def __post_init__(self) -> None:
        context = finite_array("context", self.context)
        if context.ndim < 2:
            raise InputError(f"`context` has shape {context.shape}, expected (out, ...): one row an output.")
        whole_number("width", self.width, 1)
        whole_number("contexts", self.contexts, 1)
        whole_number("judged", self.judged, 0)
        if self.judged >= len(context):
            raise InputError(f"`judged` is {self.judged} of {len(context)} inputs: none is left to train on.")
        for name, value, allowed in (("shape", self.shape, SHAPES), ("activation", self.activation, ACTIVATIONS)):
            if value not in allowed:
                raise InputError(
                    f"The '{name}' parameter of Amortised must be one of {', '.join(allowed)}. Got {value!r} instead."
                )
        object.__setattr__(self, "context", context.astype(np.float32))
        object.__setattr__(self, "embed", Embedding() if self.embed is None else self.embed)

    def solve(self, method: Neural, problems: Sequence[Problem], seed: int) -> list[Control]:
        from .amortised_fit import fit_amortised

        penalties = CHOICES.penalties if method.penalty == "auto" else (float(method.penalty),)
        return fit_amortised(method, problems, seed, penalties)

    def init(self, key: Any, dim: int) -> Any:
        first, second, third = jax.random.split(key, 3)
        columns = dim if self.shape == "field" else 1
        return {
            "w": jax.random.normal(first, (self.width, dim)) / jnp.sqrt(dim),
            "outer": 0.1 * jax.random.normal(second, (self.width, columns)) / jnp.sqrt(self.width * columns),
            "embed": self.embed.init(third, self.context, self.width),
        }

    def _field(self, params: Any) -> Any:
        """Return V, `(width, dim)`."""
        outer, w = params["outer"], params["w"]
        return outer if self.shape == "field" else outer * w if self.shape == "potential" else outer * jnp.ones_like(w)

    def control(self, params: Any, z: Any, s: Any, context: Any) -> Any:
        r"""Return $g = \sum_k h'(u_k)\,w_k\cdot v_k + h(u_k)\,v_k\cdot s$ at all draws and inputs, `(n, out)`."""
        v = self._field(params)
        u = (z @ params["w"].T)[:, None] + self.embed(params["embed"], context)
        h, slope, _ = FUNCTIONS[self.activation](u)
        return slope @ (params["w"] * v).sum(1) + (h * (s @ v.T)[:, None]).sum(-1)

    def field(self, params: Any, z: Any) -> tuple[Any, Any]:
        """Return the field and its divergence at the first input alone; `control` serves them all."""
        v = self._field(params)
        h, slope, _ = FUNCTIONS[self.activation](z @ params["w"].T + self.embed(params["embed"], self.context[:1]))
        return h @ v, slope @ (params["w"] * v).sum(1)


@dataclass(frozen=True, eq=False)
class AmortisedControl(Control):
    """A fitted g that can be had at other inputs: `at(context)`."""

    at: Any = None


def unseen(fitted: Fitted, context: Any, values: Any) -> Fitted:
    """Return the same control variate at other inputs. `values` of f there, at any draws, set the size of each."""
    if not isinstance(fitted.control, AmortisedControl):
        raise InputError("`fitted` has no `context`: only Neural(Amortised(...)) serves inputs it has not seen.")
    values = finite_array("values", values)
    context = finite_array("context", context)
    if values.shape[-1] != len(context):
        raise InputError(f"`values` has {values.shape[-1]} outputs and `context` {len(context)} rows.")
    deviation = values.reshape(-1, len(context)).std(axis=0)
    return replace(fitted, scale=np.where(deviation > 0, deviation, 1.0), control=fitted.control.at(context))
