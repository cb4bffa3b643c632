"""Variables in NetCDF 4 files, which are HDF5: those of a group, after the gate, decoded within bounds."""

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numcodecs import Fletcher32, Shuffle

from ..runtime.validation import InputError, reading
from .gate.hdf5 import DEFLATE, FLETCHER32, SHUFFLE, read_texts, refuse_untrusted_hdf5, text_records
from .variables import GATE, Group, Packing, Variable, from_chunks, occupied, refuse_claims, refuse_conflicts

# What NetCDF writes as the name of an axis that has a length but no labels.
NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


def open_netcdf(path: Path, closing: ExitStack) -> Callable[[str], Group | None]:
    """Return a function that gives the variables of a group, "" for the root, or None where there is no such group."""
    with reading(path), path.open("rb") as raw:  # only the gate reads it: nothing is left open but HDF5's own file
        if raw.read(3) == b"CDF":
            raise InputError(f"{path}: a NetCDF 3 file; NetCDF 4 is read. Convert it: nccopy -k nc4 old.nc new.nc")
        file = closing.enter_context(h5py.File(path, "r"))
        refuse_untrusted_hdf5(path, file, raw)
        size = occupied(os.fstat(raw.fileno()))

    def group(name: str) -> Group | None:
        with reading(path):
            root = h5py.h5g.open(file.id, b"/")
            key = name.encode()
            if name and (key not in root or not isinstance(h5py.h5o.open(root, key), h5py.h5g.GroupID)):
                return None
            places = [root, h5py.h5g.open(root, key)] if name else [root]
            axes: dict[tuple[int, int], str] = {}
            for place in places:
                axes |= _axes(place)
            found = {v.name: v for v in _variables(path, places[-1], axes, size)}
            refuse_conflicts(path, found)
            return found

    return group


# Attributes ------------------------------------------------------------------------------------------


def _attribute(item: h5py.h5d.DatasetID, name: bytes, kinds: tuple[type, ...]) -> np.ndarray | None:
    """Read an attribute of one of these types of HDF5, none of which has a length of its own, or None."""
    if not h5py.h5a.exists(item, name):
        return None
    attribute = h5py.h5a.open(item, name)
    kind = attribute.get_type()
    variable_text = isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str()
    if not isinstance(kind, kinds) or variable_text or attribute.get_storage_size() > GATE.attributes:
        return None
    value = np.empty(attribute.shape, attribute.dtype)
    attribute.read(value)
    return value


def _text(item: h5py.h5d.DatasetID, name: bytes) -> bytes:
    """Read an attribute that is one text of a fixed length; empty where there is none."""
    value = _attribute(item, name, (h5py.h5t.TypeStringID,))
    return bytes(value.reshape(())[()]) if value is not None and value.size == 1 else b""


def _axes(group: h5py.h5g.GroupID) -> dict[tuple[int, int], str]:
    """Return the name of each axis that is attached to a dataset, by the dataset's address and the axis' number."""
    found = {}
    for key, scale in _datasets(group):
        users = _attribute(scale, b"REFERENCE_LIST", (h5py.h5t.TypeCompoundID,))
        if users is None or users.dtype.names != ("dataset", "dimension"):
            continue
        if h5py.check_ref_dtype(users.dtype["dataset"]) is not h5py.Reference:
            continue
        for reference, axis in users.ravel():
            target = h5py.h5r.dereference(reference, scale) if reference else None
            if target is not None:
                found[h5py.h5o.get_info(target).addr, int(axis)] = key
    return found


def _datasets(group: h5py.h5g.GroupID) -> list[tuple[str, h5py.h5d.DatasetID]]:
    items = ((key.decode("utf-8", "replace"), h5py.h5o.open(group, key)) for key in list(group))
    return [(key, item) for key, item in items if isinstance(item, h5py.h5d.DatasetID)]


def _packing(path: Path, name: str, item: h5py.h5d.DatasetID) -> Packing | None:
    def number(attribute: str, usual: object) -> Any:
        key = attribute.encode()
        if not h5py.h5a.exists(item, key):
            return usual
        value = _attribute(item, key, (h5py.h5t.TypeIntegerID, h5py.h5t.TypeFloatID))
        if value is None:
            raise InputError(f"{path}: the attribute `{attribute}` of `{name}` is no number: damaged.")
        return value

    missing = [entry for key in ("_FillValue", "missing_value") for entry in np.ravel(number(key, []))]
    scale, offset = number("scale_factor", 1.0), number("add_offset", 0.0)
    return Packing.of(item.dtype, missing, scale, offset, h5py.h5a.exists(item, b"_Unsigned"))


