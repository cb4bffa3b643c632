"""A short run of Adam that brings the trunk of a potential into a good basin, for Gauss-Newton to finish.

Gauss-Newton converges fast but to the nearest minimum. Noisy steps under a firm penalty on the weights find the few
directions that matter, from most starts. In many dimensions random directions are all nearly orthogonal to those few,
so some units start along directions that the data already point out.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from .gauss_newton import Data, Trunk, features, init_trunk

# How far a hinted unit starts off its hints, in units of a random start.
NOISE = 0.2


@functools.partial(jax.jit, static_argnames=("width", "steps", "batch", "rate"))
def warm_starts(
    data: Data,
    residual: Float[Array, "problem n out"],
    hints: Float[Array, "problem hint dim"],
    hinted: Float[Array, "member width"],
    keys: Array,
    penalties: Float[Array, " member"],
    width: int,
    steps: int,
    batch: int,
    rate: float,
) -> tuple[Trunk, Float[Array, "problem member"]]:
    """Trunks `(problem, member, ...)` trained on what the polynomial left, and their validation errors.

    `residual` has variance one in every output. Each member has its own start and penalty on the weights. Units with
    `hinted` 1 start as random mixtures of the problem's `hints`, directions of length one.
    """

    def member(key: Any, penalty: Array, hinted: Array, one: Data, y: Array, hints: Array) -> tuple[Trunk, Array]:
        start, order = jax.random.split(key)
        trunk = init_trunk(start, width, one.z.shape[1], one.z.dtype)
        along = jax.random.normal(jax.random.fold_in(start, 1), (width, len(hints)), one.z.dtype) @ hints
        trunk = trunk._replace(w=jnp.where(hinted[:, None] > 0, along + NOISE * trunk.w, trunk.w))
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

    def problem(one: Data, y: Array, hints: Array, key: Any) -> Any:
        every = jax.vmap(member, (0, 0, 0, None, None, None))
        return every(jax.random.split(key, len(penalties)), penalties, hinted, one, y, hints)

    return jax.vmap(problem)(data, residual, hints, keys)
