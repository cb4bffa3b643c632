"""What adapters share: named arrays and trees as columns of one matrix, and log densities with their scores."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jaxtyping import PyTree

from ..runtime.rows import over_rows
from ..runtime.validation import InputError
from ..samples.log_density import LogDensity
from ..samples.samples import Samples

Vector = Array | np.ndarray


def labels(name: str, shape: Sequence[int]) -> list[str]:
    """Return what the entries of an array are called: `mu`, or `theta[0]`, `theta[1]`."""
    return [f"{name}[{', '.join(map(str, i))}]" if shape else name for i in np.ndindex(*shape)]


def columns(arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, list[str]]:
    """Join arrays `(chain, draw, ...)` side by side as `(chain, draw, dim)`, and name the columns."""
    flat = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
    joined = [array.reshape(*array.shape[:2], -1) for array in flat.values()]
    return np.concatenate(joined, axis=-1), [x for name, a in flat.items() for x in labels(name, a.shape[2:])]


def splitter(shapes: Sequence[Sequence[int]]) -> Callable[[Vector], list[Any]]:
    """Return a function that cuts an array `(..., dim)` of NumPy or JAX into arrays `(..., *shape)`, one per shape."""
    sizes = [math.prod(shape) for shape in shapes]
    ends = np.cumsum(sizes).tolist()

    def split(x: Vector) -> list[Any]:
        parts = zip(shapes, sizes, ends, strict=True)
        return [x[..., end - size : end].reshape((*x.shape[:-1], *shape)) for shape, size, end in parts]

    return split


def entry(array: np.ndarray, index: Sequence[int]) -> np.ndarray:
    """Return the view `(chain, draw)` of one entry of an array `(chain, draw, ...)`."""
    place: tuple[slice | int, ...] = (slice(None), slice(None), *index)
    return array[place]


def by_jax(density: Callable[[Array], Array], forward: bool = False) -> LogDensity:
    """Return the log density at many points, of a JAX function of one vector.

    With `forward` it is differentiated forward, which is the only way through a while loop.
    """

    def one(x: Array) -> tuple[Array, Array]:
        return (density(x), jax.jacfwd(density)(x)) if forward else jax.value_and_grad(density)(x)

    return LogDensity(over_rows(jax.vmap(one)))


def at_draws(log_density: LogDensity, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log density `(chain, draw)` and the scores `(chain, draw, dim)` at all draws."""
    values, scores = log_density.batch(draws.reshape(-1, draws.shape[-1]))
    return values.reshape(draws.shape[:2]), scores.reshape(draws.shape)


def refuse_another_density(name: str, computed: np.ndarray, recorded: np.ndarray) -> None:
    """Refuse a log density that differs from the one the sampler recorded by more than a constant."""
    difference = computed - recorded
    spread = float(np.ptp(difference))
    # what was recorded may be in single precision
    if not spread <= 1e-3 + 1e-4 * float(np.ptp(recorded)) + 1e-5 * float(np.abs(recorded).max()):
        raise InputError(
            f"`{name}` is not the log density that was sampled: it differs from the recorded one by "
            f"{difference.min():.4g} to {difference.max():.4g}, where a constant was expected."
        )


def fitting_places(draws: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return warm-up draws `(..., dim)` and their scores as rows `(m, dim)`, without those that are not finite."""
    rows, slopes = (np.asarray(a, dtype=np.float64).reshape(-1, a.shape[-1]) for a in (draws, scores))
    usable = np.isfinite(rows).all(axis=1) & np.isfinite(slopes).all(axis=1)
    return (rows[usable], slopes[usable]) if usable.any() else None


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
