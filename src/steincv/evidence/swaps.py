r"""Swaps between neighbouring rungs, and the round trips that they make possible.

Even pairs and odd pairs take turns, which carries states up and down the ladder rather than letting them diffuse. A
swap of rungs i and i + 1 is accepted with probability $\min(1, \exp((t_i - t_{i+1})(l_{i+1} - l_i)))$.

Reference: Okabe et al. (2001), Chem. Phys. Lett. 335; Syed et al. (2022), JRSS B 84.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .moves import Point


class Walkers(NamedTuple):
    """Who is where: `here` is the walker at each `(replica, rung)`, `heading` by walker, and round trips so far."""

    here: Array
    heading: Array
    trips: Array


def new_walkers(replicas: int, rungs: int) -> Walkers:
    """Return walkers that stand where they started, with no round trips."""
    here = jnp.asarray(np.tile(np.arange(rungs, dtype=np.int32), (replicas, 1)))
    return Walkers(here, jnp.zeros((replicas, rungs), jnp.int32), jnp.zeros(replicas, jnp.int32))


def swap(key: Array, point: Point, walkers: Walkers, t: Array, iteration: Array | int) -> tuple[Point, Walkers, Array]:
    """Swap the pairs whose turn it is; also return the acceptance probability of every pair, its turn or not."""
    likelihood = point.likelihood
    replicas, rungs = likelihood.shape
    chance = jnp.exp(jnp.minimum(0.0, (t[:-1] - t[1:]) * (likelihood[:, 1:] - likelihood[:, :-1])))
    turn = jnp.arange(rungs - 1) % 2 == iteration % 2
    uniform = jax.random.uniform(key, chance.shape, chance.dtype)
    up = jnp.where(turn & (uniform < chance), 1, 0)
    nothing = jnp.zeros((replicas, 1), up.dtype)
    source = jnp.arange(rungs) + jnp.concatenate([up, nothing], 1) - jnp.concatenate([nothing, up], 1)

    def permuted(a: Array) -> Array:
        return jnp.take_along_axis(a, source.reshape(source.shape + (1,) * (a.ndim - 2)), axis=1)

    here = permuted(walkers.here)
    return jax.tree.map(permuted, point), _count(Walkers(here, walkers.heading, walkers.trips)), chance


def _count(walkers: Walkers) -> Walkers:
    """Count round trips: a walker heads up from the bottom, turns at the top, and is counted back at the bottom."""
    rows = jnp.arange(walkers.here.shape[0])
    bottom, top = walkers.here[:, 0], walkers.here[:, -1]
    heading, trips = walkers.heading, walkers.trips
    up, down = 1, 2  # 0 is a walker that has not been at the bottom yet
    trips = trips + (heading[rows, bottom] == down)
    heading = heading.at[rows, bottom].set(up)
    heading = heading.at[rows, top].set(jnp.where(heading[rows, top] == up, down, heading[rows, top]))
    return Walkers(walkers.here, heading, trips)
