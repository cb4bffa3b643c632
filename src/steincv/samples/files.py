"""Draws and scores from files: .npz, and what nutpie writes as NetCDF or Zarr; and from such data in memory."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.arrays import StrPath, read_arrays, reading
from ..runtime.memory import reserve
from ..runtime.validation import InputError
from .samples import Parameters, Samples

DRAWS, SCORES, COORDINATE = "unconstrained_draw", "gradient", "unconstrained_parameter"
# Codecs that turn bytes into numbers. Zarr knows others, and one of them is pickle, which runs code.
CODECS = {"blosc", "zstd", "lz4", "zlib", "gzip", "bz2", "lzma"}
CODECS |= {"crc32", "crc32c", "adler32", "fletcher32", "bytes", "transpose", "shuffle", "sharding_indexed"}
CODECS |= {"delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype", "vlen-utf8"}


def read_samples(path: StrPath) -> Samples:
    """Draws and scores from a file.

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
    if file.suffix in (".nc", ".nc4", ".netcdf", ".h5") or file.is_dir():
        return _read_labelled(file)
    raise InputError(f"{file}: what kind of file is this? Known are .npz, .nc and Zarr folders.")


def _read_labelled(path: Path) -> Samples:
    """Arrays whose axes have names, through xarray."""
    try:
        import h5netcdf  # noqa: F401
        import xarray
        import zarr  # noqa: F401
    except ImportError as error:
        raise InputError(f"{path}: NetCDF and Zarr need more packages. Run: pip install 'steincv[files]'") from error

    # no indexes: they would load whole coordinates before anyone has looked at how large they claim to be
    options: dict[str, Any] = {"create_default_indexes": False, "decode_times": False}
    if path.is_dir():
        _refuse_unknown_codecs(path)
        options |= {"engine": "zarr", "consolidated": False, "chunks": None}
    else:
        _refuse_untrusted(path)
        options |= {"engine": "h5netcdf"}
    with reading(path), ExitStack() as opened:

        def group(name: str) -> Any:
            try:
                return opened.enter_context(xarray.open_dataset(path, group=name or None, **options))
            except (OSError, KeyError, ValueError):
                if not name:
                    raise
                return None

        return labelled_samples(str(path), group)


# Labelled data ---------------------------------------------------------------------------------------


def labelled_samples(where: str, group: Callable[[str], Any], shown: Iterable[str] | None = None) -> Samples:
    """Samples from labelled data in nutpie's names; `group` gives the xarray dataset of a name, "" the root, or None.

    `shown` are the parameters, if their order is known. Otherwise it is that of the coordinates.
    """
    kept = kept_gradients(where, group)
    if kept is None:
        seen = [str(name) for dataset in _places(group) for name in dataset.data_vars]
        raise InputError(
            f"{where}: holds no `{DRAWS}` and `{SCORES}` in sample_stats or at the root (it has "
            f"{', '.join(seen[:8]) or 'nothing there'}). With nutpie: "
            f"nutpie.sample(model, store_unconstrained=True, store_gradient=True)."
        )
    arrays, names = _labelled_arrays(where, *kept)
    posterior, parameters = group("posterior"), None
    if posterior is not None and _variables(posterior):
        listed = _owners(posterior, names) if shown is None else shown
        parameters = posterior_parameters(where, posterior, listed)
    try:
        return Samples(*arrays, names, parameters=parameters)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _places(group: Callable[[str], Any]) -> Iterator[Any]:
    """Where nutpie puts them, then the root."""
    return (dataset for dataset in map(group, ("sample_stats", "")) if dataset is not None)


def kept_gradients(where: str, group: Callable[[str], Any]) -> tuple[Any, Any] | None:
    """Unconstrained draws and their gradients, if both were kept."""
    for dataset in _places(group):
        if SCORES in dataset and DRAWS in dataset:
            return dataset[DRAWS], dataset[SCORES]
        if SCORES in dataset and (draws := _kept_apart(where, dataset[SCORES], group)) is not None:
            return draws, dataset[SCORES]
    return None


