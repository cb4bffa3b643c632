"""From NumPyro: the unconstrained draws of an MCMC run, and minus the gradient of its potential energy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ..runtime.double import shapes
from ..runtime.rows import over_rows
from ..runtime.validation import InputError
from ..samples.samples import Parameters, Samples
from .foreign import foreign
from .shared import Vector, at_draws, by_jax, columns, named_leaves, position_of_vector, samples_of_tree, splitter


def from_numpyro(mcmc: object, *args: object, **kwargs: object) -> Samples:
    """Return samples from a finished `numpyro.infer.MCMC`, with its model's log density.

    Gradients that the run kept in double precision, `mcmc.run(..., extra_fields=("z_grad",))`, are used; otherwise
    they are computed. With `extra_fields=("num_steps",)` it is known how many gradients the run took.

    **Arguments:**

    - `mcmc`: after `run`. Its warm-up is not part of it; several chains and thinning are as they were run.
    - `args`, `kwargs`: those of the model, if they are not the ones of the run.

    Deterministic sites are there for f: `estimate(samples, "theta")`, `estimate(samples, lambda p: p["theta"][0])`.
    """
    library = foreign("numpyro")
    if not isinstance(mcmc, library.infer.MCMC):
        raise InputError(f"`mcmc` must be a numpyro.infer.MCMC, got {type(mcmc).__name__}.")
    if mcmc.last_state is None:
        raise InputError("`mcmc` holds no draws yet: call mcmc.run(key, ...) first.")
    if isinstance(mcmc.sampler, library.infer.HMCECS):
        raise InputError("HMCECS samples with subsamples of the data, whose scores are not those of the posterior.")
    kept, extra = mcmc.get_samples(group_by_chain=True), mcmc.get_extra_fields(group_by_chain=True)
    spent = int(np.asarray(extra["num_steps"]).sum()) if "num_steps" in extra else None
    # forward is how models with a while loop are differentiated: they have no other gradient
    forward = bool(getattr(mcmc.sampler, "_forward_mode_differentiation", False))
    model = getattr(mcmc.sampler, "model", None)
    if model is None:  # a bare `potential_fn`, whose positions are the unconstrained draws
        if mcmc.postprocess_fn is not None:
            raise InputError(
                "the run has a `postprocess_fn`: its unconstrained draws are not there. Run it without one."
            )
        potential, of_vector = mcmc.sampler._potential_fn, position_of_vector(kept)
        log_density = by_jax(lambda x: -potential(of_vector(x)), forward)
        return samples_of_tree(kept, log_density, _kept_scores(extra), gradients=spent)
    if not (args or kwargs):
        args, kwargs = mcmc._args, mcmc._kwargs
    seed, substitute, trace_of = (getattr(library.handlers, name) for name in ("seed", "substitute", "trace"))

    def seeded() -> Callable:
        return seed(model, jax.random.key(0))

    def trace(values: Mapping[str, Any]) -> dict[str, Any]:
        return trace_of(substitute(seeded(), data=values)).get_trace(*args, **kwargs)

    first = {name: np.asarray(array, np.float64)[0, 0] for name, array in kept.items()}
    discrete: dict[str, bool] = {}

    def free_sites(row: Mapping[str, Any]) -> None:
        for name, site in trace(row).items():
            if site["type"] == "sample" and not site["is_observed"]:
                discrete[name] = site["fn"].support.is_discrete

    shapes(free_sites, first)  # what sites there are, without computing them
    latent = _latent_sites(discrete, kept)
    values = {name: np.asarray(kept[name]) for name in latent}
    if all(f"z.{name}" in extra for name in latent):
        unconstrained = {name: np.asarray(extra[f"z.{name}"]) for name in latent}
    else:
        unconstrained = _unconstrain(trace, values, library.distributions.biject_to)
    draws, names = columns(unconstrained)
    split = splitter([array.shape[2:] for array in unconstrained.values()])
    # the potential energy that the kernel used, or, where it no longer has it, the one of the model
    made, energy = getattr(mcmc.sampler, "_potential_fn_gen", None), library.infer.util.potential_energy
    potential = made(*args, **kwargs) if made else lambda z: energy(seeded(), args, kwargs, z)
    log_density = by_jax(lambda x: -potential(dict(zip(latent, split(x), strict=True))), forward)
    scores = _kept_scores(extra, latent)
    if scores is None:
        scores = at_draws(log_density, draws)[1]
    others = {name: np.asarray(array) for name, array in kept.items() if name not in values}
    parameters = Parameters(values | others, shown=latent)

    def constrain(x: Vector) -> dict[str, Any]:
        """Return the sites that the run kept, at one unconstrained vector."""
        position = dict(zip(latent, split(x), strict=True))
        found = library.infer.util.constrain_fn(seeded(), args, kwargs, position, return_deterministic=True)
        return {name: found[name] for name in parameters.arrays}

    return Samples(draws, scores, names, constrain, parameters, log_density, gradients=spent)


def _latent_sites(free: Mapping[str, bool], kept: Mapping[str, Any]) -> list[str]:
    """Return the continuous ones of the unobserved sites, of which it is known whether they are discrete, in order."""
    discrete = [name for name, is_discrete in free.items() if is_discrete]
    sampled = [name for name in discrete if name in kept]
    if sampled:
        raise InputError(
            f"the model has discrete sites, {', '.join(sampled)}, which have no score. Sum over them "
            f"(infer={{'enumerate': 'parallel'}} under NUTS), or condition on them."
        )
    latent = [name for name in free if name not in discrete]
    missing = [name for name in latent if name not in kept]
    if missing:
        raise InputError(
            f"the run did not keep the sites {', '.join(missing)}, and the density depends on all of them."
        )
    if not latent:
        raise InputError("the model has no continuous latent site: there is nothing to estimate.")
    return latent


def _unconstrain(
    trace: Callable[[Mapping[str, Any]], dict[str, Any]], values: Mapping[str, np.ndarray], biject_to: Callable
) -> dict[str, np.ndarray]:
    """Map every site through the inverse of the bijection to its support, which may depend on other sites."""

    def one(row: Mapping[str, Any]) -> dict[str, Any]:
        sites = trace(row)
        return {name: biject_to(sites[name]["fn"].support).inv(row[name]) for name in row}

    rows = {name: array.reshape(-1, *array.shape[2:]) for name, array in values.items()}
    found = over_rows(jax.vmap(one))(rows)
    for name in values:
        edge = int((~np.isfinite(found[name])).any(axis=tuple(range(1, found[name].ndim))).sum())
        if edge:
            raise InputError(
                f"{edge} draws of `{name}` lie on the edge of its support, rounded to {values[name].dtype}: "
                f"keep them unconstrained, mcmc.run(..., extra_fields=('z.{name}', ...)) with every site, or run "
                f"in double precision, numpyro.enable_x64()."
            )
    return {name: found[name].reshape(*array.shape[:2], *found[name].shape[1:]) for name, array in values.items()}


def _kept_scores(extra: Mapping[str, Any], order: Sequence[str] | None = None) -> np.ndarray | None:
    """Return the scores that the run kept in double precision; those in single precision are better computed again."""
    leaves = named_leaves(extra["z_grad"]) if "z_grad" in extra else {}
    if not leaves or any(leaf.dtype != np.float64 for leaf in leaves.values()):
        return None
    return -columns({name: leaves[name] for name in order or leaves})[0]
