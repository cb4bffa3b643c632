"""A short run of Adam that brings the trunk of a potential into a good basin, for Gauss-Newton to finish.

Gauss-Newton converges fast but to the nearest minimum. Noisy steps under a firm penalty on the weights find the few
directions that matter, from most starts.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ._gauss_newton import Data, Trunk, features, init_trunk


@functools.partial(jax.jit, static_argnames=("width", "steps", "batch", "rate"))
def warm_starts(
    data: Data,
    residual: Float[Array, "problem n out"],
    keys: Array,
    penalties: Float[Array, " member"],
    width: int,
    steps: int,
    batch: int,
    rate: float,
) -> tuple[Trunk, Float[Array, "problem member"]]:
    """Trunks `(problem, member, ...)` trained on what the polynomial left, and their validation errors.

    `residual` has variance one in every output. Each member has its own start and penalty on the weights.
    """

    def member(key: Any, penalty: Array, one: Data, y: Array) -> tuple[Trunk, Array]:
        start, order = jax.random.split(key)
        trunk = init_trunk(start, width, one.z.shape[1], one.z.dtype)
        params = (trunk, jnp.zeros((width, y.shape[1]), one.z.dtype), jnp.zeros(y.shape[1], one.z.dtype))
        optimizer = optax.adam(optax.cosine_decay_schedule(rate, steps), b2=0.99)
        cumulative = jnp.cumsum(one.train)

        def loss(params: tuple, rows: Array) -> Array:
            trunk, heads, center = params
            error = y[rows] - features(trunk, one.z[rows], one.s[rows]) @ heads - center
            return (error**2).mean() + penalty * ((trunk.w**2).sum() + (heads**2).sum() / y.shape[1])

        def step(state: tuple, key: Any) -> tuple[tuple, None]:
            params, moments = state
            # a uniform training draw: padding and validation draws add nothing to the running count
            rows = jnp.searchsorted(cumulative, jax.random.uniform(key, (batch,), maxval=cumulative[-1]), side="right")
            updates, moments = optimizer.update(jax.grad(loss)(params, rows), moments)
            return (optax.apply_updates(params, updates), moments), None

        (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), jax.random.split(order, steps))
        trunk, heads, center = params
        error = y - features(trunk, one.z, one.s) @ heads - center
        return trunk, (one.valid @ (error**2).mean(1)) / one.valid.sum()

    def problem(one: Data, y: Array, key: Any) -> Any:
        return jax.vmap(member, (0, 0, None, None))(jax.random.split(key, len(penalties)), penalties, one, y)

    return jax.vmap(problem)(data, residual, keys)
