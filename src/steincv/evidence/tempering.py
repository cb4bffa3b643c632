"""Parallel tempering: every rung of every replica moves by itself, and neighbouring rungs swap states.

All rungs and replicas are one compiled program, run in segments between which it shows progress and can be stopped and
taken up again, to the same bits. Randomness of an iteration comes from the seed and its number alone.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..runtime.checkpoint import Checkpoint, Run
from ..runtime.double import in_double, program
from ..runtime.progress import bar
from ..runtime.validation import InputError, StrPath, reserve, whole_number
from .ladder import check_temperatures, rung_name, temperature_ladder
from .moves import KERNELS, RANDOM_WALK, Point, Walkers, at, first_step, fresh, mover, new_walkers, swap
from .power_posterior import PowerPosterior
from .tempered import Tempered
from .warm_up import ADAPTATION, Moments, Tuning, add, factors, no_moments, react, windows


class Plan(NamedTuple):
    """How a run is cut up and started."""

    segments: int = 50  # between them there is progress to see and a place to stop at
    pool: int = 1000  # draws of the prior, per replica, among which the chains of its rungs start
    log_steps: tuple[float, float] = (-20.0, 6.0)  # bounds, however strange the acceptance of a short warm-up is


PLAN = Plan()
# Around our own arrays; functions of the user are traced by `program`, which must see the session as it is.
DOUBLE = functools.partial(jax.enable_x64, True)


class Tally(NamedTuple):
    """Sums over iterations: acceptance and rejections without likelihood of rungs, swap probabilities of pairs."""

    iterations: Array
    acceptance: Array
    rejected: Array
    swaps: Array


class State(NamedTuple):
    """Everything that an iteration changes."""

    point: Point
    walkers: Walkers
    tuning: Tuning
    moments: Moments
    tally: Tally


def temper(
    model: PowerPosterior,
    temperatures: object = None,
    *,
    draws: int = 1000,
    replicas: int = 4,
    warmup: int = 2000,
    thin: int | None = None,
    kernel: str = RANDOM_WALK,
    seed: int = 0,
    keep: object = None,
    checkpoint: StrPath | None = None,
    keep_checkpoint: bool = False,
    progress: bool = False,
) -> Tempered:
    """Draw from every power posterior of a model.

    **Arguments:**

    - `temperatures`: increasing from 0 to 1; `temperature_ladder()` if not given.
    - `draws`: how many are taken from each rung of each of the independent `replicas`, one every `thin` iterations
      (by default 10 for random walks, 5 for MALA, 1 for NUTS).
    - `warmup`: iterations in which step sizes and preconditioners are learned; they are fixed afterwards.
    - `kernel`: "random walk", "mala" or "nuts", by BlackJAX.
    - `keep`: the numbers of the draws that are kept, increasing; all of them by default.
    - `checkpoint`: a file to keep the state in; the same call takes it up again. It is removed at the end, or kept with
      `keep_checkpoint`: the same call then gives the same draws at once. `progress`: a bar on stderr.

    Reference: Geyer (1991); Friel, Pettitt (2008), JRSS B 70.
    """
    t = temperature_ladder() if temperatures is None else check_temperatures(temperatures)
    if not isinstance(model, PowerPosterior):
        raise InputError(f"`model` must be a steincv.evidence.PowerPosterior, got {type(model).__name__}.")
    if kernel not in KERNELS:
        raise InputError(f"`kernel` must be one of {', '.join(map(repr, KERNELS))}, got {kernel!r}.")
    draws, replicas = whole_number("draws", draws, 1), whole_number("replicas", replicas, 1)
    warmup, seed = whole_number("warmup", warmup, 0), whole_number("seed", seed, 0)
    thin = KERNELS[kernel].thin if thin is None else whole_number("thin", thin, 1)
    kept = _kept(keep, draws)
    reserve(
        f"{len(kept)} draws of {replicas} replicas, {len(t)} rungs and {model.dim} dimensions",
        8.0 * 4 * len(kept) * replicas * len(t) * (model.dim + 1),
        "Keep fewer draws.",
    )
    model.check()
    start = time.perf_counter()
    # the start is part of what identifies a run: another model, ladder or seed starts elsewhere
    x, scale = _start(model, t, replicas, seed)
    settings = {"draws": draws, "thin": thin, "warmup": warmup, "kernel": kernel, "seed": seed}
    differs = "another model, ladder, seed or setting"
    store = Checkpoint.of(checkpoint, Run("run", differs, settings, (x, t, kept)))
    run = _Run(model, kernel, t, seed, -(-draws // PLAN.segments))
    state = run.new_state(x, scale)
    x_kept, l_kept = np.zeros((len(kept), *x.shape)), np.zeros((len(kept), *x.shape[:2]))
    jobs = _jobs(warmup, draws, thin, run.length)
    with DOUBLE():
        done, filled, state = store.resume(state, x_kept, l_kept)
    iterations = [run.length * job.thin for job in jobs]
    with bar("tempering", sum(iterations), progress) as advance:
        advance(sum(iterations[:done]))
        for number, job in enumerate(jobs[done:], done + 1):
            state, x_new, l_new = run.segment(state, job)
            if job.draw is not None:
                here = kept[(kept >= job.draw) & (kept < job.draw + run.length)]
                new = slice(filled, filled := filled + len(here))
                x_kept[new], l_kept[new] = x_new[here - job.draw], l_new[here - job.draw]
            store.keep(number, filled, state, x_kept, l_kept)
            advance(iterations[number - 1])
    if keep_checkpoint:
        store.write(len(jobs), filled, state, x_kept, l_kept)
    state = jax.tree.map(np.asarray, state)
    tempered = Tempered.of(model, t, np.moveaxis(x_kept, 0, 2), np.moveaxis(l_kept, 0, 2), state, kernel)
    if not keep_checkpoint:
        store.remove()
    return replace(tempered, seconds=time.perf_counter() - start)


def _kept(keep: object, draws: int) -> np.ndarray:
    """Return the numbers of the draws to keep, checked."""
    if keep is None:
        return np.arange(draws)
    kept = np.asarray(keep)
    if kept.ndim != 1 or kept.dtype.kind not in "iu" or len(kept) == 0:
        raise InputError("`keep` must be the numbers of the draws to keep, increasing.")
    if kept[0] < 0 or kept[-1] >= draws or (np.diff(kept) <= 0).any():
        raise InputError(f"`keep` must increase within 0 to {draws - 1}; it has {kept[0]} to {kept[-1]}.")
    return kept.astype(int)


# What is run when ------------------------------------------------------------------------------------------


class _Job(NamedTuple):
    """A segment: `thin` iterations for each of its states, the first of them number `first`.

    While `adapting` it belongs to the window that began at `window`; after it the preconditioner may be due to be made
    anew (`renew`), or the warm-up over (`last`). Otherwise its states are draws, the first of them number `draw`.
    """

    first: int
    thin: int
    adapting: bool
    window: int = 0
    renew: bool = False
    last: bool = False
    draw: int | None = None


def _jobs(warmup: int, draws: int, thin: int, length: int) -> list[_Job]:
    """Return all segments, of one length, so that they are one program.

    What the last has too many of is not used. The preconditioner is renewed after every window but the last, which
    tunes the step sizes to it.
    """
    jobs: list[_Job] = []
    first = 0
    units = max(1, round(warmup / length)) if warmup else 0
    at_once = max(1, units // PLAN.segments)
    ends = (length * np.cumsum(windows(units, -(-ADAPTATION.fewest // length)), dtype=int)).tolist()
    for end in ends:
        window = first
        while first < end:
            each = min(at_once, (end - first) // length)
            jobs.append(_Job(first, each, True, window))
            first += each * length
        jobs[-1] = jobs[-1]._replace(renew=end != ends[-1], last=end == ends[-1])
    for draw in range(0, draws, length):
        jobs.append(_Job(first + draw * thin, thin, False, draw=draw))
    return jobs


class _Run:
    """The compiled program of one run; its segments have `length` states."""

    def __init__(self, model: PowerPosterior, kernel: str, t: np.ndarray, seed: int, length: int):
        self.model, self.kernel, self.length = model, kernel, length
        with DOUBLE():
            self.t, self.key = jnp.asarray(t), jax.random.key(seed)
            self.step = jnp.full(len(t), np.log(first_step(kernel, model.dim)))
        self.program: Callable | None = None

    def new_state(self, x: np.ndarray, scale: np.ndarray) -> State:
        replicas, rungs, dim = x.shape
        start = functools.partial(at, self.model, self.kernel)
        point = in_double(program(start, x), x)
        with DOUBLE():
            tuning = Tuning(self.step, jnp.asarray(np.broadcast_to(np.diag(scale), (rungs, dim, dim))))
            moments = no_moments(x, dim <= ADAPTATION.largest_dense)
            return State(point, new_walkers(replicas, rungs), tuning, moments, _no_tally(rungs))

    def segment(self, state: State, job: _Job) -> tuple[State, np.ndarray, np.ndarray]:
        """Run a segment; return the state after it and its draws, x and log likelihoods."""
        now = (np.asarray(a) for a in (job.first, job.thin, job.adapting, job.window))
        given = (state, self.key, self.t, *now)
        if self.program is None:
            self.program = program(_states(self.model, self.kernel, self.length), *given, once=True)
        state, x, likelihood = in_double(self.program, *given)
        with DOUBLE():
            if job.renew:
                factor = jnp.asarray(factors(state.moments, np.asarray(state.tuning.factor)))
                moments = no_moments(np.asarray(state.point.x), state.moments.second.ndim == 3)
                state = state._replace(tuning=Tuning(self.step, factor), moments=moments)
            if job.last:  # rates and round trips are those of the draws, not of the warm-up
                replicas, rungs = state.point.likelihood.shape
                state = state._replace(walkers=new_walkers(replicas, rungs), tally=_no_tally(rungs))
        return state, x, likelihood


def _no_tally(rungs: int) -> Tally:
    return Tally(jnp.zeros((), jnp.int64), jnp.zeros(rungs), jnp.zeros(rungs, jnp.int64), jnp.zeros(rungs - 1))


# The programs ------------------------------------------------------------------------------------------------


def _states(model: PowerPosterior, kernel: str, length: int) -> Callable:
    """Return what makes `length` states, each after iterations of a move of every chain and a round of swaps."""
    move = mover(model, kernel)

    def iteration(state: State, key: Array, t: Array, i: Array, adapting: Array, window: Array) -> State:
        within, between = jax.random.split(jax.random.fold_in(key, i))
        point, moved = move(within, state.point, t, state.tuning.factor, jnp.exp(state.tuning.log_step))
        point, walkers, chance = swap(between, point, state.walkers, t, i)
        tally = Tally(
            state.tally.iterations + 1,
            state.tally.acceptance + moved.acceptance.mean(0),
            state.tally.rejected + moved.rejected.sum(0),
            state.tally.swaps + chance.mean(0),
        )
        log_step = react(state.tuning.log_step, moved.acceptance, moved.stepped, KERNELS[kernel].target, i - window)
        log_step = jnp.where(adapting, jnp.clip(log_step, *PLAN.log_steps), state.tuning.log_step)
        moments = jax.lax.cond(adapting, add, lambda m, x: m, state.moments, point.x)
        return State(point, walkers, Tuning(log_step, state.tuning.factor), moments, tally)

    def run(
        state: State, key: Array, t: Array, first: Array, thin: Array, adapting: Array, window: Array
    ) -> tuple[State, Array, Array]:
        def states(state: State, n: Array) -> tuple[State, tuple[Array, Array]]:
            begin = first + n * thin
            state = jax.lax.fori_loop(
                begin, begin + thin, lambda i, s: iteration(s, key, t, i, adapting, window), state
            )
            return state, (state.point.x, state.point.likelihood)

        state, (x, likelihood) = jax.lax.scan(states, state, jnp.arange(length))
        return state, x, likelihood

    return run


# Where the chains start ----------------------------------------------------------------------------------------


def _start(
    model: PowerPosterior, t: np.ndarray, replicas: int, seed: int
) -> tuple[Float[np.ndarray, "replica rung dim"], Float[np.ndarray, " dim"]]:
    """Return where the chains start: each replica has draws of the prior, a rung starts at one by likelihood^t.

    Also return the spread of those draws. Without `draw_prior` they are standard normal in unconstrained coordinates.
    """
    shape = (replicas, PLAN.pool)
    with DOUBLE():
        key = jax.random.fold_in(jax.random.key(seed), 2**31 - 1)
        pool = np.asarray(jax.random.normal(key, (*shape, model.dim)))
    if model.draw_prior is not None:
        pool = in_double(program(lambda key: fresh(model, key, shape), key), key)
        if pool.shape != (*shape, model.dim) or not np.isfinite(pool).all():
            raise InputError(
                f"`draw_prior` gives, unconstrained, {pool.shape[2:]} numbers of which {np.isfinite(pool).mean():.0%} "
                f"are finite; expected {model.dim} inside the range of their parameters."
            )
    likelihood, prior = model.evaluate(pool)
    density = np.where(np.isfinite(likelihood), prior, -np.inf)
    good = np.isfinite(density)
    if (lost := ~good.any(axis=1)).any():
        raise InputError(
            f"No chain can start: none of {PLAN.pool} points of replica {int(np.argmax(lost))} has a finite log "
            f"likelihood and log prior, so neither has {rung_name(0, t)}. Look at the model, or give `draw_prior`."
        )
    gumbel = np.random.default_rng(seed).gumbel(size=(*shape, len(t)))
    weight = np.where(good[..., None], t * np.where(good, likelihood, 0.0)[..., None], -np.inf)
    choice = np.argmax(weight + gumbel, axis=1)
    x = np.take_along_axis(pool, choice[..., None], axis=1)
    spread = pool.reshape(-1, model.dim)[good.reshape(-1)].std(axis=0)
    return x, np.where(spread > 0, spread, 1.0)
