"""Shapes, chunks and axes that a file claims, against the bytes that it has."""

import math
import os
from typing import NamedTuple

from ...runtime.arrays import LIMITS, StrPath
from ...runtime.memory import GIB
from ...runtime.validation import InputError
from ..variables import Group, Variable


class GateLimits(NamedTuple):
    """Bytes and counts beyond which a description of data is no honest one."""

    # JSON of one Zarr array or group, of which a thousand variables take about a megabyte, and of all of them
    metadata: int = 4 << 20
    all_metadata: int = 16 << 20
    # attributes of one NetCDF variable; the longest that is read lists 16 bytes for every use of a dimension
    attributes: int = 1 << 20
    # chunks that may be missing, for values that are all alike are not always stored
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
