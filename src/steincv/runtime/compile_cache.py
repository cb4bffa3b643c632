"""Compiled programs kept between processes: the first network fit of the day need not wait for the compiler."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER, LEAST = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
# What compiles faster than this is not worth a file.
SECONDS = 0.2


# How many blocks are open, in all threads, and what they found: the flags are the process's.
_lock = threading.Lock()
_open: list[float] = []


@contextmanager
def compile_cache() -> Iterator[None]:
    """Inside the block JAX looks in the user's cache folder before it compiles.

    Nothing is changed where the user has a cache of JAX's own, where the folder cannot be written, or where
    STEINCV_CACHE is 0. JAX's flags are as they were after the block, the last one if several threads have one.
    """
    from jax import config
    from jax.experimental.compilation_cache import compilation_cache

    def use(folder: str | None, seconds: float) -> None:
        compilation_cache.reset_cache()  # JAX asks once whether there is a cache, and remembers the answer
        config.update(FOLDER, folder)
        config.update(LEAST, seconds)

    folder = cache_folder()
    ours = False
    try:
        with _lock:
            ours = folder is not None and (bool(_open) or getattr(config, FOLDER) is None)
            if ours:
                _open.append(getattr(config, LEAST))
                if len(_open) == 1:
                    use(str(folder), SECONDS)
        yield
    finally:
        with _lock:
            if ours:
                usual = _open[0]
                _open.pop()
                if not _open:
                    use(None, usual)


def cache_folder() -> Path | None:
    """Where compiled programs are kept: STEINCV_CACHE, or `steincv` in the user's cache folder. None: nowhere."""
    chosen = os.environ.get("STEINCV_CACHE", "")
    if chosen == "0":
        return None
    with suppress(OSError, RuntimeError):
        if sys.platform == "win32":
            usual = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
        elif sys.platform == "darwin":
            usual = Path.home() / "Library" / "Caches"
        else:
            usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = Path(chosen) if chosen else usual / "steincv"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(folder, os.W_OK):
            return folder
    return None
