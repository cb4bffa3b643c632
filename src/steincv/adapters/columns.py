"""Named arrays as the columns of one matrix, and back."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax import Array

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
