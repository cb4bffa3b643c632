"""Values of f at every draw, whatever form f has: a function, an array, a dict of either, or nothing."""

import hashlib
import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..runtime.validation import InputError
from .samples import Parameters, Samples, finite_array

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

    - `None`: every parameter: the entries of `samples.parameters` or `samples.constrain`, or the coordinates.
    - a callable: of the dict of parameters, or of the vector where there is none.
    - a name or several, of `samples.parameters`.
    - an array `(chain, draw[, out...])`.
    - a dict of arrays and callables, whose keys become the labels.
    """
    if f is None and samples.parameters is not None:
        return _named(samples.parameters.shown, samples.parameters)
    if f is None:
        if samples.constrain is None:
            return Values(samples.draws, samples.names, (samples.dim,))
        parameters = _evaluate(_identity, samples)
        if not isinstance(parameters, dict):
            raise InputError("`constrain` returned an array, expected a dict of the parameters: {'tau': ...}.")
        return join(parameters)
    if samples.parameters is not None and (names := _as_names(f)):
        return _named(names, samples.parameters)
    if isinstance(f, Mapping):
        if not f:
            raise InputError("`f` is an empty dict: there is nothing to estimate.")
        entries = {str(name): _one(str(name), g, samples) for name, g in f.items()}
        for name, entry in entries.items():
            if isinstance(entry, dict):
                raise InputError(
                    f"The function `{name}` of the dict `f` returned a dict, expected a number or an array."
                )
        return join(entries)
    out = _one("f", f, samples)
    if isinstance(out, dict):
        return join(out)
    name = getattr(f, "__name__", "f").replace("<lambda>", "f")
    joined = join({name: out})
    return Values(joined.array, joined.labels, out.shape[2:])


def _identity(parameters: Any) -> Any:
    return parameters


def _as_names(f: Any) -> Sequence[str]:
    names = [f] if isinstance(f, str) else f
    return names if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) else ()


def _named(names: Sequence[str], parameters: Parameters) -> Values:
    return join({name: finite_array(name, parameters[name]) for name in names}, parameters.coords)


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


def join(entries: Mapping[str, np.ndarray], coords: Mapping[str, Sequence[Sequence[str]]] | None = None) -> Values:
    """Entries of any shape along one flat axis, labelled as ArviZ does: `tau`, `theta[0]`, `cov[a, b]`."""
    arrays, labels = [], []
    for name, array in entries.items():
        chains, draws, *shape = array.shape
        arrays.append(array.reshape(chains, draws, -1))
        axes = (coords or {}).get(name, [range(n) for n in shape])
        labels += [f"{name}[{', '.join(map(str, i))}]" if shape else name for i in itertools.product(*axes)]
    joined = np.concatenate(arrays, axis=-1)
    twice = sorted(label for label, count in Counter(labels).items() if count > 1)
    if twice:
        raise InputError(f"Several outputs of `f` are called {', '.join(twice)}. Give them different names.")
    return Values(joined, tuple(labels), (len(labels),))


def _evaluate(f: Callable, samples: Samples) -> Any:
    """f at every draw: compiled and mapped by JAX in float64 where it can be traced, one by one otherwise."""
    import jax

    rows = _rows(samples)
    constrain = samples.constrain if samples.parameters is None else None

    def at(row: Any) -> Any:
        return _in_order(f(row if constrain is None else _in_order(constrain(row))))

    try:
        try:
            with jax.enable_x64(True):
                pieces = [mapped(at, _part(rows, slice(i, i + PIECE))) for i in range(0, samples.size, PIECE)]
        except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
            pieces = [_one_by_one(f, constrain, rows, samples.size)]
        whole = jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
    except Exception as error:
        raise InputError(f"`f` failed when it was evaluated at the draws: {type(error).__name__}: {error}") from error
    return _checked(whole, samples)


def _rows(samples: Samples) -> Any:
    """What f is given, or `constrain`, with one row a draw: the vectors, or the dict of parameters."""
    if samples.parameters is None:
        return samples.draws.reshape(-1, samples.dim)
    arrays = {name: samples.parameters[name] for name in samples.parameters.arrays}
    return OrderedDict((name, array.reshape(samples.size, *array.shape[2:])) for name, array in arrays.items())


def _part(rows: Any, index: int | slice) -> Any:
    import jax

    return jax.tree.map(lambda column: column[index], rows)


def _in_order(tree: Any) -> Any:
    """A dict whose order JAX keeps: it sorts the keys of a plain one, and the model's order would be lost."""
    return OrderedDict(tree) if type(tree) is dict else tree


# The latest compiled programs, by what they compute.
_programs: OrderedDict[tuple[str, str, str], Any] = OrderedDict()


def mapped(f: Callable, rows: Any) -> Any:
    """f at every row, in one program, which the same f again does not compile again.

    f is traced each time, and the program found by its text: what f closes over may have changed since.
    """
    import jax

    # unused parameters stay arguments: the text must say which of them f looks at
    lowered = jax.jit(jax.vmap(f), keep_unused=True).lower(rows)
    key = hashlib.sha256(lowered.as_text().encode()).hexdigest(), str(lowered.in_tree), str(lowered.out_tree)
    if key not in _programs:
        _programs[key] = lowered.compile()
    _programs.move_to_end(key)
    while len(_programs) > MOST_PROGRAMS:
        _programs.popitem(last=False)
    return _numpy(_programs[key](rows))


def _numpy(tree: Any) -> Any:
    import jax

    return jax.tree.map(np.asarray, tree)


def _one_by_one(f: Callable, constrain: Callable | None, rows: Any, size: int) -> Any:
    import jax

    given = (_part(rows, i) for i in range(size))
    found = [_in_order(f(x if constrain is None else _numpy(_in_order(constrain(x))))) for x in given]
    return jax.tree.map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *found)


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
