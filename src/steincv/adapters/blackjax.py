"""From BlackJAX: the positions and the gradients that its states keep."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..runtime.validation import InputError
from ..samples.samples import Samples
from .columns import at_every_draw, same_density
from .foreign import foreign
from .trees import samples_of_tree


def from_blackjax(
    states: Any,
    logdensity_fn: Callable[[Any], Any] | None = None,
    constrain: Callable[[Any], Mapping[str, Any]] | None = None,
) -> Samples:
    """Samples from the states of a run, stacked over draws.

    **Arguments:**

    - `states`: with leading axes `(draw,)`, `(chain, draw)`, or `(draw, chain)` as a scan over vectorised kernels
      gives; of two axes the longer is the draws. A list holds one chain an entry.
    - `logdensity_fn`: only for states that keep no gradient, such as those of random walks.
    - `constrain`: maps one position to a dict of the parameters as you know them. Without it they are the
      entries of the position.
    """
    with foreign("blackjax"):
        import blackjax  # noqa: F401
    import jax

    if isinstance(states, list):
        states = jax.tree.map(lambda *chains: np.stack([np.asarray(chain) for chain in chains]), *states)
    fields = getattr(states, "_fields", ())
    if "position" not in fields:
        kind = type(states).__name__
        hint = " Weighted particles have no chains." if "particles" in fields else ""
        raise InputError(f"`states` must be BlackJAX states with a position, such as an HMCState; got {kind}.{hint}")
    if "logdensity" not in fields:
        raise InputError(f"a {type(states).__name__} keeps no log density. Use steincv.Samples(draws, scores).")
    kept = np.asarray(states.logdensity)
    if kept.ndim not in (1, 2):
        raise InputError(
            f"`states.logdensity` has shape {kept.shape}, expected (draw,), (chain, draw) or (draw, chain): "
            f"stack the states of all draws."
        )
    by_chain = _by_chain(kept.shape)
    position = jax.tree.map(by_chain, states.position)
    if "logdensity_grad" in fields:
        return samples_of_tree(position, jax.tree.map(by_chain, states.logdensity_grad), constrain)
    if logdensity_fn is None:
        raise InputError(f"a {type(states).__name__} keeps no gradient: from_blackjax(states, logdensity_fn).")
    rows = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), position)
    logdensity, gradient = at_every_draw(jax.value_and_grad(logdensity_fn), rows)
    same_density("logdensity_fn", logdensity, by_chain(kept).ravel())
    grid = by_chain(kept).shape
    return samples_of_tree(position, jax.tree.map(lambda g: g.reshape(*grid, *g.shape[1:]), gradient), constrain)


def _by_chain(lead: tuple[int, ...]) -> Callable[[Any], np.ndarray]:
    """What brings an array with these leading axes to `(chain, draw, ...)`."""
    if len(lead) == 1:
        return lambda array: np.asarray(array)[None]
    if lead[0] > lead[1]:
        return lambda array: np.swapaxes(np.asarray(array), 0, 1)
    return np.asarray
