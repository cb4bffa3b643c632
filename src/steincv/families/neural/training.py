r"""The training engine: many networks as one compiled program, in segments between which it can be stopped.

Each network minimises the paper's objective on its own output, fold, penalty and starting point,

$$ \frac1n \sum_i \big[(f + g - \mu)^2 + \lambda g^2\big] \; + \; \text{decay}\,|w|^2, $$

by Adam on minibatches; all of them are a `vmap`ped axis. The best weights on validation draws are kept on the way.
"""

import functools
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ..._status import InputError
from ..._stein import stein
from .trials import Custom, Trial

SEGMENTS = 20


class Batch(NamedTuple):
    """The data of every problem, padded to one length. `train`, `valid`: 0/1 weights of draws."""

    z: Float[Array, "problem n dim"]
    s: Float[Array, "problem n dim"]
    y: Float[Array, "problem n out"]
    train: Float[Array, "problem n"]
    valid: Float[Array, "problem n"]


class Task(NamedTuple):
    """What each network is for: an index into problems and outputs, its penalty, centre and starting point."""

    problem: Array
    output: Array
    penalty: Array
    center: Array
    key: Array


class State(NamedTuple):
    params: Any
    center: Array
    moments: Any
    best: Any
    best_error: Array


class Settings(NamedTuple):
    """Everything static about the training program."""

    trial: Trial
    steps: int
    batch: int
    rate: float
    decay: float
    learn_center: bool
    early_stop: bool


def control(trial: Trial, params: Any, z: Array, s: Array) -> Array:
    """g at a batch of draws, by the one identity."""
    field, divergence = trial.field(params, z)
    return stein(divergence, field, s)


def _optimizer(settings: Settings) -> optax.GradientTransformation:
    warm = max(1, settings.steps // 50)
    schedule = optax.warmup_cosine_decay_schedule(0.0, settings.rate, warm, settings.steps, settings.rate * 1e-3)
    return optax.adam(schedule)


@functools.partial(jax.jit, static_argnames="settings")
def _start(task: Task, settings: Settings, dim: Array) -> State:
    size = dim.shape[0]

    def one(key: Any, center: Array) -> State:
        params = settings.trial.init(key, size)
        return State(params, center, _optimizer(settings).init((params, center)), params, jnp.asarray(jnp.inf))

    return jax.vmap(one)(task.key, task.center)


@functools.partial(jax.jit, static_argnames=("settings", "length"), donate_argnums=0)
def _segment(state: State, task: Task, data: Batch, first: Array, settings: Settings, length: int) -> State:
    optimizer = _optimizer(settings)
    cumulative = jnp.cumsum(data.train, axis=1)

    def loss(variables: tuple, t: Task, rows: Array, key: Any) -> Array:
        params, center = variables
        z, s, y = data.z[t.problem, rows], data.s[t.problem, rows], data.y[t.problem, rows, t.output]
        if isinstance(settings.trial, Custom) and settings.trial.hutchinson:
            field, divergence = settings.trial.estimate(params, z, key)
            g = stein(divergence, field, s)
        else:
            g = control(settings.trial, params, z, s)
        center = center if settings.learn_center else jax.lax.stop_gradient(center)
        value = ((y + g - center) ** 2 + t.penalty * g**2).mean()
        return value + settings.decay * sum((w**2).sum() for w in jax.tree.leaves(params))

    def one(st: State, t: Task) -> State:
        def step(carry: tuple, i: Array) -> tuple[tuple, None]:
            params, center, moments = carry
            pick, probe = jax.random.split(jax.random.fold_in(t.key, i))
            count = cumulative[t.problem]
            # a uniform training draw: padding and validation draws add nothing to the running count
            uniform = jax.random.uniform(pick, (settings.batch,), maxval=count[-1])
            rows = jnp.searchsorted(count, uniform, side="right")
            gradient = jax.grad(loss)((params, center), t, rows, probe)
            updates, moments = optimizer.update(gradient, moments)
            params, center = optax.apply_updates((params, center), updates)
            return (params, center, moments), None

        (params, center, moments), _ = jax.lax.scan(
            step, (st.params, st.center, st.moments), first + jnp.arange(length)
        )
        error = _valid_error(params, t)
        better = (error < st.best_error) if settings.early_stop else jnp.asarray(True)
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), params, st.best)
        return State(params, center, moments, best, jnp.where(better, error, st.best_error))

    def _valid_error(params: Any, t: Task) -> Array:
        if not settings.early_stop:
            return jnp.asarray(0.0)
        g = control(settings.trial, params, data.z[t.problem], data.s[t.problem])
        r, weight = data.y[t.problem, :, t.output] + g, data.valid[t.problem]
        mean = (weight @ r) / weight.sum()
        return (weight @ (r - mean) ** 2) / weight.sum()

    return jax.vmap(one)(state, task)


