"""The gate that every file of labelled arrays passes before its data are read: what it claims is not believed.

Refused by name: what is kept in other files, codecs and filters that are not known to give numbers back within bounds,
and shapes, chunks or texts that claim more than the bytes there are can hold.
"""

import json
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import h5py
import numpy as np

from ..runtime.arrays import LIMITS, StrPath
from ..runtime.memory import GIB
from ..runtime.validation import InputError
from .variables import Variable


class GateLimits(NamedTuple):
    """Bytes and counts beyond which a description of data is no honest one."""

    # JSON of one Zarr array or group; a thousand labels take some tens of kilobytes
    metadata: int = 16 << 20
    # one attribute of a NetCDF variable; the longest that is read lists 16 bytes for every use of a dimension
    attribute: int = 1 << 20
    # chunks that may be missing, for values that are all alike are not always stored
    missing_chunks: int = 10_000


GATE = GateLimits()
# Zarr's codecs that turn bytes into numbers within bounds. It knows others, and one of them is pickle, which runs code.
COMPRESSORS = {"blosc", "zstd", "lz4", "zlib", "gzip", "bz2", "lzma"}
CHECKSUMS = {"crc32", "crc32c", "adler32", "fletcher32"}
CODECS = COMPRESSORS | CHECKSUMS | {"bytes", "transpose", "shuffle", "sharding_indexed", "vlen-utf8"}
CODECS |= {"delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype"}
# HDF5's filters that are undone here, by their registered numbers.
DEFLATE, SHUFFLE, FLETCHER32 = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32


