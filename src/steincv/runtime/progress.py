"""One progress bar for all long work, on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(what: str, total: int, shown: bool | None) -> Iterator[Callable[[float], None]]:
    """Yield a function to call with the amount of work done since the last call. `shown=None`: on a terminal only."""
    if shown is False:
        yield lambda amount: None
        return
    from rich.console import Console  # not at the top: every fit imports this module, and few show progress
    from rich.progress import Progress

    console = Console(stderr=True)
    hidden = shown is None and not console.is_terminal
    with Progress(console=console, transient=True, disable=hidden) as progress:
        line = progress.add_task(what, total=total)
        yield lambda amount: progress.advance(line, amount)
