r"""The training engine: many networks as one compiled program, in segments between which it can be stopped.

Each network minimises the paper's objective on its own output, fold, penalty and starting point,

$$ \frac1n \sum_i \big[(f + g - \mu)^2 + \lambda g^2\big] \; + \; \text{decay}\,|w|^2, $$

by Adam on minibatches; all of them are a `vmap`ped axis. The best weights on validation draws are kept on the way.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ...runtime.checkpoint import Checkpoint, Run
from ...runtime.progress import bar
from ...stein.coordinates import stein
from . import fused as _fused
from .trials import Custom, Trial

SEGMENTS = 20
# Training may round: g has mean zero for any weights. Evaluation never does (`neural._evaluator`, "highest").
PRECISION = "high"
# Steps of a kernel that go into one turn of the loop, whose own 3 us are then shared: `benchmarks/gpu/networks.py`.
UNROLLED = 8


class Batch(NamedTuple):
    """The data of every problem, padded to one length. `train`, `valid`: 0/1 weights of draws."""

    z: Float[Array, "problem n dim"]
    s: Float[Array, "problem n dim"]
    y: Float[Array, "problem n out"]
    train: Float[Array, "problem n"]
    valid: Float[Array, "problem n"]


class Task(NamedTuple):
    """What each network is for: an index into problems and outputs, its penalties, centre and starting point.

    `decay` multiplies the squared weights. It depends on the number of draws, and nothing static does: networks for
    few and for many draws are one program.
    """

    problem: Array
    output: Array
    penalty: Array
    decay: Array
    center: Array
    key: Array


class State(NamedTuple):
    """All networks: flat weights `(network, weight)`, centres, Adam's moments, the best weights so far."""

    params: Float[Array, "network weight"]
    center: Float[Array, " network"]
    moments: Any
    best: Float[Array, "network weight"]
    best_error: Float[Array, " network"]


class Settings(NamedTuple):
    """Everything static about the training program."""

    trial: Trial
    steps: int
    batch: int
    rate: float
    learn_center: bool
    early_stop: bool


def control(trial: Trial, params: Any, z: Array, s: Array) -> Array:
    """g at a batch of draws, by the one identity."""
    field, divergence = trial.field(params, z)
    return stein(divergence, field, s)


class Rates(NamedTuple):
    """What Adam's steps differ in: how far they go, and what makes up for memories that began with zeros."""

    step: Array
    first: Array
    second: Array

    @classmethod
    def of(cls, settings: Settings, number: Array) -> "Rates":
        warm = settings.steps // 50
        schedule = optax.warmup_cosine_decay_schedule(
            0.0 if warm else settings.rate, settings.rate, warm, settings.steps, settings.rate * 1e-3
        )
        return cls(schedule(number), *(1 / (1 - memory ** (number + 1.0)) for memory in (ADAM.first, ADAM.second)))


class Adam(NamedTuple):
    """Adam's memory of slopes and of their squares, as in optax, and what keeps it from dividing by zero."""

    first: float = 0.9
    second: float = 0.999
    least: float = 1e-8


ADAM = Adam()


def adam(variables: Any, moments: tuple[Any, Any], gradient: Any, rates: Rates) -> tuple[Any, tuple[Any, Any]]:
    """Make a step of `optax.adam`; that finds its rates anew at every step, in a dozen small operations."""
    first = jax.tree.map(lambda m, g: ADAM.first * m + (1 - ADAM.first) * g, moments[0], gradient)
    second = jax.tree.map(lambda v, g: ADAM.second * v + (1 - ADAM.second) * g * g, moments[1], gradient)

    def moved(x: Array, m: Array, v: Array) -> Array:
        return x - rates.step * (m * rates.first) / (jnp.sqrt(v * rates.second) + ADAM.least)

    return jax.tree.map(moved, variables, first, second), (first, second)


def unravel(trial: Trial, dim: int) -> Callable[[Array], Any]:
    """From one flat vector of weights to the trial's own structure.

    Weights are trained as one vector a network: an update is then one fused operation instead of one a layer, which
    is what a step of many small networks costs on an accelerator.
    """
    shapes = jax.eval_shape(lambda: trial.init(jax.random.key(0), dim))
    return ravel_pytree(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes))[1]


@functools.partial(jax.jit, static_argnames=("settings", "dim"))
def _start(task: Task, settings: Settings, dim: int) -> State:
    params = jax.vmap(lambda key: ravel_pytree(settings.trial.init(key, dim))[0])(task.key)
    zeros = jax.tree.map(jnp.zeros_like, (params, task.center))
    return State(params, task.center, (zeros, zeros), params, jnp.full(len(params), jnp.inf))


