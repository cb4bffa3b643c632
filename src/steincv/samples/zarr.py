"""Variables in Zarr folders, formats 2 and 3: chunks are decoded with no more memory than their shape asks for."""

import base64
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.validation import InputError, reading
from .codecs import Codec, Damaged, decoded
from .gate.zarr import Folder, refuse_untrusted_zarr
from .variables import Group, Packing, Variable, from_chunks, refuse_claims, refuse_conflicts

NUMPY_TYPE = re.compile(r"[<>|=]?([fiubc]\d{1,2}|[SU]\d{1,6}|O)")
ZARR_TYPE = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128)")


def open_zarr(path: Path) -> Callable[[str], Group | None]:
    """Return a function that gives the variables of a group, "" for the root, or None where there is no such group."""
    with reading(path):
        folder = refuse_untrusted_zarr(path)

    def group(name: str) -> Group | None:
        with reading(path):
            below = f"{name}/" if name else ""
            children = [p for p in folder.nodes if p.startswith(below) and p != name and "/" not in p[len(below) :]]
            if name and name not in folder.nodes and not children:
                return None
            arrays = [place for place in sorted(children) if "shape" in folder.nodes[place]]
            found = {place[len(below) :]: _variable(folder, place, place[len(below) :]) for place in arrays}
            refuse_conflicts(path, found)
            return found

    return group


@dataclass(frozen=True)
class Layout:
    """How an array is cut into chunks and these are written.

    - `file`: the path of the file of a chunk, or of a shard of chunks, by its number per axis.
    - `shard`: chunks per shard along each axis; None where every chunk has a file of its own.
    - `index`: how the table of places within a shard is written, and whether it stands at the end.
    """

    chunks: tuple[int, ...]
    dtype: np.dtype
    fill: object
    codecs: tuple[Codec, ...]
    file: Callable[[tuple[int, ...]], Path]
    shard: tuple[int, ...] | None = None
    index: tuple[tuple[Codec, ...], bool] = ((), True)


def _variable(folder: Folder, place: str, name: str) -> Variable:
    node = folder.nodes[place]
    attributes = folder.attributes.get(place, {})
    shape = _lengths(folder.path, name, node["shape"])
    layout = (_second if node.get("zarr_format") == 2 else _third)(folder.path, place, node)
    if len(layout.chunks) != len(shape) or not all(layout.chunks):
        raise InputError(f"{folder.path}: `{name}` has shape {shape} and chunks of {layout.chunks}: damaged.")
    given = attributes.get("_ARRAY_DIMENSIONS") or node.get("dimension_names") or [None] * len(shape)
    dims = tuple("" if dim is None else str(dim) for dim in given)
    if len(dims) != len(shape):
        raise InputError(f"{folder.path}: `{name}` has {len(shape)} axes and {len(dims)} names for them: damaged.")
    packing = None
    if layout.dtype.kind in "fiu":
        given = [attributes.get(key) for key in ("_FillValue", "missing_value")]
        listed = [number for value in given for number in (value if isinstance(value, list) else [value])]
        missing: list[object] = [_number(number) for number in listed if number is not None]
        if node.get("zarr_format") == 2 and any(dims) and node.get("fill_value") is not None:
            missing.append(layout.fill)  # in this format it stands for what is missing, where axes have names
        scale, offset = attributes.get("scale_factor", 1.0), attributes.get("add_offset", 0.0)
        packing = Packing.of(layout.dtype, missing, scale, offset, "_Unsigned" in attributes)

    def take(block: tuple[slice, ...]) -> np.ndarray:
        refuse_claims(folder.path, variable)
        return from_chunks(block, layout.chunks, layout.dtype, layout.fill, _reader(folder.path, layout))

    variable = Variable(name, dims, shape, layout.dtype, layout.chunks, folder.stored.get(place, 0), take, packing)
    return variable


