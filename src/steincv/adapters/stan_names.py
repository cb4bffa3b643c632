"""Stan's flat names: `mu`, `theta.1`, `cov.2.1`, counted from 1 and column by column."""

import re
from collections.abc import Sequence

import numpy as np

from .shared import entry, labels


def split(name: str) -> tuple[str, tuple[int, ...]]:
    """Return what is indexed, and the index from 0: `cov.2.1` is entry (1, 0) of `cov`."""
    found = re.fullmatch(r"(.+?)((?:\.\d+)*)", name)
    base, index = (found[1], found[2]) if found else (name, "")
    return base, tuple(int(i) - 1 for i in index.split(".")[1:])


def label(name: str) -> str:
    """Return the label that ArviZ gives: `cov[1, 0]`."""
    base, index = split(name)
    return f"{base}[{', '.join(map(str, index))}]" if index else base


def bases(names: Sequence[str]) -> list[str]:
    """Return the variables, in order, each once."""
    return list(dict.fromkeys(split(name)[0] for name in names))


def gather(names: Sequence[str], flat: np.ndarray) -> dict[str, np.ndarray]:
    """Put columns `(chain, draw, column)` together again: `(chain, draw, ...)` for every variable."""
    places: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    for column, name in enumerate(names):
        base, index = split(name)
        places.setdefault(base, []).append((column, index))
    arrays = {}
    for base, entries in places.items():
        shape = tuple(max(axis) + 1 for axis in zip(*(index for _, index in entries), strict=True))
        array = np.full((*flat.shape[:2], *shape), np.nan)
        for column, index in entries:
            entry(array, index)[...] = flat[..., column]
        arrays[base] = array
    return arrays


def own_labels(owners: Sequence[str]) -> list[str]:
    """Return labels for coordinates of which only the variable is known: `p`, `p` becomes `p[0]`, `p[1]`."""
    count = {name: owners.count(name) for name in owners}
    made = {name: iter(labels(name, () if n == 1 else (n,))) for name, n in count.items()}
    return [next(made[name]) for name in owners]
