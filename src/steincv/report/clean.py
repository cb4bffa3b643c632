"""Text that may hold anything, made safe to print."""

import re


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
