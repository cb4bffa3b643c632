"""Fits spread over any `concurrent.futures.Executor`, with the same bits as without one.

What is sent is one fit a fold (or all folds, where a family fits them in one program), each a pure function of the same
arrays, so the answer does not depend on how many workers there are or on which of them did what. The arrays travel
once: threads see them, processes of this machine map one file, a Dask cluster gets one copy a worker.

Whatever comes back that is not an answer (a worker that died, a pool that broke, a future that was cancelled,
something that could not be sent) is asked for once more, and then done in this process. What fails here as well is
the task's own failure, and is raised.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .threads import blas_threads
from .validation import InputError

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Shared:
    """Arrays that many tasks look at: those of this process, and what stands for them elsewhere."""

    here: Arrays
    sent: Any


class Here:
    """No executor: a task is done when its answer is asked for."""

    def share(self, arrays: Arrays) -> Shared:
        return Shared(arrays, arrays)

    def start(self, task: Callable[..., Any], shared: Shared, *arguments: Any) -> Callable[[], Any]:
        return lambda: task(shared.here, *arguments)


class Team(Here):
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
            return _Mapped.of(arrays, self.folder / str(len(self._shared)))
        client: Any = getattr(self.executor, "_client", None)
        if hasattr(client, "scatter"):  # Dask's
            try:
                return client.scatter([dict(arrays)], broadcast=True, hash=False)[0]
            except Exception:  # no worker has come up yet: the arrays then go with the tasks
                return arrays
        return arrays

    def start(self, task: Callable[..., Any], shared: Shared, *arguments: Any) -> Callable[[], Any]:
        def submit() -> Future:
            self.futures.append(self.executor.submit(_answer, task, shared.sent, *arguments))
            return self.futures[-1]

        futures = iter([_attempt(submit)])

        def result() -> Any:
            for future in (next(futures), None):
                try:
                    return (future or _attempt(submit)).result()
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


def _attempt(submit: Callable[[], Future]) -> Future:
    """A future, failed if nothing could be submitted: the pool may be broken already."""
    try:
        return submit()
    except Exception as error:
        failed: Future = Future()
        failed.set_exception(error)
        return failed


@dataclass(frozen=True)
class _Mapped:
    """Arrays in a folder of this machine, which a process maps instead of getting a copy."""

    folder: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, arrays: Arrays, folder: Path) -> "_Mapped":
        folder.mkdir()
        for i, array in enumerate(arrays.values()):
            np.save(folder / f"{i}.npy", array, allow_pickle=False)
        return cls(str(folder), tuple(arrays))

    def arrays(self) -> Arrays:
        return {
            name: np.load(Path(self.folder) / f"{i}.npy", mmap_mode="r", allow_pickle=False)
            for i, name in enumerate(self.names)
        }


def _answer(task: Callable[..., Any], sent: Any, *arguments: Any) -> Any:
    """Run a task in a worker, on arrays that travelled or that it maps from a file."""
    return task(sent.arrays() if isinstance(sent, _Mapped) else sent, *arguments)


_HERE = Here()
_present: ContextVar[Here | None] = ContextVar("team", default=None)


def team() -> Here:
    """Who works for the estimate that is being made."""
    return _present.get() or _HERE


@contextmanager
def workers(executor: Any) -> Iterator[Here]:
    """Inside the block `team()` is the executor's, or this process where there is none."""
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
            if isinstance(executor, ThreadPoolExecutor):
                # the number of BLAS threads is the process's: set once, or threads undo each other's settings
                with blas_threads(0):
                    yield crew
            else:
                yield crew
        finally:
            _present.reset(token)
            for future in crew.futures:
                future.cancel()
