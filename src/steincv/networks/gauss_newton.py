r"""Fields for a regression network: Rao-Blackwell for its last layer, Gauss-Newton steps for all weights.

Given the hidden weights the last layer is Gaussian with precision $\Lambda = I + H^TH/\sigma^2$, and
$\Phi_w = \Lambda^{-1}\tilde h_x$ gives $f + g = E[f \mid \text{hidden weights}]$ exactly. Where the network is nearly
linear in *all* its weights the same holds for all of them at once: with the Gauss-Newton matrix
$P = \lambda I + J^TJ/\sigma^2$, $\Phi = P^{-1}\nabla f_x$ points from a draw to where the data would have f. With
$A = P^{-1}$ and Hessians $H_i$ of f at the training inputs,

$$ \nabla\cdot\Phi = \mathrm{tr}(A H_x) - q\cdot\Phi, \qquad
   q = \sigma^{-2}\textstyle\sum_i \big[\mathrm{tr}(A H_i) J_i + H_i A J_i\big], $$

and a Hessian of one hidden layer couples the weights of a unit only: everything is closed form, and q is shared by all
inputs. Several dampings $\lambda$ are offered, since far from linear short steps are the good ones. All of them
commute with permutations and signs of hidden units, as f does.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .model import Array, append_one
from .regressor import Regressor

# Powers of 4 from steps nearly as long as Newton's to short ones; the coefficients choose among them.
DAMPINGS = (4.0, 16.0, 64.0, 256.0)


class _Layer(NamedTuple):
    """The network and its derivatives at some inputs, one row per input."""

    inputs: jax.Array
    slope: jax.Array
    curve: jax.Array
    outer: jax.Array
    jacobian: jax.Array


def gauss_newton_fields(model: Regressor, theta: Array, score: Array, inputs: Array) -> jax.Array:
    """Return g of the last layer's field and of every damping at one draw, `(input, 1 + damping)`."""
    weights = model.unpack(theta)
    w = weights.outer[:-1]
    units, k = weights.hidden.shape
    precision = model.noise**-2

    def layer(inputs: Array) -> _Layer:
        x = append_one(inputs)
        h = jnp.tanh(x @ weights.hidden.T)
        slope = 1 - h * h
        outer = append_one(h)
        jacobian = jnp.concatenate([((w * slope)[:, :, None] * x[:, None]).reshape(len(x), -1), outer], 1)
        return _Layer(x, slope, -2 * h * slope * w, outer, jacobian)

    train, new = layer(jnp.asarray(model.inputs, theta.dtype)), layer(inputs)
    last = jnp.eye(units + 1) + precision * train.outer.T @ train.outer
    blackwell = jnp.linalg.solve(last, new.outer.T).T @ score[units * k :]
    values, vectors = jnp.linalg.eigh(precision * train.jacobian.T @ train.jacobian)

    def traces(a: jax.Array, part: _Layer) -> jax.Array:
        """Return tr(A H) at every input: only blocks of one unit count."""
        x, slope, curve, _, _ = part
        cut = units * k
        square = a[:cut, :cut].reshape(units, k, units, k)
        own = square[jnp.arange(units), :, jnp.arange(units)]
        cross = a[:cut, cut:-1].reshape(units, k, units)[jnp.arange(units), :, jnp.arange(units)]
        within = jnp.einsum("nj,ni,jil,nl->n", curve, x, own, x, optimize=True)
        return within + 2 * jnp.einsum("nj,ni,ji->n", slope, x, cross, optimize=True)

    def damped(damping: jax.Array) -> jax.Array:
        a = (vectors / (jnp.maximum(values, 0) + damping)) @ vectors.T
        x, slope, curve, _, jacobian = train
        step = jacobian @ a
        hidden, outer = step[:, : units * k].reshape(-1, units, k), step[:, units * k : -1]
        inner = jnp.einsum("ni,nji->nj", x, hidden)
        turned = jnp.concatenate(
            [
                jnp.einsum("nj,ni->ji", curve * inner + slope * outer, x).reshape(-1),
                (slope * inner).sum(0),
                jnp.zeros(1, theta.dtype),
            ]
        )
        q = precision * (traces(a, train) @ jacobian + turned)
        field = new.jacobian @ a
        return traces(a, new) - field @ q + field @ score

    found = jax.vmap(damped, out_axes=1)(jnp.asarray(DAMPINGS, theta.dtype))
    return jnp.concatenate([blackwell[:, None], found], 1)
