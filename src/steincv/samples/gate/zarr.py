"""Links, codecs and metadata of Zarr folders."""

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...runtime.validation import InputError
from ..variables import GATE, occupied

# Zarr's codecs that turn bytes into numbers within bounds. It knows others, and one of them is pickle, which runs code.
COMPRESSORS = {"blosc", "zstd", "lz4", "zlib", "gzip", "bz2", "lzma"}
CHECKSUMS = {"crc32", "crc32c", "adler32", "fletcher32"}
CODECS = COMPRESSORS | CHECKSUMS | {"bytes", "transpose", "shuffle", "sharding_indexed", "vlen-utf8"}
CODECS |= {"delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype"}


@dataclass(frozen=True)
class Folder:
    """A Zarr folder that has passed the gate, by the path of each array and group within it.

    - `nodes`, `attributes`: their metadata.
    - `stored`: bytes of data in their folder and all below it.
    """

    path: Path
    nodes: dict[str, dict[str, Any]]
    attributes: dict[str, dict[str, Any]]
    stored: dict[str, int]


def refuse_untrusted_zarr(path: Path) -> Folder:
    """Look at the names, sizes and metadata of a Zarr folder, and refuse what cannot be trusted."""
    folder = Folder(path, {}, {}, {})
    places, described = [""], 0
    while places:
        place = places.pop()
        with os.scandir(path / place) as entries:
            for entry in entries:
                name = f"{place}/{entry.name}".lstrip("/")
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    places.append(name)
                elif not stat.S_ISREG(status.st_mode):
                    raise InputError(f"{path}: `{name}` is no file of its own but a link or a device: refused.")
                elif entry.name in (".zarray", ".zgroup", ".zattrs", "zarr.json"):
                    described += status.st_size
                    if status.st_size > GATE.metadata or described > GATE.all_metadata:
                        raise InputError(f"{path}: `{name}` has {status.st_size} bytes of metadata: refused.")
                    into = folder.attributes if entry.name == ".zattrs" else folder.nodes
                    if entry.name != ".zgroup" or place not in into:
                        into[place] = _metadata(path, name)
                else:
                    _count(folder.stored, place, occupied(status))
    if not folder.nodes:
        raise InputError(f"{path}: a folder, but not a Zarr store.")
    for place, node in folder.nodes.items():
        if isinstance(node.get("attributes"), dict):
            folder.attributes[place] = node["attributes"]
    return folder


def _count(stored: dict[str, int], place: str, size: int) -> None:
    """Count the bytes of a file for its folder and for all above it."""
    while True:
        stored[place] = stored.get(place, 0) + size
        if not place:
            return
        place = place.rpartition("/")[0]


def _metadata(folder: Path, name: str) -> dict[str, Any]:
    """Read the metadata of an array or group, which must not ask for an unknown codec, nor compress twice."""
    data = json.loads((folder / name).read_bytes())
    if not isinstance(data, dict):
        raise InputError(f"{folder}: `{name}` is not the metadata of an array or a group.")
    data.pop("consolidated_metadata", None)  # a copy of what stands beside each array
    if name.endswith(".zattrs"):
        return data
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
