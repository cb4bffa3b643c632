"""From BlackJAX: the positions and the gradients that its states keep."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import Array
from jaxtyping import PyTree

from ..runtime.validation import InputError
from ..samples.samples import Samples
from .foreign import foreign
from .shared import (
    Vector,
    at_draws,
    by_jax,
    columns,
    fitting_places,
    named_leaves,
    position_of_vector,
    refuse_another_density,
    samples_of_tree,
)


def from_blackjax(
    states: PyTree,
    logdensity_fn: Callable[[PyTree], Array] | None = None,
    constrain: Callable[[PyTree], Mapping[str, Any]] | None = None,
    *,
    warmup: PyTree = None,
    info: PyTree = None,
) -> Samples:
    """Return samples from the states of a run, stacked over draws.

    **Arguments:**

    - `states`: with leading axes `(draw,)`, `(chain, draw)`, or `(draw, chain)` as a scan over vectorised kernels
      gives; of two axes the longer is the draws. A list holds one chain per entry.
    - `logdensity_fn`: the log density that was sampled, a function of one position. States that keep no gradient,
      such as those of random walks, need it; from others the gradients are then computed again, in double precision.
    - `constrain`: maps one position to a dict of the parameters as you know them. Without it they are the
      entries of the position.
    - `warmup`: what the warm-up reported, `(state, parameters), info = blackjax.window_adaptation(...).run(...)`: its
      draws are more places to fit on, and never averaged over. `info`, or its states.
    - `info`: what the kernel reported beside the states. Its `num_integration_steps` count the gradients of the run.
    """
    foreign("blackjax")
    states = _stacked(states)
    recorded = np.asarray(states.logdensity)
    if recorded.ndim not in (1, 2):
        raise InputError(
            f"`states.logdensity` has shape {recorded.shape}, expected (draw,), (chain, draw) or (draw, chain): "
            f"stack the states of all draws."
        )
    by_chain = _by_chain(recorded.shape)
    position = jax.tree.map(by_chain, states.position)
    fitting = None if warmup is None else _warm_up(warmup)
    steps = [getattr(part, "num_integration_steps", None) for part in (info if isinstance(info, list) else [info])]
    spent = None if any(part is None for part in steps) else int(sum(np.asarray(part).sum() for part in steps))
    if logdensity_fn is not None:
        density, of_vector = logdensity_fn, position_of_vector(position)
        log_density = by_jax(lambda x: density(of_vector(x)))
        computed, scores = at_draws(log_density, columns(named_leaves(position))[0])
        refuse_another_density("logdensity_fn", computed, by_chain(recorded))
        return samples_of_tree(position, log_density, scores, constrain, fitting, spent)
    if not hasattr(states, "logdensity_grad"):
        raise InputError(f"a {type(states).__name__} keeps no gradient: from_blackjax(states, logdensity_fn).")
    scores = columns(named_leaves(jax.tree.map(by_chain, states.logdensity_grad)))[0]
    return samples_of_tree(position, None, scores, constrain, fitting, spent)


def _stacked(states: PyTree) -> PyTree:
    """Return the states of a chain, or of a list of them, stacked along a new first axis; refuse anything else."""
    if isinstance(states, list):
        states = jax.tree.map(lambda *chains: np.stack([np.asarray(chain) for chain in chains]), *states)
    fields = getattr(states, "_fields", ())
    kind = type(states).__name__
    if "position" not in fields:
        hint = " Weighted particles have no chains." if "particles" in fields else ""
        raise InputError(f"`states` must be BlackJAX states with a position, such as an HMCState; got {kind}.{hint}")
    if "logdensity" not in fields:
        raise InputError(f"a {kind} keeps no log density. Use steincv.Samples(draws, scores).")
    return states


def _by_chain(lead: tuple[int, ...]) -> Callable[[Vector], np.ndarray]:
    """Return what brings an array with these leading axes to `(chain, draw, ...)`."""
    if len(lead) == 1:
        return lambda array: np.asarray(array)[None]
    if lead[0] > lead[1]:
        return lambda array: np.swapaxes(np.asarray(array), 0, 1)
    return np.asarray


def _warm_up(warmup: PyTree) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the draws of a warm-up and their scores, as rows: from what it reported, or from its states."""
    alone = [getattr(part, "state", part) for part in (warmup if isinstance(warmup, list) else [warmup])]
    states = _stacked(alone if isinstance(warmup, list) else alone[0])
    if not hasattr(states, "logdensity_grad"):
        raise InputError(f"`warmup` must hold gradients, but a {type(states).__name__} keeps none.")
    by_chain = _by_chain(np.shape(states.logdensity))
    draws, scores = (
        columns(named_leaves(jax.tree.map(by_chain, tree)))[0] for tree in (states.position, states.logdensity_grad)
    )
    return fitting_places(draws, scores)
