"""Draws with scores, exact or by NUTS, kept on disk; true means; and what the sampling costs.

NUTS is expensive and several studies want the same draws, so they are kept as one .npz a replication in the
folder named by STEINCV_BENCH_CACHE (a folder under the system's temporary one if that is not set).
Everything runs in float64 inside `jax.enable_x64(True)`; the global flag is never touched.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

from steincv import Samples
from steincv.families.polynomial.polynomial import feature_count, stein_features
from steincv.stein.coordinates import Standardise

ADAPT_CHAINS, ADAPT_STEPS, BURN_IN, TARGET_ACCEPTANCE = 8, 1000, 500, 0.9
MOST_FEATURES = 70  # of the control variate of a long run
LONG_RUN_SEED = 987_654_321  # apart from the small seeds studies use, so that truth and draws are independent


@dataclass(frozen=True, eq=False)
class Problem:
    """A density on R^dim. `iid(rng, n)` gives exact draws; without it NUTS is used, from `start(key)`."""

    name: str
    dim: int
    logdensity: Callable
    functionals: dict[str, Callable]
    names: tuple[str, ...]
    truth: dict[str, float] | None = None
    iid: Callable | None = None
    start: Callable | None = None
    long_run: tuple[int, int] = (64, 5000)

    @property
    def sampler(self) -> str:
        return "nuts" if self.iid is None else "exact"


class Cost(NamedTuple):
    """What `nuts_seconds` measured: wall time and gradient evaluations of all chains together."""

    seconds: float
    gradients: int


@cache
def _score(problem: Problem) -> Callable:
    return jax.jit(jax.vmap(jax.grad(problem.logdensity)))


def scores_at(problem: Problem, draws: np.ndarray) -> np.ndarray:
    """The gradient of the log density at draws (..., dim), in float64."""
    with jax.enable_x64(True):
        return np.asarray(_score(problem)(draws.reshape(-1, problem.dim))).reshape(draws.shape)


def _values(problem: Problem, x: Any) -> dict[str, Any]:
    return {name: f(x) for name, f in problem.functionals.items()}


def values_at(problem: Problem, draws: np.ndarray) -> dict[str, np.ndarray]:
    """Every functional at draws (chain, draw, dim): a dict of arrays (chain, draw), in float64."""
    with jax.enable_x64(True):
        every = jax.jit(jax.vmap(jax.vmap(lambda x: _values(problem, x))))(draws)
        return {name: np.asarray(value) for name, value in every.items()}


# NUTS


def _start(problem: Problem, key: Any) -> Any:
    if problem.start is not None:
        return problem.start(key)
    return jax.random.uniform(key, (problem.dim,), minval=-2.0, maxval=2.0)


@cache
def _kernel(problem: Problem) -> dict[str, Any]:
    """One step size and mass matrix a problem, pooled over chains: replications share them and differ only in
    their keys, and vmapped chains with equal step sizes wait less for each other."""
    adapt = blackjax.window_adaptation(blackjax.nuts, problem.logdensity, target_acceptance_rate=TARGET_ACCEPTANCE)

    def one(key):
        at, key = jax.random.split(key)
        return adapt.run(key, _start(problem, at), ADAPT_STEPS)[0].parameters

    fitted = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), ADAPT_CHAINS))
    return {
        "step_size": jnp.median(fitted["step_size"]),
        "inverse_mass_matrix": jnp.mean(fitted["inverse_mass_matrix"], axis=0),
    }


def _nuts(problem: Problem, draws: int, collect: Callable) -> tuple[Callable, Callable]:
    """`burn(keys)`: warmed-up states from dispersed points; `sample(keys, states)`: the last states, and of
    each draw what `collect(state)` gives, the gradient evaluations and whether it diverged."""
    step = blackjax.nuts(problem.logdensity, **_kernel(problem)).step

    def burn(key):
        at, key = jax.random.split(key)
        state = blackjax.nuts.init(_start(problem, at), problem.logdensity)
        return jax.lax.scan(lambda s, k: (step(k, s)[0], None), state, jax.random.split(key, BURN_IN))[0]

    def move(state, key):
        state, info = step(key, state)
        return state, (collect(state), info.num_integration_steps, info.is_divergent)

    def sample(key, state):
        return jax.lax.scan(move, state, jax.random.split(key, draws))

    return jax.jit(jax.vmap(burn)), jax.jit(jax.vmap(sample))


def _run_nuts(problem: Problem, keys: Any, draws: int, collect: Callable) -> tuple[Any, Any]:
    """(last states, collected (chain, draw, ...)), in one compiled program for all `keys`, one a chain."""
    burn, sample = _nuts(problem, draws, collect)
    first, second = jax.vmap(jax.random.split, out_axes=1)(keys)
    last, (kept, _, divergent) = sample(second, burn(first))
    if (count := int(divergent.sum())) > 0:
        print(f"{problem.name}: {count} divergences in {divergent.size} draws")
    return last, kept


def nuts_seconds(problem: Problem, chains: int = 4, draws: int = 1000) -> Cost:
    """The wall time of sampling alone, chains vmapped, warmed up and compiled before the clock starts."""
    with jax.enable_x64(True):
        burn, sample = _nuts(problem, draws, lambda state: (state.position, state.logdensity_grad))
        keys = jax.random.split(jax.random.key(LONG_RUN_SEED + 1), (3, chains))
        last, _ = jax.block_until_ready(sample(keys[1], burn(keys[0])))
        begin = time.perf_counter()
        _, (_, gradients, _) = jax.block_until_ready(sample(keys[2], last))
        return Cost(time.perf_counter() - begin, int(gradients.sum()))


# The cache


def _folder() -> Path:
    folder = Path(os.environ.get("STEINCV_BENCH_CACHE", Path(tempfile.gettempdir()) / "steincv_bench"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _save(path: Path, **arrays: Any) -> None:
    """Written under another name and then moved, so that no reader ever sees half a file."""
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as file:
        np.savez(file, **arrays)
    part.replace(path)


def _load(path: Path, problem: Problem) -> dict[str, np.ndarray] | None:
    """The file's arrays, unless there is none or its scores are not those of the model as it is now."""
    if not path.exists():
        return None
    with np.load(path) as file:
        arrays = dict(file)
    fresh = np.allclose(scores_at(problem, arrays["draws"][:, :1]), arrays["scores"][:, :1])
    return arrays if fresh else None


