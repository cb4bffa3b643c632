"""How many threads linear algebra may use.

A pool of BLAS threads gains nothing on the small matrices of a fit, and waits for itself: on a busy machine, or beside
XLA's own threads, that costs up to fifty times the work. So it is asked for where the work is large, and only there.
"""

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import scipy.linalg  # noqa: F401  # brings a BLAS of its own, which has to be there to be found
from threadpoolctl import ThreadpoolController

# Floating-point operations from which on waking the other threads is worth it: about a second of one core.
MUCH_WORK = 2e10

First = TypeVar("First")
Second = TypeVar("Second")

# Looked for at once: among the hundreds of libraries that are there later it takes a hundred times as long.
_CONTROLLER = ThreadpoolController()


@contextmanager
def blas_threads(work: float) -> Iterator[None]:
    """One BLAS thread inside the block, or as many as the user allows if `work`, in operations, is much."""
    allowed = _allowed()
    with _CONTROLLER.limit(limits=allowed if work >= MUCH_WORK else 1, user_api="blas"):
        yield


def both(first: Callable[[], First], second: Callable[[], Second], work: float) -> tuple[First, Second]:
    """Two answers, the first found in a thread beside where there is one to spare. Neither changes by this.

    There is none where `work` is so much that each wants all threads, where the user allows one, or where others of
    our threads are at it. The second answer is found in the thread, and with the settings of JAX, of whoever asks.
    """
    if work >= MUCH_WORK or _now() == 1:
        return first(), second()
    # one setting for both: it is the process's, and they would undo each other's
    with blas_threads(0), ThreadPoolExecutor(1) as beside:
        pending = beside.submit(first)
        answer = second()
        return pending.result(), answer


@functools.cache
def _allowed() -> int:
    """What the user allows when it is first asked for."""
    return _now()


def _now() -> int:
    return max((pool["num_threads"] for pool in _CONTROLLER.info()), default=1)
