"""The paper's experiments: one short script each, its settings at the top, run by `steincv reproduce NAME`.

A script `NAME.py` holds

- `FULL`, `QUICK`: its settings, two instances of one frozen dataclass of numbers and text;
- `cells(settings)`: the independent pieces of work, a list of `Cell(name, arguments, cost)`;
- `cell(*arguments)`: does one of them and returns rows of numbers; all randomness comes from seeds in the arguments;
- `figures(table, settings)`: figures by name, from a data frame of all rows;
- `claims(table, settings)`: the paper's claims, each with its number and a verdict by a stated rule.

Everything else (processes, Dask, restarts, progress, files) is `runner.py`; a new experiment is one file and one name
in `NAMES`. Beside the experiments stand what only they need (`amortised.py`, `psgld.py`, `digits.py`, `models/`), the
example models of `steincv evidence` and the timings of `steincv bench`: whatever starts a process or fetches data is
here, and `steincv` itself does neither.
"""

from typing import TYPE_CHECKING

NAMES = ("synthetic", "constraints", "goodwin", "bnn")

if TYPE_CHECKING:
    from .runner import reproduce as reproduce
else:

    def __getattr__(name: str) -> object:
        """Load `reproduce` when it is first used: what runs it takes a second to import."""
        if name != "reproduce":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .runner import reproduce

        return reproduce
