"""Values of f at every draw, whatever form f has: a function, an array, a dict of either, or nothing."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ._samples import Samples, finite_array
from ._status import InputError

# Functions are evaluated on this many draws at a time, which bounds the memory of their intermediates.
PIECE = 20_000
MOST_PROGRAMS = 256


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
        parameters = _evaluate(_identity, samples)
        if not isinstance(parameters, dict):
            raise InputError("`constrain` returned an array, expected a dict of the parameters: {'tau': ...}.")
        return _join(parameters)
    if isinstance(f, Mapping):
        if not f:
            raise InputError("`f` is an empty dict: there is nothing to estimate.")
        entries = {str(name): _one(str(name), g, samples) for name, g in f.items()}
        for name, entry in entries.items():
            if isinstance(entry, dict):
                raise InputError(
                    f"The function `{name}` of the dict `f` returned a dict, expected a number or an array."
                )
        return _join(entries)
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
    if chains == 1 and array.shape[:1] == (draws,):
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
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise InputError(f"Several outputs of `f` are called {', '.join(twice)}. Give them different names.")
    return Values(joined, tuple(labels), (len(labels),))


def _evaluate(f: Callable, samples: Samples) -> Any:
    """f at every draw: compiled and mapped by JAX in float64 where it can be traced, one by one otherwise."""
    import jax

    flat = samples.draws.reshape(-1, samples.dim)
    try:
        try:
            with jax.enable_x64(True):
                pieces = [_mapped(f, samples.constrain, flat[i : i + PIECE]) for i in range(0, len(flat), PIECE)]
        except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
            pieces = [_one_by_one(f, samples.constrain, flat)]
        whole = jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
    except Exception as error:
        raise InputError(f"`f` failed when it was evaluated at the draws: {type(error).__name__}: {error}") from error
    return _checked(whole, samples)


# The latest compiled programs, by what they compute.
_programs: OrderedDict[tuple[str, str], Any] = OrderedDict()


def _mapped(f: Callable, constrain: Callable | None, rows: np.ndarray) -> Any:
    """f at every row, in one program, which the same f again does not compile again.

    f is traced each time, and the program found by its text: what f closes over may have changed since.
    """
    import jax

    lowered = jax.jit(jax.vmap(f if constrain is None else lambda x: f(constrain(x)))).lower(rows)
    key = hashlib.sha256(lowered.as_text().encode()).hexdigest(), str(lowered.out_tree)
    if key not in _programs:
        _programs[key] = lowered.compile()
    _programs.move_to_end(key)
    while len(_programs) > MOST_PROGRAMS:
        _programs.popitem(last=False)
    return _numpy(_programs[key](rows))


def _numpy(tree: Any) -> Any:
    import jax

    return jax.tree.map(np.asarray, tree)


def _one_by_one(f: Callable, constrain: Callable | None, flat: np.ndarray) -> Any:
    import jax

    rows = [f(x if constrain is None else _numpy(constrain(x))) for x in flat]
    return jax.tree.map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *rows)


def _checked(tree: Any, samples: Samples) -> Any:
    """Finite float64 arrays `(chain, draw, ...)`: one, or a dict of them."""
    if not isinstance(tree, Mapping):
        return _shaped("f", tree, samples)
    if not tree:
        raise InputError("`f` returned an empty dict: there is nothing to estimate.")
    return {str(name): _shaped(str(name), x, samples) for name, x in tree.items()}


def _shaped(name: str, values: Any, samples: Samples) -> np.ndarray:
    if not isinstance(values, np.ndarray):
        raise InputError(
            f"`{name}` returned a {type(values).__name__}, expected a number, an array, or one dict of them."
        )
    return finite_array(name, values.reshape(*samples.draws.shape[:2], *values.shape[1:]))
