"""The methods that play in the league: a small table, a line each, so that every idea can be switched on and off."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Variant:
    """A method and the options of `estimate` it is used with.

    `method` makes it from the library; none is the default of `estimate`. `model` hands the log density over too, and
    the functionals as functions instead of their values, which is what orbits need.
    """

    label: str
    method: Callable[[ModuleType], Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    model: bool = False

    def known_to(self, library: ModuleType) -> bool:
        """Return whether this version of the library has the options; an earlier one may not."""
        takes = inspect.signature(library.estimate).parameters
        knows_models = "log_density" in inspect.signature(library.Samples).parameters
        return set(self.options) <= set(takes) and (knows_models or not self.model)


def _linear(library: ModuleType) -> Any:
    return library.Polynomial(1)


def _quadratic(library: ModuleType) -> Any:
    return library.Polynomial(2)


def _kernel(library: ModuleType) -> Any:
    return library.Kernel()


VARIANTS = {
    variant.label: variant
    for variant in (
        Variant("auto"),
        Variant("linear", _linear),
        Variant("quadratic", _quadratic),
        Variant("kernel", _kernel),
        Variant("auto, affine", options={"coordinates": "affine"}),
        Variant("auto, learned", options={"coordinates": "learned"}),
        Variant("linear, learned", _linear, {"coordinates": "learned"}),
        Variant("quadratic, learned", _quadratic, {"coordinates": "learned"}),
        Variant("kernel, learned", _kernel, {"coordinates": "learned"}),
        Variant("auto, orbits", options={"orbits": 8}, model=True),
        Variant("quadratic, learned, orbits", _quadratic, {"coordinates": "learned", "orbits": 8}, model=True),
    )
}
FIRST = ("auto", "linear", "quadratic")  # what `run` takes if nothing is named
