"""What every room does before it works: checks of input and of memory. It imports little, for the command line."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral

StrPath = str | os.PathLike[str]


class InputError(ValueError):
    """What was given cannot be used; the message says which array, where, and how to mend it."""


def whole_number(name: str, value: object, low: int) -> int:
    """`value` as an int of at least `low`, or an `InputError`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise InputError(f"`{name}` must be a whole number of at least {low}, got {value!r}.")
    return int(value)


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


@contextmanager
def reading(path: StrPath) -> Iterator[None]:
    """Whatever goes wrong in reading `path`, as an `InputError` of one line."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: is a folder, not a file.") from error
    except Exception as error:  # zipfile and json alone have a dozen ways to fail on damaged bytes
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path}: cannot be read, the file is damaged ({reason}).") from error


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
