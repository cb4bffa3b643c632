"""Draws and scores from files: .npz, and what nutpie writes as NetCDF or Zarr; and from such data in memory."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..runtime.arrays import read_arrays
from ..runtime.validation import InputError, StrPath, reading, reserve
from .samples import Parameters, Samples
from .variables import Group, Labelled, Variable, in_group, in_memory, labels, named, refuse_claims, rest

DRAWS, SCORES, COORDINATE = "unconstrained_draw", "gradient", "unconstrained_parameter"
NETCDF = (".nc", ".nc4", ".netcdf", ".h5")

Groups = Callable[[str], Labelled | None]


def read_samples(path: StrPath) -> Samples:
    """Read draws and scores from a file.

    - `.npz`: arrays `draws` and `scores`, and `names` if there are any.
    - `.nc` (NetCDF) and Zarr folders: `unconstrained_draw` and `gradient` in the group `sample_stats` or at
      the root, as nutpie stores them with `store_unconstrained=True, store_gradient=True`. The parameters as the
      user knows them are those of the group `posterior`.
    """
    file = Path(path)
    if not file.exists():
        raise InputError(f"{file}: no such file.")
    if file.suffix == ".npz":
        arrays = read_arrays(file, ["draws", "scores"], optional=["names"])
        with reading(file):
            names = [str(name) for name in arrays["names"].ravel()] if "names" in arrays else None
        try:
            return Samples(arrays["draws"], arrays["scores"], names)
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
    if file.suffix in NETCDF or file.is_dir():
        with reading(file), ExitStack() as closing:
            return labelled_samples(str(file), open_groups(file, closing, "files"))
    raise InputError(f"{file}: what kind of file is this? Known are .npz, .nc and Zarr folders.")


def open_groups(file: Path, closing: ExitStack, extra: str) -> Callable[[str], Group | None]:
    """Open a NetCDF file or Zarr folder through the gate; return a function that gives the group of a name.

    `extra` is what to install where a package is missing.
    """
    if not (file.is_file() or file.is_dir()):
        raise InputError(f"{file}: is neither a file nor a folder.")
    try:
        from .netcdf import open_netcdf
        from .zarr import open_zarr
    except ImportError as error:
        raise InputError(f"{file}: NetCDF and Zarr need more packages. Run: pip install 'steincv[{extra}]'") from error
    return open_zarr(file) if file.is_dir() else open_netcdf(file, closing)


# Labelled data ---------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """Unconstrained draws, their gradients, and the group that has the labels of their coordinates."""

    draws: Variable
    scores: Variable
    group: Group


def labelled_samples(where: str, group: Groups, shown: Iterable[str] | None = None) -> Samples:
    """Read samples from labelled data in nutpie's names; `group` gives the variables of a name, "" the root, or None.

    `shown` are the parameters, if their order is known. Otherwise it is that of the coordinates.
    """
    kept = kept_gradients(where, group)
    if kept is None:
        seen = [name for found in _places(group) for name in named(found)]
        raise InputError(
            f"{where}: holds no `{DRAWS}` and `{SCORES}` in sample_stats or at the root (it has "
            f"{', '.join(seen[:8]) or 'nothing there'}). With nutpie: "
            f"nutpie.sample(model, store_unconstrained=True, store_gradient=True)."
        )
    names = coordinate_names(where, kept, 3)
    axes = ("chain", "draw", *rest(kept.draws))
    draws, scores = (_numbers(where, variable, axes) for variable in kept[:2])
    posterior, parameters = group("posterior"), None
    if posterior is not None and _at_every_draw(in_group(posterior)):
        listed = _owners(in_group(posterior), names) if shown is None else shown
        parameters = posterior_parameters(where, posterior, listed)
    try:
        return Samples(draws, scores, names, parameters=parameters)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _places(group: Groups) -> Iterator[Group]:
    """Yield the group where nutpie puts draws and gradients, then the root."""
    return (in_group(found) for found in map(group, ("sample_stats", "")) if found is not None)


def kept_gradients(where: str, group: Groups) -> Kept | None:
    """Find unconstrained draws and their gradients, if both were kept."""
    for found in _places(group):
        if SCORES in found and DRAWS in found:
            return Kept(found[DRAWS], found[SCORES], found)
        if SCORES in found and (draws := _kept_apart(where, found, group)) is not None:
            return Kept(draws, found[SCORES], found)
    return None


def coordinate_names(where: str, kept: Kept, axes: int | None = None) -> list[str]:
    """Return the names of the coordinates; refuse what are no draws and scores, on `axes` axes."""
    draws, scores, group = kept
    for variable in kept[:2]:
        refuse_no_numbers(where, variable)
        refuse_claims(where, variable)
    last = rest(draws)
    fits = len(last) == 1 and set(draws.dims) == set(scores.dims) and "draw" in draws.dims
    if not fits or len(draws.dims) != (axes or len(draws.dims)):
        raise InputError(
            f"{where}: `{draws.name}` has dimensions {draws.dims} and `{scores.name}` {scores.dims}, expected both to "
            f"have chain, draw and one more."
        )
    return [label if isinstance(label, str) else f"x[{label}]" for label in along(where, group, scores, last[0])]


def along(where: str, group: Group, variable: Variable, dim: str) -> Sequence[object]:
    """Return the labels of a variable along one of its axes, or numbers where it has none."""
    length = variable.shape[variable.dims.index(dim)]
    found = labels(group, dim)
    if found is not None and len(found) != length:
        raise InputError(f"{where}: `{dim}` has {len(found)} labels for {length} entries of `{variable.name}`.")
    return range(length) if found is None else found


def refuse_no_numbers(where: str, variable: Variable) -> None:
    if not variable.numeric:
        raise InputError(f"{where}: `{variable.name}` has dtype {variable.dtype}, expected real numbers.")


def _numbers(where: str, variable: Variable, axes: Iterable[str]) -> np.ndarray:
    """Read a variable as an array of these axes."""
    refuse_no_numbers(where, variable)
    refuse_claims(where, variable)
    reserve(f"{where}: reading `{variable.name}` of shape {variable.shape}", 3 * variable.nbytes, "Thin the draws.")
    return variable.arranged(*axes)


def _kept_apart(where: str, found: Group, group: Groups) -> Variable | None:
    """Put together the draws that gradients belong to where they are kept per variable, as PyMC does, or None."""
    names = labels(found, COORDINATE)
    if names is None or COORDINATE not in found[SCORES].dims:
        return None
    columns = []
    groups = [in_group(g) for g in map(group, ("unconstrained_posterior", "posterior")) if g is not None]
    for label in map(str, names):
        name, index = _value_name(label)
        variable = next((g[name] for g in groups if name in g), None)
        if variable is None or len(variable.dims) != 2 + len(index):
            return None
        values = _numbers(where, variable, ("chain", "draw", *rest(variable)))
        place: tuple[slice | int, ...] = (slice(None), slice(None), *index)
        columns.append(values[place])
    return in_memory(DRAWS, ("chain", "draw", COORDINATE), np.stack(columns, axis=-1))


def _value_name(label: str) -> tuple[str, tuple[int, ...]]:
    """Split a coordinate into variable and index: PyMC's `p_simplex___1` into `p_simplex__` and 1; Stan's `cov.2.1`."""
    pymc = re.fullmatch(r"(.+)_(\d+(?:\.\d+)*)", label)
    if pymc:
        return pymc[1], tuple(map(int, pymc[2].split(".")))
    base, *index = label.split(".")
    return (base, tuple(int(i) - 1 for i in index)) if all(i.isdecimal() for i in index) else (label, ())


def posterior_parameters(where: str, posterior: Labelled, shown: Iterable[str]) -> Parameters:
    """Read the variables of the posterior that have numbers at every draw, with the labels of their axes."""
    group = in_group(posterior)
    arrays, coords = {}, {}
    for name in _at_every_draw(group):
        axes = rest(group[name])
        arrays[name] = _numbers(where, group[name], ("chain", "draw", *axes))
        coords[name] = [along(where, group, group[name], dim) for dim in axes]
    return Parameters(arrays, shown, coords)


def _at_every_draw(posterior: Group) -> list[str]:
    return [name for name, v in posterior.items() if v.numeric and {"chain", "draw"} <= set(v.dims)]


def _owners(posterior: Group, names: Sequence[str]) -> list[str]:
    """Return the variables that coordinates belong to, in their order, for files forget that of the posterior.

    All variables where it is not clear whose a coordinate is.
    """
    variables, owners = _at_every_draw(posterior), []
    for label in names:  # `tau_log__` is of `tau`, `theta_1` of `theta`
        value = label if label in variables else _value_name(label)[0]
        # what PyMC transforms is called by name and transform: the longest name, for there may be an `a` and an `a_b`
        untransformed = [name for name in variables if value.startswith(f"{name}_") and value.endswith("__")]
        owners.append(max(untransformed, key=len, default=value))
    return list(dict.fromkeys(owners)) if set(owners) <= set(variables) else variables
