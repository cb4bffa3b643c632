"""Arrays with named axes, wherever they are kept: what NetCDF, Zarr and xarray have in common."""

import itertools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Union

import numpy as np

from ..runtime.arrays import LIMITS
from ..runtime.validation import GIB, InputError, StrPath

if TYPE_CHECKING:
    import xarray

# Real numbers: floats, integers, unsigned integers and truth values, as NumPy calls their kinds.
NUMBERS = "fiub"


@dataclass(frozen=True)
class Packing:
    """Turns stored numbers into values: those that mean "missing" into NaN, the others times `scale` plus `offset`.

    As the conventions of NetCDF have it: Eaton et al., CF Metadata Conventions 1.11, sections 2.5.1 and 8.1.
    `other_sign`: the integers are unsigned though their type is signed, or the other way round.
    """

    missing: tuple[np.generic, ...] = ()
    scale: float = 1.0
    offset: float = 0.0
    other_sign: bool = False

    @classmethod
    def of(
        cls, dtype: np.dtype, missing: Sequence[object], scale: object, offset: object, other_sign: bool
    ) -> "Packing | None":
        """Return what the attributes of a variable ask for, or None where its numbers are its values."""
        stored = np.asarray(list(missing)).astype(dtype) if missing else np.empty(0, dtype)
        absent = tuple(number for number in stored if number == number)  # NaN means NaN already
        factor, shift = (float(np.asarray(number).reshape(())) for number in (scale, offset))
        packing = cls(absent, factor, shift, other_sign and dtype.kind in "iu")
        return None if packing == cls() else packing

    def __call__(self, stored: np.ndarray) -> np.ndarray:
        absent = np.zeros(stored.shape, bool)
        for number in self.missing:
            absent |= stored == number
        if self.other_sign:
            kind = stored.dtype.str
            stored = stored.view(kind.replace("i", "u") if stored.dtype.kind == "i" else kind.replace("u", "i"))
        values = stored.astype(np.float64)
        values *= self.scale
        values += self.offset
        values[absent] = np.nan
        return values


@dataclass(frozen=True, eq=False)
class Variable:
    """An array in a file or in memory, of which any block can be read.

    - `dims`: the name of each axis, an empty text where it has none.
    - `chunks`: how many entries along each axis are stored together.
    - `stored`: bytes that it takes in its file; None for what is not in a file.
    - `take`: reads the block between two corners, as it is stored.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    chunks: tuple[int, ...]
    stored: int | None
    take: Callable[[tuple[slice, ...]], np.ndarray]
    packing: Packing | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """Entries along each axis, by its name."""
        return dict(zip(self.dims, self.shape, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of all values in memory, as far as the file's word is good."""
        size = 8 if self.packing else self.dtype.itemsize
        return size * int(np.prod([int(n) for n in self.shape], dtype=object))

    @property
    def numeric(self) -> bool:
        return self.dtype.kind in NUMBERS

    def values(self, **ranges: slice) -> np.ndarray:
        """Read the values, within `ranges` along the axes of those names, in the order of the file's own axes."""
        stored = self.take(tuple(ranges.get(dim, slice(0, n)) for dim, n in zip(self.dims, self.shape, strict=True)))
        return stored if self.packing is None else self.packing(stored)

    def arranged(self, *axes: str, **ranges: slice) -> np.ndarray:
        """Read the values as `(*axes)`; an axis that the variable has not got is one entry long."""
        values = self.values(**ranges)
        order = [self.dims.index(axis) for axis in axes if axis in self.dims]
        values = values.transpose(order)
        missing = [k for k, axis in enumerate(axes) if axis not in self.dims]
        return np.expand_dims(values, tuple(missing)) if missing else values


Group = dict[str, Variable]
Labelled = Union["xarray.Dataset", Group]


def rest(variable: Variable) -> tuple[str, ...]:
    """Return the names of the axes after chain and draw."""
    return tuple(dim for dim in variable.dims if dim not in ("chain", "draw"))


def labels(group: Group, dim: str) -> list[object] | None:
    """Return the labels along an axis, from the variable of the same name, or None where there is none."""
    variable = group.get(dim)
    if variable is None or variable.dims != (dim,):
        return None
    entries = variable.values().tolist()
    return [entry.decode("utf-8", "replace") if isinstance(entry, bytes) else entry for entry in entries]


def named(group: Group) -> list[str]:
    """Return the names of all variables but those that label an axis."""
    return [name for name, variable in group.items() if variable.dims != (name,)]


