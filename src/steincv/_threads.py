"""How many threads linear algebra may use.

A pool of BLAS threads gains nothing on the small matrices of a fit, and waits for itself: on a busy machine, or beside
XLA's own threads, that costs up to fifty times the work. So it is asked for where the work is large, and only there.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import scipy.linalg  # noqa: F401  # brings a BLAS of its own, which has to be there to be found
from threadpoolctl import ThreadpoolController

# Floating-point operations from which on waking the other threads is worth it: about a second of one core.
MUCH_WORK = 2e10

# Looked for at once: among the hundreds of libraries that are there later it takes a hundred times as long.
_CONTROLLER = ThreadpoolController()


@contextmanager
def blas_threads(work: float) -> Iterator[None]:
    """One BLAS thread inside the block, or as many as the user allows if `work`, in operations, is much."""
    allowed = _allowed()
    with _CONTROLLER.limit(limits=allowed if work >= MUCH_WORK else 1, user_api="blas"):
        yield


@functools.cache
def _allowed() -> int:
    """What the user allows when it is first asked for."""
    return max((pool["num_threads"] for pool in _CONTROLLER.info()), default=1)
