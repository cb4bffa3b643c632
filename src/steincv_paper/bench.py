"""`steincv bench`: the speeds that this library promises, beside those of this machine.

Times on a shared machine mean little by themselves. So a fixed piece of linear algebra, the calibration, is timed in
the same run, between the others, and every time is also given as a multiple of it. `--check` compares those multiples
with the ones of an earlier run: a slower machine is slower in both, a slower library only in one.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from steincv.demo import eight_schools_parameters
from steincv.estimating import estimate
from steincv.families.kernel.kernel import Kernel
from steincv.families.neural.neural import CNCV
from steincv.families.polynomial.polynomial import Polynomial
from steincv.report.figures import new_figure, save_png
from steincv.runtime.arrays import refuse_target, whole_file
from steincv.runtime.threads import blas_threads
from steincv.runtime.validation import InputError, reading
from steincv.samples.files import read_samples
from steincv.samples.samples import Samples

if sys.platform != "win32":
    import pty

CHAINS, DRAWS, DIM, FUNCTIONS = 4, 1250, 10, 100
# The whole default: what a user waits for. Targets are in milliseconds, of a machine with two cores.
SECONDS = {"second": 1000.0, "new": 3500.0, "demo": 4000.0, 60: 4000.0, 100: 6000.0}
STARTS = {"import": 350.0, "output": 500.0}
OUTPUTS, FEW_OUTPUTS, MOST_TIMES, MOST_MEMORY = 2000, 20, 8.0, 1536.0
FIRST_CALL = """
import numpy as np, steincv
x = np.random.default_rng(0).normal(size=(4, 1250, 10))
steincv.estimate(steincv.Samples(x, -x), np.tanh(x[..., 0]), steincv.Polynomial(2))
"""


EIGHT_SCHOOLS = """
from importlib.resources import files
import steincv
from steincv.demo import eight_schools_parameters
from steincv.samples.files import read_samples
samples = read_samples(str(files("steincv") / "data" / "eight_schools.npz"))
steincv.estimate(samples, eight_schools_parameters(samples.draws))
"""
STORED = """
import sys, numpy as np, steincv
stored = np.load(sys.argv[1])
steincv.estimate(steincv.Samples(stored["draws"], stored["scores"]), stored["values"])
"""
MEMORY = (
    STORED
    + """
import resource
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
)


LAST_RUN = Path("benchmarks/results/bench.json")
# A row this many times slower than it was, both counted in calibrations, is a regression.
SLOWER = 1.6


@dataclass(frozen=True)
class Row:
    """The median, fastest and slowest, and the bound to keep, if there is one: milliseconds, a ratio of times, or MiB.

    On a machine with other work the fastest says more about the library, the median about the machine. `relative` is
    the fastest over that of the calibration.
    """

    name: str
    median: float
    fastest: float
    slowest: float
    target: float | None
    unit: str
    relative: float | None = None

    @property
    def kept(self) -> bool | None:
        return None if self.target is None else self.median < self.target


def main(argv: Sequence[str]) -> int:
    """Measure, and print a table or JSON. Return 0 whatever the speed; exit with 1 if --check finds a slower row."""
    parser = argparse.ArgumentParser(prog="steincv bench", description="How fast steincv is on this machine.")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, and neither large kernels nor networks")
    parser.add_argument("--out", metavar="JSON", help="write the run to a file as well")
    parser.add_argument("--picture", metavar="PNG", help="draw it")
    parser.add_argument("--check", metavar="JSON", nargs="?", const=str(LAST_RUN), help="compare with an earlier run")
    options = parser.parse_args(argv)
    earlier = None if options.check is None else read_run(options.check)
    for path in filter(None, (options.out, options.picture)):
        refuse_target(path, force=True, inputs=filter(None, [options.check]))
    if options.picture and options.out and os.path.realpath(options.picture) == os.path.realpath(options.out):
        raise InputError(f"--out and --picture are the same file, {options.out}. Give them two names.")
    rows = measure(options.quick)
    run = {"machine": machine(), "rows": [asdict(r) | {"kept": r.kept} for r in rows]}
    if options.out:
        with whole_file(options.out, force=True) as file:
            file.write(json.dumps(run, indent=1).encode() + b"\n")
    if options.picture:
        draw(rows, options.picture)
    slower = [] if earlier is None else regressions(rows, earlier)
    if options.json:
        print(json.dumps(run | ({} if earlier is None else {"slower": slower}), indent=2))
    else:
        _print(rows)
        for line in slower:
            print(line)
        if earlier is not None and not slower:
            print(f"No row is more than {SLOWER:g} times slower than in {options.check}, in calibrations.")
    if slower:
        raise SystemExit(1)
    return 0


