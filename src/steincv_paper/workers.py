"""Where cells are computed: processes of this machine, one thread each, or a Dask cluster."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from steincv.runtime.validation import InputError

# One thread per worker: workers fill the cores, and the last bits do not depend on how many threads share a sum.
# (The memory of a GPU is then shared by the workers too.)
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}


class Worker:
    """Does one thing at a time; `replace` puts a fresh process where one has died."""

    def __init__(self, start: Callable[[], Executor]):
        self._start = start
        self.executor = start()

    def submit(self, function: Callable, *arguments: Any) -> Future:
        try:
            return self.executor.submit(function, *arguments)
        except BrokenExecutor:  # it died while it had nothing to do
            self.replace()
            return self.executor.submit(function, *arguments)

    def replace(self) -> None:
        self.executor.shutdown(wait=False)
        self.executor = self._start()


@contextmanager
def local_workers(count: int) -> Iterator[list[Worker]]:
    """Start `count` processes. They end with the block, and also if this process is killed."""
    context = multiprocessing.get_context("spawn")  # JAX has threads, which do not survive a fork
    listen, hold = context.Pipe(duplex=False)

    def start() -> Executor:
        return ProcessPoolExecutor(1, context, initializer=_end_with, initargs=(listen,))

    with _environment(ONE_THREAD):
        workers = [Worker(start) for _ in range(count)]
        try:
            yield workers
        except BaseException:
            hold.close()  # what is still running is not wanted any more
            raise
        finally:
            for worker in workers:
                worker.executor.shutdown(wait=True, cancel_futures=True)
            hold.close()
            listen.close()


@contextmanager
def dask_workers(address: str) -> Iterator[list[Worker]]:
    """Offer one place per thread of a Dask cluster, which itself repeats what a lost worker was doing."""
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError("`--dask` needs the package `distributed`: pip install distributed.") from error
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at {address!r}: {error}.") from error
    with client:
        places = sum(client.ncores().values())
        if not places:
            raise InputError(f"the Dask scheduler at {address!r} has no workers. Start some with `dask worker`.")
        executor = client.get_executor()
        yield [Worker(lambda: executor) for _ in range(places)]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with(other_end: Connection) -> None:
    """Leave at once when the process that holds the other end lets go of it, whatever became of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for that process, and reaches this one that way

    def watch() -> None:
        other_end.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _environment(changed: dict[str, str]) -> Iterator[None]:
    """Set these variables for processes started inside; afterwards all is as before."""
    before = {name: os.environ.get(name) for name in changed}
    added = {**changed, "XLA_FLAGS": f"{before['XLA_FLAGS'] or ''} {changed['XLA_FLAGS']}".strip()}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in changed:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if value is not None})
