"""From CmdStan: its diagnostic files, which hold unconstrained draws and gradients of the potential; Stan's names."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from ..runtime.validation import InputError, StrPath, reading, reserve
from ..samples.samples import Parameters, Samples
from .foreign import foreign
from .shared import entry

HOW = "CmdStanPy: model.sample(..., save_latent_dynamics=True, sig_figs=17); CmdStan: output diagnostic_file=..."


def from_cmdstan(fit: object) -> Samples:
    """Return samples from a fit of CmdStanPy that kept its latent dynamics, or from the diagnostic files of CmdStan.

    **Arguments:**

    - `fit`: a `CmdStanMCMC`, or the path of a diagnostic file, or a list of them, one per chain.

    The parameters as you know them come from the output files that belong to the diagnostic ones. Where those are
    not beside them, the table is about the unconstrained coordinates. Warm-up is left out.
    """
    if isinstance(fit, str | os.PathLike):
        fit = [fit]
    if isinstance(fit, list | tuple) and fit and all(isinstance(file, str | os.PathLike) for file in fit):
        files = [Path(file) for file in fit]
        outputs = [_output_of(file) for file in files]
    else:
        if not isinstance(fit, foreign("cmdstan").CmdStanMCMC):
            raise InputError(f"`fit` must be a cmdstanpy.CmdStanMCMC or diagnostic files, got {type(fit).__name__}.")
        files = [Path(file) for file in fit.runset.diagnostic_files if file]
        if len(files) != fit.runset.chains:
            raise InputError(f"the fit kept no gradients. {HOW}. Or use BridgeStan: from_stan(fit, model).")
        outputs = [Path(file) for file in fit.runset.csv_files]
    chains = [read_table(file) for file in files]
    columns = chains[0].names
    dim = len(columns) // 3
    if not dim or len(columns) % 3 or columns[2 * dim :] != tuple(f"g_{name}" for name in columns[:dim]):
        raise InputError(f"{files[0]}: not a diagnostic file of CmdStan; it has no gradients, g_*. {HOW}.")
    flat = stack(chains)
    scores = -flat[..., 2 * dim :]  # of the density, not of the potential
    parameters = None
    if all(output is not None and output.exists() for output in outputs):
        tables = [read_table(output) for output in outputs if output is not None]
        for chain, table in zip(chains, tables, strict=True):
            if not np.array_equal(chain.log_density, table.log_density):
                raise InputError(f"{table.path}: belongs to another run than {chain.path}. Put them into two folders.")
        arrays = gather(tables[0].names, stack(tables))
        shown = [name for name in bases(columns[:dim]) if name in arrays]
        parameters = Parameters(arrays, shown=shown)
    names = [label_of(name) for name in columns[:dim]]
    return Samples(flat[..., :dim], scores, names, parameters=parameters, gradients=gradients_of(chains))


@dataclass(frozen=True, eq=False)
class Table:
    """One chain: its columns without those of the sampler, and the draws after warm-up."""

    path: Path
    names: tuple[str, ...]
    rows: np.ndarray
    log_density: np.ndarray
    gradients: int | None


def gradients_of(tables: Sequence[Table]) -> int | None:
    """Return how many gradients all chains took, where every one of them says so."""
    spent = [table.gradients for table in tables]
    return None if None in spent else sum(map(int, spent))  # type: ignore[arg-type]


def read_table(path: StrPath) -> Table:
    """Read a CSV file of CmdStan: settings as comments, names, draws."""
    import pandas

    path = Path(path)
    with reading(path):
        reserve(f"{path}: reading it", 3 * path.stat().st_size, "Thin the draws.")
        settings, names = _settings(path)
        if "lp__" not in names:
            raise InputError(f"{path}: not a file of draws of CmdStan.")
        numbers = pandas.read_csv(path, comment="#", header=0, names=range(len(names)), dtype=np.float64)
        thin = int(settings.get("thin", 1))
        kept, warmup = (ceil(int(settings.get(key, 0)) / thin) for key in ("num_samples", "num_warmup"))
        skip = warmup if settings.get("save_warmup") in ("1", "true") else 0
        rows = numbers.to_numpy()[skip:]
    if kept and len(rows) != kept:
        raise InputError(f"{path}: holds {len(rows)} draws after warm-up, expected {kept}: the run was interrupted.")
    model = [column for column, name in enumerate(names) if not name.endswith("__")]
    spent = int(rows[:, names.index("n_leapfrog__")].sum()) if "n_leapfrog__" in names else None
    shown = tuple(names[column] for column in model)
    return Table(path, shown, rows[:, model], rows[:, names.index("lp__")], spent)


def stack(tables: Sequence[Table]) -> np.ndarray:
    """Stack chains as `(chain, draw, column)`."""
    for table in tables[1:]:
        if table.names != tables[0].names or table.rows.shape != tables[0].rows.shape:
            raise InputError(f"{table.path}: its columns or draws are not those of {tables[0].path}.")
    return np.stack([table.rows for table in tables])


def _settings(path: Path) -> tuple[dict[str, str], list[str]]:
    """Read the settings `# key = value (Default)` above the names, and the names. `file` of output is `output file`."""
    settings: dict[str, str] = {}
    section = ""
    with open(path) as file:
        for line in file:
            if not line.startswith("#"):
                return settings, line.strip().split(",")
            key, equals, value = (part.strip() for part in line[1:].partition("="))
            if equals:
                settings[f"{section} file" if key == "file" else key] = value.removesuffix("(Default)").strip()
            elif not line.startswith("#  "):
                section = key
    return settings, []


def _output_of(diagnostic: Path) -> Path | None:
    """Return the output file beside a diagnostic one. Chains of one process are numbered: out.csv becomes out_1.csv."""
    with reading(diagnostic):
        settings, _ = _settings(diagnostic)
    named, output = Path(settings.get("diagnostic_file", "")), Path(settings.get("output file", ""))
    if not output.name or not diagnostic.stem.startswith(named.stem):
        return None
    number = diagnostic.stem.removeprefix(named.stem)
    return diagnostic.with_name(f"{output.stem}{number}{output.suffix}")


# Stan's flat names: `mu`, `theta.1`, `cov.2.1`, counted from 1 and column by column.


def split_name(name: str) -> tuple[str, tuple[int, ...]]:
    """Return what is indexed, and the index from 0: `cov.2.1` is entry (1, 0) of `cov`."""
    found = re.fullmatch(r"(.+?)((?:\.\d+)*)", name)
    base, index = (found[1], found[2]) if found else (name, "")
    return base, tuple(int(i) - 1 for i in index.split(".")[1:])


def label_of(name: str) -> str:
    """Return the label that ArviZ gives: `cov[1, 0]`."""
    base, index = split_name(name)
    return f"{base}[{', '.join(map(str, index))}]" if index else base


def bases(names: Sequence[str]) -> list[str]:
    """Return the variables, in order, each once."""
    return list(dict.fromkeys(split_name(name)[0] for name in names))


def gather(names: Sequence[str], flat: np.ndarray) -> dict[str, np.ndarray]:
    """Put columns `(chain, draw, column)` together again: `(chain, draw, ...)` for every variable."""
    places: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    for column, name in enumerate(names):
        base, index = split_name(name)
        places.setdefault(base, []).append((column, index))
    arrays = {}
    for base, entries in places.items():
        shape = tuple(max(axis) + 1 for axis in zip(*(index for _, index in entries), strict=True))
        array = np.full((*flat.shape[:2], *shape), np.nan)
        for column, index in entries:
            entry(array, index)[...] = flat[..., column]
        arrays[base] = array
    return arrays
