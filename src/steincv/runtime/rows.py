"""A JAX function at many rows: compiled once, in pieces of one length, several pieces at a time."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from .compile_cache import compile_cache
from .threads import threads


class Pieces(NamedTuple):
    """How rows are cut: the product of the two bounds the memory of the intermediates of a gradient."""

    longest: int = 128
    threads: int = 4


def over_rows(f: Callable[[PyTree], PyTree]) -> Callable[[PyTree], PyTree]:
    """Return `f` of any number of rows, in float64; `f` takes and returns trees of arrays `(n, ...)`.

    Every row of the answer must depend on its own row alone. A loop over time keeps one core busy, so several pieces
    are computed at a time.
    """
    compiled, pieces = jax.jit(f), Pieces()

    def at(rows: PyTree) -> PyTree:
        exact = jax.tree.map(lambda a: np.asarray(a, dtype=np.float64), rows)
        count = len(jax.tree.leaves(exact)[0])
        length = math.ceil(count / math.ceil(count / pieces.longest))
        # the settings of JAX belong to a thread: those of the caller hold in the others too
        names = ("default_device", "default_matmul_precision", "debug_nans")
        device, precision, nans = (getattr(jax.config, f"jax_{name}") for name in names)

        def part(start: int) -> PyTree:
            # the last piece is filled up with copies of the last row, so that all have one length
            take = np.minimum(np.arange(start, start + length), count - 1)
            with (
                jax.enable_x64(True),
                jax.default_device(device),
                jax.default_matmul_precision(precision),
                jax.debug_nans(nans),
            ):
                return jax.tree.map(np.asarray, compiled(jax.tree.map(lambda a: a[take], exact)))

        with compile_cache(), ThreadPoolExecutor(min(pieces.threads, threads())) as pool:
            # the first by itself: it compiles, and tracing a model is not safe in several threads
            found = [part(0), *pool.map(part, range(length, count, length))]
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *found)

    return at
