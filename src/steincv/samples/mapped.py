"""Functions of a user evaluated at every draw, by JAX where they can be traced."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from ..runtime.double import UNTRACEABLE, in_double, program
from ..runtime.rows import piece
from ..runtime.validation import InputError
from .samples import Samples, finite_array


class Sizes(NamedTuple):
    """Draws at which a function is evaluated at a time: at least, and at most. Every number compiles anew."""

    least: int = 64
    piece: int = 512


SIZES = Sizes()


def evaluate(f: Callable, samples: Samples) -> np.ndarray | dict[str, np.ndarray]:
    """Evaluate f at every draw: compiled and mapped by JAX in float64 where it can be traced, one by one otherwise."""
    rows = _rows(samples)
    constrain = samples.constrain if samples.parameters is None else None

    def at(row: PyTree) -> PyTree:
        return _in_order(f(row if constrain is None else _in_order(constrain(row))))

    try:
        try:
            whole = in_pieces(at, rows)
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


def mapped(f: Callable, rows: PyTree) -> PyTree:
    """Evaluate f at every row, in one program of JAX in float64."""
    return in_double(program(jax.vmap(f), rows), rows)


def in_pieces(f: Callable, rows: PyTree) -> PyTree:
    """Evaluate f at every row, at so many rows at a time that the memory is bounded, all by one program."""
    count = len(jax.tree.leaves(rows)[0])
    length = min(SIZES.piece, max(SIZES.least, 1 << (count - 1).bit_length()))
    compiled = program(jax.vmap(f), piece(rows, 0, length))
    pieces = [in_double(compiled, piece(rows, start, length)) for start in range(0, count, length)]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *pieces)


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
