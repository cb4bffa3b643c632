"""A Bayesian regression network: one hidden layer of tanh, N(0, 1) on every weight, Gaussian noise of known size."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..runtime.validation import InputError, whole_number
from .model import Array, append_one, training_data
from .network import Network


@dataclass(frozen=True, eq=False, init=False)
class Regressor(Network):
    r"""$y = w\cdot\tanh(V\tilde x) + b + \text{noise}$, with $\tilde x = (x, 1)$ and $N(0, 1)$ on every weight.

    A vector of weights has V row by row, then w and b.

    **Arguments:**

    - `inputs`: `(n, k)`, best with mean 0 and variance 1.
    - `targets`: `(n,)`, likewise.
    - `noise`: the standard deviation of the noise.
    - `width`: hidden units.
    """

    width: int

    def __init__(self, inputs: object, targets: object, noise: float = 0.1, width: int = 20):
        x, y = training_data(inputs, targets, noise)
        if x.ndim != 2:
            raise InputError(f"`inputs` has shape {x.shape}, expected (n, k): one row a case.")
        whole_number("width", width, 1)
        shapes = ((width, x.shape[1] + 1), (width + 1,))
        self._set(apply=_tanh_layer, inputs=x, targets=y, noise=noise, prior=None, width=width, columns=1)
        self._set(shapes=shapes, structure=jax.tree.structure({"hidden": 0, "outer": 0}))
        # what other networks are asked for
        self._set(precision=np.ones(self.dim), last=np.arange(self.dim - width - 1, self.dim), smooth=True)


def _tanh_layer(params: PyTree, inputs: Array) -> Array:
    hidden = jnp.tanh(append_one(inputs) @ params["hidden"].T)
    return hidden @ params["outer"][:-1] + params["outer"][-1]
