"""From ArviZ: data that holds unconstrained draws and gradients under the names that nutpie gave them; and to it."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.validation import InputError
from ..samples.files import DRAWS, SCORES, labelled_samples, read_samples
from ..samples.samples import Constrain, Samples
from ..samples.streamed import groups_of as xarray_groups
from .foreign import foreign
from .shared import fitting_places

if TYPE_CHECKING:
    from ..result import Estimate


def from_arviz(data: object) -> Samples:
    """Return samples from `InferenceData` or a `DataTree`, in memory or as a NetCDF file or Zarr folder.

    **Arguments:**

    - `data`: with `gradient` and `unconstrained_draw` in its group `sample_stats`, as in
      `nutpie.sample(model, store_unconstrained=True, store_gradient=True)`. The parameters as you know them are those
      of its group `posterior`.

    Draws of the warm-up that were kept with their gradients are more places to fit on, and never averaged over.

    A trace of PyMC without gradients: `from_pymc(data, model)`.
    """
    if isinstance(data, str | os.PathLike):
        return read_samples(data)
    group = groups_of(data)
    samples = labelled_samples("the data", group)
    return with_model(samples, fitting=warm_up(group), gradients=gradients_of(group))


def warm_up(group: Callable[[str], Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the draws of the warm-up and their scores, as rows, where the data kept them."""
    stats = group("warmup_sample_stats")
    if stats is None or DRAWS not in stats or SCORES not in stats:
        return None
    draws, scores = (stats[name].transpose("chain", "draw", ...).values for name in (DRAWS, SCORES))
    return fitting_places(draws, scores)


def gradients_of(group: Callable[[str], Any]) -> int | None:
    """Return how many gradients the sampler took, one per leapfrog step, where its statistics say so."""
    stats = group("sample_stats")
    steps = [] if stats is None else [name for name in ("n_steps", "tree_size") if name in stats]
    return int(np.asarray(stats[steps[0]].values, dtype=np.float64).sum()) if steps else None


def with_model(samples: Samples, constrain: Constrain | None = None, **more: Any) -> Samples:
    """Return the samples with what is known of their model: `log_density`, `fitting`, `gradients` of `Samples`."""
    constrain = samples.constrain if constrain is None else constrain
    return Samples(samples.draws, samples.scores, samples.names, constrain, samples.parameters, **more)


def groups_of(data: Any) -> Callable[[str], Any]:
    """Return a function that gives the dataset of a group of `data`, or None."""
    kind = type(data).__name__
    if kind in ("DataTree", "Dataset"):
        return xarray_groups(data)
    if kind != "InferenceData":
        foreign("arviz")
        raise InputError(f"`data` must be InferenceData, a DataTree or a path, got {kind}.")
    return lambda name: data[name] if name in data.groups() else None


# To ArviZ: controlled draws as a posterior, so that its tables and plots work on them -----------------


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
