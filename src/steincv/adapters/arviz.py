"""From ArviZ: data that holds unconstrained draws and gradients under the names that nutpie gave them."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ..runtime.validation import InputError
from ..samples.files import DRAWS, SCORES, labelled_samples, read_samples
from ..samples.samples import Constrain, Samples
from ..samples.streamed import groups_of as xarray_groups
from .foreign import foreign
from .shared import fitting_places


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
