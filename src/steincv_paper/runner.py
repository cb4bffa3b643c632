"""Runs an experiment: cells over workers, each kept as soon as it is done, and at the end tables, figures and claims.

OUT/run.json        what is being run: settings and versions; another run is refused
OUT/cells/NAME.json one file per finished cell; a run that was stopped goes on with the others
OUT/results.csv     all rows; the same bytes for any number of workers
OUT/summary.json    settings, seeds, versions, seconds
OUT/claims.md       the paper's claims with numbers and verdicts
OUT/*.png, *.svg    the figures
"""

import difflib
import importlib
import json
import platform
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from steincv import __version__
from steincv.runtime.arrays import whole_file
from steincv.runtime.validation import InputError, StrPath, whole_number

from . import NAMES
from .claims import Claim, as_markdown
from .style import save_figures
from .workers import Worker, cores, dask_workers, local_workers

if TYPE_CHECKING:
    import pandas

# A cell is tried again once if its worker dies: of memory, or because someone ended it.
TRIES = 2


@dataclass(frozen=True)
class Cell:
    """Work that depends on nothing but its arguments, which JSON can hold. `cost` is its rough time in seconds."""

    name: str
    arguments: tuple
    cost: float = 1.0


@dataclass(frozen=True)
class Run:
    """A finished run: where it is, and what it found."""

    folder: Path
    claims: list[Claim]
    files: list[str]
    seconds: float


def reproduce(
    name: str,
    *,
    quick: bool = False,
    out: StrPath | None = None,
    workers: int | None = None,
    dask: str | None = None,
    force: bool = False,
    data: StrPath | None = None,
) -> Run:
    """Run the experiment called `name`, or go on with it where `out` holds a part of the same run.

    **Arguments:**

    - `quick`: a smaller one, of minutes.
    - `out`: the folder of the results, `reproduced/NAME` if not given.
    - `workers`: how many processes; one per core if not given. The results do not depend on it.
    - `dask`: the address of a Dask scheduler that is used instead.
    - `force`: replace another run's results in that folder.
    - `data`: where its data are, for an experiment that has some (bnn: digits, as `steincv_paper.digits.load_digits`
      reads them).
    """
    if name not in NAMES:
        close = difflib.get_close_matches(str(name), NAMES, n=1)
        hint = f"did you mean {close[0]}? Known are" if close else "known are"
        raise InputError(f"there is no experiment `{name}`; {hint} {', '.join(NAMES)}.")
    experiment = importlib.import_module(f".{name}", __package__)
    settings = experiment.QUICK if quick else experiment.FULL
    if data is not None:
        if not hasattr(settings, "data"):
            raise InputError(f"the experiment `{name}` makes its own data; leave out `data` (--data).")
        if not Path(data).exists():
            raise InputError(f"{data}: no such file or folder.")
        settings = replace(settings, data=str(data))
    folder = Path("reproduced") / name if out is None else Path(out)
    return run(experiment, settings, folder, workers=workers, dask=dask, force=force)


def run(
    experiment: Any,
    settings: Any,
    folder: Path,
    *,
    workers: int | None = None,
    dask: str | None = None,
    force: bool = False,
) -> Run:
    """Do all that `reproduce` does, for a module as described in the package's docstring."""
    workers = cores() if workers is None else whole_number("workers", workers, 1)
    cells = experiment.cells(settings)
    _check_names(cells)
    identity = _identity(experiment, settings)
    _open(folder, identity, force)
    found = {c.name: data for c in cells if (data := _read(folder, c)) is not None}
    waiting = [c for c in cells if c.name not in found]
    begin = time.perf_counter()

    def keep(cell: Cell, data: dict[str, Any]) -> None:
        found[cell.name] = {"name": cell.name, "arguments": cell.arguments, **data}
        _write_json(_path(folder, cell), found[cell.name])

    if waiting:
        places = dask_workers(dask) if dask else local_workers(min(workers, len(waiting)))
        with places as ready, _progress(identity["experiment"], cells, waiting) as advance:
            compute(experiment.cell, waiting, keep, ready, advance)
    seconds = time.perf_counter() - begin
    return _finish(experiment, settings, folder, identity, [found[c.name] for c in cells], seconds)


# Computing -------------------------------------------------------------------------------------------


def compute(
    function: Callable[..., list[dict]],
    cells: Sequence[Cell],
    keep: Callable[[Cell, dict[str, Any]], None],
    workers: Sequence[Worker],
    advance: Callable[[Cell], None],
) -> None:
    """Compute every cell on some worker, the longest first, so that none is left over at the end."""
    waiting = deque(sorted(cells, key=lambda c: -c.cost))
    idle = list(workers)
    running: dict[Any, tuple[Cell, Worker]] = {}
    tried: Counter[str] = Counter()
    while waiting or running:
        while waiting and idle:
            cell, worker = waiting.popleft(), idle.pop()
            tried[cell.name] += 1
            running[worker.submit(_timed, function, cell.arguments)] = cell, worker
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            cell, worker = running.pop(future)
            idle.append(worker)
            error = future.exception()
            if error is None:
                keep(cell, _same_version(future.result()))
                advance(cell)
            elif isinstance(error, BrokenExecutor):
                worker.replace()
                if tried[cell.name] >= TRIES:
                    raise InputError(
                        f"the process computing `{cell.name}` died {TRIES} times, perhaps for want of memory. What is "
                        f"finished is kept: run the same command again, with fewer --workers."
                    ) from error
                waiting.append(cell)
            elif isinstance(error, InputError):
                raise InputError(f"`{cell.name}`: {error}") from error
            else:
                error.add_note(f"in the cell `{cell.name}`; what is finished is kept")
                raise error