# What the studies call


def _sample(problem: Problem, seed: int, chains: int, draws: int, which: list[int]) -> list[tuple[Any, Any]]:
    shape = (chains, draws, problem.dim)
    if problem.iid is not None:
        xs = [problem.iid(np.random.default_rng([seed, r]), chains * draws).reshape(shape) for r in which]
        return [(x, scores_at(problem, x)) for x in xs]
    with jax.enable_x64(True):
        root = jax.random.key(seed)
        keys = jnp.concatenate([jax.random.split(jax.random.fold_in(root, r), chains) for r in which])
        pair = _run_nuts(problem, keys, draws, lambda state: (state.position, state.logdensity_grad))[1]
        x, s = (np.asarray(a).reshape(len(which), *shape) for a in pair)
    return list(zip(x, s, strict=True))


def draw(
    problem: Problem, seed: int = 0, chains: int = 4, draws: int = 1000, replications: int = 1
) -> list[tuple[np.ndarray, np.ndarray]]:
    """`replications` independent pairs (draws, scores), float64 (chain, draw, dim), from the cache if there.

    Asking for more replications later keeps those already made.
    """
    paths = [_folder() / f"{problem.name}-s{seed}-{chains}x{draws}-r{r}.npz" for r in range(replications)]
    found = [_load(path, problem) for path in paths]
    missing = [r for r in range(replications) if found[r] is None]
    if missing:
        for r, (x, s) in zip(missing, _sample(problem, seed, chains, draws, missing), strict=True):
            found[r] = {"draws": x, "scores": s}
            _save(paths[r], **found[r])
    return [(arrays["draws"], arrays["scores"]) for arrays in found]


def long_run(problem: Problem) -> dict[str, tuple[float, float]]:
    """Each functional's mean over a long NUTS run of `problem.long_run` (chains, draws), and its standard
    error from the spread of the chains' means. Made on first use, then cached.

    A polynomial control variate, whose few coefficients are fitted on all those draws, makes the means some ten times
    more precise, or far more; the plain ones are kept beside them, and the two must agree."""
    chains, draws = problem.long_run
    degree = max(d for d in (1, 2, 3) if d == 1 or feature_count(problem.dim, d) <= MOST_FEATURES)
    path = _folder() / f"{problem.name}-truth-{('linear', 'quadratic', 'cubic')[degree - 1]}-{chains}x{draws}.npz"
    arrays = _load(path, problem)
    if arrays is None:
        with jax.enable_x64(True):
            keys = jax.random.split(jax.random.key(LONG_RUN_SEED), chains)
            last, (values, positions, scores) = _run_nuts(
                problem,
                keys,
                draws,
                lambda state: (_values(problem, state.position), state.position, state.logdensity_grad),
            )
            samples = Samples(positions, scores)
            g = stein_features(*Standardise.of(samples)(samples), degree)
            means = {}
            for name, value in values.items():
                f = np.asarray(value, dtype=float)
                slope = np.linalg.solve(g.T @ g, g.T @ (f - f.mean()).reshape(-1))
                means[f"mean:{name}"] = (f - (g @ slope).reshape(f.shape)).mean(axis=1)
                means[f"plain:{name}"] = f.mean(axis=1)
            # One draw a chain, with its score, lets `_load` see that the model has not changed.
            arrays = {"draws": last.position[:, None], "scores": last.logdensity_grad[:, None], **means}
        _save(path, **arrays)
    known = {}
    for name in problem.functionals:
        better, plain = (
            (m.mean(), m.std(ddof=1) / chains**0.5) for m in (arrays[f"mean:{name}"], arrays[f"plain:{name}"])
        )
        if abs(better[0] - plain[0]) > 5 * plain[1]:
            raise RuntimeError(
                f"{problem.name}, {name}: the controlled reference {better} is not the plain one {plain}"
            )
        known[name] = (float(better[0]), float(better[1]))
    return known


def truth(problem: Problem) -> dict[str, tuple[float, float]]:
    """The true mean of each functional and its standard error: 0 where known exactly, else by `long_run`."""
    if problem.truth is not None:
        return {name: (value, 0.0) for name, value in problem.truth.items()}
    return long_run(problem)
