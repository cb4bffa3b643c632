"""The original files of MNIST: idx, plain or gzipped, read with bounded memory."""

import gzip
import struct
from pathlib import Path

import numpy as np

from steincv.runtime.validation import InputError, reading

# The whole of MNIST is 47 MB of pixels; nothing here is larger than ten times that.
MOST_BYTES = 500 << 20


def read_idx(path: Path, axes: int) -> np.ndarray:
    """Read an array of bytes with that many axes."""
    with reading(path):
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            head = file.read(4 + 4 * axes)
            if len(head) < 4 + 4 * axes or head[:3] != b"\x00\x00\x08" or head[3] != axes:
                raise InputError(f"{path}: not an idx file of bytes with {axes} axes, or cut off before its end.")
            shape = struct.unpack(f">{axes}I", head[4:])
            size = int(np.prod([int(n) for n in shape], dtype=object))
            if size > MOST_BYTES:
                raise InputError(f"{path}: claims shape {shape}, {size} bytes: refused.")
            data = file.read(size + 1)
        if len(data) != size:
            more = "more" if len(data) > size else "cut off: fewer"
            raise InputError(f"{path}: {more} bytes than its shape {shape} says; {size} are expected.")
        return np.frombuffer(data, np.uint8).reshape(shape)
