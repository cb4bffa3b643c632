"""Where streamed draws come from: arrays in a Zarr folder, a NetCDF file or an open xarray dataset, read in chunks."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runtime.arrays import StrPath, reading
from ..runtime.memory import GIB, reserve
from ..runtime.validation import InputError
from ..samples.files import DRAWS, SCORES, _refuse_unknown_codecs
from ..samples.samples import Streamed

NAMES = ((DRAWS, SCORES), ("draws", "scores"))
# Bytes of draws and scores that are read at a time, as far as the file's own chunks allow.
PIECE = 32 << 20
# A file whose own chunks are larger than this, over all chains, cannot be streamed in little memory.
LARGEST_PIECE = GIB


class Column(NamedTuple):
    """One array of the file, `(chain, draw, ...)`: its shape, how long its chunks are, how a range of it is read."""

    shape: tuple[int, ...]
    chunk: int
    read: Callable[[int, int], np.ndarray]


class Piece(NamedTuple):
    """The draws `start` to `start + m` of all chains, `(chain, m, dim)`, and further columns that were asked for."""

    start: int
    draws: np.ndarray
    scores: np.ndarray
    others: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Source:
    """Draws and scores in a file, with names for the coordinates, and any other column by its name."""

    where: str
    draws: Column
    scores: Column
    names: tuple[str, ...]
    column: Callable[[str], Column]
    closing: ExitStack = field(default_factory=ExitStack)

    @property
    def step(self) -> int:
        """Draws of each chain to read at a time: whole chunks of the file, and not much more than `PIECE`."""
        chains, draws, dim = self.draws.shape
        wanted = max(1, PIECE // (16 * chains * dim))
        chunk = min(self.draws.chunk, draws)
        step = min(draws, chunk * max(1, wanted // chunk))
        if 16 * chains * dim * step > LARGEST_PIECE:
            raise InputError(
                f"{self.where}: its chunks hold {step} draws of every chain, {16 * chains * dim * step / GIB:.2g} GiB "
                f"with their scores. Write it with chunks of about {wanted} draws."
            )
        return step

    def pieces(self, others: Sequence[Column] = (), starts: Sequence[int] | None = None) -> Iterator[Piece]:
        """The pieces of the file, or those at `starts`; the next one is read while the last is worked on."""
        chains, draws, dim = self.draws.shape
        step = self.step
        reserve(f"{self.where}: a piece of {step} draws", 6 * 16.0 * chains * dim * step, "Write it in smaller chunks.")

        def read(start: int) -> Piece:
            stop = min(start + step, draws)
            with reading(self.where):
                return Piece(
                    start,
                    self.draws.read(start, stop),
                    self.scores.read(start, stop),
                    tuple(column.read(start, stop) for column in others),
                )

        return _ahead(read, range(0, draws, step) if starts is None else starts)


def _ahead(read: Callable[[int], Piece], starts: Sequence[int]) -> Iterator[Piece]:
    """What `read` gives for every start, one ahead, from a thread that ends with the loop."""
    ready: queue.Queue[Any] = queue.Queue(maxsize=1)
    ended = threading.Event()

    def put(item: Any) -> bool:
        while not ended.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def run() -> None:
        try:
            for start in starts:
                if not put(read(start)):
                    return
            put(None)
        except BaseException as error:  # raised where the pieces are wanted
            put(error)

    thread = threading.Thread(target=run, name="steincv reader", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        ended.set()
        thread.join()


# Opening ---------------------------------------------------------------------------------------------


def open_source(path: Any) -> Source:
    """A Zarr folder, a NetCDF file, or a dataset that is open already (its arrays may be Dask's)."""
    if hasattr(path, "data_vars") or hasattr(path, "children"):
        return _labelled("the dataset", _groups_of(path), ExitStack())
    file = Path(path)
    if not file.exists():
        raise InputError(f"{file}: no such file.")
    if file.suffix == ".npz":
        raise InputError(f"{file}: an .npz is read whole; use steincv.Samples(...). Zarr and NetCDF can be streamed.")
    if not file.is_dir() and file.suffix not in (".nc", ".nc4", ".netcdf", ".h5"):
        raise InputError(f"{file}: what kind of file is this? Zarr folders and NetCDF files (.nc) can be streamed.")
    try:
        import h5netcdf  # noqa: F401
        import xarray  # noqa: F401
        import zarr  # noqa: F401
    except ImportError as error:
        raise InputError(f"{file}: NetCDF and Zarr need more packages. Run: pip install 'steincv[scale]'") from error
    closing = ExitStack()
    with reading(file):
        if not file.is_dir():
            return _labelled(str(file), _groups_of_file(file, closing), closing)
        _refuse_unknown_codecs(file)
        bare = _bare_zarr(file)
        return bare if bare is not None else _labelled(str(file), _groups_of_file(file, closing), closing)


def _groups_of(data: Any) -> Callable[[str], Any]:
    def group(name: str) -> Any:
        if not name:
            return data.to_dataset() if hasattr(data, "to_dataset") else data
        children = getattr(data, "children", {})
        return children[name].to_dataset() if name in children else None

    return group


def _groups_of_file(file: Path, closing: ExitStack) -> Callable[[str], Any]:
    import xarray

    options: dict[str, Any] = {"create_default_indexes": False, "decode_times": False, "mask_and_scale": False}
    options |= {"engine": "zarr", "consolidated": False} if file.is_dir() else {"engine": "h5netcdf"}

    def group(name: str) -> Any:
        try:
            dataset = xarray.open_dataset(file, group=name or None, chunks=None, cache=False, **options)
        except (OSError, KeyError, ValueError):
            if not name:
                raise
            return None
        closing.callback(dataset.close)
        return dataset

    return group


def _labelled(where: str, group: Callable[[str], Any], closing: ExitStack) -> Source:
    """Arrays whose axes have names."""
    datasets = [d for d in map(group, ("sample_stats", "", "posterior")) if d is not None]
    for dataset in datasets:
        for draws, scores in NAMES:
            if draws in dataset and scores in dataset:
                return _of_pair(where, dataset[draws], dataset[scores], datasets, closing)
    there = ", ".join(str(name) for d in datasets for name in d.data_vars)[:200] or "nothing"
    pairs = " or ".join(f"`{draws}` and `{scores}`" for draws, scores in NAMES)
    raise InputError(f"{where}: holds no {pairs} in sample_stats or at the root; it has {there}.")


def _of_pair(where: str, draws: Any, scores: Any, datasets: Sequence[Any], closing: ExitStack) -> Source:
    last = [dim for dim in draws.dims if dim not in ("chain", "draw")]
    if len(last) != 1 or set(draws.dims) != set(scores.dims) or "draw" not in draws.dims:
        raise InputError(
            f"{where}: `{draws.name}` has dimensions {draws.dims} and `{scores.name}` {scores.dims}, expected both to "
            f"have chain, draw and one more."
        )
    labels = scores[last[0]].values if last[0] in scores.coords else range(scores.sizes[last[0]])
    names = tuple(label if isinstance(label, str) else f"x[{label}]" for label in labels)

    def column(name: str) -> Column:
        found = next((d[name] for d in datasets if name in d and "draw" in d[name].dims), None)
        if found is None:
            there = [str(k) for d in datasets for k in d.data_vars if "draw" in d[k].dims]
            raise InputError(f"{where}: holds no variable `{name}` at every draw; it has {', '.join(there[:12])}.")
        return _column(where, found)

    return _checked(Source(where, _column(where, draws), _column(where, scores), names, column, closing))


def _column(where: str, array: Any) -> Column:
    _numbers(where, str(array.name), array.dtype)
    chunks = array.encoding.get("preferred_chunks") or dict(array.chunksizes)
    chunk = int(np.max(chunks.get("draw", 1)))
    if "chain" not in array.dims:
        array = array.expand_dims("chain")
    array = array.transpose("chain", "draw", ...)
    return Column(tuple(array.shape), chunk, lambda i, j: np.asarray(array.isel(draw=slice(i, j)).values))


def _bare_zarr(folder: Path) -> Source | None:
    """A Zarr group of two arrays without named axes: `(chain, draw, dim)` or `(draw, dim)`."""
    import zarr

    group = zarr.open(str(folder), mode="r")
    if not isinstance(group, zarr.Group):
        return None
    arrays = dict(group.arrays())
    pair = next(((arrays[a], arrays[b]) for a, b in NAMES if a in arrays and b in arrays), None)
    if pair is None or any(getattr(a.metadata, "dimension_names", None) for a in pair):
        return None
    if any("_ARRAY_DIMENSIONS" in a.attrs for a in pair):
        return None

    def column(name: str) -> Column:
        if name not in arrays:
            raise InputError(f"{folder}: holds no array `{name}`; it has {', '.join(sorted(arrays))}.")
        return _zarr_column(str(folder), name, arrays[name], pair[0].ndim == 2)

    draws, scores = (_zarr_column(str(folder), a.basename, a, a.ndim == 2) for a in pair)
    names = tuple(f"x[{i}]" for i in range(draws.shape[-1]))
    return _checked(Source(str(folder), draws, scores, names, column))


def _zarr_column(where: str, name: str, array: Any, one_chain: bool) -> Column:
    _numbers(where, name, array.dtype)
    chunks = tuple(map(int, array.shards or array.chunks))
    if one_chain:
        return Column((1, *array.shape), chunks[0], lambda i, j: np.asarray(array[i:j])[None])
    return Column(tuple(array.shape), chunks[1], lambda i, j: np.asarray(array[:, i:j]))


def _numbers(where: str, name: str, dtype: Any) -> None:
    if dtype.kind not in "fiub":
        raise InputError(f"{where}: `{name}` has dtype {dtype}, expected real numbers.")


def _checked(source: Source) -> Source:
    shape = source.draws.shape
    if shape != source.scores.shape or len(shape) != 3 or not all(shape):
        raise InputError(
            f"{source.where}: the draws have shape {shape} and the scores {source.scores.shape}, expected "
            f"(chain, draw, dim) of both."
        )
    if len(set(source.names)) != shape[2]:
        raise InputError(f"{source.where}: the {shape[2]} coordinates need different names, got {source.names[:6]}...")
    return source


# What the user holds ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StreamedSamples(Streamed):
    """Draws and scores that stay in their file. `steincv.estimate` takes them; made by `Samples.open`."""

    source: Source

    @classmethod
    def open(cls, path: StrPath | Any) -> "StreamedSamples":
        return cls(open_source(path))

    @property
    def chains(self) -> int:
        return self.source.draws.shape[0]

    @property
    def dim(self) -> int:
        return self.source.draws.shape[2]

    @property
    def size(self) -> int:
        """The number of draws, over all chains."""
        return self.source.draws.shape[0] * self.source.draws.shape[1]

    @property
    def names(self) -> tuple[str, ...]:
        return self.source.names

    def close(self) -> None:
        self.source.closing.close()

    def __enter__(self) -> "StreamedSamples":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def estimate(self, f: Any, method: Any, **settings: Any) -> Any:
        from .estimating import streamed_estimate

        return streamed_estimate(self.source, f, method, **settings)

    def __repr__(self) -> str:
        chains, draws, dim = self.source.draws.shape
        return f"StreamedSamples({self.source.where}: {chains} chains x {draws} draws x {dim} dimensions)"