def from_chunks(
    block: tuple[slice, ...],
    chunks: tuple[int, ...],
    dtype: np.dtype,
    fill: object,
    read: Callable[[tuple[int, ...]], np.ndarray | None],
) -> np.ndarray:
    """Put the block between two corners together from whole chunks, which `read` gives by their number per axis.

    Where `read` gives None, nothing is stored and every entry is `fill`.
    """
    whole = np.empty([part.stop - part.start for part in block], dtype)
    sides = list(zip(block, chunks, strict=True))
    for number in itertools.product(*(range(part.start // c, -(-part.stop // c)) for part, c in sides)):
        here = [(max(p.start, k * c), min(p.stop, (k + 1) * c)) for (p, c), k in zip(sides, number, strict=True)]
        into = tuple(slice(i - p.start, j - p.start) for (p, _), (i, j) in zip(sides, here, strict=True))
        if any(i >= j for i, j in here):
            continue
        chunk = read(number)
        inside = tuple(slice(i - k * c, j - k * c) for (_, c), k, (i, j) in zip(sides, number, here, strict=True))
        whole[into] = fill if chunk is None else chunk[inside]
    return whole


def in_group(dataset: Labelled) -> Group:
    """Wrap the variables of an xarray dataset; a group of variables is returned as it is."""
    if isinstance(dataset, dict):
        return dataset
    known = [str(name) for name in dataset.variables if name in dataset.data_vars or name in dataset.dims]
    return {name: _wrapped(name, dataset[name]) for name in known}


def _wrapped(name: str, array: "xarray.DataArray") -> Variable:
    """Wrap an xarray.DataArray, whose own array may be Dask's; xarray has unpacked it already."""
    sizes = {str(dim): int(n) for dim, n in array.sizes.items()}
    kept = array.encoding.get("preferred_chunks") or dict(array.chunksizes)
    chunks = tuple(max(1, min(n, int(np.max(kept.get(dim, 1))))) for dim, n in sizes.items())
    shape = tuple(sizes.values())
    return Variable(name, tuple(sizes), shape, array.dtype, chunks, None, lambda block: np.asarray(array[block].values))


def in_memory(name: str, dims: tuple[str, ...], array: np.ndarray) -> Variable:
    """Wrap an array whose axes have these names."""
    return Variable(name, dims, array.shape, array.dtype, (1,) * array.ndim, None, lambda block: array[block])


# What a file claims, against the bytes that it has -------------------------------------------------


class GateLimits(NamedTuple):
    """Bytes and counts beyond which a description of data is no honest one.

    - `metadata`, `all_metadata`: JSON of one Zarr array or group, and of all; a thousand take about a megabyte.
    - `attributes`: of one NetCDF variable; the longest that is read lists 16 bytes for every use of a dimension.
    - `missing_chunks`: values that are all alike are not always stored.
    """

    metadata: int = 4 << 20
    all_metadata: int = 16 << 20
    attributes: int = 1 << 20
    missing_chunks: int = 10_000


GATE = GateLimits()


def occupied(status: os.stat_result) -> int:
    """Return the bytes that a file has on disk: one with holes claims a length that nobody wrote."""
    return min(status.st_size, 512 * getattr(status, "st_blocks", status.st_size))


def refuse_claims(where: StrPath, variable: Variable) -> None:
    """Refuse a variable whose shape or chunks claim far more than the bytes stored for it can hold."""
    if variable.stored is None:
        return
    most = max(LIMITS.small, LIMITS.expansion * variable.stored)
    chunk = variable.dtype.itemsize * math.prod(variable.chunks)
    if max(variable.nbytes, chunk) > most:
        what = f"shape {variable.shape}" if variable.nbytes > most else f"chunks of {variable.chunks}"
        raise InputError(
            f"{where}: `{variable.name}` claims {what}, {max(variable.nbytes, chunk) / GIB:.3g} GiB, and the file "
            f"has {variable.stored} bytes for it: refused."
        )
    count = math.prod(-(-n // c) for n, c in zip(variable.shape, variable.chunks, strict=True))
    if count > GATE.missing_chunks + variable.stored:
        raise InputError(
            f"{where}: `{variable.name}` claims {count} chunks, and the file has {variable.stored} bytes for them: "
            f"refused."
        )


def refuse_conflicts(where: StrPath, group: Group) -> None:
    """Refuse variables of one group that do not agree about the length of an axis."""
    lengths: dict[str, tuple[int, str]] = {}
    for name, variable in group.items():
        for dim, length in zip(variable.dims, variable.shape, strict=True):
            known, first = lengths.setdefault(dim, (length, name))
            if dim and known != length:
                raise InputError(
                    f"{where}: the axis `{dim}` has {known} entries in `{first}` and {length} in `{name}`: damaged."
                )
