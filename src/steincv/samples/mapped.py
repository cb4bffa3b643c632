"""Functions of a user evaluated at every draw, by JAX where they can be traced."""

import gc
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

from ..runtime.validation import InputError
from .samples import Samples, finite_array


class Sizes(NamedTuple):
    """Draws at which a function is evaluated at a time, which bounds its memory, and compiled functions kept."""

    piece: int = 20_000
    programs: int = 256


SIZES = Sizes()
Answer = TypeVar("Answer")
# What f raises if JAX cannot trace it, in whatever precision.
UNTRACEABLE = (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError)


def in_double(task: Callable[[], Answer], *, or_single: bool = False) -> Answer:
    """Return what a task of JAX gives in double precision.

    While a program lives that was compiled in single precision, JAX hands out the arrays of NumPy that it closes over
    as they are there, single, and a task that closes over them too fails in many ways. Forgotten, they are double. The
    program of a gradient does not forget: `or_single` asks for what the user would have got.
    """
    try:
        with jax.enable_x64(True):
            return task()
    except UNTRACEABLE:
        raise
    except Exception:
        jax.clear_caches()
    gc.collect()  # outside the block above, whose exception would keep those arrays alive
    try:
        with jax.enable_x64(True):
            return task()
    except Exception:
        if not or_single:
            raise
    with jax.enable_x64(False):
        return task()


def evaluate(f: Callable, samples: Samples) -> np.ndarray | dict[str, np.ndarray]:
    """Evaluate f at every draw: compiled and mapped by JAX in float64 where it can be traced, one by one otherwise."""
    rows = _rows(samples)
    constrain = samples.constrain if samples.parameters is None else None

    def at(row: PyTree) -> PyTree:
        return _in_order(f(row if constrain is None else _in_order(constrain(row))))

    try:
        try:
            whole = in_double(lambda: in_pieces(at, rows), or_single=True)
        except UNTRACEABLE:
            given = (_part(rows, i) for i in range(samples.size))
            found = [_in_order(f(x if constrain is None else _numpy(_in_order(constrain(x))))) for x in given]
            whole = jax.tree.map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *found)
    except Exception as error:
        raise InputError(f"`f` failed when it was evaluated at the draws: {type(error).__name__}: {error}") from error
    if not isinstance(whole, Mapping):
        return _shaped("f", whole, samples)
    if not whole:
        raise InputError("`f` returned an empty dict: there is nothing to estimate.")
    return {str(name): _shaped(str(name), x, samples) for name, x in whole.items()}


def _rows(samples: Samples) -> PyTree:
    """Return what f is given, or `constrain`, with one row per draw: the vectors, or the dict of parameters."""
    if samples.parameters is None:
        return samples.draws.reshape(-1, samples.dim)
    arrays = {name: samples.parameters[name] for name in samples.parameters.arrays}
    return OrderedDict((name, array.reshape(samples.size, *array.shape[2:])) for name, array in arrays.items())


def _part(rows: PyTree, index: int | slice) -> PyTree:
    return jax.tree.map(lambda column: column[index], rows)


def _in_order(tree: PyTree) -> PyTree:
    """Return a dict whose order JAX keeps: it sorts the keys of a plain one, and the model's order would be lost."""
    return OrderedDict(tree) if type(tree) is dict else tree


# The latest compiled programs, by what they compute.
_programs: OrderedDict[tuple[str, str, str], Any] = OrderedDict()


def mapped(f: Callable, rows: PyTree) -> PyTree:
    """Evaluate f at every row, in one program, which the same f again does not compile again.

    f is traced each time, and the program found by its text: what f closes over may have changed since.
    """
    # unused parameters stay arguments: the text must say which of them f looks at
    lowered = jax.jit(jax.vmap(f), keep_unused=True).lower(rows)
    key = hashlib.sha256(lowered.as_text().encode()).hexdigest(), str(lowered.in_tree), str(lowered.out_tree)
    if key not in _programs:
        _programs[key] = lowered.compile()
    _programs.move_to_end(key)
    while len(_programs) > SIZES.programs:
        _programs.popitem(last=False)
    return _numpy(_programs[key](rows))


def in_pieces(f: Callable, rows: PyTree) -> PyTree:
    """Evaluate f at every row, at so many rows at a time that the memory is bounded."""
    starts = range(0, len(jax.tree.leaves(rows)[0]), SIZES.piece)
    pieces = [mapped(f, _part(rows, slice(i, i + SIZES.piece))) for i in starts]
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


def _numpy(tree: PyTree) -> PyTree:
    return jax.tree.map(np.asarray, tree)


def _shaped(name: str, values: object, samples: Samples) -> np.ndarray:
    """Return a finite float64 array `(chain, draw, ...)`."""
    if not isinstance(values, np.ndarray):
        raise InputError(
            f"`{name}` returned a {type(values).__name__}, expected a number, an array, or one dict of them."
        )
    values = values.reshape(*samples.draws.shape[:2], *values.shape[1:])
    return values.astype(float) if samples.anywhere and values.dtype.kind in "fiub" else finite_array(name, values)
