"""Imports of other libraries: what fails in them becomes one line that names the extra to install."""

import importlib
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ..runtime.validation import InputError

# extra: its module, what it is called, and the oldest version that is supported (as in pyproject.toml)
LIBRARIES = {
    "numpyro": ("numpyro", "NumPyro", "0.21"),
    "blackjax": ("blackjax", "BlackJAX", "1.2.5"),
    "pymc": ("pymc", "PyMC", "5.26"),
    "arviz": ("arviz", "ArviZ", "0.22"),
    "stan": ("stan", "PyStan", "3.10"),
    "bridgestan": ("bridgestan", "BridgeStan", "2.6"),
    "cmdstan": ("cmdstanpy", "CmdStanPy", "1.2.5"),
    "emcee": ("emcee", "emcee", "3.1.4"),
}


class LibraryError(InputError, ImportError):
    """A library is missing, too old, or only half there; the message says what to install."""


@contextmanager
def foreign(extra: str) -> Iterator[None]:
    """Around the imports of the library that the extra installs.

    What libraries have to announce when they are imported is not shown: it is not about what was asked.
    """
    module, title, oldest = LIBRARIES[extra]
    remedy = f"Run: pip install 'steincv[{extra}]'"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            library = importlib.import_module(module)
            version = str(getattr(library, "__version__", ""))
            old = bool(version) and _numbers(version) < _numbers(oldest)
            if not old:
                yield
        except Exception as error:  # a broken installation can fail in any way while it is imported
            if isinstance(error, ModuleNotFoundError) and error.name == module:
                raise LibraryError(f"{title} is not installed. {remedy}") from error
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise LibraryError(f"{title} is only half installed ({reason}). {remedy}") from error
    if old:
        raise LibraryError(f"{title} {version} is too old, {oldest} or newer is needed. {remedy}")
    if not version:
        raise LibraryError(f"{title} is only half installed (it has no version). {remedy}")


def _numbers(version: str) -> tuple[int, ...]:
    """The release part of a version: (5, 28) of 5.28rc1."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else (0,)
