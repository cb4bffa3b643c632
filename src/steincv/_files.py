"""Draws and scores from files: .npz, and what nutpie writes as NetCDF or Zarr."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ._arrays import StrPath, read_arrays, reading
from ._memory import reserve
from ._samples import Samples
from ._status import InputError

GROUPS = ("sample_stats", None)  # where nutpie puts them, then the root
DRAWS, SCORES = "unconstrained_draw", "gradient"
# Codecs that turn bytes into numbers. Zarr knows others, and one of them is pickle, which runs code.
CODECS = {"blosc", "zstd", "lz4", "zlib", "gzip", "bz2", "lzma"}
CODECS |= {"crc32", "crc32c", "adler32", "fletcher32", "bytes", "transpose", "shuffle", "sharding_indexed"}
CODECS |= {"delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype", "vlen-utf8"}


def read_samples(path: StrPath) -> Samples:
    """Draws and scores from a file.

    - `.npz`: arrays `draws` and `scores`, and `names` if there are any.
    - `.nc` (NetCDF) and Zarr folders: `unconstrained_draw` and `gradient` in the group `sample_stats` or at
      the root, as nutpie stores them with `store_unconstrained=True, store_gradient=True`.
    """
    file = Path(path)
    if not file.exists():
        raise InputError(f"{file}: no such file.")
    if file.suffix == ".npz":
        arrays = read_arrays(file, ["draws", "scores"], optional=["names"])
        with reading(file):
            names = [str(name) for name in arrays["names"].ravel()] if "names" in arrays else None
    elif file.suffix in (".nc", ".nc4", ".netcdf", ".h5") or file.is_dir():
        arrays, names = _read_labelled(file)
    else:
        raise InputError(f"{file}: what kind of file is this? Known are .npz, .nc and Zarr folders.")
    try:
        return Samples(arrays["draws"], arrays["scores"], names)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def _read_labelled(path: Path) -> tuple[dict[str, np.ndarray], list[str]]:
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
        options |= {"engine": "h5netcdf"}
    seen: list[str] = []
    with reading(path):
        for group in GROUPS:
            try:
                dataset = xarray.open_dataset(path, group=group, **options)
            except (OSError, KeyError, ValueError):
                if group is None:
                    raise
                continue
            with dataset:
                seen += map(str, dataset.data_vars)
                if DRAWS in dataset and SCORES in dataset:
                    return _labelled_arrays(path, dataset)
    raise InputError(
        f"{path}: holds no `{DRAWS}` and `{SCORES}` in sample_stats or at the root (it has "
        f"{', '.join(seen[:8]) or 'nothing there'}). With nutpie: "
        f"nutpie.sample(model, store_unconstrained=True, store_gradient=True)."
    )


def _labelled_arrays(path: Path, dataset: Any) -> tuple[dict[str, np.ndarray], list[str]]:
    draws, scores = dataset[DRAWS], dataset[SCORES]
    last = [dim for dim in draws.dims if dim not in ("chain", "draw")]
    if len(last) != 1 or set(draws.dims) != set(scores.dims) or draws.ndim != 3:
        raise InputError(
            f"{path}: `{DRAWS}` has dimensions {draws.dims} and `{SCORES}` {scores.dims}, expected both to "
            f"have chain, draw and one more."
        )
    for array in (draws, scores):
        if array.dtype.kind not in "fiu":
            raise InputError(f"{path}: `{array.name}` has dtype {array.dtype}, expected real numbers.")
        reserve(f"{path}: reading `{array.name}` of shape {array.shape}", 3 * array.nbytes, "Thin the draws.")
    order = ("chain", "draw", last[0])  # xarray has seen to it that a coordinate is as long as its dimension
    labels = dataset[last[0]].values if last[0] in dataset.coords else range(draws.sizes[last[0]])
    names = [label if isinstance(label, str) else f"x[{label}]" for label in labels]
    return {"draws": draws.transpose(*order).values, "scores": scores.transpose(*order).values}, names


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
