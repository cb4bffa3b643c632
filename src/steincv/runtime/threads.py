"""How many threads linear algebra may use.

A pool of BLAS threads gains nothing on the small matrices of a fit, and waits for itself: on a busy machine, or beside
XLA's own threads, that costs up to fifty times the work. So it is asked for where the work is large, and only there.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

import scipy.linalg  # noqa: F401  # brings a BLAS of its own, which has to be there to be found
from threadpoolctl import ThreadpoolController

# Floating-point operations from which on waking the other threads is worth it: about a second of one core.
MUCH_WORK = 2e10

Answer = TypeVar("Answer")

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


def side_by_side(
    tasks: Sequence[Callable[[], Answer]], work: float, here: Sequence[bool] | None = None
) -> list[Answer]:
    """Return the answers of all tasks, found in as many threads as the user allows. None of them changes by this.

    They are found one after the other where `work` is so much that each wants all threads, where one is allowed, or
    where others of our threads are at it. Those marked `here` keep the thread, and so JAX's settings, of whoever asks.
    """
    count = min(threads(), len(tasks))
    if work >= MUCH_WORK or count <= 1:
        return [task() for task in tasks]
    stays = [False] * len(tasks) if here is None else here
    # one setting for all: it is the process's, and they would change each other's
    with blas_threads(0), ThreadPoolExecutor(count) as beside:
        pending = {
            k: beside.submit(copy_context().run, task)
            for k, (task, stay) in enumerate(zip(tasks, stays, strict=True))
            if not stay
        }
        found: dict[int, Answer] = {}
        failed: dict[int, BaseException] = {}
        try:
            for k, task in enumerate(tasks):
                if k not in pending:
                    found[k] = task()
        except Exception as error:
            failed[k] = error
        for k, future in pending.items():
            raised = future.exception()
            if raised is None:
                found[k] = future.result()
            else:
                failed[k] = raised
        if failed:
            raise failed[min(failed)]  # the one that would have come first
        return [found[k] for k in range(len(tasks))]


def threads() -> int:
    """Return how many threads BLAS may use at the moment."""
    return max((pool["num_threads"] for pool in _CONTROLLER.info() if pool["user_api"] == "blas"), default=1)


@functools.cache
def _allowed() -> int:
    """Return the BLAS threads that the user allows, as they were when this was first asked."""
    return threads()