def _labelled_arrays(where: str, draws: Any, scores: Any) -> tuple[tuple[np.ndarray, np.ndarray], list[str]]:
    last = [dim for dim in draws.dims if dim not in ("chain", "draw")]
    if len(last) != 1 or set(draws.dims) != set(scores.dims) or draws.ndim != 3:
        raise InputError(
            f"{where}: `{DRAWS}` has dimensions {draws.dims} and `{SCORES}` {scores.dims}, expected both to "
            f"have chain, draw and one more."
        )
    # xarray has seen to it that a coordinate is as long as its dimension
    labels = scores[last[0]].values if last[0] in scores.coords else range(scores.sizes[last[0]])
    names = [label if isinstance(label, str) else f"x[{label}]" for label in labels]
    return (_numbers(where, draws, last), _numbers(where, scores, last)), names


def _numbers(where: str, array: Any, axes: Iterable[str]) -> np.ndarray:
    """An array as `(chain, draw, *axes)`."""
    if array.dtype.kind not in "fiub":
        raise InputError(f"{where}: `{array.name}` has dtype {array.dtype}, expected real numbers.")
    reserve(f"{where}: reading `{array.name}` of shape {array.shape}", 3 * array.nbytes, "Thin the draws.")
    return array.transpose("chain", "draw", *axes).values


def _kept_apart(where: str, scores: Any, group: Callable[[str], Any]) -> Any:
    """The draws that gradients belong to where they are kept variable by variable, as PyMC does, or None."""
    import xarray

    if COORDINATE not in scores.coords:
        return None
    columns = []
    groups = [g for g in map(group, ("unconstrained_posterior", "posterior")) if g is not None]
    for label in map(str, scores[COORDINATE].values):
        name, index = _value_name(label)
        array = next((g[name] for g in groups if name in g), None)
        if array is None or array.ndim != 2 + len(index):
            return None
        axes = [dim for dim in array.dims if dim not in ("chain", "draw")]
        place: Any = (..., *index)
        columns.append(_numbers(where, array, axes)[place])
    return xarray.DataArray(np.stack(columns, axis=-1), dims=("chain", "draw", COORDINATE), name=DRAWS)


def _value_name(label: str) -> tuple[str, tuple[int, ...]]:
    """Variable and index of a coordinate: `p_simplex___1` of PyMC is entry 1 of `p_simplex__`; `cov.2.1` of Stan."""
    pymc = re.fullmatch(r"(.+)_(\d+(?:\.\d+)*)", label)
    if pymc:
        return pymc[1], tuple(map(int, pymc[2].split(".")))
    base, *index = label.split(".")
    return (base, tuple(int(i) - 1 for i in index)) if all(i.isdecimal() for i in index) else (label, ())


def posterior_parameters(where: str, posterior: Any, shown: Iterable[str]) -> Parameters:
    """The variables of the posterior that have numbers at every draw, with the labels of their axes."""
    arrays, coords = {}, {}
    for name in _variables(posterior):
        array = posterior[name]
        axes = [dim for dim in array.dims if dim not in ("chain", "draw")]
        arrays[name] = _numbers(where, array, axes)
        coords[name] = [array[dim].values if dim in array.coords else range(array.sizes[dim]) for dim in axes]
    return Parameters(arrays, shown, coords)


def _variables(posterior: Any) -> list[str]:
    variables = posterior.data_vars.items()
    return [str(name) for name, a in variables if a.dtype.kind in "fiub" and {"chain", "draw"} <= set(a.dims)]


def _owners(posterior: Any, names: Sequence[str]) -> list[str]:
    """The variables that coordinates belong to, in their order, for files forget that of the posterior.

    All variables where it is not clear whose a coordinate is.
    """
    variables = _variables(posterior)
    owners = [owner for label in names if (owner := _owner(label, variables)) is not None]
    return list(dict.fromkeys(owners)) if len(owners) == len(names) else variables


