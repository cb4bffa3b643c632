"""Texts in HDF5 files, each of a length of its own, read from the heap that keeps them.

HDF5 itself would do on the word of a damaged heap what it says: take gigabytes, or go round in it for ever. The form is
that of the HDF5 File Format Specification 3.0, section III.E.
"""

from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import UInt8

from ..runtime.arrays import LIMITS
from ..runtime.validation import InputError

# Bytes of a record that stands for a text: of its length, of the heap's address, of its number in the heap.
RECORD = (4, 8, 4)
# Bytes before a heap and before every entry of it.
HEAD = 16


def read_texts(path: Path, name: str, records: UInt8[np.ndarray, "entry 16"]) -> np.ndarray:
    """Return the texts that records stand for."""
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
