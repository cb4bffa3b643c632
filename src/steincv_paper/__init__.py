"""The paper's experiments: one short script each, its settings at the top, run by `steincv reproduce NAME`.

A script `NAME.py` holds

- `FULL`, `QUICK`: its settings, two instances of one frozen dataclass of numbers and text;
- `cells(settings)`: the independent pieces of work, a list of `Cell(name, arguments, cost)`;
- `cell(*arguments)`: does one of them and returns rows of numbers; all randomness comes from seeds in the arguments;
- `figures(table, settings)`: figures by name, from a data frame of all rows;
- `claims(table, settings)`: the paper's claims, each with its number and a verdict by a stated rule.

Everything else (processes, Dask, restarts, progress, files) is `_runner.py`; a new experiment is one file and one name
in its `NAMES`.
"""

from .runner import NAMES as NAMES, reproduce as reproduce