def _owner(label: str, variables: Iterable[str]) -> str | None:
    """The variable a coordinate belongs to: `tau` for `tau_log__`, `theta` for `theta_1`."""
    value = label if label in variables else _value_name(label)[0]
    # what PyMC transforms is called by name and transform: the longest name, for there may be an `a` and an `a_b`
    untransformed = [name for name in variables if value.startswith(f"{name}_") and value.endswith("__")]
    return max(untransformed, key=len, default=value if value in variables else None)


# NetCDF ----------------------------------------------------------------------------------------------


def _refuse_untrusted(path: Path) -> None:
    """Refuse what HDF5 would do on a file's word: read other files, or take gigabytes for a text of a few letters.

    Texts are kept as records of a length and a place. Every length is compared with the size of the file.
    """
    import h5py

    size = path.stat().st_size
    with reading(path), h5py.File(path, "r") as file, path.open("rb") as raw:

        def look(name: str, item: Any) -> None:
            if isinstance(item, h5py.Group):
                elsewhere = any(isinstance(item.get(key, getlink=True), h5py.ExternalLink) for key in item)
            else:
                elsewhere = isinstance(item, h5py.Dataset) and (item.external is not None or item.is_virtual)
            if elsewhere:
                raise InputError(f"{path}: `{name}` is kept in another file, which is not read: refused.")
            if isinstance(item, h5py.Dataset):
                check(name, item, item.id.get_type())

        def check(name: str, item: Any, kind: Any) -> None:
            text = isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str()
            if not (text or kind.detect_class(h5py.h5t.VLEN)):
                return
            pieces = [(item.id.get_offset(), item.id.get_storage_size())]
            if item.chunks is not None:
                if item.id.get_create_plist().get_nfilters():
                    raise InputError(f"{path}: `{name}` is compressed text, whose length cannot be checked: refused.")
                chunks = [item.id.get_chunk_info(k) for k in range(item.id.get_num_chunks())]
                pieces = [(chunk.byte_offset, chunk.size) for chunk in chunks]
            for start, stored in pieces:
                if start is None or not stored:
                    continue
                raw.seek(start)
                lengths = np.frombuffer(raw.read(min(stored, size)), "<u4")[::4]  # 4 bytes of 16
                claimed = int(lengths.sum(dtype=np.int64)) * (1 if text else kind.get_super().get_size())
                if claimed > size:
                    raise InputError(
                        f"{path}: the entries of `{name}` claim {claimed} bytes and the whole file has {size}: damaged."
                    )

        look("/", file)
        file.visititems(look)


# Zarr ------------------------------------------------------------------------------------------------


def _refuse_unknown_codecs(folder: Path) -> None:
    """Refuse a Zarr folder that asks for a codec outside `CODECS`, before anything in it is decoded."""
    with reading(folder):
        files = [f for name in (".zarray", ".zmetadata", "zarr.json") for f in folder.rglob(name)]
        if not files:
            raise InputError(f"{folder}: a folder, but not a Zarr store.")
        for file in files:
            for codec in _codecs(json.loads(file.read_bytes())):
                if codec.removeprefix("numcodecs.") not in CODECS:
                    raise InputError(f"{folder}: {file.name} asks for the codec {codec!r}, which is not allowed.")


def _codecs(node: Any) -> Iterator[str]:
    """The name of every codec in the metadata of Zarr 2 (`compressor`, `filters`) or 3 (`codecs`)."""
    if isinstance(node, list):
        for item in node:
            yield from _codecs(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ("compressor", "compressors", "filters", "serializer", "codecs", "index_codecs"):
                for codec in value if isinstance(value, list) else [value]:
                    if codec is not None:
                        yield str(codec.get("id", codec.get("name")) if isinstance(codec, dict) else codec)
            yield from _codecs(value)
