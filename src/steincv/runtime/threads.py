"""How many threads linear algebra may use, and who works: threads of this process, or the workers of an executor.

A pool of BLAS threads gains nothing on the small matrices of a fit, and waits for itself: on a busy machine, or beside
XLA's own threads, that costs up to fifty times the work. So it is asked for where the work is large, and only there.
"""

import functools
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.linalg  # noqa: F401  # brings a BLAS of its own, which has to be there to be found
from threadpoolctl import ThreadpoolController

from .validation import InputError

# Floating-point operations from which on waking the other threads is worth it: about a second of one core.
MUCH_WORK = 2e10
# Seconds after which a thread that waits for the interpreter gets it, and how many numbers a call of NumPy takes tens
# of microseconds for. On two cores eight schools took two threads 1.1 times as long as one with Python's own 5 ms, .9
# times with these turns, and .8 times where they do not meet at such short calls either (`alone`).
TURN = 2e-4
SHORT = 80_000

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
    with blas_threads(0), _short_turns(), ThreadPoolExecutor(count) as beside:
        pending: dict[int, Future[Answer]] = {
            k: beside.submit(copy_context().run, task)
            for k, (task, stay) in enumerate(zip(tasks, stays, strict=True))
            if not stay
        }
        for k in (k for k, stay in enumerate(stays) if stay):
            pending[k] = _attempted(tasks[k])
            if pending[k].exception() is not None:
                break  # none after it is asked for
        return [pending[k].result() for k in range(len(tasks))]  # of several errors the one that would have come first


@contextmanager
def _short_turns() -> Iterator[None]:
    """Threads take turns quickly inside the block; of several blocks at a time the first sets it for the process."""
    usual = sys.getswitchinterval()
    if usual <= TURN:
        yield
        return
    sys.setswitchinterval(TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


_alone = threading.Lock()


@contextmanager
def alone(size: int) -> Iterator[None]:
    """One thread at a time inside such blocks, if what they work on has few numbers.

    Each of thousands of short calls of NumPy gives the interpreter away and waits for it: two threads at them take
    longer together than one after the other.
    """
    if size > SHORT:
        yield
        return
    with _alone:
        yield


def _attempted(task: Callable[[], Answer]) -> "Future[Answer]":
    """Return what a task gave, or how it failed, as those that are done elsewhere come back."""
    done: Future[Answer] = Future()
    try:
        done.set_result(task())
    except Exception as error:
        done.set_exception(error)
    return done


def threads() -> int:
    """Return how many threads BLAS may use at the moment."""
    return max((pool["num_threads"] for pool in _CONTROLLER.info() if pool["user_api"] == "blas"), default=1)


@functools.cache
def _allowed() -> int:
    """Return the BLAS threads that the user allows, as they were when this was first asked."""
    return threads()


# Fits spread over any `concurrent.futures.Executor`, with the same bits as without one ---------------
#
# What is sent is one fit per fold (or all folds, where a family fits them in one program), each a pure function of the
# same arrays, so the answer does not depend on how many workers there are or on which of them did what. The arrays
# travel once: threads see them, processes of this machine map one file, a Dask cluster gets one copy per worker.
#
# Whatever comes back that is not an answer (a worker that died, a pool that broke, a future that was cancelled,
# something that could not be sent) is asked for once more, and then done in this process. What fails here as well is
# the task's own failure, and is raised.


Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Shared:
    """Arrays that many tasks look at: those of this process, and what stands for them elsewhere."""

    here: Arrays
    sent: Any


class Team:
    """The workers of an executor."""

    def __init__(self, executor: Executor, folder: Path):
        self.executor, self.folder = executor, folder
        self.futures: list[Future] = []
        self.done_here: list[str] = []
        self._shared: dict[tuple[int, ...], Shared] = {}

    def share(self, arrays: Arrays) -> Shared:
        key = tuple(map(id, arrays.values()))  # alive as long as the entry: it holds them
        if key not in self._shared:
            self._shared[key] = Shared(arrays, self._send(arrays))
        return self._shared[key]

    def _send(self, arrays: Arrays) -> Any:
        if isinstance(self.executor, ProcessPoolExecutor):
            files = {name: self.folder / f"{len(self._shared)}_{i}.npy" for i, name in enumerate(arrays)}
            for name, file in files.items():
                np.save(file, arrays[name], allow_pickle=False)
            return files
        client: Any = getattr(self.executor, "_client", None)
        if hasattr(client, "scatter"):  # Dask's
            try:
                return client.scatter([dict(arrays)], broadcast=True, hash=False)[0]
            except Exception:  # no worker has come up yet: the arrays then go with the tasks
                return arrays
        return arrays

    def start(self, task: Callable[..., Any], shared: Shared, *arguments: Any) -> Callable[[], Any]:
        """Send a task; return a function that waits for its answer."""

        def submit() -> Future:
            self.futures.append(self.executor.submit(_answer, task, shared.sent, *arguments))
            return self.futures[-1]

        first = _attempted(submit)

        def result() -> Any:
            for attempt in (first, None):
                try:
                    future = (attempt or _attempted(submit)).result()  # fails where the pool is broken already
                    return future.result()
                except InputError:
                    raise
                except BaseException as error:
                    # asyncio's CancelledError, which Dask may raise, is no Exception; Ctrl-C is to go through
                    if not isinstance(error, Exception) and type(error).__name__ != "CancelledError":
                        raise
                    why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            self.done_here.append(why)
            return task(shared.here, *arguments)

        return result

    def report(self) -> dict[str, Any]:
        """How many tasks were sent, and why those that were lost had to be done again in this process."""
        return {"kind": type(self.executor).__name__, "sent": len(self.futures), "done_here": list(self.done_here)}


def _answer(task: Callable[..., Any], sent: Mapping[str, Any], *arguments: Any) -> Any:
    """Run a task in a worker, on arrays that travelled or that it maps from their files."""
    mapped = {
        name: np.load(array, mmap_mode="r", allow_pickle=False) if isinstance(array, Path) else array
        for name, array in sent.items()
    }
    return task(mapped, *arguments)


_present: ContextVar[Team | None] = ContextVar("team", default=None)


def team() -> Team | None:
    """Return who works for the estimate that is being made, None for this process."""
    return _present.get()


@contextmanager
def workers(executor: object) -> Iterator[Team | None]:
    """Inside the block `team()` is the executor's; where there is none, it is what it was."""
    if executor is None:
        yield team()
        return
    if not isinstance(executor, Executor):
        hint = " Use client.get_executor()." if hasattr(executor, "get_executor") else ""
        raise InputError(
            f"`executor` must be a concurrent.futures.Executor such as ProcessPoolExecutor(4), "
            f"got {type(executor).__name__}.{hint}"
        )
    with tempfile.TemporaryDirectory(prefix="steincv-", ignore_cleanup_errors=True) as folder:
        crew = Team(executor, Path(folder))
        token = _present.set(crew)
        try:
            # the number of BLAS threads is the process's: set once, or threads undo each other's settings
            with blas_threads(0) if isinstance(executor, ThreadPoolExecutor) else nullcontext():
                yield crew
        finally:
            _present.reset(token)
            for future in crew.futures:
                future.cancel()
