"""A progress bar on stderr, or nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(what: str, total: int, shown: bool) -> Iterator[Callable[[float], None]]:
    """Call what is yielded with the amount of work done since the last call."""
    if not shown:
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        line = progress.add_task(what, total=total)
        yield lambda amount: progress.advance(line, amount)
