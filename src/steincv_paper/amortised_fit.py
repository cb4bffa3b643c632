"""Adam over draws and inputs at once, for one network that serves all inputs."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from steincv.families.method import Control, Problem
from steincv.families.neural.potential_fit import validation_draws
from steincv.runtime.validation import InputError, reserve

from .amortised import Amortised, AmortisedControl

SEGMENTS = 10
# Inputs whose validation error decides when to stop, and at how many draws.
JUDGED_INPUTS, JUDGED_DRAWS = 64, 512
# Pairs of a draw and an input that are evaluated at a time.
PAIRS = 50_000


def fit_amortised(method: Any, problems: Sequence[Problem], seed: int, penalties: Sequence[float]) -> list[Control]:
    """Fit one network per problem and penalty; the penalty with the least validation error is kept."""
    trial: Amortised = method.trial
    outputs = problems[0].y.shape[1]
    if len(trial.context) != outputs:
        raise InputError(f"`context` has {len(trial.context)} rows but f has {outputs} outputs: one row an output.")
    reserve(
        f"A network on {len(problems[0].z)} draws and {outputs} inputs",
        4.0 * (3 * len(problems[0].z) * outputs + 6 * method.batch * trial.contexts * trial.width),
        "Use fewer draws or inputs.",
    )
    found: list[Control] = []
    for problem in problems:
        fits = [_fit(method, problem, seed, penalty) for penalty in penalties]
        best = min(range(len(fits)), key=lambda i: fits[i][1])
        params, error, centers = fits[best]
        if not all(np.isfinite(x).all() for x in jax.tree.leaves(params)):
            raise InputError("Training diverged: the weights are not finite. Use a smaller `rate`.")
        info = {"penalty": penalties[best], "validation_error": error, "center": (centers + problem.offset).tolist()}
        found.append(_control(trial, params, trial.context, info))
    return found


def _control(trial: Amortised, params: Any, context: np.ndarray, info: Any) -> AmortisedControl:
    x = jnp.asarray(context, jnp.float32)

    def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
        rows = max(1, PAIRS // len(context))
        program = _program(trial)
        with jax.default_matmul_precision("highest"):
            return np.concatenate(
                [
                    np.asarray(program(params, *(np.float32(a[i : i + rows]) for a in (z, s)), x), dtype=np.float64)
                    for i in range(0, len(z), rows)
                ]
            )

    return AmortisedControl(evaluate, info, lambda other: _control(trial, params, np.asarray(other, np.float32), info))


@functools.lru_cache(maxsize=16)
def _program(trial: Amortised) -> Callable:
    return jax.jit(trial.control)


def _fit(method: Any, problem: Problem, seed: int, penalty: float) -> tuple[Any, float, np.ndarray]:
    held = validation_draws(len(problem.z), problem.chains) if method.early_stop else np.zeros(len(problem.z), bool)
    train = tuple(jnp.asarray(a[~held], jnp.float32) for a in (problem.z, problem.s, problem.y))
    which = np.flatnonzero(held if method.early_stop else ~held)
    which = which[np.linspace(0, len(which) - 1, min(len(which), JUDGED_DRAWS)).astype(int)]
    valid = tuple(jnp.asarray(a[which], jnp.float32) for a in (problem.z, problem.s, problem.y))
    start = jnp.zeros(problem.y.shape[1]) if method.center else -jnp.asarray(problem.offset, jnp.float32)
    settings = (
        method.steps,
        method.batch,
        method.rate,
        method.decay / len(problem.z),
        method.center,
        method.early_stop,
    )
    params, centers, error = _train(method.trial, settings)(jax.random.key(seed), penalty, start, train, valid)
    return jax.tree.map(np.asarray, params), float(error), np.asarray(centers)


@functools.lru_cache(maxsize=16)
def _train(trial: Amortised, settings: tuple) -> Callable:
    steps, batch, rate, decay, center, early_stop = settings
    context = jnp.asarray(trial.context)
    length = max(1, steps // SEGMENTS)
    optimizer = optax.adam(
        optax.warmup_cosine_decay_schedule(0.0, rate, length // 5 + 1, length * SEGMENTS, 1e-3 * rate)
    )
    trained = len(context) - trial.judged
    first_judged = trained if trial.judged else 0
    judged = np.linspace(first_judged, len(context) - 1, min(len(context) - first_judged, JUDGED_INPUTS)).astype(int)

    def loss(variables: tuple, penalty: Array, z: Array, s: Array, y: Array, which: Array) -> Array:
        params, centers = variables
        g = trial.control(params, z, s, context[which])
        mu = (centers if center else jax.lax.stop_gradient(centers))[which]
        squares = sum((x**2).sum() for x in jax.tree.leaves(params))
        return ((y[:, which] + g - mu) ** 2 + penalty * g**2).mean() + decay * squares

    def run(key: Array, penalty: Array, start: Array, train: tuple, valid: tuple) -> tuple:
        begin, order = jax.random.split(key)
        variables = (trial.init(begin, train[0].shape[1]), start)

        def step(carry: tuple, i: Array) -> tuple[tuple, None]:
            variables, moments = carry
            draws, inputs = jax.random.split(jax.random.fold_in(order, i))
            rows = jax.random.randint(draws, (min(batch, len(train[0])),), 0, len(train[0]))
            which = jax.random.choice(inputs, trained, (min(trial.contexts, trained),), replace=False)
            gradient = jax.grad(loss)(variables, penalty, *(a[rows] for a in train), which)
            updates, moments = optimizer.update(gradient, moments)
            return (optax.apply_updates(variables, updates), moments), None

        def error(variables: tuple) -> Array:
            z, s, y = valid
            left = y[:, judged] + trial.control(variables[0], z, s, context[judged])
            return left.var(axis=0).mean()

        def segment(carry: tuple, i: Array) -> tuple[tuple, None]:
            state, best, least = carry
            state, _ = jax.lax.scan(step, state, i * length + jnp.arange(length))
            now = error(state[0])
            better = (now < least) if early_stop else jnp.array(True)
            best = jax.tree.map(lambda new, old: jnp.where(better, new, old), state[0], best)
            return (state, best, jnp.where(better, now, least)), None

        first = ((variables, optimizer.init(variables)), variables, jnp.array(jnp.inf))
        (_, best, least), _ = jax.lax.scan(segment, first, jnp.arange(SEGMENTS))
        return (*best, least)

    return jax.jit(run)
