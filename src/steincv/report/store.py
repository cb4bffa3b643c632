"""Results in files: one .npz of arrays and one JSON text. No pickle, and whole or not at all."""

import math
from collections.abc import Mapping
from dataclasses import fields
from itertools import takewhile
from typing import Any

import numpy as np

from ..judging.diagnostics import Code, Status
from ..judging.error_bars import Average
from ..result import Estimate
from ..runtime.arrays import read_about, read_arrays, write_arrays
from ..runtime.validation import InputError, StrPath, reading

FORMAT, VERSION = "steincv.Estimate", 1
# Fields of an average that files of older versions lack, in the order in which they came: without one, none after it
# is read, and each follows from those before.
LATER_FIELDS = ("error_ess", "degrees_of_freedom", "tail")


def save_estimate(estimate: Estimate, path: StrPath, *, force: bool = False) -> None:
    """Write the whole estimate to one .npz. An existing file is only replaced with `force=True`."""
    arrays, meta = _pack(estimate, "")
    write_arrays(path, {"format": FORMAT, "version": VERSION, "estimate": meta}, arrays, force=force)


def load_estimate(path: StrPath) -> Estimate:
    """Read back what `save_estimate` wrote."""
    with reading(path):
        return _unpack(path, read_about(path, "estimate", FORMAT, VERSION)["estimate"], "")


def _pack(estimate: Estimate, prefix: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays under their names in the file, and everything else as JSON."""
    arrays = {
        f"{prefix}values": estimate.values,
        f"{prefix}controlled": estimate.controlled,
        **{f"{prefix}plain_{key}": value for key, value in vars(estimate.plain).items()},
        **{f"{prefix}average_{key}": value for key, value in vars(estimate._average).items()},
    }
    meta: dict[str, Any] = {
        "labels": estimate.labels,
        "shape": estimate.shape,
        "method": estimate.method,
        "status": [[{"code": s.code.name, "message": s.message} for s in found] for found in estimate.status],
        "info": plain_data(estimate.info),
        "sd": None,
        "quantiles": [],
    }
    if estimate.sd is not None:
        more, meta["sd"] = _pack(estimate.sd, f"{prefix}sd_")
        arrays |= more
    for k, (level, quantile) in enumerate(estimate.quantiles.items()):
        more, part = _pack(quantile, f"{prefix}quantile{k}_")
        meta["quantiles"].append([level, part])
        arrays |= more
    return arrays, meta


def _unpack(path: StrPath, meta: Mapping[str, Any], prefix: str) -> Estimate:
    names = [
        "values",
        "controlled",
        *(f"{kind}_{field}" for kind in ("plain", "average") for field in ("mean", "standard_error", "ess")),
    ]
    newer = [f"{kind}_{field}" for field in LATER_FIELDS for kind in ("plain", "average")]
    stored = read_arrays(path, [prefix + name for name in names], [prefix + name for name in newer])
    names += takewhile(lambda name: prefix + name in stored, newer)
    arrays = {name: stored[prefix + name] for name in names}
    labels, shape = tuple(map(str, meta["labels"])), tuple(map(int, meta["shape"]))
    methods = tuple(map(str, meta["method"]))
    status = tuple(tuple(Status(Code[s["code"]], str(s["message"])) for s in found) for found in meta["status"])
    outputs = (len(labels), len(methods), len(status), math.prod(shape), arrays["values"].shape[-1])
    series = arrays["values"].shape == arrays["controlled"].shape and arrays["values"].ndim == 3
    numbers = all(arrays[name].dtype == np.float64 for name in names)
    if len(set(outputs)) > 1 or not series or not numbers or any(arrays[n].shape != shape for n in names[2:]):
        raise InputError(f"{path}: the parts of the saved estimate do not fit together; the file was changed.")
    return Estimate(
        labels=labels,
        shape=shape,
        values=arrays["values"],
        controlled=arrays["controlled"],
        plain=_average(arrays, "plain"),
        _average=_average(arrays, "average"),
        method=methods,
        status=status,
        info=dict(meta["info"]),
        sd=None if meta["sd"] is None else _unpack(path, meta["sd"], f"{prefix}sd_"),
        quantiles={
            float(level): _unpack(path, part, f"{prefix}quantile{k}_")
            for k, (level, part) in enumerate(meta.get("quantiles", []))  # files of older versions have none
        },
    )


def _average(arrays: Mapping[str, np.ndarray], kind: str) -> Average:
    return Average(**{f.name: arrays[f"{kind}_{f.name}"] for f in fields(Average) if f"{kind}_{f.name}" in arrays})


def plain_data(value: object) -> Any:
    """Return `value` in JSON's types: NumPy and JAX become numbers and lists, the rest text."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_data(item) for item in value]
    if isinstance(value, np.generic | np.ndarray) or hasattr(value, "__array__"):
        array = np.asarray(value)
        return array.tolist() if array.dtype.kind in "fiubU" else str(value)
    return str(value)
