"""Text that may hold anything made safe to print; sentences on stdout, a spinner on stderr. It imports little."""

import importlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.text import Text

# Columns of a table that goes into a file or a pipe, where it may be as wide as it needs.
UNBOUNDED_WIDTH = 160


def clean(text: object, longest: int | None = None) -> str:
    r"""`text` on one line, with control characters written out (`\x1b`), cut to `longest` characters."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
    return shown if longest is None or len(shown) <= longest else shown[: longest - 1] + "…"


def short_method(method: str, longest: int = 36) -> str:
    """Return the method without the settings that were left to it: `Polynomial(degree=2)`, `plain`."""
    if method.startswith("Stack("):  # its members would fill the line, and are listed with their weights
        return "Stack"
    kept = re.sub(r"(, )?\b\w+=('auto'|None)(?=[,)])", "", method).replace("(, ", "(")
    return clean(kept.removesuffix("()"), longest)


def console(stderr: bool = False) -> Console:
    """Return a console for stdout or stderr."""
    found = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not found.is_terminal:
        found.width = max(found.width, UNBOUNDED_WIDTH)
    return found


def load_meanwhile(*modules: str) -> None:
    """Import what is needed at the end while the fits run: most of their time is outside Python."""

    def load() -> None:
        with suppress(Exception):  # it is raised where it is needed
            for name in modules:
                importlib.import_module(name)

    threading.Thread(target=load, daemon=True).start()


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner on stderr while something takes long; nothing where stderr is no terminal."""
    errors = console(stderr=True)
    if not errors.is_terminal:
        yield
        return
    with errors.status(Text(f"{clean(what)} ...")):
        yield


def say(text: str, bullet: str = "", style: str = "") -> None:
    """Print one paragraph as plain text: no markup, no control characters."""
    console().print(Text.assemble((f" {bullet} " if bullet else "", style), clean(text)))
