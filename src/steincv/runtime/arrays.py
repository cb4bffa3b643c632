"""Arrays in files: .npz without pickle, written whole or not at all, and read with bounded memory."""

import io
import json
import math
import os
import secrets
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from .validation import InputError, StrPath, reading, reserve


class FileLimits(NamedTuple):
    """Bounds on what is believed of a file written by anyone.

    Random numbers hardly compress: an array that grows by more than `expansion`, and is not small, is no data of ours.
    """

    expansion: int = 100
    small: int = 64 << 20  # bytes that harm nobody
    piece: int = 1 << 20  # bytes that are decompressed at a time


LIMITS = FileLimits()


def refuse_target(path: StrPath, *, force: bool, inputs: Iterable[StrPath] = ()) -> None:
    """Refuse what cannot be written to: better before long work than after it.

    One of the `inputs`, by whatever name or link, is never replaced, nor is anything in a folder that is one.
    """
    target = Path(path)
    for given in map(Path, inputs):
        if _holds(given, target):
            raise InputError(
                f"{target}: lies where {given} is, which is read and would be lost: refused, with force too. Choose "
                f"another name."
            )
    if target.is_dir():
        raise InputError(f"{target}: is a folder, expected the name of a file.")
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist.")
    if os.path.lexists(target) and not force:  # a link that leads nowhere is there as well
        raise InputError(f"{target}: exists already. Choose another name, or replace it: force=True (shell: --force).")


def _holds(given: Path, target: Path) -> bool:
    """Return whether a target is the file or folder that was given, or lies in that folder."""
    if os.path.exists(target) and os.path.exists(given) and os.path.samefile(target, given):
        return True
    read, written = (Path(os.path.realpath(path)) for path in (given, target))
    return read == written or (os.path.isdir(read) and read in written.parents)


@contextmanager
def whole_file(path: StrPath, *, force: bool) -> Iterator[IO[bytes]]:
    """A file to write that appears under `path` when it is complete, or not at all."""
    target = Path(path)
    refuse_target(target, force=force)
    part = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}.") from error
    finally:
        part.unlink(missing_ok=True)


def write_arrays(path: StrPath, about: Mapping[str, object], arrays: Mapping[str, np.ndarray], *, force: bool) -> None:
    """Write arrays to one .npz, and in its array `meta`, as JSON, what is said `about` them."""
    meta = np.frombuffer(json.dumps(about).encode(), np.uint8)
    with whole_file(path, force=force) as file:
        np.savez(file, allow_pickle=False, meta=meta, **arrays)


# Reading files written by anyone ---------------------------------------------------------------------


def read_about(path: StrPath, what: str, kind: str, version: int) -> dict[str, Any]:
    """Read what `write_arrays` was told; `what` it should be, of this `kind` (its "format") and version."""
    about = json.loads(read_arrays(path, ["meta"])["meta"].tobytes())
    if about.get("format") != kind or about.get("version") != version:
        raise InputError(f"{path}: not a saved {what} that this version of steincv can read.")
    return about


def array_names(path: StrPath) -> list[str]:
    """Return what the arrays of an .npz are called."""
    with reading(path), zipfile.ZipFile(path) as archive:
        members = [info.filename for info in archive.infolist()]
    return [name.removesuffix(".npy") for name in members if name.endswith(".npy")]


def read_arrays(path: StrPath, names: Sequence[str], optional: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The arrays called `names` of an .npz, and those called `optional` that it has.

    The file may be truncated, damaged or hostile. Nothing in it is unpickled, and no memory is taken on its
    word: a header is only ever compared with bytes that are there. Whatever is wrong is one `InputError`.
    """
    with reading(path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not zipfile.is_zipfile(file):
            raise InputError(f"{path}: not an .npz file, or cut off before its end.")
        with zipfile.ZipFile(file) as archive:
            members = [info.filename for info in archive.infolist()]
            found = {name: members.count(f"{name}.npy") for name in (*names, *optional)}
            missing = [name for name in names if not found[name]]
            if missing:
                there = ", ".join(member.removesuffix(".npy") for member in members[:8]) or "nothing"
                raise InputError(f"{path}: holds no array `{missing[0]}`; it has {there}.")
            twice = [name for name, count in found.items() if count > 1]
            if twice:
                raise InputError(f"{path}: holds more than one array `{twice[0]}`.")
            return {
                name: _array(path, name, _bytes(path, archive, archive.getinfo(f"{name}.npy"), size))
                for name, count in found.items()
                if count
            }


def _bytes(path: StrPath, archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int) -> bytearray:
    """A member's bytes, checked by their CRC, in memory that the file's own size bounds."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{path}: {info.filename} is compressed in a way that NumPy does not use.")
    if info.compress_size > size:
        raise InputError(f"{path}: cut off; {info.filename} should have {info.compress_size} bytes.")
    if info.file_size > max(LIMITS.small, LIMITS.expansion * info.compress_size):
        raise InputError(
            f"{path}: {info.filename} would expand {info.compress_size} bytes to {info.file_size}: refused."
        )
    # once here, once as the copy that is checked, and some to work with
    reserve(f"{path}: reading {info.filename}", 3 * info.file_size, "Thin the draws.")
    data = bytearray()
    with archive.open(info) as stream:
        while chunk := stream.read(LIMITS.piece):  # in chunks: only then does zipfile bound what it decompresses
            data += chunk
    if len(data) != info.file_size:
        raise InputError(f"{path}: cut off; {info.filename} has {len(data)} bytes of {info.file_size}.")
    return data


def _array(path: StrPath, name: str, data: bytearray) -> np.ndarray:
    """The array in the bytes of an .npy file, without a copy."""
    stream = io.BytesIO(data[: 1 << 17])
    # version 2 is for headers of more than 65,535 bytes, 3 for field names: no array of numbers needs them
    if np.lib.format.read_magic(stream) != (1, 0):
        raise InputError(f"{path}: `{name}` is not a plain array of numbers or text.")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in "fiubcU":
        raise InputError(f"{path}: `{name}` has dtype {dtype}; only plain numbers and text are read, no objects.")
    start = stream.tell()
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != len(data) - start:
        raise InputError(
            f"{path}: `{name}` claims shape {shape} of {dtype}, {claimed} bytes, and has {len(data) - start}."
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape, order="F" if fortran else "C")
