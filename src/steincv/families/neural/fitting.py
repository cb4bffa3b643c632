"""Fit every network of a `Neural` method, for all problems, outputs, penalties and members, as one compiled program."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...runtime.validation import InputError, reserve
from ..method import Control, Problem
from .neural import CHOICES, Neural
from .potential_fit import pad, validation_draws
from .stretch import Stretch
from .training import Batch, Settings, State, Task, control, train, unravel
from .trials import Trial


def fit_networks(method: Neural, problems: Sequence[Problem], seed: int) -> list[Control]:
    """Train all networks together and return the control variate of every problem."""
    stretches = [Stretch.of(p) for p in problems]
    problems = [stretch.problem(p) for stretch, p in zip(stretches, problems, strict=True)]
    outputs, dim = problems[0].y.shape[1], problems[0].z.shape[1]
    rows = max(len(p.z) for p in problems)
    choose = method.penalty == "auto"
    penalties = CHOICES.penalties if method.penalty == "auto" else (float(method.penalty),)
    validate = method.early_stop or choose
    held = [validation_draws(len(p.z), p.chains) if validate else np.zeros(len(p.z), dtype=bool) for p in problems]
    data = Batch(
        _stack([p.z for p in problems], rows),
        _stack([p.s for p in problems], rows),
        _stack([p.y for p in problems], rows),
        _stack([~h for h in held], rows),
        _stack(held, rows),
    )
    grid = (len(problems), outputs, len(penalties), method.ensemble)
    networks = int(np.prod(grid))
    weights = jax.eval_shape(lambda key: method.trial.init(key, dim), jax.random.key(seed))
    size = sum(np.prod(x.shape) for x in jax.tree.leaves(weights))
    reserve(
        f"Training {networks} networks of {int(size):,} weights on {rows} draws in {dim} dimensions",
        4.0 * networks * (5 * size + 8 * method.batch * dim) + 4.0 * len(problems) * rows * (2 * dim + outputs),
        "Use a smaller network or ensemble, or fewer outputs at a time.",
    )
    task = _grid_of_tasks(method, problems, grid, penalties, seed)
    batch = int(min(method.batch, rows))
    settings = Settings(method.trial, method.steps, batch, method.rate, method.center, validate)
    run = functools.partial(train, data, checkpoint=method.checkpoint, progress=method.progress)
    if method.center and _pretrains(method, problems):
        keys = jax.random.split(jax.random.key(seed + 1), len(task.key))
        large = task._replace(penalty=jnp.ones_like(task.penalty), key=keys)
        task = task._replace(center=run(large, settings, checkpoint=None).center)
    state = run(task, settings)
    return _controls(method.trial, state, grid, penalties, choose, problems, stretches)


def _grid_of_tasks(
    method: Neural,
    problems: Sequence[Problem],
    grid: tuple[int, int, int, int],
    penalties: Sequence[float],
    seed: int,
) -> Task:
    """Return one task for every place of `grid`: problems x outputs x penalties x members."""
    index = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), -1).reshape(-1, 4)
    # f about its mean is what is fitted, so a centre of 0 in the paper's sense is minus the mean here
    zero = -np.stack([p.offset for p in problems])[index[:, 0], index[:, 1]]
    start = np.zeros(len(index)) if method.center and method.center_start != "zero" else zero
    # The same starting points in every fold: which fold is which then does not matter.
    keys = jax.random.split(jax.random.key(seed), method.ensemble)
    return Task(
        jnp.asarray(index[:, 0]),
        jnp.asarray(index[:, 1]),
        jnp.asarray(np.array(penalties)[index[:, 2]], jnp.float32),
        jnp.asarray((method.decay / np.array([len(p.z) for p in problems]))[index[:, 0]], jnp.float32),
        jnp.asarray(start, jnp.float32),
        keys[index[:, 3]],
    )


def _controls(
    trial: Trial,
    state: State,
    grid: tuple[int, int, int, int],
    penalties: Sequence[float],
    choose: bool,
    problems: Sequence[Problem],
    stretches: Sequence[Stretch],
) -> list[Control]:
    """Choose every output's best penalty, `grid` being problems x outputs x penalties x members, and return g there."""
    errors = np.asarray(state.best_error).reshape(grid)
    which = errors.mean(-1).argmin(-1) if choose else np.zeros(grid[:2], dtype=int)
    weights = jax.vmap(unravel(trial, problems[0].z.shape[1]))(state.best)
    params = jax.tree.map(lambda x: np.asarray(x).reshape(*grid, *x.shape[1:]), weights)
    centers = np.asarray(state.center).reshape(grid)
    return [
        _control(trial, params, i, which[i], [penalties[k] for k in which[i]], centers[i], p, stretches[i])
        for i, p in enumerate(problems)
    ]


def _control(
    trial: Trial,
    params: Any,
    i: int,
    which: np.ndarray,
    penalty: list[float],
    centers: np.ndarray,
    problem: Problem,
    stretch: Stretch,
) -> Control:
    outputs = np.arange(len(which))
    chosen = jax.tree.map(lambda x: x[i, outputs, which], params)  # (out, member, ...)
    if not all(np.isfinite(x).all() for x in jax.tree.leaves(chosen)):
        raise InputError("Training diverged: the weights are not finite. Use a smaller `rate`.")
    info = {
        "penalty": penalty,
        "center": (centers[outputs, which].mean(-1) + problem.offset).tolist(),
        "weights": int(sum(np.prod(x.shape[2:]) for x in jax.tree.leaves(chosen))),
    }
    return Control(_evaluator(trial, chosen, stretch), info)


def _evaluator(trial: Trial, params: Any, stretch: Stretch) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
        z, s = stretch(z, s)
        with jax.default_matmul_precision("highest"):
            return np.asarray(_average(trial)(params, np.float32(z), np.float32(s)), dtype=np.float64)

    return evaluate


@functools.lru_cache(maxsize=32)
def _average(trial: Trial) -> Callable:
    """Return the program that evaluates g of every output, averaged over its members, `(n, out)`."""
    one = functools.partial(control, trial)
    members = jax.vmap(one, (0, None, None))
    return jax.jit(lambda params, z, s: jax.vmap(members, (0, None, None))(params, z, s).mean(1).T)


def _pretrains(method: Neural, problems: Sequence[Problem]) -> bool:
    if method.center_start == "auto":
        return any(len(p.z) < CHOICES.few_draws or bool((np.abs(p.offset) < 1).any()) for p in problems)
    return method.center_start == "pretrain"


def _stack(arrays: Sequence[np.ndarray], rows: int) -> jax.Array:
    return jnp.asarray(np.stack([pad(a, rows) for a in arrays]), jnp.float32)