def read_run(path: str) -> dict[str, float]:
    """Read what every row of an earlier run took, in calibrations."""
    with reading(path):
        rows = json.loads(Path(path).read_bytes())["rows"]
        return {str(row["name"]): float(row["relative"]) for row in rows if row.get("relative") is not None}


def regressions(rows: Sequence[Row], earlier: Mapping[str, float]) -> list[str]:
    """Return one line per row that has become slower."""
    times = [(row.name, row.relative / earlier[row.name]) for row in rows if row.relative and row.name in earlier]
    return [f"slower: {name}, {ratio:.2f} times what it was" for name, ratio in times if ratio > SLOWER]


def machine() -> dict[str, Any]:
    packages = {name: version(name) for name in ("steincv", "numpy", "scipy", "jax")}
    kind = {"cores": os.cpu_count(), "processor": platform.machine(), "system": platform.system()}
    return {**kind, "date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), **packages}


def measure(quick: bool = False) -> list[Row]:
    """Time all methods and sizes on the paper's mixture 0.5 N(-1, I) + 0.5 N(1, I) by 4 chains of exact draws."""
    samples, one, many = _problem()
    few = 3 if quick else 9
    timer = _Timer()
    for degree, milliseconds in ((2, 10.0), (3, 150.0)):
        method = Polynomial(degree)
        name = f"Polynomial({degree})"
        timer.rows(
            [
                (f"{name}.fit, 5000 draws in 10 dimensions", partial(method.fit, samples, one), milliseconds),
                (f"estimate with {name}, cross-fitted", partial(estimate, samples, one, method), 6 * milliseconds),
                (f"{name}.fit of {FUNCTIONS} functions", partial(method.fit, samples, many), None),
            ],
            3 * few if degree == 2 else few,
            ratios=[
                (1, f"estimate with {name} / its fit", 6.0),
                (2, f"{name}.fit of {FUNCTIONS} functions / of one", 3.0),
            ],
        )
    kernel, small = Kernel(lengthscale=2.0), samples.select(np.arange(CHAINS), np.arange(250))
    timer.rows([("Kernel(lengthscale=2).fit, 1000 draws", partial(kernel.fit, small, one[:, :250]), 60.0)], few)
    landmarks = Kernel(lengthscale=2.0, landmarks=200)
    for draws in (1250, 5000):
        x, f, _ = _problem(draws, DIM)
        timer.rows(
            [
                (f"Polynomial(1).fit, {4 * draws} draws", partial(Polynomial(1).fit, x, f), None),
                (f"Polynomial(2).fit, {4 * draws} draws", partial(Polynomial(2).fit, x, f), None),
                (f"Kernel(landmarks=200).fit, {4 * draws} draws", partial(landmarks.fit, x, f), None),
            ],
            3,
        )
    for dim in (2, 40):
        x, f, _ = _problem(DRAWS, dim)
        timer.rows([(f"Polynomial(2).fit, 5000 draws in {dim} dimensions", partial(Polynomial(2).fit, x, f), None)], 3)
    if not quick:
        timer.rows([("Kernel(lengthscale=2).fit, 5000 draws", partial(kernel.fit, samples, one), 4000.0)], 3)
        network = CNCV(steps=500)
        timer.rows([("CNCV(steps=500).fit, 5000 draws", partial(network.fit, samples, one), None)], 3)
    timer.rows([("first call in a fresh process, with import", partial(_python, FIRST_CALL), 5000.0)], 3)
    with tempfile.TemporaryDirectory() as folder:
        _waits(timer, Path(folder), quick)
    return timer.finish()


def _waits(timer: "_Timer", folder: Path, quick: bool) -> None:
    """Time the default as a user meets it: `Auto()`, the command, and the import, most of them in new processes."""
    few, whole = 3 if quick else 5, "Auto() on eight schools, 4 x 1000"
    timer.rows([(f"{whole}, second call", _eight_schools(), SECONDS["second"])], few)
    demo = partial(_command, "demo", "--out", str(folder / "demo.png"), "--force")
    starts: list[tuple[str, Callable[[], Any], float | None]] = [
        (f"{whole}, new process with import", partial(_python, EIGHT_SCHOOLS), SECONDS["new"]),
        ("steincv demo, the whole command", demo, SECONDS["demo"]),
        ("import steincv, from the start of Python", partial(_python, "import steincv"), STARTS["import"]),
        ("first output of steincv demo, from the start of Python", _first_output, STARTS["output"]),
    ]
    for row in starts:
        timer.rows([row], few)
    for dim in () if quick else (60, 100):
        file = _stored(folder / f"{dim}.npz", 500, dim, 12)
        name = f"Auto() in {dim} dimensions, 4 x 500, new process with import"
        timer.rows([(name, partial(_python, STORED, file), SECONDS[dim])], 2)
    if not quick:
        files = [_stored(folder / f"{count}.npz", 1000, DIM, count) for count in (FEW_OUTPUTS, OUTPUTS)]
        names = [f"Auto() of {count} functions, 4 x 1000, new process" for count in (FEW_OUTPUTS, OUTPUTS)]
        ratio = f"Auto() of {OUTPUTS} functions / of {FEW_OUTPUTS}"
        runs = [(name, partial(_python, STORED, file), None) for name, file in zip(names, files, strict=True)]
        timer.rows(runs, 1, ratios=[(1, ratio, MOST_TIMES)])
        used = float(_python(MEMORY, files[1]))
        timer.found.append(Row(f"memory of {OUTPUTS} functions", used, used, used, MOST_MEMORY, "MiB"))


def _python(program: str, *arguments: str) -> str:
    """Run a program in a new Python with nothing compiled by JAX before, and return what it prints."""
    fresh = {**os.environ, "STEINCV_CACHE": "0"}
    call = [sys.executable, "-c", program, *arguments]
    return subprocess.run(call, check=True, env=fresh, stdout=subprocess.PIPE, text=True).stdout


def _command(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "steincv", *arguments], check=True, stdout=subprocess.DEVNULL)


