"""Compiled programs kept between processes: the first network fit of the day need not wait for the compiler."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER, LEAST = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
# What compiles faster than this is not worth a file.
SECONDS = 0.2


@contextmanager
def compile_cache() -> Iterator[None]:
    """Inside the block JAX looks in the user's cache folder before it compiles.

    Nothing is changed where the user has a cache of JAX's own, where the folder cannot be written, or where
    STEINCV_CACHE is 0. JAX's flags are as they were after the block.
    """
    import jax

    folder = cache_folder()
    if folder is None or getattr(jax.config, FOLDER) is not None:
        yield
        return
    from jax.experimental.compilation_cache import compilation_cache

    seconds = getattr(jax.config, LEAST)
    compilation_cache.reset_cache()  # JAX asks once whether there is a cache, and remembers the answer
    jax.config.update(FOLDER, str(folder))
    jax.config.update(LEAST, SECONDS)
    try:
        yield
    finally:
        jax.config.update(FOLDER, None)
        jax.config.update(LEAST, seconds)
        compilation_cache.reset_cache()


def cache_folder() -> Path | None:
    """Where compiled programs are kept: STEINCV_CACHE, or `steincv` in the user's cache folder. None: nowhere."""
    chosen = os.environ.get("STEINCV_CACHE", "")
    if chosen == "0":
        return None
    with suppress(OSError, RuntimeError):
        folder = Path(chosen) if chosen else _user_cache() / "steincv"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(folder, os.W_OK):
            return folder
    return None


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
