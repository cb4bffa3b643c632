"""Data-parallel training: the draws are cut over the devices there are, and every device sees its own.

JAX's compiler adds the sums over devices. Weights are on all of them; the same program runs on one device or many, and
gives the same answer up to the order in which a sum is taken.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from ...stein.coordinates import stein

AXIS = "draws"


def place(arrays: Any, axis: int, devices: Sequence[Any] | None = None) -> Any:
    """Arrays whose `axis` counts draws, cut over the devices (all local ones if not given) along it.

    Zeros are added at the end so that every device has as many: give draws a weight that is zero there.
    """
    devices = jax.local_devices() if devices is None else list(devices)
    if len(devices) == 1:
        return jax.tree.map(lambda x: jax.device_put(x, devices[0]), arrays)
    mesh = Mesh(np.array(devices), (AXIS,))

    def put(x: Any) -> Array:
        more = -x.shape[axis] % len(devices)
        widths = [(0, more if i == axis else 0) for i in range(x.ndim)]
        return jax.device_put(np.pad(x, widths), NamedSharding(mesh, PartitionSpec(*[None] * axis, AXIS)))

    return jax.tree.map(put, arrays)


class Draws(NamedTuple):
    """Draws and scores `(n, dim)`, values of one f about its mean, and 1 for a draw, 0 for what was added, `(n,)`."""

    z: Any
    s: Any
    y: Any
    weight: Any

    @classmethod
    def of(cls, z: np.ndarray, s: np.ndarray, y: np.ndarray, devices: Sequence[Any] | None = None) -> "Draws":
        return place(cls(z, s, y, np.ones(len(y), y.dtype)), 0, devices)


@functools.partial(jax.jit, static_argnames="trial")
def full_batch_gradient(trial: Any, params: Any, center: Array, draws: Draws, penalty: float) -> tuple[Array, Any]:
    r"""The mean of $(f + g - \mu)^2 + \lambda g^2$ over all draws, and its gradient by the weights and the centre."""

    def loss(params: Any, center: Array) -> Array:
        field, divergence = trial.field(params, draws.z)
        g = stein(divergence, field, draws.s)
        return (draws.weight * ((draws.y + g - center) ** 2 + penalty * g**2)).sum() / draws.weight.sum()

    return jax.value_and_grad(loss, (0, 1))(params, center)


class Trained(NamedTuple):
    """Weights and centre after training, and the objective before every step."""

    params: Any
    center: Array
    losses: Float[Array, " step"]


@functools.partial(jax.jit, static_argnames=("trial", "steps", "rate"))
def train_full_batch(
    trial: Any, params: Any, draws: Draws, penalty: float = 0.0, steps: int = 100, rate: float = 5e-3
) -> Trained:
    """Adam on gradients over all draws, in one program."""
    optimizer = optax.adam(rate)
    center = jnp.zeros((), draws.y.dtype)

    def step(state: tuple, _: None) -> tuple[tuple, Array]:
        (params, center), moments = state
        loss, gradient = full_batch_gradient(trial, params, center, draws, penalty)
        updates, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates((params, center), updates), moments), loss

    start = ((params, center), optimizer.init((params, center)))
    ((params, center), _), losses = jax.lax.scan(step, start, None, length=steps)
    return Trained(params, center, losses)