def _first_output() -> None:
    """Wait for the first byte that `steincv demo` writes to a terminal."""
    if sys.platform == "win32":
        return
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "steincv", "demo"], stdout=theirs, stderr=theirs) as running:
        os.read(ours, 1)
        running.kill()
    os.close(ours)
    os.close(theirs)


def _eight_schools() -> Callable[[], object]:
    with as_file(files("steincv") / "data" / "eight_schools.npz") as file:
        samples = read_samples(file)
    return partial(estimate, samples, eight_schools_parameters(samples.draws))


def _stored(path: Path, draws: int, dim: int, functions: int) -> str:
    """Write draws of the mixture and so many waves of them to a file."""
    samples, _, many = _problem(draws, dim, functions)
    np.savez(path, draws=samples.draws, scores=samples.scores, values=many)
    return str(path)


def _problem(draws: int = DRAWS, dim: int = DIM, functions: int = FUNCTIONS) -> tuple[Samples, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(CHAINS, draws, dim)) + rng.choice([-1.0, 1.0], size=(CHAINS, draws, 1))
    score = np.tanh(x.sum(-1, keepdims=True)) - x
    many = np.sin(x @ rng.normal(size=(dim, functions)) / np.sqrt(dim))
    return Samples(x, score), np.sin(np.pi / dim * x.sum(-1)), many


