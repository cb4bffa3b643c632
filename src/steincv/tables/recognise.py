"""From whatever a sampler's library returned to `Samples`, by the name of its type: no library is imported for it."""

import os
from collections.abc import Callable
from typing import Any

from .. import adapters
from ..runtime.validation import InputError
from ..samples.files import DRAWS, SCORES, read_samples
from ..samples.samples import Samples
from ..samples.streamed import Streamed

# The module that a type is from, and the adapter of its objects.
HOMES: dict[str, Callable[..., Samples]] = {
    "numpyro": adapters.from_numpyro,
    "blackjax": adapters.from_blackjax,
    "cmdstanpy": adapters.from_cmdstan,
    "stan": adapters.from_stan,
    "emcee": adapters.from_emcee,
}
LABELLED = ("InferenceData", "DataTree", "Dataset")


def recognise(x: Any, *more: Any) -> Samples | Streamed:
    """Return the samples of x; `more` goes to its adapter, such as the model of a PyMC trace."""
    if isinstance(x, Samples | Streamed):
        return x
    if isinstance(x, str | os.PathLike):
        return read_samples(x)
    kind = type(x)
    home = kind.__module__.split(".")[0]
    if home in HOMES:
        return HOMES[home](x, *more)
    if kind.__name__ in LABELLED:
        group = adapters.arviz.groups_of(x)
        stats = group("sample_stats")
        known = stats is not None and DRAWS in stats and SCORES in stats
        return adapters.from_arviz(x) if known and not more else adapters.from_pymc(x, *more)
    raise InputError(
        f"there is no adapter for a {kind.__module__}.{kind.__name__}. Give a steincv.Samples, or what NumPyro, PyMC, "
        f"nutpie, ArviZ, BlackJAX, Stan or emcee returned."
    )


def names_in(x: Any) -> tuple[str, ...]:
    """Return the parameters of labelled data in its own order, which a table of ArviZ has; none of anything else."""
    if type(x).__name__ not in LABELLED:
        return ()
    posterior = adapters.arviz.groups_of(x)("posterior")
    return () if posterior is None else tuple(map(str, posterior.data_vars))
