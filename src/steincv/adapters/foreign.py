"""Imports of other libraries: what fails in them becomes one line that names the extra to install."""

import importlib
import re
import warnings
from types import ModuleType
from typing import NamedTuple

from ..runtime.validation import InputError


class Library(NamedTuple):
    """A library that an extra installs: its module, its title, and its oldest supported version."""

    module: str
    title: str
    oldest: str


# By extra; the versions are those of pyproject.toml.
LIBRARIES = {
    "numpyro": Library("numpyro", "NumPyro", "0.21"),
    "blackjax": Library("blackjax", "BlackJAX", "1.2.5"),
    "pymc": Library("pymc", "PyMC", "5.26"),
    "arviz": Library("arviz", "ArviZ", "0.22"),
    "stan": Library("stan", "PyStan", "3.10"),
    "bridgestan": Library("bridgestan", "BridgeStan", "2.6"),
    "cmdstan": Library("cmdstanpy", "CmdStanPy", "1.2.5"),
    "emcee": Library("emcee", "emcee", "3.1.4"),
}


class LibraryError(InputError, ImportError):
    """A library is missing, too old, or only half there; the message says what to install."""


def foreign(extra: str) -> ModuleType:
    """Return the library that the extra installs, or raise a `LibraryError`.

    Warnings that a library gives while it is imported are not shown: they are not about what was asked.
    """
    library = LIBRARIES[extra]
    remedy = f"Run: pip install 'steincv[{extra}]'"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = importlib.import_module(library.module)
        except Exception as error:  # a broken installation can fail in any way while it is imported
            if isinstance(error, ModuleNotFoundError) and error.name == library.module:
                raise LibraryError(f"{library.title} is not installed. {remedy}") from error
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise LibraryError(f"{library.title} is only half installed ({reason}). {remedy}") from error
    version = str(getattr(module, "__version__", ""))
    if not version:
        raise LibraryError(f"{library.title} is only half installed (it has no version). {remedy}")
    if _numbers(version) < _numbers(library.oldest):
        raise LibraryError(f"{library.title} {version} is too old, {library.oldest} or newer is needed. {remedy}")
    return module


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release part of a version: (5, 28) of 5.28rc1."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else (0,)
