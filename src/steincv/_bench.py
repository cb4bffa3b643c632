"""`steincv bench`: the speeds that this library promises, beside those of this machine."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from ._estimate import estimate
from ._samples import Samples
from .families.kernel import Kernel
from .families.polynomial import Polynomial

CHAINS, DRAWS, DIM, FUNCTIONS = 4, 1250, 10, 100
FIRST_CALL = """
import numpy as np, steincv
x = np.random.default_rng(0).normal(size=(4, 1250, 10))
steincv.estimate(steincv.Samples(x, -x), np.tanh(x[..., 0]), steincv.Polynomial(2))
"""


@dataclass(frozen=True)
class Row:
    """The median, the fastest, and the bound to keep. Milliseconds, or a ratio of times taken in turn.

    On a machine with other work the fastest says more about the library, the median about the machine.
    """

    name: str
    median: float
    fastest: float
    target: float
    unit: str

    @property
    def kept(self) -> bool:
        return self.median < self.target


def main(argv: Sequence[str]) -> int:
    """Measure, and print a table or JSON. 0 whatever the speed: a slow machine is no error."""
    parser = argparse.ArgumentParser(prog="steincv bench", description="How fast steincv is on this machine.")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, and no kernel on 5000 draws")
    options = parser.parse_args(argv)
    rows = measure(options.quick)
    if options.json:
        print(json.dumps({"machine": machine(), "rows": [asdict(r) | {"kept": r.kept} for r in rows]}, indent=2))
    else:
        _print(rows)
    return 0


def machine() -> dict[str, Any]:
    packages = {name: version(name) for name in ("steincv", "numpy", "scipy", "jax")}
    return {"cores": os.cpu_count(), "processor": platform.machine(), "python": platform.python_version(), **packages}


def measure(quick: bool = False) -> list[Row]:
    """Every promise on the paper's mixture, 0.5 N(-1, I) + 0.5 N(1, I), 4 chains of 1250 exact draws."""
    samples, one, many = _problem()
    few = 3 if quick else 9
    rows = []
    for degree, milliseconds in ((2, 10.0), (3, 150.0)):
        method = Polynomial(degree)
        fit, whole, hundred = _medians(
            [
                partial(method.fit, samples, one),
                partial(estimate, samples, one, method),
                partial(method.fit, samples, many),
            ],
            3 * few if degree == 2 else few,
        )
        name = f"Polynomial({degree})"
        rows += [
            Row(f"{name}.fit, 5000 draws in 10 dimensions", *fit[0], milliseconds, "ms"),
            Row(f"estimate with {name}, cross-fitted", *whole[0], 6 * milliseconds, "ms"),
            Row(f"estimate with {name} / its fit", *whole[1], 6.0, "x"),
            Row(f"{name}.fit of {FUNCTIONS} functions / of one", *hundred[1], 3.0, "x"),
        ]
    kernel, small = Kernel(lengthscale=2.0), samples.select(np.arange(CHAINS), np.arange(250))
    rows.append(_row("Kernel(lengthscale=2).fit, 1000 draws", partial(kernel.fit, small, one[:, :250]), few, 60.0))
    if not quick:
        rows.append(_row("Kernel(lengthscale=2).fit, 5000 draws", partial(kernel.fit, samples, one), 3, 4000.0))
    fresh = partial(subprocess.run, [sys.executable, "-c", FIRST_CALL], check=True)
    rows.append(_row("first call in a fresh process, with import", fresh, 3, 5000.0))
    return rows


def _problem() -> tuple[Samples, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(CHAINS, DRAWS, DIM)) + rng.choice([-1.0, 1.0], size=(CHAINS, DRAWS, 1))
    score = np.tanh(x.sum(-1, keepdims=True)) - x
    many = np.sin(x @ rng.normal(size=(DIM, FUNCTIONS)) / np.sqrt(DIM))
    return Samples(x, score), np.sin(np.pi / DIM * x.sum(-1)), many


def _row(name: str, run: Callable[[], Any], repeats: int, target: float) -> Row:
    return Row(name, *_medians([run], repeats)[0][0], target, "ms")


def _medians(runs: Sequence[Callable[[], Any]], repeats: int) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """For each: its milliseconds and its ratio to the first, (median, fastest); in turn, after one warm round."""
    times = [[_milliseconds(run) for run in runs] for _ in range(repeats + 1)][1:]
    first, found = min(t[0] for t in times), []
    for k in range(len(runs)):
        fastest = min(t[k] for t in times)
        ratio = statistics.median(t[k] / t[0] for t in times)
        found.append(((statistics.median(t[k] for t in times), fastest), (ratio, fastest / first)))
    return found


def _milliseconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - begin)


def _print(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    about = machine()
    table = Table("", "median", "fastest", "target", "", title="steincv bench", title_justify="left")
    for column in table.columns[1:4]:
        column.justify = "right"
    for row in rows:
        median, fastest, target = (
            f"{value:.0f} {row.unit}" if value >= 100 else f"{value:.3g} {row.unit}"
            for value in (row.median, row.fastest, row.target)
        )
        table.add_row(row.name, median, fastest, f"< {target}", "yes" if row.kept else "no")
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(table)
    packages = ", ".join(f"{name} {about[name]}" for name in ("python", "steincv", "numpy", "scipy", "jax"))
    console.print(f"{about['cores']} cores {about['processor']}, {packages}", highlight=False)
