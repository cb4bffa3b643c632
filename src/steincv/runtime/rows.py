"""A JAX function at many rows: compiled once, in pieces of one length, several pieces at a time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from .double import in_double, program
from .threads import threads


class Pieces(NamedTuple):
    """How rows are cut. Every length compiles anew, so there is one; it bounds the memory of a gradient too."""

    longest: int = 64
    threads: int = 4


PIECES = Pieces()


def over_rows(f: Callable[[PyTree], PyTree]) -> Callable[[PyTree], PyTree]:
    """Return `f` of any number of rows, in float64; `f` takes and returns trees of arrays `(n, ...)`.

    Every row of the answer must depend on its own row alone. A loop over time keeps one core busy, so several pieces
    are computed at a time.
    """
    programs: dict[str, Callable] = {}

    def at(rows: PyTree) -> PyTree:
        exact = jax.tree.map(lambda a: np.asarray(a, dtype=np.float64), rows)
        count = len(jax.tree.leaves(exact)[0])
        # the settings of JAX belong to a thread: those of the caller hold in the others too
        names = ("default_device", "default_matmul_precision", "debug_nans")
        device, precision, nans = (getattr(jax.config, f"jax_{name}") for name in names)
        first = piece(exact, 0, PIECES.longest)
        key = str((jax.tree.map(np.shape, first), device, precision))
        if key not in programs:
            programs[key] = program(f, first, once=True)

        def part(start: int) -> PyTree:
            with jax.default_device(device), jax.default_matmul_precision(precision), jax.debug_nans(nans):
                return in_double(programs[key], piece(exact, start, PIECES.longest))

        starts = range(0, count, PIECES.longest)
        if len(starts) == 1:
            found = [part(0)]
        else:
            with ThreadPoolExecutor(min(PIECES.threads, threads())) as pool:
                found = list(pool.map(part, starts))
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *found)

    return at


def piece(rows: PyTree, start: int, length: int) -> PyTree:
    """Return so many rows from a place on; what is missing at the end are copies of the last row."""
    take = np.minimum(np.arange(start, start + length), len(jax.tree.leaves(rows)[0]) - 1)
    return jax.tree.map(lambda column: column[take], rows)
