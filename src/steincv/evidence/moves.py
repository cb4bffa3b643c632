r"""How chains move: within a rung by BlackJAX kernels, and by swaps of neighbouring rungs. All of them at once.

A kernel sees the displacement z from the current point, $x = x_0 + Lz$, with L the rung's preconditioner: step sizes
then mean the same at every rung. Whatever has no finite likelihood is rejected and counted.
"""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..runtime.validation import InputError
from .power_posterior import PowerPosterior

RANDOM_WALK, MALA, NUTS = "random walk", "mala", "nuts"


class Kernel(NamedTuple):
    """How a kernel is run."""

    target: float  # acceptance rate that warm-up aims at
    thin: int  # steps from one draw to the next, unless the user says otherwise
    slopes: bool  # whether it needs gradients


# Targets: the optima in many dimensions of Roberts, Gelman, Gilks (1997), Ann. Appl. Probab. 7, and of Roberts,
# Rosenthal (1998), JRSS B 60; for NUTS what Stan uses (Hoffman, Gelman, 2014, JMLR 15).
KERNELS = {RANDOM_WALK: Kernel(0.234, 10, False), MALA: Kernel(0.574, 5, True), NUTS: Kernel(0.8, 1, True)}


class Limits(NamedTuple):
    """Choices inside the kernels."""

    doublings: int = 7  # of a tree of NUTS; preconditioned as it is here, it seldom needs more
    # The share of random-walk proposals that are fresh draws of the prior: they move the lowest rungs, whose densities
    # are too wide for steps.
    fresh: float = 0.1


LIMITS = Limits()


class Point(NamedTuple):
    """Where the chains are, `(replica, rung, ...)`: x, log likelihood, log prior with Jacobian, and their gradients.

    The gradients have no columns where the kernel does not need them.
    """

    x: Array
    likelihood: Array
    prior: Array
    likelihood_slope: Array
    prior_slope: Array


class Moved(NamedTuple):
    """What a move did, at every chain."""

    acceptance: Array  # its probability
    stepped: Array  # whether a step size had to do with it
    rejected: Array  # whether the proposal had no finite likelihood


def first_step(kernel: str, dim: int) -> float:
    """Return where the step size starts: the optimum for a standard normal density (references at `KERNELS`)."""
    if kernel == RANDOM_WALK:
        return 2.38 / dim**0.5
    return 1.36 * dim ** (-1 / 3) if kernel == MALA else 0.5 * dim**-0.25


def at(model: PowerPosterior, kernel: str, x: Array) -> Point:
    """Return the point at x, everything that is not finite made so: a density of zero, a gradient of zero."""
    flat = x.reshape(-1, model.dim)
    likelihood, prior = model.parts(flat)
    bad = ~(jnp.isfinite(likelihood) & jnp.isfinite(prior))
    likelihood, prior = jnp.where(bad, -jnp.inf, likelihood), jnp.where(bad, -jnp.inf, prior)
    if KERNELS[kernel].slopes:
        slopes = [jnp.where(jnp.isfinite(s), s, 0.0).reshape(x.shape) for s in model.slopes(flat)]
    else:
        slopes = [jnp.zeros((*x.shape[:-1], 0), x.dtype)] * 2
    batch = x.shape[:-1]
    return Point(x, likelihood.reshape(batch), prior.reshape(batch), *slopes)


def mover(model: PowerPosterior, kernel: str) -> Callable:
    """Return `move(key, point, temperatures, factor, step)`: one step everywhere, to a new point and what happened."""
    try:
        import blackjax
    except ImportError as error:
        raise InputError(
            "Sampling power posteriors needs BlackJAX, which is not installed: pip install 'steincv[evidence]'."
        ) from error
    return _random_walk(model, blackjax) if kernel == RANDOM_WALK else _by_gradient(model, kernel, blackjax)


def _tempered(t: Array, likelihood: Array, prior: Array) -> Array:
    """Return the log density at temperature t, -inf where the likelihood is not finite."""
    finite = jnp.isfinite(likelihood)
    return jnp.where(finite, prior + t * jnp.where(finite, likelihood, 0.0), -jnp.inf)


def fresh(model: PowerPosterior, key: Array, batch: tuple[int, ...]) -> Array:
    """Return unconstrained draws of the prior, `batch` of them."""
    draw = model.draw_prior
    assert draw is not None
    keys = jax.random.split(key, batch).reshape(-1)
    return jax.vmap(lambda k: model.unconstrain(draw(k)))(keys).reshape(*batch, model.dim)