def refuse_claims(where: StrPath, variable: Variable, stored: int) -> None:
    """Refuse a variable whose shape or chunks claim far more than `stored` bytes of a file can hold."""
    most = max(LIMITS.small, LIMITS.expansion * stored)
    chunk = variable.dtype.itemsize * math.prod(variable.chunks)
    if max(variable.nbytes, chunk) > most:
        what = f"shape {variable.shape}" if variable.nbytes > most else f"chunks of {variable.chunks}"
        raise InputError(
            f"{where}: `{variable.name}` claims {what}, {max(variable.nbytes, chunk) / GIB:.3g} GiB, and the file "
            f"has {stored} bytes for it: refused."
        )
    count = math.prod(-(-n // c) for n, c in zip(variable.shape, variable.chunks, strict=True))
    if count > GATE.missing_chunks + stored:
        raise InputError(
            f"{where}: `{variable.name}` claims {count} chunks, and the file has {stored} bytes for them: refused."
        )


# NetCDF, which is HDF5 -------------------------------------------------------------------------------


def refuse_untrusted_hdf5(path: Path, file: h5py.File, raw: BinaryIO) -> None:
    """Look at every object of an HDF5 file without reading data or attributes, and refuse what cannot be trusted."""
    size = os.fstat(raw.fileno()).st_size
    groups: list[tuple[str, h5py.h5g.GroupID]] = [("", file.id)]
    seen: set[int] = set()
    while groups:
        place, group = groups.pop()
        address = h5py.h5o.get_info(group).addr
        if address in seen:
            continue
        seen.add(address)
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
                _refuse_dataset(path, name, item, raw, size, file.id.get_create_plist().get_sizes()[0])


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
    if not (isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str()):
        return
    if filters:
        raise InputError(f"{path}: `{name}` is compressed text, whose length cannot be checked: refused.")
    # each text is kept as a record: 4 bytes of length, the address of a heap, 4 bytes of index
    record = 8 + address_size
    claimed = 0
    for start, stored in _pieces(item):
        raw.seek(start)
        records = np.frombuffer(raw.read(min(stored, size)), np.uint8)
        lengths = records[: len(records) // record * record].reshape(-1, record)[:, :4].copy().view("<u4")
        claimed += int(lengths.sum(dtype=np.int64))
    if claimed > min(size, LIMITS.small):
        raise InputError(
            f"{path}: the entries of `{name}` claim {claimed} bytes and the whole file has {size}: damaged."
        )


def _pieces(item: h5py.h5d.DatasetID) -> list[tuple[int, int]]:
    """Return where the bytes of a dataset are in its file, and how many."""
    if item.get_create_plist().get_layout() == h5py.h5d.CHUNKED:
        found: list[tuple[int, int]] = []
        item.chunk_iter(lambda chunk: found.append((chunk.byte_offset, chunk.size)))
        return found
    offset = item.get_offset()
    return [] if offset is None else [(offset, item.get_storage_size())]


# Zarr ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folder:
    """A Zarr folder that has passed the gate: the metadata of each array and group, and bytes of data, by path."""

    path: Path
    nodes: dict[str, dict[str, object]]
    stored: dict[str, int]

    def bytes_below(self, place: str) -> int:
        """Bytes of data in the folder at `place` and all below it; of everything for an empty text."""
        return sum(
            n for below, n in self.stored.items() if not place or below == place or below.startswith(place + "/")
        )


def refuse_untrusted_zarr(folder: Path) -> Folder:
    """Look at the names, sizes and metadata of a Zarr folder, and refuse what cannot be trusted."""
    nodes: dict[str, dict[str, object]] = {}
    stored: dict[str, int] = {}
    places = [""]
    while places:
        place = places.pop()
        with os.scandir(folder / place) as entries:
            for entry in entries:
                name = f"{place}/{entry.name}".lstrip("/")
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    places.append(name)
                elif not stat.S_ISREG(mode):
                    raise InputError(f"{folder}: `{name}` is no file of its own but a link or a device: refused.")
                elif entry.name in (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json"):
                    if entry.stat().st_size > GATE.metadata:
                        raise InputError(f"{folder}: `{name}` has {entry.stat().st_size} bytes of metadata: refused.")
                    if entry.name in (".zarray", ".zgroup", "zarr.json"):
                        nodes[place] = _metadata(folder, name)
                else:
                    stored[place] = stored.get(place, 0) + entry.stat().st_size
    if not nodes:
        raise InputError(f"{folder}: a folder, but not a Zarr store.")
    return Folder(folder, nodes, stored)


def _metadata(folder: Path, name: str) -> dict[str, object]:
    """Read the metadata of an array or group, which must not ask for an unknown codec, nor compress twice."""
    data = json.loads((folder / name).read_bytes())
    if not isinstance(data, dict):
        raise InputError(f"{folder}: `{name}` is not the metadata of an array or a group.")
    for level in _codec_lists(data):
        for codec in level:
            if codec not in CODECS:
                raise InputError(f"{folder}: {name} asks for the codec {codec!r}, which is not allowed.")
        if sum(codec in COMPRESSORS for codec in level) > 1:
            raise InputError(f"{folder}: {name} compresses twice, so that its size cannot be checked: refused.")
        if "sharding_indexed" in level and set(level) - CHECKSUMS != {"sharding_indexed"}:
            raise InputError(f"{folder}: {name} encodes whole shards, so that their size cannot be checked: refused.")
    return data


def _codec_lists(node: object) -> Iterator[list[str]]:
    """Yield the names of codecs that are used together: the filters and compressor of Zarr 2, each list of Zarr 3."""
    if not isinstance(node, dict):
        return
    if "compressor" in node or "filters" in node:
        filters = node.get("filters") or []
        yield [
            _codec(codec)
            for codec in (*(filters if isinstance(filters, list) else [filters]), node.get("compressor"))
            if codec
        ]
    for key in ("codecs", "index_codecs"):
        if isinstance(node.get(key), list):
            yield [_codec(codec) for codec in node[key]]
            for codec in node[key]:
                inner = codec.get("configuration") if isinstance(codec, dict) else None
                if isinstance(inner, dict) and any("sharding_indexed" in names for names in _codec_lists(inner)):
                    yield ["shards within shards"]
                yield from _codec_lists(inner)


def _codec(codec: object) -> str:
    name = codec.get("id", codec.get("name")) if isinstance(codec, dict) else codec
    return str(name).removeprefix("numcodecs.")
