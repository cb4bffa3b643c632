"""Draws of the league's posteriors by NUTS, kept as one .npz per set of four chains.

    sets = read("pilots")          # a list of Set, whatever is in the cache
    sample("pilots", 10, 60.0)     # make those that are missing

The folder is named by STEINCV_BENCH_CACHE (one under the system's temporary folder if that is not set). Nothing here
imports the library, so that draws never depend on its version.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import dual_averaging_adaptation

from .models import make
from .posterior import Posterior

CHAINS, SEGMENT = 4, 250
BURN_IN, KEPT, MOST_LATER = 1, 2, 16  # segments: a set is 4 x 500 draws; burning in starts where the mass is already
ADAPT_CHAINS, ADAPT_STEPS = 8, 600
ROUNDS, TUNE_STEPS, ROUND_DRAWS = 2, 100, 300  # of refining the mass matrix with the draws of all chains
MANY = 300  # parameters, from which half as many chains adapt
MOST_DOUBLINGS = 8  # while adapting: a bad mass matrix is not worth 1023 gradients a step
SEED = 2024
LOST = 10.0  # standard deviations of the log density
SHRINK = 5.0  # draws' worth of the diagonal in a full mass matrix, as in Stan


@dataclass(frozen=True)
class Set:
    """Four independent chains: draws and scores (chain, draw, dim), values (chain, draw, functional)."""

    draws: np.ndarray
    scores: np.ndarray
    values: np.ndarray
    labels: tuple[str, ...]
    gradients: np.ndarray  # of each draw (chain, draw)


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
        start = centre + jax.random.uniform(near, (posterior.dim,), minval=-posterior.jitter, maxval=posterior.jitter)
        (state, parameters), _ = adapt.run(key, start, ADAPT_STEPS)
        return state.position, {k: parameters[k] for k in ("step_size", "inverse_mass_matrix")}

    chains = ADAPT_CHAINS if posterior.dim < MANY else ADAPT_CHAINS // 2
    return jax.jit(jax.vmap(one))(jax.random.split(key, chains))


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


def _healthy(posterior: Posterior, drawn: jax.Array) -> jax.Array:
    """The draws (chain, draw, dim) of the chains that are where the others are.

    The log density of draws varies by sqrt(dim / 2) or so; a chain far below the others is lost and may never move.
    """
    levels = jnp.median(jax.jit(jax.vmap(jax.vmap(posterior.logdensity)))(drawn), axis=1)
    far = LOST * (1 + np.sqrt(posterior.dim / 2))
    return drawn[levels > jnp.nanmedian(levels) - far]


def adapt(posterior: Posterior) -> dict[str, np.ndarray]:
    """Step size, inverse mass matrix and draws to start from."""
    keys = jax.random.split(jax.random.key(SEED), 1 + ROUNDS)
    positions, fitted = _window(posterior, keys[0])
    size, metric = (jnp.median(fitted[name], axis=0) for name in ("step_size", "inverse_mass_matrix"))
    for key in keys[1:]:
        size, drawn = _tune(posterior, positions, size, metric, key)
        healthy = _healthy(posterior, drawn)
        pool = healthy.reshape(-1, posterior.dim)
        metric = jnp.var(pool, axis=0)
        if posterior.dense:
            weight = len(pool) / (len(pool) + SHRINK)
            metric = weight * jnp.cov(pool, rowvar=False) + (1 - weight) * jnp.diag(metric)
        positions = healthy[np.arange(len(drawn)) % len(healthy), -1]
    size, drawn = _tune(posterior, positions, size, metric, jax.random.fold_in(keys[0], 1))
    pool = _healthy(posterior, drawn).reshape(-1, posterior.dim)
    return {"step_size": size, "inverse_mass_matrix": metric, "starts": pool}


def _segment(posterior: Posterior, kernel: dict[str, np.ndarray]) -> Callable:
    """One compiled program for many chains: states and keys to states and the next SEGMENT draws of each."""
    step = blackjax.nuts(posterior.logdensity, kernel["step_size"], kernel["inverse_mass_matrix"]).step

    def move(state, key):
        state, info = step(key, state)
        return state, (state.position, info.num_integration_steps, info.is_divergent)

    return jax.jit(jax.vmap(lambda state, key: jax.lax.scan(move, state, jax.random.split(key, SEGMENT))))


def run(name: str, kernel: dict[str, np.ndarray], which: list[int], patience: float) -> dict[str, np.ndarray]:
    """Run the four chains of each of these sets side by side.

    Returns draws (set, chain, draw, dim), gradients and divergent (set, chain, draw), and later (set, chain, segment,
    functional): mean values of the segments that the chains go on for until `patience` seconds are over.
    """
    posterior = make(name)
    begin = time.perf_counter()
    root = jax.random.key(SEED + 1)
    keys = jnp.concatenate([jax.random.split(jax.random.fold_in(root, r), CHAINS) for r in which])
    rows = np.random.default_rng(SEED).permutation(len(kernel["starts"]))
    rows = np.concatenate([rows[r * CHAINS : (r + 1) * CHAINS] for r in which])
    advance, functionals = _segment(posterior, kernel), _values(posterior)
    state = jax.vmap(lambda x: blackjax.nuts.init(x, posterior.logdensity))(jnp.asarray(kernel["starts"][rows]))
    parts, later, at = [], [], 0
    while at < BURN_IN + KEPT or (time.perf_counter() - begin < patience and len(later) < MOST_LATER):
        state, found = advance(state, jax.vmap(jax.random.fold_in, (0, None))(keys, at))
        if BURN_IN <= at < BURN_IN + KEPT:
            parts.append([np.asarray(a) for a in found])
        elif at >= BURN_IN + KEPT:
            later.append(np.asarray(functionals(found[0])).mean(axis=1))
        at += 1
    draws, gradients, divergent = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    arrays = {"draws": draws, "gradients": gradients.astype(np.int16), "divergent": divergent}
    arrays["later"] = np.stack(later, axis=1) if later else np.zeros((len(draws), 0, len(posterior.labels)))
    return {key: a.reshape(len(which), CHAINS, *a.shape[1:]) for key, a in arrays.items()}


def _values(posterior: Posterior) -> Callable:
    """The functionals of draws (chain, draw, dim) as (chain, draw, functional)."""
    labels = posterior.labels

    def one(x):
        found = posterior.functionals(x)
        return jnp.stack([found[label] for label in labels])

    return jax.jit(jax.vmap(jax.vmap(one)))


@lru_cache
def _evaluator(name: str) -> Callable:
    """Draws (chain, draw, dim) to their scores and functionals; compiled once for all sets."""
    posterior = make(name)
    values = _values(posterior)
    return jax.jit(lambda draws: (jax.vmap(jax.vmap(jax.grad(posterior.logdensity)))(draws), values(draws)))


def store(name: str, which: int, arrays: dict[str, np.ndarray]) -> None:
    """Keep one set, with the scores and the functionals of its draws."""
    with jax.enable_x64(True):
        scores, values = (np.asarray(a) for a in _evaluator(name)(arrays["draws"]))
    if not (np.all(np.isfinite(scores)) and np.all(np.isfinite(values))):
        raise ValueError(f"{name}, set {which}: a score or a functional is not finite.")
    keep(path_of(name, which), **arrays, scores=scores, values=values, labels=np.array(make(name).labels))


def adapted(name: str) -> dict[str, np.ndarray]:
    """The step size, mass matrix and starts of a posterior, from the cache if they are there."""
    path = folder() / f"{name}-adapted.npz"
    if not path.exists():
        keep(path, **{k: np.asarray(v) for k, v in adapt(make(name)).items()})
    with np.load(path) as file:
        return dict(file)


def sample(name: str, sets: int, patience: float) -> dict[str, float]:
    """Make the sets that are missing, all at once; return a line for the table."""
    wanted = [r for r in range(sets) if not path_of(name, r).exists()]
    source = make(name).source
    if wanted and source is None:
        with jax.enable_x64(True):
            found = run(name, adapted(name), wanted, patience)
        for i, r in enumerate(wanted):
            store(name, r, {key: a[i] for key, a in found.items()})
    elif wanted:
        other, mapped = source
        sample(other, sets, patience)
        for r in wanted:
            with np.load(path_of(other, r)) as file, jax.enable_x64(True):
                same = {key: file[key] for key in ("gradients", "divergent", "later")}
                draws = np.asarray(jax.vmap(jax.vmap(mapped))(file["draws"]))
            store(name, r, same | {"draws": draws})
    return summary(name)


@dataclass(frozen=True)
class Reference:
    """What all chains say together, the long continuation of each included: means and their standard errors."""

    mean: np.ndarray
    error: np.ndarray
    draws: int


def reference(name: str) -> Reference:
    """Plain means over all sets and what their chains did later; errors from the means of segments (batch means)."""
    means = []
    for r in kept_sets(name):
        with np.load(path_of(name, r)) as file:
            values, later = file["values"], file["later"]
            own = values.reshape(CHAINS, KEPT, SEGMENT, -1).mean(axis=2)
            means.append(np.concatenate([own, later], axis=1).reshape(-1, values.shape[-1]))
    batches = np.concatenate(means)
    return Reference(batches.mean(0), batches.std(0, ddof=1) / np.sqrt(len(batches)), len(batches) * SEGMENT)


# What the draws are like


def worst_rhat(values: np.ndarray) -> float:
    """The largest split R-hat of values (chain, draw, k)."""
    half = values.shape[1] // 2
    parts = np.concatenate([values[:, :half], values[:, half : 2 * half]])
    within = parts.var(axis=1, ddof=1).mean(0)
    between = half * parts.mean(axis=1).var(axis=0, ddof=1)
    return float(np.nanmax(np.sqrt((within * (half - 1) / half + between / half) / within)))


def summary(name: str) -> dict[str, float]:
    """Dimension, sets, mean gradients per draw, divergences and the largest R-hat over all sets' chains."""
    which, chains, gradients, divergent = kept_sets(name), [], [], 0
    for r in which:
        with np.load(path_of(name, r)) as file:
            chains.append(np.concatenate([file["draws"], file["values"]], axis=-1))
            gradients.append(file["gradients"].mean())
            divergent += int(file["divergent"].sum())
    dim = make(name).dim
    alone = [worst_rhat(c[..., dim:]) for c in chains]
    return {
        "dim": dim, "sets": len(which), "gradients": float(np.mean(gradients)), "divergent": divergent,
        "rhat of a set": float(np.median(alone)), "rhat of all": worst_rhat(np.concatenate(chains)),
    }  # fmt: skip