def _random_walk(model: PowerPosterior, blackjax: ModuleType) -> Callable:
    """Return the move of random walks: BlackJAX' kernel accepts or rejects each of the proposals.

    Likelihoods of all proposals are computed together. The kernel's position is the whole `Point`, so that a likelihood
    is computed once. Where the model can give draws of its prior, some proposals are such draws: all of them at t = 0,
    where they are always accepted.
    """
    from blackjax.mcmc.random_walk import RWState

    rosenbluth = blackjax.rmh.build_kernel()

    def one(key: Array, point: Point, proposal: Point, t: Array, independent: Array) -> tuple[Point, Array]:
        def density(p: Point) -> Array:
            return _tempered(t, p.likelihood, p.prior)

        def to(start: RWState, end: RWState) -> Array:
            return jnp.where(independent, end.position.prior, 0.0)

        state = RWState(point, density(point))
        state, info = rosenbluth(key, state, density, lambda k, p: proposal, to)
        return state.position, info.acceptance_rate

    def move(key: Array, point: Point, t: Array, factor: Array, step: Array) -> tuple[Point, Moved]:
        batch = point.likelihood.shape
        at_random, anew, which, accept = jax.random.split(key, 4)
        noise = jax.random.normal(at_random, point.x.shape, point.x.dtype)
        x = point.x + step[:, None] * jnp.einsum("kij,rkj->rki", factor, noise)
        independent = jnp.zeros(batch, bool)
        if model.draw_prior is not None:
            independent = (jax.random.uniform(which, batch) < LIMITS.fresh).at[:, 0].set(True)
            x = jnp.where(independent[..., None], fresh(model, anew, batch), x)
        proposal = at(model, RANDOM_WALK, x)
        keys = jax.random.split(accept, batch)
        everywhere = jax.vmap(jax.vmap(one), (0, 0, 0, None, 0))
        new, acceptance = everywhere(keys, point, proposal, t, independent)
        return new, Moved(acceptance, ~independent, ~jnp.isfinite(proposal.likelihood))

    return move


def _by_gradient(model: PowerPosterior, kernel: str, blackjax: ModuleType) -> Callable:
    """Return the move of MALA or NUTS.

    A proposal that is certain to be rejected, or a divergence, counts as one without likelihood.
    """
    algorithm = blackjax.mala if kernel == MALA else blackjax.nuts
    step_of = algorithm.build_kernel()
    state_type = type(jax.eval_shape(lambda z: algorithm.init(z, lambda z: z.sum()), jnp.zeros(1)))

    def one(key: Array, point: Point, t: Array, factor: Array, step: Array) -> tuple[Array, Array, Array]:
        def density(z: Array) -> Array:
            likelihood, prior = model.parts((point.x + factor @ z)[None])
            value = prior[0] + t * likelihood[0]
            return jnp.where(jnp.isfinite(likelihood[0]) & jnp.isfinite(value), value, -jnp.inf)

        z = jnp.zeros_like(point.x)
        slope = factor.T @ (point.prior_slope + t * point.likelihood_slope)
        state = state_type(z, _tempered(t, point.likelihood, point.prior), slope)
        if kernel == MALA:
            state, info = step_of(key, state, density, step)
            rejected = info.acceptance_rate == 0
        else:
            state, info = step_of(key, state, density, step, jnp.ones_like(z), max_num_doublings=LIMITS.doublings)
            rejected = info.is_divergent
        return point.x + factor @ state.position, info.acceptance_rate, rejected

    def move(key: Array, point: Point, t: Array, factor: Array, step: Array) -> tuple[Point, Moved]:
        batch = point.likelihood.shape
        within, anew = jax.random.split(key)
        everywhere = jax.vmap(jax.vmap(one), (0, 0, None, None, None))
        x, acceptance, rejected = everywhere(jax.random.split(within, batch), point, t, factor, step)
        if model.draw_prior is not None:
            x = x.at[:, 0].set(fresh(model, anew, batch[:1]))
        new = at(model, kernel, x)
        lost = ~jnp.isfinite(new.likelihood)  # only a fresh draw of the prior can be
        new = jax.tree.map(lambda a, b: jnp.where(lost.reshape(batch + (1,) * (a.ndim - 2)), a, b), point, new)
        acceptance = jnp.where(jnp.isfinite(acceptance), acceptance, 0.0)
        return new, Moved(acceptance, jnp.ones(batch, bool), rejected | lost)

    return move


# Swaps -------------------------------------------------------------------------------------------------------


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
    r"""Swap the pairs whose turn it is; also return the acceptance probability of every pair, its turn or not.

    Even pairs and odd pairs take turns, which carries states up and down the ladder rather than letting them diffuse.
    Rungs i and i + 1 are swapped with probability $\min(1, \exp((t_i - t_{i+1})(l_{i+1} - l_i)))$.

    Reference: Okabe et al. (2001), Chem. Phys. Lett. 335; Syed et al. (2022), JRSS B 84.
    """
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
