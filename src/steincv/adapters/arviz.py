"""From ArviZ: data that holds unconstrained draws and gradients under the names that nutpie gave them."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ..runtime.validation import InputError
from ..samples.files import DRAWS, SCORES, labelled_samples, read_samples
from ..samples.log_density import LogDensity
from ..samples.samples import Samples
from .density import fitting_places
from .foreign import foreign


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
    return with_model(labelled_samples("the data", group), None, warm_up(group))


def warm_up(group: Callable[[str], Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the draws of the warm-up and their scores, as rows, where the data kept them."""
    stats = group("warmup_sample_stats")
    if stats is None or DRAWS not in stats or SCORES not in stats:
        return None
    draws, scores = (stats[name].transpose("chain", "draw", ...).values for name in (DRAWS, SCORES))
    return fitting_places(draws, scores)


def with_model(
    samples: Samples, log_density: LogDensity | None, fitting: tuple[np.ndarray, np.ndarray] | None
) -> Samples:
    """Return the samples with the log density of their model and more places to fit on."""
    more: dict[str, Any] = {"log_density": log_density, "fitting": fitting}
    return Samples(samples.draws, samples.scores, samples.names, samples.constrain, samples.parameters, **more)


def groups_of(data: Any) -> Callable[[str], Any]:
    """Return a function that gives the dataset of a group of `data`, or None."""
    kind = type(data).__name__
    if kind not in ("InferenceData", "DataTree", "Dataset"):
        foreign("arviz")
        raise InputError(f"`data` must be InferenceData, a DataTree or a path, got {kind}.")

    def group(name: str) -> Any:
        if kind == "Dataset":
            return None if name else data
        try:
            found = data[name] if name else data
        except KeyError:
            return None
        if kind == "DataTree":
            return found.to_dataset()
        return found if name else None

    return group