# Variables -------------------------------------------------------------------------------------------


def _variables(path: Path, group: h5py.h5g.GroupID, axes: dict[tuple[int, int], str], size: int) -> Iterator[Variable]:
    for key, item in _datasets(group):
        if _text(item, b"NAME").startswith(NO_VARIABLE):
            continue
        address = h5py.h5o.get_info(item).addr
        own = h5py.h5a.exists(item, b"REFERENCE_LIST") or _text(item, b"CLASS").startswith(b"DIMENSION_SCALE")
        shape = tuple(int(n) for n in item.shape or ())
        dims = (key,) if own and len(shape) == 1 else tuple(axes.get((address, k), "") for k in range(len(shape)))
        yield _variable(path, key, dims, shape, item, size)


def _variable(
    path: Path, name: str, dims: tuple[str, ...], shape: tuple[int, ...], item: h5py.h5d.DatasetID, size: int
) -> Variable:
    dtype, stored = item.dtype, min(int(item.get_storage_size()), size)
    single = (1,) * len(shape)

    def texts(block: tuple[slice, ...]) -> np.ndarray:
        if h5py.check_string_dtype(dtype) is None:
            raise InputError(f"{path}: `{name}` holds neither numbers nor texts.")
        if not all(shape):
            return np.empty(shape, object)[block]
        with path.open("rb") as raw:
            records = text_records(path, name, item, raw)
        return read_texts(path, name, records).reshape(shape)[block]

    if dtype.hasobject:
        return Variable(name, dims, shape, dtype, single, stored, texts)
    plan = item.get_create_plist()
    chunks = tuple(map(int, plan.get_chunk())) if plan.get_layout() == h5py.h5d.CHUNKED else single
    dataset = h5py.Dataset(item)

    def take(block: tuple[slice, ...]) -> np.ndarray:
        refuse_claims(path, variable)
        if not plan.get_nfilters():
            return np.asarray(dataset[block])
        fill = np.zeros(1, dtype)
        plan.get_fill_value(fill)
        return from_chunks(block, chunks, dtype, fill[0], lambda k: _chunk(path, variable, item, plan, k, size))

    packing = _packing(path, name, item) if dtype.kind in "fiu" else None
    variable = Variable(name, dims, shape, dtype, chunks, stored, take, packing)
    return variable


def _chunk(
    path: Path,
    variable: Variable,
    item: h5py.h5d.DatasetID,
    plan: h5py.h5p.PropDCID,
    number: tuple[int, ...],
    size: int,
) -> np.ndarray | None:
    """Read a chunk and undo its filters, with no more memory than the chunk's own shape asks for."""
    corner = tuple(k * c for k, c in zip(number, variable.chunks, strict=True))
    known = item.get_chunk_info_by_coord(corner)
    if not known.size:
        return None
    length = variable.dtype.itemsize * int(np.prod(variable.chunks))
    if known.size > min(size, 2 * length + GATE.attributes):
        raise InputError(
            f"{path}: a chunk of `{variable.name}` has {known.size} bytes, more than its shape needs: refused."
        )
    mask, data = item.read_direct_chunk(corner)
    filters = [plan.get_filter(k) for k in range(plan.get_nfilters())]
    for k in reversed(range(len(filters))):
        if mask & (1 << k):  # this filter was left out for this chunk
            continue
        code, _, settings, _ = filters[k]
        if code == FLETCHER32:
            try:  # the checksum stands behind the data
                data = bytes(Fletcher32().decode(data))
            except RuntimeError as error:
                raise InputError(
                    f"{path}: a chunk of `{variable.name}` does not agree with its checksum: damaged."
                ) from error
        elif code == DEFLATE:
            stream, most = zlib.decompressobj(), length + 4  # a checksum may be inside
            data = stream.decompress(data, most)
            if not stream.eof:
                raise InputError(
                    f"{path}: a chunk of `{variable.name}` would expand beyond the {most} bytes of its shape: refused."
                )
        elif code == SHUFFLE:
            width = settings[0] if settings else variable.dtype.itemsize
            whole = len(data) // width * width if width > 1 else 0  # what is left over stays as it is
            data = Shuffle(width).decode(data[:whole]).tobytes() + data[whole:] if whole else data
    if len(data) != length:
        raise InputError(f"{path}: a chunk of `{variable.name}` has {len(data)} bytes of {length}: damaged.")
    return np.frombuffer(data, variable.dtype).reshape(variable.chunks)
