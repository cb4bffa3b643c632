"""The codecs of Zarr, undone with no more memory than the result may take."""

import bz2
import lzma
import math
import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numcodecs
import numpy as np
from numcodecs import blosc, lz4, zstd

try:
    from google_crc32c import value as crc32c
except ImportError:  # then the sums of shards are not compared
    crc32c = None

SIMPLE_TYPE = re.compile(r"[<>|=]?[fiub]\d{1,2}")


class Damaged(ValueError):
    """Says what is wrong with encoded bytes."""


class Codec(NamedTuple):
    """One step of encoding: its name in Zarr, "numcodecs" for those of that package, and its settings."""

    name: str
    settings: dict[str, Any]


def decoded(data: bytes, codecs: Sequence[Codec], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Undo the codecs, last one first, and return the array of a chunk."""
    count = math.prod(shape)
    # what stands before the numbers become bytes may change their type, to at most 8 bytes each
    changed = any(codec.name == "numcodecs" for codec in codecs)
    size = count * (max(8, dtype.itemsize) if changed else dtype.itemsize)
    if dtype.kind == "O":
        size = max(1 << 20, 100 * len(data))
    value: Any = data
    for codec in reversed(codecs):
        value = _undone(codec, value, size, shape)
    array = np.asarray(value)
    if array.size != count:
        raise Damaged(f"has {array.size} entries of {count}")
    return array.reshape(shape)


def _undone(codec: Codec, value: Any, size: int, shape: tuple[int, ...]) -> Any:
    name, settings = codec
    if name == "bytes":
        return _numbers(value, settings, shape)
    if name == "transpose":
        order = settings.get("order")
        order = {"C": list(range(len(shape))), "F": list(range(len(shape)))[::-1]}.get(str(order), order)
        if not isinstance(order, list) or sorted(order) != list(range(len(shape))):
            raise Damaged("has its axes in an order that there is not")
        return np.asarray(value).reshape([shape[k] for k in order]).transpose(np.argsort(order))
    if name == "vlen-utf8":
        return _texts(bytes(value), math.prod(shape))
    if name == "crc32c":
        body, kept = value[:-4], value[-4:]
        if crc32c is not None and crc32c(bytes(body)) != int.from_bytes(kept, "little"):
            raise Damaged("does not agree with its checksum")
        return body
    if name == "numcodecs":
        return _other(settings, value, size, math.prod(shape))
    return expanded(name, bytes(value), size)


def _numbers(value: Any, settings: dict[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    """Read the bytes of numbers or of text of one length, in their order."""
    stored = np.dtype(settings["dtype"])
    length = stored.itemsize * math.prod(shape)
    data = memoryview(value).cast("B") if not isinstance(value, bytes) else value
    if len(data) != length:
        raise Damaged(f"has {len(data)} bytes of {length}")
    array = np.frombuffer(data, np.uint8) != 0 if stored.kind == "b" else np.frombuffer(data, stored)
    return array.reshape(shape, order="F" if settings.get("order") == "F" else "C")


def _texts(data: bytes, count: int) -> np.ndarray:
    """Read texts that are each kept behind their length, after the number of them."""
    if int.from_bytes(data[:4], "little") != count or 4 * (count + 1) > len(data):
        raise Damaged(f"does not hold {count} texts")
    found = np.empty(count, object)
    at = 4
    for k in range(count):
        length = int.from_bytes(data[at : at + 4], "little")
        at += 4 + length
        if at > len(data):
            raise Damaged(f"claims a text of {length} bytes")
        found[k] = data[at - length : at].decode("utf-8")
    return found


def _other(settings: dict[str, Any], value: Any, size: int, count: int) -> Any:
    """Undo a codec of numcodecs: a compressor as anywhere else, a filter by that package."""
    name = str(settings.get("id"))
    if name in ("blosc", "lz4", "zstd", "zlib", "gzip", "bz2", "lzma"):
        return expanded(name, bytes(value), size)
    if name == "vlen-utf8":
        return _texts(bytes(value), count)
    for key in ("dtype", "astype", "encode_dtype", "decode_dtype"):
        if key in settings and not SIMPLE_TYPE.fullmatch(str(settings[key])):
            raise Damaged(f"is filtered to {str(settings[key])[:20]!r}, which are no numbers")
    return numcodecs.get_codec(settings).decode(np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value)


def expanded(name: str, data: bytes, size: int) -> bytes | np.ndarray:
    """Decompress to `size` bytes, or some more: what checksums and headers add to what they are put on."""
    most = size + 64
    if name in ("blosc", "lz4", "zstd"):
        length = _claimed(name, data)
        length = size if length is None else length
        if length > most:
            raise Damaged(f"claims to expand to {length} bytes, more than its shape has")
        into = np.empty(length, np.uint8)
        try:
            {"blosc": blosc, "lz4": lz4, "zstd": zstd}[name].decompress(data, into)
        except (RuntimeError, ValueError) as error:
            raise Damaged(f"cannot be decompressed ({error})") from error
        return into
    return _streamed(name, data, most)


def _claimed(name: str, data: bytes) -> int | None:
    """Return the length that a header claims, or None where it does not say."""
    if name == "lz4":
        return int.from_bytes(data[:4], "little")
    if name == "blosc":
        if len(data) < 16 or int.from_bytes(data[12:16], "little") != len(data):
            raise Damaged("is cut off")
        return int.from_bytes(data[4:8], "little")
    # the first frame of Zstandard: RFC 8878, section 3.1.1.1
    if len(data) < 6 or data[:4] != b"\x28\xb5\x2f\xfd":
        raise Damaged("does not begin as Zstandard does")
    flags = data[4]
    single = flags >> 5 & 1
    at, width = 5 + (not single) + (0, 1, 2, 4)[flags & 3], (single, 2, 4, 8)[flags >> 6]
    if not width:
        return None
    return int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0)


def _streamed(name: str, data: bytes, most: int) -> bytes:
    found = b""
    while data:
        stream: Any
        if name == "bz2":
            stream = bz2.BZ2Decompressor()
        elif name == "lzma":
            stream = lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=64 << 20)  # for its dictionary
        else:
            stream = zlib.decompressobj(31 if name == "gzip" else 15)
        found += stream.decompress(data, max(1, most + 1 - len(found)))
        if len(found) > most:
            raise Damaged(f"would expand beyond {most} bytes, more than its shape has")
        if not stream.eof:
            raise Damaged("is cut off")
        data = stream.unused_data
    return found
