"""From emcee: its walkers as chains, and the gradient of a log density written with JAX."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import Array

from ..runtime.validation import InputError
from ..samples.samples import Samples
from .foreign import foreign
from .shared import at_draws, by_jax, refuse_another_density


def from_emcee(
    sampler: object,
    log_prob: Any,
    *,
    discard: int = 0,
    thin: int = 1,
    constrain: Callable[[Array], Mapping[str, Any]] | None = None,
) -> Samples:
    """Return samples from an `emcee.EnsembleSampler`, which needs no gradients and keeps none.

    **Arguments:**

    - `log_prob`: the log density that was sampled, of what emcee passes to it, in JAX's NumPy.
    - `discard`, `thin`: as in `sampler.get_chain`: emcee does not know where its burn-in ends.
    - `constrain`: maps one vector to a dict of the parameters as you know them.

    The density must vanish smoothly where it ends: sample the logarithm of a positive parameter, with its Jacobian.
    """
    if not isinstance(sampler, foreign("emcee").EnsembleSampler):
        raise InputError(f"`sampler` must be an emcee.EnsembleSampler, got {type(sampler).__name__}.")
    if not callable(log_prob):
        raise InputError(f"`log_prob` must be a function written with jax.numpy, got {type(log_prob).__name__}.")
    if sampler.iteration <= discard:
        raise InputError(f"the sampler has made {sampler.iteration} steps, of which {discard} are to be discarded.")
    chain = np.swapaxes(sampler.get_chain(discard=discard, thin=thin), 0, 1)  # from (draw, walker, dim)
    recorded = np.swapaxes(sampler.get_log_prob(discard=discard, thin=thin), 0, 1)
    groups = sampler.parameter_names if sampler.params_are_named else None

    def density(x: Array) -> Array:
        given = x if groups is None else {name: x[np.asarray(index)] for name, index in groups.items()}
        found = log_prob(given)
        return found[0] if isinstance(found, tuple) else found  # what follows are blobs

    log_density = by_jax(density)
    try:
        computed, scores = at_draws(log_density, chain)
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError, TypeError) as error:
        raise InputError(
            f"`log_prob` cannot be differentiated by JAX ({' '.join(str(error).split())[:120]}). Write it with "
            f"jax.numpy, as a function of one vector that returns one number."
        ) from error
    refuse_another_density("log_prob", computed, recorded)
    parameters = None
    if groups is not None and constrain is None:
        parameters = {name: chain[..., np.asarray(index)] for name, index in groups.items()}
    return Samples(chain, scores, _names(groups), constrain, parameters, log_density=log_density)


def _names(groups: Mapping[str, int | list[int]] | None) -> list[str] | None:
    """Return the label of every coordinate, where the sampler names groups of them."""
    if groups is None:
        return None
    named = {}
    for name, index in groups.items():
        entries = index if isinstance(index, list) else [index]
        for i, column in enumerate(entries):
            named[int(column)] = f"{name}[{i}]" if isinstance(index, list) else name
    return [named[column] for column in range(len(named))]