def train(
    data: Batch, task: Task, settings: Settings, *, checkpoint: str | None = None, progress: bool = False
) -> State:
    """Train every network. With `checkpoint` the state is kept there between segments, and taken up again."""
    with jax.default_matmul_precision("highest"):
        state = _start(task, settings, jnp.zeros(data.z.shape[2]))
        lengths = [len(part) for part in np.array_split(np.arange(settings.steps), SEGMENTS) if len(part)]
        done = 0
        store = None if checkpoint is None else _Checkpoint(Path(checkpoint), state, data, task, settings)
        if store is not None:
            state, done = store.resume(state)
        with _bar(len(lengths), progress) as advance:
            advance(done)
            for i in range(done, len(lengths)):
                first = jnp.asarray(sum(lengths[:i]))
                state = _segment(state, task, data, first, settings, lengths[i])
                if store is not None:
                    store.write(state, i + 1)
                if progress:
                    jax.block_until_ready(state.center)
                advance(1)
        if store is not None:
            store.path.unlink(missing_ok=True)
    return state


class _Checkpoint:
    """The state after some segments, in one file of arrays that appears whole or not at all."""

    def __init__(self, path: Path, state: State, data: Batch, task: Task, settings: Settings):
        self.path = path
        # another problem, seed or setting must not be continued from this file
        digest = [float(jnp.sum(x.astype(jnp.float32))) for x in (data.z, data.s, data.y, data.train, task.penalty)]
        keys = np.asarray(jax.random.key_data(task.key)).tolist()
        self.identity = json.dumps([repr(settings), digest, keys])
        self.leaves, self.structure = jax.tree.flatten(state)

    def write(self, state: State, done: int) -> None:
        from ..._arrays import whole_file

        arrays: dict[str, Any] = {f"leaf{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(state))}
        identity = np.frombuffer(self.identity.encode(), np.uint8)
        with whole_file(os.fspath(self.path), force=True) as file:
            np.savez(file, done=np.array(done), identity=identity, **arrays)

    def resume(self, state: State) -> tuple[State, int]:
        if not self.path.exists():
            return state, 0
        from ..._arrays import read_arrays

        arrays = read_arrays(self.path, ["done", "identity", *(f"leaf{i}" for i in range(len(self.leaves)))])
        if arrays["identity"].tobytes().decode() != self.identity:
            raise InputError(
                f"The checkpoint {self.path} belongs to another fit (other draws, seed or settings). "
                f"Delete it or name another file."
            )
        leaves = [jnp.asarray(arrays[f"leaf{i}"]) for i in range(len(self.leaves))]
        return jax.tree.unflatten(self.structure, leaves), int(arrays["done"])


class _bar:
    """A rich progress bar over segments, or nothing."""

    def __init__(self, total: int, shown: bool):
        self.total, self.shown = total, shown

    def __enter__(self) -> Any:
        if not self.shown:
            return lambda amount: None
        from rich.console import Console
        from rich.progress import Progress

        self.progress = Progress(console=Console(stderr=True), transient=True)
        self.progress.start()
        line = self.progress.add_task("training networks", total=self.total)
        return lambda amount: self.progress.advance(line, amount)

    def __exit__(self, *_: Any) -> None:
        if self.shown:
            self.progress.stop()
