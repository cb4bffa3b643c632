"""Values of f at every draw, whatever form f has: a function, an array, a dict of either, or nothing."""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..runtime.validation import InputError
from .samples import Parameters, Samples, default_names, finite_array, spread_about
from .source import Source, Tile


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
    - a name or several, of `samples.parameters`, of what `constrain` returns, of one entry of these, or of coordinates.
    - an array `(chain, draw[, out...])`.
    - a dict of arrays and callables, whose keys become the labels.
    """
    if f is None and samples.parameters is not None:
        return _named(samples.parameters.shown, samples.parameters)
    if f is None:
        if samples.constrain is None:
            return Values(samples.draws, samples.names, (samples.dim,))
        parameters = _evaluate(lambda parameters: parameters, samples)
        if not isinstance(parameters, dict):
            raise InputError("`constrain` returned an array, expected a dict of the parameters: {'tau': ...}.")
        return join(parameters)
    if names := _as_names(f):
        if samples.parameters is not None:
            return _named(names, samples.parameters)
        if (functions := by_name(names, samples)) is not names:
            return values_of(functions, samples)
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
    return replace(join({name: out}), shape=out.shape[2:])


def by_name(f: Any, samples: Samples) -> Any:
    """Return functions of the parameters where f names coordinates, entries, or what `constrain` returns; else f."""
    names = _as_names(f)
    unnamed = samples.constrain is None and samples.names == default_names(samples.dim)
    if not names or (unnamed and samples.parameters is None and not set(names) <= set(samples.names)):
        return f
    if (kept := samples.parameters) is not None:
        places = {name: None if name in kept.arrays else _place(name, kept) for name in names}
        if samples.constrain is None or not any(places.values()):
            return f
        return {name: functools.partial(_pick, name if at is None else at) for name, at in places.items()}
    if samples.constrain is not None:
        known = samples.constrain(samples.draws[0, 0])
        if not isinstance(known, Mapping):
            raise InputError(f"`f` names {', '.join(names)}, and `constrain` returns no dict of parameters.")
        shapes = {str(name): np.shape(value) for name, value in known.items()}
        found = {name: name if name in known else entry_of(name, shapes) for name in names}
        missing = [name for name, at in found.items() if at is None]
        if missing:
            raise InputError(f"`f` names {', '.join(missing)}, which `constrain` does not return.")
        return {name: functools.partial(_pick, at) for name, at in found.items() if at is not None}
    missing = [name for name in names if name not in samples.names]
    if missing:
        raise InputError(f"`f` names {', '.join(missing)}; the coordinates are {', '.join(samples.names[:20])}.")
    return {name: functools.partial(_pick, samples.names.index(name)) for name in names}


class Entry(NamedTuple):
    """One number of a parameter that is an array."""

    name: str
    place: tuple[int, ...]


def entry_of(
    label: str, shapes: Mapping[str, tuple[int, ...]], coords: Mapping[str, Sequence[Sequence[str]]] | None = None
) -> Entry | None:
    """Return the entry that a table calls `b[age]` or `cov[1, 2]`, or None; blanks do not matter.

    >>> entry_of("b[sex]", {"b": (2,)}, {"b": [["age", "sex"]]})
    Entry(name='b', place=(1,))
    """
    for name in filter(lambda name: label.startswith(f"{name}["), shapes):
        known = entry_labels(name, shapes[name], coords)
        same = [other == label for other in known]
        if not any(same):
            same = [other.replace(" ", "") == label.replace(" ", "") for other in known]
        if any(same):
            return Entry(name, tuple(map(int, np.unravel_index(same.index(True), shapes[name]))))
    return None


def entry_labels(
    name: str, shape: Sequence[int], coords: Mapping[str, Sequence[Sequence[str]]] | None = None
) -> list[str]:
    """Return what the entries of an array are called, as ArviZ does: `tau`, `theta[0]`, `cov[a, b]`."""
    axes = (coords or {}).get(name, [range(n) for n in shape])
    return [f"{name}[{', '.join(map(str, i))}]" if shape else name for i in itertools.product(*axes)]


def _place(label: str, known: Parameters) -> Entry:
    """Return the entry of kept parameters, or say what there is instead."""
    shapes = {name: array.shape[2:] for name, array in known.arrays.items()}
    found = entry_of(label, shapes, known.coords)
    if found is None:
        own = next((name for name in shapes if label.startswith(f"{name}[")), None)
        there = [*shapes] if own is None else entry_labels(own, shapes[own], known.coords)
        raise InputError(f"there is no parameter `{label}`; there are {', '.join(there[:20])}.")
    return found


def _pick(at: str | int | Entry, parameters: Any) -> Any:
    return parameters[at.name][at.place] if isinstance(at, Entry) else parameters[at]


def _as_names(f: object) -> Sequence[str]:
    names = [f] if isinstance(f, str) else f
    return names if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) else ()


def _named(names: Sequence[str], parameters: Parameters) -> Values:
    arrays = {}
    for name in names:
        if name in parameters.arrays:
            arrays[name] = finite_array(name, parameters[name])
        else:
            at = _place(name, parameters)
            place: tuple[slice | int, ...] = (slice(None), slice(None), *at.place)
            arrays[name] = finite_array(name, parameters[at.name][place])
    return join(arrays, parameters.coords)


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
        labels += entry_labels(name, shape, coords)
    joined = np.concatenate(arrays, axis=-1)
    twice = sorted(label for label, count in Counter(labels).items() if count > 1)
    if twice:
        raise InputError(f"Several outputs of `f` are called {', '.join(twice)}. Give them different names.")
    return Values(joined, tuple(labels), (len(labels),))


def _evaluate(f: Callable, samples: Samples) -> np.ndarray | dict[str, np.ndarray]:
    from .mapped import evaluate  # brings JAX

    return evaluate(f, samples)


# What is controlled ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Unit:
    """f about its plain mean, in [-1, 1]: a raw second moment loses the digits that matter, or overflows."""

    center: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, array: np.ndarray) -> "Unit":
        center = array.mean(axis=(0, 1))
        return cls(center, spread_about(array, center))

    def __call__(self, array: np.ndarray) -> np.ndarray:
        return (array - self.center) / self.scale


@dataclass(frozen=True, eq=False)
class Targets:
    """The functions that are controlled: f, and its square about the mean where a standard deviation is asked for."""

    unit: Unit | None
    make: Callable[[np.ndarray], np.ndarray] | None = None  # of f, where something else of it is averaged

    @classmethod
    def of(cls, array: np.ndarray, sd: bool) -> "Targets":
        return cls(Unit.of(array) if sd else None)

    def __call__(self, array: np.ndarray) -> np.ndarray:
        if self.make is not None:
            return self.make(array)
        return array if self.unit is None else np.concatenate([array, self.unit(array) ** 2], axis=-1)

    def columns(self, targets: np.ndarray) -> np.ndarray:
        """Return what is averaged: the targets, and sums by whose variance that of any combination of both is known."""
        if self.unit is None:
            return targets
        first, second = np.split(targets, 2, axis=-1)
        return np.concatenate([targets, self.unit(first) + second], axis=-1)

    def change(self, sums: np.ndarray) -> np.ndarray:
        """Return by how much sums of `columns` change where these sums are added to those of the targets."""
        return sums if self.unit is None else self.columns(sums) - self.columns(np.zeros_like(sums))

    def variance(self, targets: np.ndarray) -> np.ndarray:
        """Return the variance of `columns` at some draws."""
        with np.errstate(over="ignore"):
            return self.columns(targets).var(axis=(0, 1), ddof=1)


# Draws in a file -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Functions:
    """f: the coordinates, columns of the source by their names, or whatever `steincv.estimate` takes that is called."""

    f: Any
    names: tuple[str, ...]
    coordinates: tuple[str, ...]

    @classmethod
    def of(cls, f: Any, source: Source) -> "Functions":
        names = [f] if isinstance(f, str) else f if isinstance(f, list | tuple) else []
        if not all(isinstance(name, str) for name in names):
            raise InputError("`f` is a list, expected names of variables in the file.")
        callables = callable(f) or (isinstance(f, Mapping) and all(map(callable, f.values())))
        if f is not None and not names and not callables:
            raise InputError(
                f"`f` is a {type(f).__name__}; for draws in a file it is a function, a dict of functions, the name of "
                f"a variable in the file, or nothing for every coordinate."
            )
        source.require(names)
        return cls(f, tuple(names), source.names)

    def outputs(self, source: Source) -> int:
        """Return how many numbers f has at a draw."""
        if self.f is None:
            return len(self.coordinates)
        if self.names:
            return sum(int(np.prod(source.columns[name])) for name in self.names)
        return self(source.rows(np.arange(1))).array.shape[-1]

    def in_memory(self, tile: Tile) -> Any:
        """Return f as `steincv.estimate` takes it for samples that hold all draws of this tile."""
        return dict(zip(self.names, tile.others, strict=True)) if self.names else self.f

    def __call__(self, tile: Tile) -> Values:
        """Return f at the draws of a tile."""
        if self.f is None:
            return Values(tile.draws, self.coordinates, (len(self.coordinates),))
        if self.names:
            values = join(dict(zip(self.names, tile.others, strict=True)))
        else:
            values = values_of(self.f, Samples.trusted(tile.draws, tile.scores, self.coordinates))
        if not np.isfinite(values.array).all():
            chain, draw, out = np.argwhere(~np.isfinite(values.array))[0]
            raise InputError(f"`f` ({values.labels[out]}) is not finite at chain {chain}, draw {tile.start + draw}.")
        return values