class _Timer:
    """Rows of times, with the calibration timed before each of them."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.matrix = rng.normal(size=(2000, 200))
        self.calibrations = [self._calibrate() for _ in range(4)][1:]
        self.found: list[Row] = []

    def _calibrate(self) -> float:
        def work() -> None:
            with blas_threads(0):
                np.linalg.eigh(self.matrix.T @ self.matrix)
                np.sort(np.tanh(self.matrix), axis=0)

        return _milliseconds(work)

    def rows(
        self,
        runs: Sequence[tuple[str, Callable[[], Any], float | None]],
        repeats: int,
        ratios: Sequence[tuple[int, str, float]] = (),
    ) -> None:
        """Time all runs in turn, after one warm round; `ratios` are of the run of that number to the first."""
        times = []
        for _ in range(repeats + 1):
            self.calibrations.append(self._calibrate())
            times.append([_milliseconds(run) for _, run, _ in runs])
        for k, (name, _, target) in enumerate(runs):
            column = [t[k] for t in times[1:]]
            self.found.append(Row(name, statistics.median(column), min(column), max(column), target, "ms"))
        for k, name, target in ratios:
            column = [t[k] / t[0] for t in times[1:]]
            self.found.append(Row(name, statistics.median(column), min(column), max(column), target, "x"))

    def finish(self) -> list[Row]:
        unit = min(self.calibrations)
        known = (statistics.median(self.calibrations), unit, max(self.calibrations))
        rows = [row if row.unit != "ms" else replace(row, relative=row.fastest / unit) for row in self.found]
        return [Row("calibration", *known, None, "ms", 1.0), *rows]


def _milliseconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - begin)


def draw(rows: Sequence[Row], path: str) -> None:
    """Draw the times of all rows in calibrations, from the fastest to the slowest, with the median marked."""
    timed = [row for row in rows if row.relative]
    unit = timed[0].fastest
    figure = new_figure(8, 0.32 * len(timed) + 1.2)
    axes = figure.subplots()
    for y, row in enumerate(reversed(timed)):
        low, middle, high = (value / unit for value in (row.fastest, row.median, row.slowest))
        axes.plot([low, high], [y, y], color="#9db4c8", linewidth=5, solid_capstyle="round")
        axes.plot([middle], [y], "o", color="#1f4e79", markersize=5)
    axes.set_yticks(range(len(timed)), [row.name for row in reversed(timed)], fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel(
        f"time in calibrations (one was {unit:.3g} ms here); bar: fastest to slowest, dot: median", fontsize=8
    )
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    save_png(figure, path)


def _print(rows: Sequence[Row]) -> None:
    about = machine()
    heads = ("", "median", "fastest", "slowest", "calibrations", "target", "")
    table = Table(*heads, title="steincv bench", title_justify="left")
    for column in table.columns[1:6]:
        column.justify = "right"
    for row in rows:
        shown = [_shown(value, row.unit) for value in (row.median, row.fastest, row.slowest)]
        bound = "" if row.target is None else f"< {_shown(row.target, row.unit)}"
        kept = "" if row.kept is None else "yes" if row.kept else "no"
        table.add_row(row.name, *shown, "" if row.relative is None else f"{row.relative:.3g}", bound, kept)
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 140)
    console.print(table)
    packages = ", ".join(f"{name} {about[name]}" for name in ("python", "steincv", "numpy", "scipy", "jax"))
    console.print(f"{about['date']}, {about['cores']} cores {about['processor']}, {packages}", highlight=False)


def _shown(value: float, unit: str) -> str:
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
