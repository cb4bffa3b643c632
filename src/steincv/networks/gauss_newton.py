r"""Fields for a network whose likelihood is known: Gauss-Newton steps of its last layer, and of all weights.

Let o be the outputs at the training inputs, J their derivatives, W the information that the likelihood has on them
($1/\sigma^2$ for normal noise, $\mathrm{diag}(p) - pp^T$ for classes), $\Lambda$ the precision of the prior. With
$P = \lambda\Lambda + \sum_i J_i^TW_iJ_i$ and $A = P^{-1}$ the field $\Phi = A\nabla f$ points from a draw to where the
data would have f. Given the other weights the last layer of a regression is Gaussian, and $\Phi$ on it ($\lambda = 1$)
gives $f + g = E[f \mid \text{other weights}]$ exactly: Rao and Blackwell. With Hessians $H_i$ of the outputs,

$$ \nabla\cdot\Phi = \mathrm{tr}(A H_f) - q\cdot\Phi, \qquad
   q = \textstyle\sum_i \big[J_i^T(W_i\tau_i + \omega_i) + \sum_d H_{id} A (J_i^TW_i)_d\big], $$

$\tau_i = \mathrm{tr}(A H_i)$ and $\omega_{id} = \sum_{ce} (J_iAJ_i^T)_{ec}\,\partial W_{cd}/\partial o_e$. Traces are
sums of second derivatives along the eigenvectors of P, forward over forward: no Hessian is formed, and one
decomposition serves every damping $\lambda$. All fields commute with permutations of hidden units, as f does.

All weights may move only where the network is smooth in them: at a kink of relu $\Phi$ would jump, and the identity be
false. The last layer enters linearly, whatever comes before it.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from .model import Array

# Powers of 4 from steps nearly as long as Newton's to short ones; the coefficients choose among them.
DAMPINGS = (4.0, 16.0, 64.0, 256.0)


@runtime_checkable
class Layered(Protocol):
    """What the fields ask of a model."""

    @property
    def inputs(self) -> np.ndarray:
        """The training inputs, one row per case."""

    @property
    def precision(self) -> np.ndarray:
        """The precision of the prior, one number per weight."""

    @property
    def last(self) -> np.ndarray:
        """The places of weights in which the outputs are linear, given all others."""

    @property
    def smooth(self) -> bool:
        """Whether the outputs are smooth in all weights, and these few enough to be moved together."""

    def outputs(self, theta: Array, inputs: Array) -> Array:
        """Return what the network gives, `(n, c)`."""

    def information(self, outputs: Array) -> Array:
        """Return what the likelihood of one case knows of its outputs `(c,)`: a matrix `(c, c)`."""


def gauss_newton_fields(
    model: Layered,
    predict: Callable[[Array, Array], Array],
    theta: Array,
    score: Array,
    inputs: Array,
    dampings: tuple[float, ...] = DAMPINGS,
) -> jax.Array:
    """Return g of the last layer's field and of every damping at one draw, `(output, k)`; `predict` is f."""
    train = jnp.asarray(model.inputs, theta.dtype)

    def moving(free: np.ndarray, dampings: tuple[float, ...]) -> jax.Array:
        """Return g of the field on the weights at the places `free`."""

        def place(part: Array) -> jax.Array:
            return jnp.asarray(theta).at[free].set(part)

        def jacobian(part: Array) -> jax.Array:
            return jax.vmap(lambda x: jax.jacrev(lambda p: model.outputs(place(p), x[None])[0])(part))(train)

        return steps(
            lambda part: (model.outputs(place(part), train), predict(place(part), inputs).reshape(-1)),
            jacobian,
            model.information,
            jnp.asarray(theta)[free],
            score[free],
            model.precision[free],
            dampings,
        )

    made = [moving(model.last, (1.0,))] if len(model.last) else []
    made += [moving(np.arange(len(score)), dampings)] if model.smooth else []
    return jnp.concatenate(made, 1)


def steps(
    function: Callable[[Array], tuple[Array, Array]],
    jacobian: Callable[[Array], Array],
    information: Callable[[Array], Array],
    start: Array,
    score: Array,
    precision: np.ndarray,
    dampings: tuple[float, ...],
) -> jax.Array:
    r"""Return g of $\Phi = A\nabla f$ for every damping, `(f, k)`, at some weights with their score.

    `function` returns the outputs `(n, c)` and f; `jacobian` the derivatives of the outputs, `(n, c, weights)`.
    """
    scale = jnp.asarray(precision**-0.5, start.dtype)
    known = function(start)[0]
    weight, turn = jax.vmap(information)(known), jax.vmap(jax.jacfwd(information))(known)
    j, pull = jax.vjp(jacobian, start)
    scaled = j * scale
    values, vectors = jnp.linalg.eigh(jnp.einsum("ncs,ncd,ndt->st", scaled, weight, scaled, optimize=True))
    along = scale[:, None] * vectors  # the inverse of P is along diag(1 / (values + damping)) along^T
    (_, bend), (slope_f, bend_f) = _directions(function, start, along)
    inner = j @ along

    def one(damping: jax.Array) -> jax.Array:
        w = 1 / (jnp.maximum(values, 0) + damping)
        tau = jnp.einsum("s,snc->nc", w, bend)
        inverse = jnp.einsum("ncs,s,nds->ncd", inner, w, inner, optimize=True)
        covector = jnp.einsum("ncd,nc->nd", weight, tau) + jnp.einsum("nec,ncde->nd", inverse, turn)
        back = jnp.einsum("ncd,ncs,s,ts->ndt", weight, inner, w, along, optimize=True)
        q = jnp.einsum("nd,nds->s", covector, j) + pull(back)[0]
        return (w * ((score - q) @ along)) @ slope_f + w @ bend_f

    return jax.vmap(one, out_axes=1)(jnp.asarray(dampings, start.dtype))


def _directions(function: Callable[[jax.Array], Any], start: Array, along: jax.Array) -> Any:
    """Return the first and second derivatives of each array of a function along every column, `(column, ...)` each."""

    def first(part: Array, v: jax.Array) -> Any:
        return jax.jvp(function, (part,), (v,))[1]

    found = jax.vmap(lambda v: jax.jvp(lambda p: first(p, v), (start,), (v,)), in_axes=1)(along)
    return zip(*found, strict=True)