def _second(path: Path, place: str, node: Mapping[str, Any]) -> Layout:
    """Read the metadata of an array of format 2."""
    separator = node.get("dimension_separator") or "."
    kind = node.get("dtype")
    # what is neither numbers nor text is there, and not read
    dtype = np.dtype(kind if isinstance(kind, str) and NUMPY_TYPE.fullmatch(kind) else "V1")
    # filters give bytes back, so that numbers are made of these last of all
    codecs = [Codec("bytes", {"dtype": dtype.str, "order": node.get("order", "C")})] if dtype.kind != "O" else []
    codecs += [Codec("numcodecs", dict(settings)) for settings in node.get("filters") or []]
    if node.get("compressor"):
        codecs.append(Codec(node["compressor"]["id"], dict(node["compressor"])))
    chunks, file = _lengths(path, place, node.get("chunks")), _names(path, place, "", separator)
    return Layout(chunks, dtype, _fill(dtype, node.get("fill_value")), tuple(codecs), file)


def _third(path: Path, place: str, node: Mapping[str, Any]) -> Layout:
    """Read the metadata of an array of format 3."""
    dtype = _zarr_type(path, place, node.get("data_type"))
    grid, keys = node["chunk_grid"], node.get("chunk_key_encoding") or {"name": "default"}
    if grid.get("name") != "regular" or keys.get("name") not in ("default", "v2"):
        raise InputError(f"{path}: the chunks of `{place}` are kept in a way that is not known.")
    default = keys["name"] == "default"
    separator = (keys.get("configuration") or {}).get("separator", "/" if default else ".")
    chunks = _lengths(path, place, grid["configuration"]["chunk_shape"])
    codecs = _codecs(node.get("codecs") or [], dtype)
    file, fill = _names(path, place, "c" if default else "", separator), _fill(dtype, node.get("fill_value"))
    if codecs[0].name != "sharding_indexed":
        return Layout(chunks, dtype, fill, codecs, file)
    inside = codecs[0].settings
    inner = _lengths(path, place, inside.get("chunk_shape"))
    if len(inner) != len(chunks) or not all(inner) or any(n % m for n, m in zip(chunks, inner, strict=True)):
        raise InputError(f"{path}: the shards of `{place}`, {chunks}, are not made of its chunks, {inner}: damaged.")
    shard = tuple(n // m for n, m in zip(chunks, inner, strict=True))
    index = _codecs(inside.get("index_codecs") or [], np.dtype("<u8"))
    at_end = inside.get("index_location", "end") == "end"
    return Layout(inner, dtype, fill, _codecs(inside["codecs"], dtype), file, shard, (index, at_end))


def _codecs(listed: Sequence[Any], dtype: np.dtype) -> tuple[Codec, ...]:
    found = []
    for item in listed:
        name = item if isinstance(item, str) else item["name"]
        settings = {} if isinstance(item, str) else dict(item.get("configuration") or {})
        if name == "bytes":
            stored = dtype.newbyteorder(">" if settings.get("endian") == "big" else "<")
            settings = {"dtype": stored.str, "order": "C"}
        if name.startswith("numcodecs."):
            name, settings = "numcodecs", {"id": name.removeprefix("numcodecs."), **settings}
        found.append(Codec(name, settings))
    # the filters of numcodecs give bytes back, so that numbers are made of these after them
    last = next((k for k, codec in enumerate(found) if codec.name == "bytes"), 0)
    filters = [codec for codec in found[:last] if codec.name == "numcodecs"]
    return (*(c for c in found[:last] if c not in filters), *found[last : last + 1], *filters, *found[last + 1 :])


def _lengths(path: Path, name: str, given: object) -> tuple[int, ...]:
    if not isinstance(given, list) or len(given) > 32 or not all(type(n) is int and 0 <= n < 1 << 62 for n in given):
        raise InputError(f"{path}: `{name}` has a shape or chunks that are no lengths: damaged.")
    return tuple(given)


def _names(path: Path, place: str, first: str, separator: str) -> Callable[[tuple[int, ...]], Path]:
    if separator not in ("/", "."):
        raise InputError(f"{path}: the chunks of `{place}` are named with {separator!r}: damaged.")

    def file(number: tuple[int, ...]) -> Path:
        return path / place / (separator.join(filter(None, (first, *map(str, number)))) or "0")

    return file


def _zarr_type(path: Path, name: str, given: object) -> np.dtype:
    if isinstance(given, dict) and given.get("name") in ("fixed_length_utf32", "null_terminated_bytes"):
        (length,) = _lengths(path, name, [given["configuration"]["length_bytes"]])
        return np.dtype(f"<U{length // 4}" if given["name"] == "fixed_length_utf32" else f"S{length}")
    if given in ("string", {"name": "string"}):
        return np.dtype("O")
    return np.dtype(given if isinstance(given, str) and ZARR_TYPE.fullmatch(given) else "V1")


def _number(given: Any) -> float:
    """Read a number that JSON has no word for, or that xarray has written in base 64."""
    if isinstance(given, str) and given.lower().lstrip("-") not in ("nan", "infinity"):
        return float(struct.unpack("<d", base64.standard_b64decode(given))[0])
    return float(given)


def _fill(dtype: np.dtype, given: object) -> object:
    if dtype.kind in "OUS":
        return ""
    if isinstance(given, str) and given.startswith("0x"):
        bits = int(given, 16).to_bytes(dtype.itemsize, "little")
        return np.frombuffer(bits, dtype.newbyteorder("<"))[0]
    if dtype.kind not in "fiub" or given is None:
        return 0
    return np.asarray(given if not isinstance(given, str) else float(given)).astype(dtype)[()]


# Chunks ----------------------------------------------------------------------------------------------


def _piece(path: Path, file: Path, start: int, length: int | None, most: int) -> bytes | None:
    """Read `length` bytes of a file from `start`, or from its end where that is negative; None if there is no file."""
    try:
        stream = file.open("rb")
    except FileNotFoundError:
        return None
    with stream:
        size = stream.seek(0, 2)
        first = start if start >= 0 else size + start
        count = size - first if length is None else length
        if first < 0 or first + count > size:
            raise InputError(f"{path}: `{file.relative_to(path)}` does not hold the {count} bytes it claims: damaged.")
        if count > most:
            raise InputError(
                f"{path}: `{file.relative_to(path)}` has {count} bytes, more than its shape needs: refused."
            )
        stream.seek(first)
        return stream.read(count)


def _reader(path: Path, layout: Layout) -> Callable[[tuple[int, ...]], np.ndarray | None]:
    """Return a function that reads a chunk, from its own file or from its shard; None where nothing is stored."""
    shard = layout.shard or ()
    # what an honest chunk takes at most: text and numbers that do not compress take a little more
    most = 2 * max(layout.dtype.itemsize, 8) * math.prod(layout.chunks) + (1 << 20)
    codecs, at_end = layout.index
    length = 16 * math.prod(shard) + 4 * sum(codec.name == "crc32c" for codec in codecs)

    @lru_cache(maxsize=8)
    def table(file: Path) -> np.ndarray | None:
        data = _piece(path, file, -length if at_end else 0, length, length)
        return None if data is None else decoded(data, codecs, (*shard, 2), np.dtype("<u8"))

    def read(number: tuple[int, ...]) -> np.ndarray | None:
        file, start, count = layout.file(number), 0, None
        if layout.shard is not None:
            file = layout.file(tuple(k // n for k, n in zip(number, shard, strict=True)))
            places = table(file)
            if places is None:
                return None
            start, count = map(int, places[tuple(k % n for k, n in zip(number, shard, strict=True))])
            if start == count == 0xFFFFFFFFFFFFFFFF:  # so a shard says that a chunk is missing
                return None
        data = _piece(path, file, start, count, most)
        try:
            return None if data is None else decoded(data, layout.codecs, layout.chunks, layout.dtype)
        except Damaged as error:
            raise InputError(f"{path}: `{file.relative_to(path)}` {error}: refused.") from error

    return read
