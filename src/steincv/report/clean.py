"""Text that may hold anything, made safe to print."""


def clean(text: object, longest: int | None = None) -> str:
    r"""`text` on one line, with control characters written out (`\x1b`), cut to `longest` characters."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
    return shown if longest is None or len(shown) <= longest else shown[: longest - 1] + "…"
