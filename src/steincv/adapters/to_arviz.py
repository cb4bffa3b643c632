"""To ArviZ: controlled draws as a posterior, so that its tables and plots work on them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .foreign import foreign

if TYPE_CHECKING:
    from ..result import Estimate


def to_arviz(estimate: "Estimate") -> Any:
    """Return a `DataTree` (ArviZ 1) or `InferenceData` (ArviZ 0) whose group `posterior` holds the controlled draws."""
    arviz = foreign("arviz")
    posterior: dict[str, np.ndarray] = {}
    coords: dict[str, list[Any]] = {}
    dims: dict[str, list[str]] = {}
    for name, columns in _variables(estimate.labels).items():
        array = estimate.controlled[..., [column for column, _ in columns]]
        axes = _grid([index for _, index in columns])
        posterior[name] = array.reshape(*array.shape[:2], *map(len, axes))
        dims[name] = [f"{name}_dim_{i}" for i in range(len(axes))]
        for dim, axis in zip(dims[name], axes, strict=True):  # positions are numbers, if all of them are
            coords[dim] = [int(label) for label in axis] if all(map(str.isdecimal, axis)) else axis
    dims = {name: axes for name, axes in dims.items() if axes}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict({"posterior": posterior}, coords=coords, dims=dims)
    return arviz.from_dict(posterior=posterior, coords=coords, dims=dims)


def _variables(labels: tuple[str, ...]) -> dict[str, list[tuple[int, tuple[str, ...]]]]:
    """Return columns and their indices by variable: `theta[a, 0]` belongs to `theta`, unless that is a label too."""
    found: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
    for column, label in enumerate(labels):
        name, bracket, index = label.partition("[")
        if not (bracket and name and index.endswith("]")) or name in labels:
            name, index = label, ""
        found.setdefault(name.replace("/", "."), []).append(  # a slash would be a group
            (column, tuple(index[:-1].split(", ")) if index else ())
        )
    return found


def _grid(indices: list[tuple[str, ...]]) -> list[list[str]]:
    """Return the labels of every axis, if the indices are all their combinations in order; else make them one axis."""
    one = [[", ".join(index) for index in indices]]
    if len({len(index) for index in indices}) != 1:
        return one
    axes = [list(dict.fromkeys(axis)) for axis in zip(*indices, strict=True)]
    grid = [tuple(axes[k][i] for k, i in enumerate(place)) for place in np.ndindex(*map(len, axes))]
    return axes if grid == indices else one
