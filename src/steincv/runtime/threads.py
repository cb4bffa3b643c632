"""How many threads linear algebra may use.

A pool of BLAS threads gains nothing on the small matrices of a fit, and waits for itself: on a busy machine, or beside
XLA's own threads, that costs up to fifty times the work. So it is asked for where the work is large, and only there.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

import scipy.linalg  # noqa: F401  # brings a BLAS of its own, which has to be there to be found
from threadpoolctl import ThreadpoolController

# Floating-point operations from which on waking the other threads is worth it: about a second of one core.
MUCH_WORK = 2e10

First = TypeVar("First")
Second = TypeVar("Second")

# Looked for at once: among the hundreds of libraries that are there later it takes a hundred times as long.
_CONTROLLER = ThreadpoolController()


# The blocks that are open, in all threads: the setting is the process's.
_lock = threading.Lock()
_open: list[tuple[object, int]] = []
_before: Any = None


@contextmanager
def blas_threads(work: float) -> Iterator[None]:
    """One BLAS thread inside the block, or as many as the user allows if `work`, in operations, is much.

    After the block it is what the other open blocks want, the last of them first, and after the last what it was.
    """
    global _before
    allowed = _allowed()  # asked before anything is limited
    mine = (object(), allowed if work >= MUCH_WORK else 1)
    with _lock:
        _open.append(mine)
        limiter = _CONTROLLER.limit(limits=mine[1], user_api="blas")
        _before = limiter if len(_open) == 1 else _before
    try:
        yield
    finally:
        with _lock:
            _open.remove(mine)
            if _open:
                _CONTROLLER.limit(limits=_open[-1][1], user_api="blas")
            else:
                _before.restore_original_limits()


def both(first: Callable[[], First], second: Callable[[], Second], work: float) -> tuple[First, Second]:
    """Two answers, the first found in a thread beside where there is one to spare. Neither changes by this.

    There is none where `work` is so much that each wants all threads, where the user allows one, or where others of
    our threads are at it. The second answer is found in the thread, and with the settings of JAX, of whoever asks.
    """
    if work >= MUCH_WORK or threads() == 1:
        return first(), second()
    # one setting for both: it is the process's, and they would change each other's
    with blas_threads(0), ThreadPoolExecutor(1) as beside:
        pending = beside.submit(copy_context().run, first)
        try:
            answer = second()
        except Exception:
            pending.result()  # its error, if it has one, would have come first
            raise
        return pending.result(), answer


def threads() -> int:
    """How many BLAS may use at the moment."""
    return max((pool["num_threads"] for pool in _CONTROLLER.info() if pool["user_api"] == "blas"), default=1)


@functools.cache
def _allowed() -> int:
    """What the user allows when it is first asked for."""
    return threads()