def _timed(function: Callable[..., list[dict]], arguments: tuple) -> dict[str, Any]:
    begin, cpu = time.perf_counter(), time.process_time()
    rows = function(*arguments)
    taken = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}
    return {"rows": rows, "version": __version__, **taken}


def _same_version(data: dict[str, Any]) -> dict[str, Any]:
    if data["version"] != __version__:
        raise InputError(f"a worker has steincv {data['version']}, this process {__version__}. Install the same.")
    return data


# Files -----------------------------------------------------------------------------------------------


def _identity(experiment: Any, settings: Any) -> dict[str, Any]:
    packages = {name: version(name) for name in ("numpy", "scipy", "jax")}
    versions = {"steincv": __version__, "python": platform.python_version(), **packages}
    name = experiment.__name__.rpartition(".")[2]
    # through JSON and back, so that it can be compared with what was read
    return json.loads(json.dumps({"experiment": name, "settings": asdict(settings), "versions": versions}))


def _open(folder: Path, identity: dict[str, Any], force: bool) -> None:
    """Make the folder ready, or refuse one that holds something else."""
    try:
        (folder / "cells").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be used as a folder for results: {error.strerror}.") from error
    marker = folder / "run.json"
    there = _load(marker) if marker.exists() else None
    if there == identity:
        return
    if marker.exists() or any(folder.glob("cells/*")):
        if not force:
            raise InputError(
                f"{folder}: holds the results of another run ({_difference(there, identity)}). "
                f"Choose another folder (--out), or replace them (--force)."
            )
        for file in folder.glob("cells/*.json"):
            file.unlink()
    _write_json(marker, identity)


def _difference(there: Any, identity: dict[str, Any]) -> str:
    if not isinstance(there, dict) or not all(isinstance(there.get(key), dict) for key in ("settings", "versions")):
        return "what it was cannot be read"
    if there.get("experiment") != identity["experiment"]:
        return f"of {there.get('experiment')}, not {identity['experiment']}"
    for part in ("versions", "settings"):
        for key in identity[part].keys() | there[part].keys():
            old, new = there[part].get(key), identity[part].get(key)
            if old != new:
                return f"with {key} = {old}, not {new}" if len(f"{old}{new}") < 200 else f"with another {key}"
    return "of another kind"


def _check_names(cells: Sequence[Cell]) -> None:
    twice = [name for name, count in Counter(c.name for c in cells).items() if count > 1]
    bad = [c.name for c in cells if not re.fullmatch(r"[\w.=-]{1,120}", c.name, re.ASCII) or c.name.startswith(".")]
    if twice or bad:
        raise InputError(f"the name of a cell must be a file name of its own, got {(twice + bad)[0]!r}.")


def _path(folder: Path, cell: Cell) -> Path:
    return folder / "cells" / f"{cell.name}.json"


def _read(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """Read a finished cell; one that cannot be read, or had other arguments, is done again."""
    data = _load(_path(folder, cell))
    whole = isinstance(data, dict) and data.keys() >= {"arguments", "rows", "seconds", "cpu_seconds"}
    return data if whole and data["arguments"] == json.loads(json.dumps(cell.arguments)) else None


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write_json(path: Path, data: Any) -> None:
    with whole_file(path, force=True) as file:
        file.write((json.dumps(data, indent=1) + "\n").encode())


def _finish(
    experiment: Any, settings: Any, folder: Path, identity: dict[str, Any], cells: list[dict[str, Any]], seconds: float
) -> Run:
    import pandas

    table = pandas.DataFrame([row for cell in cells for row in cell["rows"]])
    with whole_file(folder / "results.csv", force=True) as file:
        table.to_csv(file, index=False, lineterminator="\n")
    seeds = sorted(set(table["seed"].tolist())) if "seed" in table else []
    work = round(sum(cell["cpu_seconds"] for cell in cells), 1)
    each = {cell["name"]: round(cell["seconds"], 2) for cell in cells}
    _write_json(folder / "summary.json", {**identity, "seeds": seeds, "cpu_seconds": work, "seconds": each})
    return conclude(experiment, settings, table, folder, seconds)


def conclude(experiment: Any, settings: Any, table: "pandas.DataFrame", folder: Path, seconds: float = 0.0) -> Run:
    """Draw the figures and judge the claims, from the rows alone."""
    files = save_figures(experiment.figures(table, settings), folder)
    claims = experiment.claims(table, settings)
    with whole_file(folder / "claims.md", force=True) as file:
        file.write(as_markdown(claims).encode())
    return Run(folder, claims, ["results.csv", "summary.json", "claims.md", *files], seconds)


# Progress --------------------------------------------------------------------------------------------


@contextmanager
def _progress(name: str, cells: Sequence[Cell], waiting: Sequence[Cell]) -> Iterator[Callable[[Cell], None]]:
    """Show a bar on stderr with the time that is left; where that is no terminal, a line at every tenth."""
    console = Console(stderr=True)
    total = sum(c.cost for c in waiting)
    count, cost, tenth = len(cells) - len(waiting), 0.0, 0
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left:"))
    with Progress(
        *columns, TimeRemainingColumn(elapsed_when_finished=False), console=console, disable=not console.is_terminal
    ) as progress:
        line = progress.add_task(f"{name}: {count} of {len(cells)} cells", total=total)

        def advance(cell: Cell) -> None:
            nonlocal count, cost, tenth
            count, cost = count + 1, cost + cell.cost
            progress.update(line, advance=cell.cost, description=f"{name}: {count} of {len(cells)} cells")
            if not console.is_terminal and int(10.001 * cost / total) > tenth:
                tenth = int(10.001 * cost / total)
                console.print(f"{name}: {count} of {len(cells)} cells, {10 * tenth} % of the work")

        yield advance
