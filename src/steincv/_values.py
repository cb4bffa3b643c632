"""Values of f at every draw, whatever form f has: a function, an array, a dict of either, or nothing."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ._samples import Samples, finite_array
from ._status import InputError

# Functions are evaluated on this many draws at a time, which bounds the memory of their intermediates.
PIECE = 20_000


@dataclass(frozen=True, eq=False)
class Values:
    """f at every draw, with outputs along one flat axis, and what the outputs are called."""

    array: Float[np.ndarray, "chain draw out"]
    labels: tuple[str, ...]
    shape: tuple[int, ...]


def values_of(f: Any, samples: Samples) -> Values:
    """Evaluate f.

    - `None`: every parameter: the entries of `samples.constrain`, or the coordinates.
    - a callable: of the dict that `constrain` returns, or of the vector where there is none.
    - an array `(chain, draw[, out...])`.
    - a dict of arrays and callables, whose keys become the labels.
    """
    if f is None:
        if samples.constrain is None:
            return Values(samples.draws, samples.names, (samples.dim,))
        return _join(_evaluate(_identity, samples))
    if isinstance(f, Mapping):
        if not f:
            raise InputError("`f` is an empty dict: there is nothing to estimate.")
        return _join({str(name): _one(str(name), g, samples) for name, g in f.items()})
    out = _one("f", f, samples)
    if isinstance(out, dict):
        return _join(out)
    name = getattr(f, "__name__", "f").replace("<lambda>", "f")
    joined = _join({name: out})
    return Values(joined.array, joined.labels, out.shape[2:])


def _identity(parameters: Any) -> Any:
    return parameters


def _one(name: str, f: Any, samples: Samples) -> Any:
    chains, draws, _ = samples.draws.shape
    if callable(f):
        return _evaluate(f, samples)
    array = finite_array(name, f)
    if array.shape[:2] == (chains, draws):
        return array
    if chains == 1 and array.shape[0] == draws:
        return array[None]
    raise InputError(
        f"The values of `{name}` have shape {array.shape}, expected ({chains}, {draws}) or "
        f"({chains}, {draws}, outputs...): one value at every draw."
    )


def _join(entries: Mapping[str, np.ndarray]) -> Values:
    """Entries of any shape along one flat axis, labelled as ArviZ does: `tau`, `theta[0]`, `cov[1, 2]`."""
    arrays, labels = [], []
    for name, array in entries.items():
        chains, draws, *shape = array.shape
        arrays.append(array.reshape(chains, draws, -1))
        labels += [f"{name}[{', '.join(map(str, i))}]" if shape else name for i in np.ndindex(*shape)]
    joined = np.concatenate(arrays, axis=-1)
    if joined.shape[-1] == 0:
        raise InputError("`f` has no outputs: there is nothing to estimate.")
    return Values(joined, tuple(labels), (len(labels),))


def _evaluate(f: Callable, samples: Samples) -> Any:
    """f at every draw: compiled and mapped by JAX in float64 where it can be traced, one by one otherwise."""
    import jax

    flat = samples.draws.reshape(-1, samples.dim)
    try:
        with jax.enable_x64(True):
            mapped = _mapped(f, samples.constrain)
            pieces = [_numpy(mapped(flat[i : i + PIECE])) for i in range(0, len(flat), PIECE)]
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
        pieces = [_one_by_one(f, samples.constrain, flat)]
    except Exception as error:
        raise InputError(f"`f` failed when it was evaluated at the draws: {error}") from error
    whole = jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
    return _checked(whole, samples)


@functools.lru_cache(maxsize=64)  # the same f again compiles nothing
def _mapped(f: Callable, constrain: Callable | None) -> Callable:
    import jax

    return jax.jit(jax.vmap(f if constrain is None else lambda x: f(constrain(x))))


def _numpy(tree: Any) -> Any:
    import jax

    return jax.tree.map(np.asarray, tree)


def _one_by_one(f: Callable, constrain: Callable | None, flat: np.ndarray) -> Any:
    import jax

    rows = [f(x if constrain is None else _numpy(constrain(x))) for x in flat]
    return jax.tree.map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *rows)


def _checked(tree: Any, samples: Samples) -> Any:
    """Finite float64 arrays `(chain, draw, ...)`: one, or a dict of them."""
    lead = samples.draws.shape[:2]
    if isinstance(tree, Mapping):
        return {str(name): finite_array(str(name), x).reshape(*lead, *x.shape[1:]) for name, x in tree.items()}
    if not hasattr(tree, "shape"):
        raise InputError(f"`f` returned a {type(tree).__name__}, expected a number, an array or a dict of them.")
    return finite_array("f", tree).reshape(*lead, *tree.shape[1:])
