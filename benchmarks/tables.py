"""Tables of the studies: printed as they are, and kept as CSV under results/."""

import csv
import os
import pathlib
import platform
from collections.abc import Sequence
from importlib.metadata import version

from rich.console import Console
from rich.table import Table

RESULTS = pathlib.Path(__file__).parent / "results"


def text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def show(title: str, rows: Sequence[dict]) -> None:
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*[text(value) for value in row.values()])
    console = Console()
    console.width = max(console.width, 140)
    console.print(table)


def keep(name: str, rows: Sequence[dict]) -> None:
    """Write results/NAME.csv, with four digits, and say where it ran."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()})
    print(f"{path.name}: {len(rows)} rows. {machine()}")


def machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("jax", "numpy", "scipy"))
    return f"{os.cpu_count()} cores {platform.machine()}, Python {platform.python_version()}, {packages}"
