"""Draws of the league's posteriors by NUTS, kept as one .npz per set of four chains.

    sets = read("pilots")          # a list of Set, whatever is in the cache
    sample("pilots")               # make those that are missing

The folder is named by STEINCV_BENCH_CACHE (one under the system's temporary folder if that is not set). Nothing here
imports the library, so that draws never depend on its version.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import dual_averaging_adaptation

from .models import make
from .posterior import Posterior

CHAINS, DRAWS = 4, 500  # of a set
ADAPT_CHAINS, ADAPT_STEPS = 8, 600
ROUNDS, TUNE_STEPS, ROUND_DRAWS = 2, 100, 300  # of refining the mass matrix with the draws of all chains
BURN_IN = 200  # from a draw of the adaptation, so already where the mass is
MOST_DOUBLINGS = 8  # while adapting: a bad mass matrix is not worth 1023 gradients a step
SEED = 2024
SHRINK = 5.0  # draws' worth of the diagonal in a full mass matrix, as in Stan


@dataclass(frozen=True)
class Set:
    """Four independent chains: draws and scores (chain, draw, dim), values (chain, draw, functional)."""

    draws: np.ndarray
    scores: np.ndarray
    values: np.ndarray
    labels: tuple[str, ...]
    gradients: np.ndarray  # of each draw (chain, draw)

    def named(self) -> dict[str, np.ndarray]:
        """The values by the name of their functional."""
        return {label: self.values[..., k] for k, label in enumerate(self.labels)}


def folder() -> Path:
    """The cache, made if it is not there."""
    path = Path(os.environ.get("STEINCV_BENCH_CACHE", Path(tempfile.gettempdir()) / "steincv_bench"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def path_of(name: str, which: int) -> Path:
    return folder() / f"{name}-{which}.npz"


def keep(path: Path, **arrays: np.ndarray) -> None:
    """Write under another name and move, so that no reader ever sees half a file."""
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as file:
        np.savez(file, **arrays)
    part.replace(path)


def read_one(name: str, which: int) -> Set:
    with np.load(path_of(name, which)) as file:
        labels = tuple(str(label) for label in file["labels"])
        return Set(file["draws"], file["scores"], file["values"], labels, file["gradients"])


def kept_sets(name: str) -> list[int]:
    """The numbers of the sets in the cache."""
    return sorted(int(path.stem.rsplit("-", 1)[1]) for path in folder().glob(f"{name}-[0-9]*.npz"))


def read(name: str) -> list[Set]:
    return [read_one(name, which) for which in kept_sets(name)]


# NUTS: one step size and one mass matrix a posterior, from the draws of all adapting chains.


def _window(posterior: Posterior, key: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Positions (chain, dim) and parameters after BlackJAX's window adaptation, a chain alone each."""
    adapt = blackjax.window_adaptation(
        blackjax.nuts,
        posterior.logdensity,
        target_acceptance_rate=posterior.acceptance,
        max_num_doublings=MOST_DOUBLINGS,
    )
    centre = np.zeros(posterior.dim) if posterior.start is None else posterior.start

    def one(key):
        near, key = jax.random.split(key)
        start = centre + jax.random.uniform(near, (posterior.dim,), minval=-1.0, maxval=1.0)
        (state, parameters), _ = adapt.run(key, start, ADAPT_STEPS)
        return state.position, {k: parameters[k] for k in ("step_size", "inverse_mass_matrix")}

    return jax.jit(jax.vmap(one))(jax.random.split(key, ADAPT_CHAINS))


def _tune(posterior: Posterior, positions: jax.Array, step_size: jax.Array, metric: jax.Array, key: jax.Array):
    """Fit the step size to this mass matrix, then draw: step size and positions (chain, draw, dim)."""
    init, update, final = dual_averaging_adaptation(posterior.acceptance)
    kernel = partial(blackjax.nuts.build_kernel(), max_num_doublings=MOST_DOUBLINGS)

    def step(key, state, size):
        return kernel(key, state, posterior.logdensity, size, metric)

    def tune(carry, key):
        state, averages = carry
        state, info = step(key, state, jnp.exp(averages.log_step_size))
        return (state, update(averages, info.acceptance_rate)), None

    def one(position, key):
        first, second = jax.random.split(key)
        state = blackjax.nuts.init(position, posterior.logdensity)
        (state, averages), _ = jax.lax.scan(tune, (state, init(step_size)), jax.random.split(first, TUNE_STEPS))
        size = final(averages)
        _, drawn = jax.lax.scan(
            lambda s, k: (lambda new: (new, new.position))(step(k, s, size)[0]),
            state,
            jax.random.split(second, ROUND_DRAWS),
        )
        return size, drawn

    sizes, drawn = jax.jit(jax.vmap(one))(positions, jax.random.split(key, len(positions)))
    return jnp.median(sizes), drawn


