"""Links, filters, texts and attributes of HDF5, which NetCDF 4 is."""

import os
from pathlib import Path
from typing import BinaryIO

import h5py
import numpy as np
from jaxtyping import UInt8

from ...runtime.arrays import LIMITS
from ...runtime.validation import InputError
from ..variables import GATE

# HDF5's filters that are undone here, by their registered numbers.
DEFLATE, SHUFFLE, FLETCHER32 = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32


def refuse_untrusted_hdf5(path: Path, file: h5py.File, raw: BinaryIO) -> None:
    """Look at every object of an HDF5 file without reading data or attributes, and refuse what cannot be trusted."""
    size = os.fstat(raw.fileno()).st_size
    if file.userblock_size:
        raise InputError(f"{path}: begins with {file.userblock_size} bytes that are not NetCDF's: refused.")
    if file.id.get_create_plist().get_sizes() != (8, 8):
        raise InputError(f"{path}: its addresses do not have 64 bits, as those of NetCDF have: refused.")
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
                _refuse_dataset(path, name, item, raw, size)


def _refuse_attributes(path: Path, name: str, known: h5py.h5o.ObjInfo) -> None:
    """Refuse attributes that are too long to be honest; opening one would take as much memory."""
    stored = known.meta_size.attr.heap_size
    if stored > GATE.attributes:
        raise InputError(f"{path}: `{name}` has attributes of {stored} bytes: refused.")


def _refuse_dataset(path: Path, name: str, item: h5py.h5d.DatasetID, raw: BinaryIO, size: int) -> None:
    if item.dtype.hasobject:
        _refuse_texts(path, name, item, raw, size)
        return
    plan = item.get_create_plist()
    if plan.get_external_count() or plan.get_layout() == h5py.h5d.VIRTUAL:
        raise InputError(f"{path}: `{name}` is kept in another file, which is not read: refused.")
    for code, *_, title in (plan.get_filter(k) for k in range(plan.get_nfilters())):
        if code not in (DEFLATE, SHUFFLE, FLETCHER32):
            known = title.decode("utf-8", "replace")[:40] or f"number {code}"
            raise InputError(f"{path}: `{name}` is written with the filter {known!r}, which is not allowed. Use gzip.")


def text_records(path: Path, name: str, item: h5py.h5d.DatasetID, raw: BinaryIO) -> UInt8[np.ndarray, "entry 16"]:
    """Read the records that stand for texts or lists."""
    count, stored, start = item.get_space().get_simple_extent_npoints(), item.get_storage_size(), item.get_offset()
    width = sum(RECORD)
    if start is None:
        raise InputError(f"{path}: `{name}` is text in chunks, whose length cannot be checked: refused.")
    if not width * count <= stored <= LIMITS.small:
        raise InputError(f"{path}: `{name}` claims {count} texts in {stored} bytes: refused.")
    raw.seek(start)
    records = np.frombuffer(raw.read(width * count), np.uint8)
    if len(records) < width * count:
        raise InputError(f"{path}: `{name}` is cut off: damaged.")
    return records.reshape(count, width)


def _refuse_texts(path: Path, name: str, item: h5py.h5d.DatasetID, raw: BinaryIO, size: int) -> None:
    """Refuse texts or lists, each of a length of its own, whose lengths add up to more than the file.

    The creation properties of such a dataset are not asked for: HDF5 would read its fill value, on the word of another
    record.
    """
    kind = item.get_type()
    text = isinstance(kind, h5py.h5t.TypeStringID)
    count = item.get_space().get_simple_extent_npoints()
    if not count or not (text or isinstance(kind, h5py.h5t.TypeVlenID)):
        return  # structures with texts inside are not read
    records = text_records(path, name, item, raw)
    lengths = records[:, :4].copy().view("<u4")
    claimed = int(lengths.sum(dtype=np.int64)) * (1 if text else kind.get_super().get_size())
    if claimed > min(size, LIMITS.small):
        raise InputError(
            f"{path}: the entries of `{name}` claim {claimed} bytes and the whole file has {size}: damaged."
        )


# Texts ---------------------------------------------------------------------------------------------


# Bytes of a record that stands for a text: of its length, of the heap's address, of its number in the heap.
RECORD = (4, 8, 4)
# Bytes before a heap and before every entry of it.
HEAD = 16


def read_texts(path: Path, name: str, records: UInt8[np.ndarray, "entry 16"]) -> np.ndarray:
    """Return the texts that records stand for, from the heaps that keep them.

    HDF5 itself would do on the word of a damaged heap what it says: take gigabytes, or go round in it for ever. The
    form is that of the HDF5 File Format Specification 3.0, section III.E.
    """
    texts = np.empty(len(records), object)
    heaps: dict[int, dict[int, bytes]] = {}
    room = LIMITS.small
    with path.open("rb") as raw:
        for k, record in enumerate(records):
            length, address, number = (
                int.from_bytes(part, "little") for part in np.split(record, np.cumsum(RECORD[:2]))
            )
            if length and address not in heaps:
                heaps[address] = _heap(path, name, raw, address)
                room -= sum(map(len, heaps[address].values()))
                if room < 0:
                    raise InputError(f"{path}: `{name}` holds more than {LIMITS.small} bytes of text: refused.")
            found = heaps[address].get(number, b"") if length else b""
            if len(found) < length:
                raise InputError(f"{path}: entry {k} of `{name}` claims {length} bytes and has {len(found)}: damaged.")
            texts[k] = found[:length].split(b"\0", 1)[0]
    return texts


def _heap(path: Path, name: str, raw: BinaryIO, address: int) -> dict[int, bytes]:
    """Read the entries of a heap by their numbers."""
    damaged = InputError(f"{path}: the texts of `{name}` are not where they should be: damaged.")
    size = raw.seek(0, 2)
    if address > size:
        raise damaged
    raw.seek(address)
    head = raw.read(HEAD)
    total = int.from_bytes(head[8:], "little")
    if head[:4] != b"GCOL" or not HEAD <= total <= min(size, LIMITS.small):
        raise damaged
    body, at, found = raw.read(total - HEAD), 0, {}
    while at + HEAD <= len(body):
        number = int.from_bytes(body[at : at + 2], "little")
        length = int.from_bytes(body[at + 8 : at + HEAD], "little")
        if not number:  # what follows is free
            break
        if at + HEAD + length > len(body):
            raise damaged
        found[number] = body[at + HEAD : at + HEAD + length]
        at += HEAD + -(-length // 8) * 8  # entries begin at multiples of 8
    return found
