"""From ArviZ: data that holds unconstrained draws and gradients under the names that nutpie gave them."""

import os
from collections.abc import Callable
from typing import Any

from ..runtime.validation import InputError
from ..samples.files import labelled_samples, read_samples
from ..samples.samples import Samples
from .foreign import foreign


def from_arviz(data: Any) -> Samples:
    """Samples from `InferenceData` or a `DataTree`, in memory or as a NetCDF file or Zarr folder.

    **Arguments:**

    - `data`: with `gradient` and `unconstrained_draw` in its group `sample_stats`, as in
      `nutpie.sample(model, store_unconstrained=True, store_gradient=True)`. The parameters as you know them are those
      of its group `posterior`.

    A trace of PyMC without gradients: `from_pymc(data, model)`.
    """
    if isinstance(data, str | os.PathLike):
        return read_samples(data)
    return labelled_samples("the data", groups_of(data))


def groups_of(data: Any) -> Callable[[str], Any]:
    """A function that gives the dataset of a group of `data`, or None."""
    kind = type(data).__name__
    if kind not in ("InferenceData", "DataTree", "Dataset"):
        with foreign("arviz"):
            import arviz  # noqa: F401
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
