"""Positions that are trees of arrays, as JAX samplers have them."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import Array
from jaxtyping import PyTree

from ..runtime.validation import InputError
from ..samples.log_density import LogDensity
from ..samples.samples import Samples
from .columns import columns, labels, splitter
from .density import at_draws


def samples_of_tree(
    position: PyTree,
    log_density: LogDensity | None,
    scores: np.ndarray | None,
    constrain: Callable[[PyTree], Mapping[str, Any]] | None = None,
    fitting: tuple[np.ndarray, np.ndarray] | None = None,
    gradients: int | None = None,
) -> Samples:
    """Return samples from a tree of arrays `(chain, draw, ...)`; `constrain` is a function of one position.

    Scores that are not given are those of `log_density`.
    """
    leaves = named_leaves(position)
    draws, names = columns(leaves)
    if scores is None:
        assert log_density is not None
        scores = at_draws(log_density, draws)[1]
    more: dict[str, Any] = {"log_density": log_density, "fitting": fitting, "gradients": gradients}
    if constrain is not None:
        of_vector = position_of_vector(position)
        return Samples(draws, scores, names, lambda x: constrain(of_vector(x)), **more)
    # one array is one vector, and f a function of it; a tree is a dict of parameters
    bare = jax.tree_util.treedef_is_leaf(jax.tree.structure(position))
    if bare:
        return Samples(draws, scores, names, **more)
    split = splitter([array.shape[2:] for array in leaves.values()])
    return Samples(draws, scores, names, lambda x: dict(zip(leaves, split(x), strict=True)), leaves, **more)


def position_of_vector(position: PyTree) -> Callable[[Array], PyTree]:
    """Return a function from one vector to one position, for a tree of arrays `(chain, draw, ...)`."""
    leaves, structure = jax.tree.flatten(position)
    split = splitter([np.shape(leaf)[2:] for leaf in leaves])
    return lambda x: jax.tree.unflatten(structure, split(x))


def named_leaves(tree: PyTree) -> dict[str, np.ndarray]:
    """Return the leaves of a tree in its order, called by their path: `mu`, `layer.weight`; a bare array is `x`."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    if not found:
        raise InputError("the position holds no array.")
    named = {_name(path): np.asarray(leaf) for path, leaf in found}
    if len(named) != len(found):
        raise InputError(f"several parts of the position have the same name: {', '.join(_name(p) for p, _ in found)}.")
    return named


def _name(path: tuple[Any, ...]) -> str:
    parts = [jax.tree_util.keystr((key,), simple=True) for key in path]
    if parts and isinstance(path[0], jax.tree_util.SequenceKey):
        return ".".join([labels("x", (int(parts[0]) + 1,))[-1], *parts[1:]])
    return ".".join(parts) or "x"