@functools.partial(jax.jit, static_argnames=("settings", "length"), donate_argnums=0)
def _segment(state: State, task: Task, data: Batch, first: Array, settings: Settings, length: int) -> State:
    """Some steps of all networks. Those of one problem see the same minibatches, which saves most of the gathering."""
    trial = settings.trial
    structure = unravel(trial, data.z.shape[2])
    fused = _fused.applies(trial, data.z.shape[2], settings.batch)
    # the training draws of every problem in front: a uniform index below their number is a training draw
    order = jnp.argsort(-data.train, axis=1, stable=True)
    count = data.train.sum(1, keepdims=True)

    def loss(variables: tuple, t: Task, z: Array, s: Array, y: Array, key: Array) -> Array:
        flat, center = variables
        if isinstance(trial, Custom) and trial.hutchinson:
            field, divergence = trial.estimate(structure(flat), z, key)
            g = stein(divergence, field, s)
        else:
            g = control(trial, structure(flat), z, s)
        center = center if settings.learn_center else jax.lax.stop_gradient(center)
        value = ((y[:, t.output] + g - center) ** 2 + t.penalty * g**2).mean()
        return value + t.decay * (flat**2).sum()

    def one(variables: tuple, t: Task, batch: tuple, key: Array) -> tuple:
        z, s, y = (x[t.problem] for x in batch)
        return jax.grad(loss)(variables, t, z, s, y, key)

    # On an accelerator a step is as long as its operations are many: what does not depend on weights is found before.
    together = jnp.concatenate([data.z, data.s, data.y], 2)
    cuts = (data.z.shape[2], 2 * data.z.shape[2])
    number = first + jnp.arange(length)

    def keys(i: Array) -> Array:
        """Return what step i picks its draws by, and what it probes by."""
        return jax.random.split(jax.random.fold_in(task.key[0], i))

    def picked(i: Array) -> Array:
        index = jnp.int32(jax.random.uniform(keys(i)[0], (1, settings.batch)) * count)
        return jnp.take_along_axis(order, index, 1)

    def step(carry: tuple, at: tuple[Array, Array, Rates]) -> tuple[tuple, None]:
        variables, moments = carry
        i, rows, rates = at
        batch = tuple(jnp.split(jnp.take_along_axis(together, rows[:, :, None], 1), cuts, 2))
        if fused:
            flat, center = variables
            by_flat, by_center = _fused.gradients(trial, flat, center, task.problem, task.output, task.penalty, batch)
            gradient = (by_flat + 2 * task.decay[:, None] * flat, by_center * settings.learn_center)
        else:
            gradient = jax.vmap(one, (0, 0, None, None))(variables, task, batch, keys(i)[1])
        return adam(variables, moments, gradient, rates), None

    start = ((state.params, state.center), state.moments)
    each = (number, jax.vmap(picked)(number), Rates.of(settings, number))
    ((params, center), moments), _ = jax.lax.scan(step, start, each, unroll=UNROLLED if fused else 1)
    if not settings.early_stop:
        return State(params, center, moments, params, state.best_error)

    def valid_error(flat: Array, t: Task) -> Array:
        r = data.y[t.problem, :, t.output] + control(trial, structure(flat), data.z[t.problem], data.s[t.problem])
        weight = data.valid[t.problem] / data.valid[t.problem].sum()
        return weight @ (r - weight @ r) ** 2

    error = jax.lax.map(lambda x: valid_error(*x), (params, task), batch_size=8)
    better = error < state.best_error
    best = jnp.where(better[:, None], params, state.best)
    return State(params, center, moments, best, jnp.where(better, error, state.best_error))


def train(
    data: Batch, task: Task, settings: Settings, *, checkpoint: str | None = None, progress: bool = False
) -> State:
    """Train every network. With `checkpoint` the state is kept there between segments, and taken up again."""
    with jax.default_matmul_precision(PRECISION):
        state = _start(task, settings, data.z.shape[2])
        lengths = [len(part) for part in np.array_split(np.arange(settings.steps), SEGMENTS) if len(part)]
        store = _checkpoint(checkpoint, data, task, settings)
        done, _, state = store.resume(state)
        with bar("training networks", len(lengths), progress) as advance:
            advance(done)
            for i in range(done, len(lengths)):
                first = jnp.asarray(sum(lengths[:i]))
                state = _segment(state, task, data, first, settings, lengths[i])
                store.write(i + 1, 0, state)
                if progress:
                    jax.block_until_ready(state.center)
                advance(1)
        store.remove()
    return state


def _checkpoint(path: str | None, data: Batch, task: Task, settings: Settings) -> Checkpoint:
    """Return where the state of this training is kept: another problem, seed or setting is not continued from it."""
    arrays = (np.asarray(a) for a in (*data, task.penalty, task.decay, jax.random.key_data(task.key)))
    return Checkpoint.of(path, Run("fit", "other draws, seed or settings", repr(settings), arrays))
