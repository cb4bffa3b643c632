"""The geometry of a posterior in a file: the layers of its map as arrays, and one JSON text. No pickle."""

import json
import math
from dataclasses import fields

import numpy as np

from ..runtime.arrays import StrPath, read_arrays, reading, whole_file
from ..runtime.validation import InputError
from ..stein.learned.layers import Affine, Bend, Couple, Layer
from ..stein.learned.learned import Fisher, Learned
from .geometry import Geometry

FORMAT, VERSION = "steincv.Geometry", 1
LAYERS: dict[str, type[Affine] | type[Bend] | type[Couple]] = {"affine": Affine, "bend": Bend, "couple": Couple}
# Fields that hold places of coordinates, not numbers.
PLACES = ("parents", "children", "terms")


def save_geometry(geometry: Geometry, path: StrPath, *, force: bool = False) -> None:
    """Write the geometry to one .npz. An existing file is only replaced with `force=True`."""
    layers = () if geometry.learned is None else geometry.learned.layers
    arrays = {
        f"{k} {field.name}": value
        for k, layer in enumerate(layers)
        for field in fields(layer)
        if (value := getattr(layer, field.name)) is not None
    }
    kinds = {made: name for name, made in LAYERS.items()}
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "names": geometry.names,
        "fisher": geometry.fisher,
        "draws": geometry.draws,
        "kind": None if geometry.learned is None else geometry.learned.kind,
        "layers": [kinds[type(layer)] for layer in layers],
    }
    with whole_file(path, force=force) as file:
        np.savez(file, allow_pickle=False, meta=np.frombuffer(json.dumps(meta).encode(), np.uint8), **arrays)


def load_geometry(path: StrPath) -> Geometry:
    """Read back what `save_geometry` wrote."""
    with reading(path):
        meta = json.loads(read_arrays(path, ["meta"])["meta"].tobytes())
        if meta.get("format") != FORMAT or meta.get("version") != VERSION:
            raise InputError(f"{path}: not a saved geometry that this version of steincv can read.")
        names = tuple(map(str, meta["names"]))
        fisher = Fisher(*map(float, meta["fisher"]))
        learned = None
        if meta["kind"] is not None:
            layers = tuple(_layer(path, k, LAYERS[kind], len(names)) for k, kind in enumerate(meta["layers"]))
            sound = all(math.isfinite(each) and each > 0 for each in fisher)
            if not layers or not isinstance(layers[0], Affine) or not sound:
                raise _changed(path)
            learned = Learned(layers, str(meta["kind"]), fisher)
        return Geometry.of_map(names, learned, fisher, int(meta["draws"]))


def _layer(path: StrPath, k: int, kind: type[Affine] | type[Bend] | type[Couple], dim: int) -> Layer:
    """Return layer number k, its arrays checked: finite, of shapes that fit together, and places that exist."""
    stored = read_arrays(
        path,
        [f"{k} {field.name}" for field in fields(kind) if field.name != "factor"],
        [f"{k} factor"] if kind is Affine else [],
    )
    arrays = {name.split(" ")[1]: array for name, array in stored.items()}
    if kind is Couple:
        parents, children, terms = (len(arrays[name]) for name in PLACES)
        shapes = {
            "parents": (parents,),
            "children": (children,),
            "terms": (terms, 2),
            "location": (children, terms),
            "log_scale": (children, terms),
            "low": (parents,),
            "high": (parents,),
        }
        highest = {"parents": dim, "children": dim, "terms": 1 + 2 * parents}
    else:
        shapes, highest = {name: (dim, dim) if name == "factor" else (dim,) for name in arrays}, {}
    for name, array in arrays.items():
        whole = name in PLACES
        if array.shape != shapes[name] or array.dtype != (np.int64 if whole else np.float64):
            raise _changed(path)
        if not np.isfinite(array).all() or (whole and not ((array >= 0) & (array < highest[name])).all()):
            raise _changed(path)
    return kind(**arrays)


def _changed(path: StrPath) -> InputError:
    return InputError(f"{path}: the parts of the saved geometry do not fit together; the file was changed.")
