"""Positions that are trees of arrays, as JAX samplers have them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..runtime.validation import InputError
from ..samples.samples import Samples
from .columns import columns, labels


def samples_of_tree(
    position: Any, gradient: Any, constrain: Callable[[Any], Mapping[str, Any]] | None = None
) -> Samples:
    """Samples from trees of arrays `(chain, draw, ...)`; `constrain` is a function of one position."""
    import jax

    leaves = named_leaves(position)
    draws, names = columns(leaves)
    scores = columns(named_leaves(gradient))[0]
    if constrain is None:
        # one array is one vector, and f a function of it; a tree is a dict of parameters
        bare = jax.tree_util.treedef_is_leaf(jax.tree.structure(position))
        return Samples(draws, scores, names, parameters=None if bare else leaves)
    tree = jax.tree.structure(position)
    shapes = [leaf.shape[2:] for leaf in leaves.values()]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])

    def of_vector(x: Any) -> Mapping[str, Any]:
        parts = [x[end - int(np.prod(shape)) : end].reshape(shape) for shape, end in zip(shapes, ends, strict=True)]
        return constrain(jax.tree.unflatten(tree, parts))

    return Samples(draws, scores, names, of_vector)


def named_leaves(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a tree in its order, called by their path: `mu`, `layer.weight`; a bare array is `x`."""
    import jax

    found = jax.tree_util.tree_leaves_with_path(tree)
    if not found:
        raise InputError("the position holds no array.")
    named = {_name(path): np.asarray(leaf) for path, leaf in found}
    if len(named) != len(found):
        raise InputError(f"several parts of the position have the same name: {', '.join(_name(p) for p, _ in found)}.")
    return named


def _name(path: tuple) -> str:
    import jax

    parts = [jax.tree_util.keystr((key,), simple=True) for key in path]
    if parts and isinstance(path[0], jax.tree_util.SequenceKey):
        return ".".join([labels("x", (int(parts[0]) + 1,))[-1], *parts[1:]])
    return ".".join(parts) or "x"
