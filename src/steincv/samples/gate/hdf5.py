"""Links, filters, texts and attributes of HDF5, which NetCDF 4 is."""

import os
from pathlib import Path
from typing import BinaryIO

import h5py
import numpy as np

from ...runtime.arrays import LIMITS
from ...runtime.validation import InputError
from .claims import GATE

# HDF5's filters that are undone here, by their registered numbers.
DEFLATE, SHUFFLE, FLETCHER32 = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32


def refuse_untrusted_hdf5(path: Path, file: h5py.File, raw: BinaryIO) -> None:
    """Look at every object of an HDF5 file without reading data or attributes, and refuse what cannot be trusted."""
    size = os.fstat(raw.fileno()).st_size
    if file.userblock_size:
        raise InputError(f"{path}: begins with {file.userblock_size} bytes that are not NetCDF's: refused.")
    groups: list[tuple[str, h5py.h5g.GroupID]] = [("", h5py.h5g.open(file.id, b"/"))]
    seen: set[int] = set()
    while groups:
        place, group = groups.pop()
        known = h5py.h5o.get_info(group)
        if known.addr in seen:
            continue
        seen.add(known.addr)
        _refuse_attributes(path, place or "/", known)
        for key in list(group):
            name = f"{place}/{key.decode('utf-8', 'replace')}".lstrip("/")
            kind = group.links.get_info(key).type
            if kind == h5py.h5l.TYPE_EXTERNAL:
                raise InputError(f"{path}: `{name}` is kept in another file, which is not read: refused.")
            if kind != h5py.h5l.TYPE_HARD:
                raise InputError(f"{path}: `{name}` is a link to another place, which is not followed: refused.")
            item = h5py.h5o.open(group, key)
            if isinstance(item, h5py.h5g.GroupID):
                groups.append((name, item))
            elif isinstance(item, h5py.h5d.DatasetID):
                _refuse_attributes(path, name, h5py.h5o.get_info(item))
                _refuse_dataset(path, name, item, raw, size, file.id.get_create_plist().get_sizes()[0])


def _refuse_attributes(path: Path, name: str, known: h5py.h5o.ObjInfo) -> None:
    """Refuse attributes that are too long to be honest; opening one would take as much memory."""
    stored = known.meta_size.attr.heap_size
    if stored > GATE.attributes:
        raise InputError(f"{path}: `{name}` has attributes of {stored} bytes: refused.")


def _refuse_dataset(
    path: Path, name: str, item: h5py.h5d.DatasetID, raw: BinaryIO, size: int, address_size: int
) -> None:
    plan = item.get_create_plist()
    if plan.get_external_count() or plan.get_layout() == h5py.h5d.VIRTUAL:
        raise InputError(f"{path}: `{name}` is kept in another file, which is not read: refused.")
    filters = [plan.get_filter(k) for k in range(plan.get_nfilters())]
    for code, *_, title in filters:
        if code not in (DEFLATE, SHUFFLE, FLETCHER32):
            known = title.decode("utf-8", "replace")[:40] or f"number {code}"
            raise InputError(f"{path}: `{name}` is written with the filter {known!r}, which is not allowed. Use gzip.")
    kind = item.get_type()
    text = isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str()
    if not (text or isinstance(kind, h5py.h5t.TypeVlenID)):
        return
    entry = 1 if text else kind.get_super().get_size()
    if filters or plan.get_layout() == h5py.h5d.COMPACT:
        raise InputError(f"{path}: `{name}` is compressed text, whose length cannot be checked: refused.")
    # each text is kept as a record: 4 bytes of length, the address of a heap, 4 bytes of index
    record = 8 + address_size
    pieces = _pieces(item)
    if sum(stored for _, stored in pieces) > LIMITS.small:
        raise InputError(f"{path}: `{name}` holds too much text: refused.")
    claimed = seen = 0
    for start, stored in pieces:
        raw.seek(start)
        records = np.frombuffer(raw.read(stored), np.uint8)
        lengths = records[: len(records) // record * record].reshape(-1, record)[:, :4].copy().view("<u4")
        claimed += int(lengths.sum(dtype=np.int64)) * entry
        seen += len(lengths)
    if claimed > min(size, LIMITS.small):
        raise InputError(
            f"{path}: the entries of `{name}` claim {claimed} bytes and the whole file has {size}: damaged."
        )
    if seen < item.get_space().get_simple_extent_npoints():
        raise InputError(f"{path}: `{name}` has text for {seen} entries only: damaged.")


def _pieces(item: h5py.h5d.DatasetID) -> list[tuple[int, int]]:
    """Return where the bytes of a dataset are in its file, and how many."""
    if item.get_create_plist().get_layout() == h5py.h5d.CHUNKED:
        found: list[tuple[int, int]] = []
        item.chunk_iter(lambda chunk: found.append((chunk.byte_offset, chunk.size)))
        return found
    offset = item.get_offset()
    return [] if offset is None else [(offset, item.get_storage_size())]
