"""Memory is predicted before it is taken, and refused with a remedy when it is not there."""

import os
import sys

from .validation import InputError

GIB = 2**30


def available_memory() -> int:
    """Bytes that can be taken now without swapping, as far as the system tells."""
    if sys.platform == "linux":
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def reserve(what: str, needed: float, remedy: str) -> None:
    """Refuse to start work whose predicted peak of `needed` bytes is more than there is."""
    free = available_memory()
    if needed > 0.9 * free:
        raise InputError(
            f"{what} needs about {needed / GIB:.3g} GiB of memory but only {free / GIB:.3g} GiB are free. {remedy}"
        )
