"""Draws that stay in their file: how one is opened as a source of tiles, and what the user holds of it."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ..runtime.validation import InputError, StrPath, reading, whole_number
from .files import DRAWS, NETCDF, SCORES, Groups, Kept, coordinate_names, open_groups
from .samples import Samples
from .source import FileSource, Source
from .variables import Group, Labelled, Variable, in_group, named, rest

if TYPE_CHECKING:
    import xarray


Openable = Union[StrPath, "xarray.Dataset", "xarray.DataTree"]
# The names that draws and scores may have: nutpie's, and ours.
PAIRS = ((DRAWS, SCORES), ("draws", "scores"))


def open_source(path: Openable) -> Source:
    """Open a Zarr folder, a NetCDF file, or a dataset that is open already (its arrays may be Dask's)."""
    if not isinstance(path, str | os.PathLike):
        return _labelled("the dataset", groups_of(path), ExitStack())
    file = Path(path)
    if not file.exists():
        raise InputError(f"{file}: no such file.")
    if file.suffix == ".npz":
        raise InputError(f"{file}: an .npz is read whole; use steincv.Samples(...). Zarr and NetCDF can be streamed.")
    if not file.is_dir() and file.suffix not in NETCDF:
        raise InputError(f"{file}: what kind of file is this? Zarr folders and NetCDF files (.nc) can be streamed.")
    with reading(file), ExitStack() as opened:
        source = _labelled(str(file), open_groups(file, opened, "scale"), opened)
        return replace(source, closing=opened.pop_all())


def groups_of(data: Union["xarray.Dataset", "xarray.DataTree"]) -> Callable[[str], Labelled | None]:
    """Return a function that gives the dataset of a name, "" for the root, or None where there is no such group."""
    if not (hasattr(data, "data_vars") or hasattr(data, "children")):
        raise InputError(f"`path` is a {type(data).__name__}, expected the path of a file, or a dataset of xarray.")
    tree: Any = data

    def group(name: str) -> Labelled | None:
        if not name:
            return tree.to_dataset() if hasattr(tree, "to_dataset") else tree
        children = getattr(tree, "children", {})
        return children[name].to_dataset() if name in children else None

    return group


def _labelled(where: str, group: Groups, closing: ExitStack) -> FileSource:
    """Find the pair of draws and scores in the groups where it may be."""
    groups = [in_group(found) for found in map(group, ("sample_stats", "", "posterior")) if found is not None]
    for found in groups:
        for draws, scores in PAIRS:
            if draws in found and scores in found:
                return _source(where, Kept(found[draws], found[scores], found), groups, closing)
    there = ", ".join(name for found in groups for name in named(found))[:200] or "nothing"
    pairs = " or ".join(f"`{draws}` and `{scores}`" for draws, scores in PAIRS)
    raise InputError(f"{where}: holds no {pairs} in sample_stats or at the root; it has {there}.")


def _source(where: str, kept: Kept, groups: list[Group], closing: ExitStack) -> FileSource:
    if not any((*kept.draws.dims, *kept.scores.dims)):
        bare = {name: _with_axes(variable, len(kept.draws.shape) == 2) for name, variable in kept.group.items()}
        kept, groups = Kept(bare[kept.draws.name], bare[kept.scores.name], bare), [bare]
    columns: Group = {}
    for found in groups:
        for name, variable in found.items():
            if variable.numeric and "draw" in variable.dims and variable.dims != (name,):
                columns.setdefault(name, variable)
    names = tuple(coordinate_names(where, kept))
    shape, scores = (tuple(v.sizes.get(dim, 1) for dim in ("chain", "draw", *rest(kept.draws))) for v in kept[:2])
    if shape != scores or len(shape) != 3 or not all(shape):
        raise InputError(
            f"{where}: the draws have shape {shape} and the scores {scores}, expected (chain, draw, dim) of both."
        )
    if len(set(names)) != shape[2]:
        raise InputError(f"{where}: the {shape[2]} coordinates need different names, got {names[:6]}...")
    return FileSource(where, names, kept.draws, kept.scores, columns, closing)


def _with_axes(variable: Variable, one_chain: bool) -> Variable:
    """Name the axes of an array that has no names for them: `(chain, draw, ...)`, or `(draw, ...)` of one chain."""
    first = ("draw",) if one_chain else ("chain", "draw")
    more = ["dim", *(f"{variable.name}_{k}" for k in range(1, len(variable.shape)))]
    return replace(variable, dims=(*first, *more)[: len(variable.shape)])


def refuse_streamed(samples: object, verb: str) -> None:
    """Refuse draws that are not in memory, where a verb needs all of them at once, and say how to read them."""
    if isinstance(samples, Streamed):
        raise InputError(
            f"{samples!r} stays in its file, and {verb} needs draws in memory. Read every tenth of them with "
            f"samples.read(every=10), or all with samples.read()."
        )
    if not isinstance(samples, Samples):
        raise InputError(f"`samples` must be a steincv.Samples in memory, got {type(samples).__name__}.")


@dataclass(frozen=True, eq=False)
class Streamed:
    """Draws and scores that stay in their file. `steincv.estimate` takes them; made by `Samples.open`."""

    source: Source

    @property
    def chains(self) -> int:
        return self.source.shape[0]

    @property
    def dim(self) -> int:
        return self.source.shape[2]

    @property
    def size(self) -> int:
        """The number of draws, over all chains."""
        return self.source.shape[0] * self.source.shape[1]

    @property
    def names(self) -> tuple[str, ...]:
        return self.source.names

    def read(self, every: int = 1) -> Samples:
        """Read every so many draws of each chain into memory, for what looks at all of them at once."""
        tile = self.source.every(whole_number("every", every, 1))
        return Samples(tile.draws, tile.scores, self.names)

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> "Streamed":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        chains, draws, dim = self.source.shape
        return f"Streamed({self.source.where}: {chains} chains x {draws} draws x {dim} dimensions)"