def adapt(posterior: Posterior) -> dict[str, np.ndarray]:
    """Step size, inverse mass matrix and draws to start from."""
    keys = jax.random.split(jax.random.key(SEED), 1 + ROUNDS)
    positions, fitted = _window(posterior, keys[0])
    size, metric = jnp.median(fitted["step_size"]), jnp.mean(fitted["inverse_mass_matrix"], axis=0)
    for key in keys[1:]:
        size, drawn = _tune(posterior, positions, size, metric, key)
        pool = drawn.reshape(-1, posterior.dim)
        metric = jnp.var(pool, axis=0)
        if posterior.dense:
            weight = len(pool) / (len(pool) + SHRINK)
            metric = weight * jnp.cov(pool, rowvar=False) + (1 - weight) * jnp.diag(metric)
        positions = drawn[:, -1]
    size, drawn = _tune(posterior, positions, size, metric, jax.random.fold_in(keys[0], 1))
    return {"step_size": size, "inverse_mass_matrix": metric, "starts": drawn.reshape(-1, posterior.dim)}


def _runner(posterior: Posterior, kernel: dict[str, np.ndarray]) -> Callable:
    """One compiled program for all chains: keys and starts to draws, scores, functionals, gradients, divergences."""
    step = blackjax.nuts(posterior.logdensity, kernel["step_size"], kernel["inverse_mass_matrix"]).step
    labels = posterior.labels

    def move(state, key):
        state, info = step(key, state)
        found = posterior.functionals(state.position)
        values = jnp.stack([found[label] for label in labels])
        return state, (state.position, state.logdensity_grad, values, info.num_integration_steps, info.is_divergent)

    def one(key, start):
        first, second = jax.random.split(key)
        state = blackjax.nuts.init(start, posterior.logdensity)
        state, _ = jax.lax.scan(lambda s, k: (step(k, s)[0], None), state, jax.random.split(first, BURN_IN))
        return jax.lax.scan(move, state, jax.random.split(second, DRAWS))[1]

    return jax.jit(jax.vmap(one))


def sample(name: str, sets: int | None = None) -> dict[str, float]:
    """Make the sets that are missing, all at once, and say what they cost; return a line for the table."""
    posterior = make(name)
    wanted = [r for r in range(sets or posterior.sets) if not path_of(name, r).exists()]
    if not wanted:
        return summary(name)
    begin = time.perf_counter()
    with jax.enable_x64(True):
        path = folder() / f"{name}-adapted.npz"
        if not path.exists():
            keep(path, **{k: np.asarray(v) for k, v in adapt(posterior).items()})
        with np.load(path) as file:
            kernel = dict(file)
        adapted = time.perf_counter() - begin
        root = jax.random.key(SEED + 1)
        keys = jnp.concatenate([jax.random.split(jax.random.fold_in(root, r), CHAINS) for r in wanted])
        rows = np.random.default_rng(SEED).permutation(len(kernel["starts"]))
        rows = np.concatenate([rows[r * CHAINS : (r + 1) * CHAINS] for r in wanted])
        found = [np.asarray(part) for part in _runner(posterior, kernel)(keys, kernel["starts"][rows])]
    seconds = time.perf_counter() - begin
    draws, scores, values, gradients, divergent = (a.reshape(len(wanted), CHAINS, *a.shape[1:]) for a in found)
    for i, r in enumerate(wanted):
        arrays = {"draws": draws[i], "scores": scores[i], "values": values[i], "labels": np.array(posterior.labels)}
        cost = {"gradients": gradients[i], "divergent": divergent[i], "seconds": np.array(seconds / len(wanted))}
        keep(path_of(name, r), **arrays, **cost)
    print(f"{name}: adapted in {adapted:.0f} s, {len(wanted)} sets in {seconds - adapted:.0f} s", flush=True)
    return summary(name)


# What the draws are like


def worst_rhat(values: np.ndarray) -> float:
    """The largest split R-hat of values (chain, draw, k)."""
    half = values.shape[1] // 2
    parts = np.concatenate([values[:, :half], values[:, half : 2 * half]])
    within = parts.var(axis=1, ddof=1).mean(0)
    between = half * parts.mean(axis=1).var(axis=0, ddof=1)
    return float(np.sqrt((within * (half - 1) / half + between / half) / within).max())


def summary(name: str) -> dict[str, float]:
    """Dimension, sets, mean gradients a draw, divergences, seconds and the largest R-hat over all sets' chains."""
    which, chains, gradients, divergent, seconds = kept_sets(name), [], [], 0, 0.0
    for r in which:
        with np.load(path_of(name, r)) as file:
            chains.append(np.concatenate([file["draws"], file["values"]], axis=-1))
            gradients.append(file["gradients"].mean())
            divergent, seconds = divergent + int(file["divergent"].sum()), seconds + float(file["seconds"])
    dim = make(name).dim
    alone = [worst_rhat(c[..., dim:]) for c in chains]
    return {
        "dim": dim, "sets": len(which), "gradients": float(np.mean(gradients)), "divergent": divergent,
        "seconds": seconds, "rhat of a set": float(np.median(alone)), "rhat of all": worst_rhat(np.concatenate(chains)),
    }  # fmt: skip
