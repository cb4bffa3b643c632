"""What the command prints: tables and sentences on stdout, or JSON; a spinner on stderr."""

import importlib
import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..judging.error_bars import Average
    from ..result import Estimate
    from ..samples.samples import Samples


def console(stderr: bool = False) -> Any:
    from rich.console import Console

    found = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not found.is_terminal:  # into a file or a pipe a table may be as wide as it needs
        found.width = max(found.width, 160)
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
    """A spinner on stderr while something takes long; nothing where stderr is no terminal."""
    from rich.text import Text

    from .text import clean

    errors = console(stderr=True)
    if not errors.is_terminal:
        yield
        return
    with errors.status(Text(f"{clean(what)} ...")):
        yield


def say(text: str, bullet: str = "", style: str = "") -> None:
    """One paragraph, as text: no markup, no control characters."""
    from rich.text import Text

    from .text import clean

    console().print(Text.assemble((f" {bullet} " if bullet else "", style), clean(text)))


def show(result: "Estimate", seconds: float) -> None:
    from .text import rich_table

    console().print(rich_table(result))
    say(result.gained())
    for warning in result.warnings():
        say(warning, bullet="-")
    say(f"Took {seconds:.1f} s, of which the fit {result.info.get('seconds', 0.0):.1f} s.")


def as_json(result: "Estimate", samples: "Samples", seconds: float) -> dict[str, Any]:
    """Everything the table shows and more, without the draws."""
    chains, draws, dim = samples.draws.shape
    return {
        "chains": chains,
        "draws": draws,
        "dim": dim,
        "seconds": seconds,
        "gained": result.gained(),
        "outputs": outputs(result),
        "sd": None if result.sd is None else outputs(result.sd),
    }


def outputs(result: "Estimate") -> list[dict[str, Any]]:
    def numbers(average: "Average", k: int) -> dict[str, Any]:
        return {
            "mean": average.mean[k],
            "standard_error": average.standard_error[k],
            "ess": average.ess[k],
            "interval_95": average.interval(0.95)[k],
        }

    plain, better = result.plain.reshape((-1,)), result._average.reshape((-1,))
    ratio = result.variance_ratio.reshape(-1)
    return [
        {
            "label": label,
            "plain": numbers(plain, k),
            "controlled": numbers(better, k),
            "variance_ratio": ratio[k],
            "method": result.method[k],
            "status": [{"code": s.code.name, "message": s.message} for s in result.status[k]],
        }
        for k, label in enumerate(result.labels)
    ]


def print_json(data: Any) -> None:
    """JSON as the standard has it: what is not finite becomes null."""
    from .store import plain_data

    print(json.dumps(_finite(plain_data(data)), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
