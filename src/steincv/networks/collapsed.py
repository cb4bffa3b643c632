r"""Fields on the other weights of a regression network, once the last layer is integrated out.

Given the other weights v the outputs at the training inputs are $o + Hd$, and the last layer d is Gaussian with
precision $\Lambda = \Lambda_0 + H^TH/\sigma^2$ and mean $m = \Lambda^{-1}H^T(y - o)/\sigma^2$. So v has the density

$$ \log p(v) = -\tfrac12 v^T\Lambda_v v - \tfrac12\log|\Lambda|
   - \tfrac12\big(|y - o|^2/\sigma^2 - m^T\Lambda m\big) $$

and a g that is made of its score has mean zero. $\Phi = A\nabla\bar f$ takes up where the field of the last layer ends,
at $\bar f(v) = f(v, m(v))$, with the Gauss-Newton matrix of the least squares that m solves (variable projection): of
the residuals at m and of m itself.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .gauss_newton import gauss_newton_fields, steps
from .model import Array

# Dampings of the weights that are left, and of all weights beside them: of more the coefficients make next to nothing,
# for either table of docs/paper.md, 5.3.
DAMPINGS = (16.0, 64.0)
BESIDE = (16.0,)


class _Limits(NamedTuple):
    """Which networks and draws have these fields."""

    # Second derivatives along as many directions are needed at every draw: .07 s for 160, the third power beyond.
    weights: int = 200
    # The scores of draws are the model's own if they differ by no more than this share of their length, which is far
    # more than single precision rounds.
    same: float = 1e-3


LIMITS = _Limits()


def network_fields(
    model: Any, predict: Callable[[Array, Array], Array], theta: Array, score: Array, inputs: Array
) -> jax.Array:
    """Return g of Gauss-Newton steps at one draw, `(output, k)`: also collapsed ones where that can be done."""
    regression = model.noise is not None and model.prior is None and model.smooth
    if not (regression and len(model.last) and 0 < model.dim - len(model.last) <= LIMITS.weights):
        return gauss_newton_fields(model, predict, theta, score, inputs)
    both = gauss_newton_fields(model, predict, theta, score, inputs, BESIDE)
    own = jax.grad(model.log_posterior)(theta)
    same = ((own - score) ** 2).sum() <= LIMITS.same**2 * (own**2).sum()
    # made of the model's own density: for draws of another one, tempered or of other noise, their mean is not zero
    return jnp.concatenate([both, jnp.where(same, collapsed_fields(model, predict, theta, inputs), 0.0)], 1)


def collapsed_fields(model: Any, predict: Callable[[Array, Array], Array], theta: Array, inputs: Array) -> jax.Array:
    """Return g of every damping at one draw, `(output, k)`, of a `Network` with noise, a last layer and N(0, 1)."""
    last, rest = model.last, np.setdiff1d(np.arange(model.dim), model.last)
    train, targets = (jnp.asarray(a, theta.dtype) for a in model.data)

    def outputs(v: Array, d: Array, x: Array) -> Array:
        """Return the outputs at some inputs, leaf by leaf: what one d has in common with others is computed once."""
        of = [(d, last) if place.start in last else (v, rest) for place in model.places]
        leaves = [
            part[np.searchsorted(where, np.arange(place.start, place.stop))].reshape(shape)
            for (part, where), place, shape in zip(of, model.places, model.shapes, strict=True)
        ]
        return model.apply(jax.tree.unflatten(model.structure, leaves), x).reshape(-1)

    def normal(v: Array) -> tuple[Callable[[Array], Array], Array]:
        """Return the product with the last layer's precision, by the network itself, and what m makes of it."""
        zero = jnp.zeros(len(last), theta.dtype)
        o, back = jax.vjp(lambda d: outputs(v, d, train), zero)
        prior = jnp.asarray(model.precision[last], theta.dtype)

        def times(d: Array) -> Array:
            return prior * d + back(outputs(v, d, train) - o)[0] / model.noise**2

        return times, back(targets - o)[0] / model.noise**2

    def solved(v: Array) -> Array:
        """Return m. Its derivatives need products only, as `custom_linear_solve` knows."""

        def solve(times: Callable[[Array], Array], b: Array) -> Array:
            return jnp.linalg.solve(jax.vmap(times)(jnp.eye(len(last), dtype=theta.dtype)), b)

        times, b = normal(v)
        return jax.lax.custom_linear_solve(times, b, solve, symmetric=True)

    def log_density(v: Array) -> Array:
        times, b = normal(v)
        whole = jax.vmap(times)(jnp.eye(len(last), dtype=theta.dtype))
        r = targets - outputs(v, jnp.zeros(len(last), theta.dtype), train)
        left = (r**2).sum() / model.noise**2 - b @ jnp.linalg.solve(whole, b)
        return -0.5 * ((v**2 * model.precision[rest]).sum() + jnp.linalg.slogdet(whole)[1] + left)

    def least_squares(v: Array, m: Array) -> Array:
        """Return the outputs at m in units of the noise, and m in units of its prior, `(n, 1)`."""
        return jnp.concatenate([outputs(v, m, train) / model.noise, m * model.precision[last] ** 0.5])[:, None]

    def jacobian(v: Array) -> Array:
        """Return the derivatives of the same, `(n, 1, v)`: row by row, and through m."""
        m, moved = solved(v), jax.jacrev(solved)(v)
        rows, h = jax.vmap(lambda x: jax.grad(lambda v, d: outputs(v, d, x[None])[0], (0, 1))(v, m))(train)
        fitted = (rows + h @ moved) / model.noise
        return jnp.concatenate([fitted, moved * model.precision[last][:, None] ** 0.5])[:, None]

    def both(v: Array) -> tuple[Array, Array]:
        m = solved(v)
        whole = jnp.zeros(model.dim, theta.dtype).at[rest].set(v).at[last].set(m)
        return least_squares(v, m), predict(whole, inputs).reshape(-1)

    def unit(_: Array) -> Array:
        return jnp.ones((1, 1), theta.dtype)

    start = jnp.asarray(theta)[rest]
    score = jax.grad(log_density)(start)
    return steps(both, jacobian, unit, start, score, model.precision[rest], DAMPINGS)
