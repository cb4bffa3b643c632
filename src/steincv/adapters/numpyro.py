"""From NumPyro: the unconstrained draws of an MCMC run, and minus the gradient of its potential energy."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..runtime.validation import InputError
from ..samples.samples import Parameters, Samples
from .columns import at_every_draw, columns
from .foreign import foreign
from .trees import samples_of_tree


def from_numpyro(mcmc: Any, *args: Any, **kwargs: Any) -> Samples:
    """Samples from a finished `numpyro.infer.MCMC`.

    Gradients that the run kept, `mcmc.run(..., extra_fields=("z_grad",))`, are used; otherwise they are computed.

    **Arguments:**

    - `mcmc`: after `run`. Its warm-up is not part of it; several chains and thinning are as they were run.
    - `args`, `kwargs`: those of the model, if they are not the ones of the run.

    Deterministic sites are there for f: `estimate(samples, "theta")`, `estimate(samples, lambda p: p["theta"][0])`.
    """
    with foreign("numpyro"):
        from numpyro import handlers
        from numpyro.infer import HMCECS, MCMC
    if not isinstance(mcmc, MCMC):
        raise InputError(f"`mcmc` must be a numpyro.infer.MCMC, got {type(mcmc).__name__}.")
    if mcmc.last_state is None:
        raise InputError("`mcmc` holds no draws yet: call mcmc.run(key, ...) first.")
    if isinstance(mcmc.sampler, HMCECS):
        raise InputError("HMCECS samples with subsamples of the data, whose scores are not those of the posterior.")
    kept, extra = mcmc.get_samples(group_by_chain=True), mcmc.get_extra_fields(group_by_chain=True)
    model = getattr(mcmc.sampler, "model", None)
    if model is None:
        return _of_potential(mcmc, kept, extra)
    if not (args or kwargs):
        args, kwargs = mcmc._args, mcmc._kwargs
    import jax

    def trace(values: Mapping[str, Any]) -> Any:
        seeded = handlers.seed(model, jax.random.key(0))
        return handlers.trace(handlers.substitute(seeded, data=values)).get_trace(*args, **kwargs)

    first = {name: np.asarray(array)[0, 0] for name, array in kept.items()}
    sites: dict[str, Any] = {}
    jax.eval_shape(lambda row: sites.update(trace(row)), first)  # what sites there are, without computing them
    latent = _latent_sites(sites, kept)
    values = {name: np.asarray(kept[name]) for name in latent}
    if all(f"z.{name}" in extra for name in latent):
        unconstrained = {name: np.asarray(extra[f"z.{name}"]) for name in latent}
    else:
        unconstrained = _unconstrain(trace, values)
    if "z_grad" in extra:
        potential_gradient = {name: np.asarray(extra["z_grad"][name]) for name in latent}
    else:
        potential = _potential(mcmc.sampler, model, args, kwargs)
        computed = _gradient(mcmc.sampler, potential, unconstrained)
        potential_gradient = {name: computed[name] for name in latent}  # JAX sorts the keys of a dict
    draws, names = columns(unconstrained)
    others = {name: np.asarray(array) for name, array in kept.items() if name not in values}
    return Samples(draws, -columns(potential_gradient)[0], names, parameters=Parameters(values | others, shown=latent))


def _latent_sites(trace: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """The continuous unobserved sites, in the order of the model."""
    free = {name: site for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]}
    discrete = [name for name, site in free.items() if site["fn"].support.is_discrete]
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


def _rows(tree: Any) -> Any:
    """`(chain, draw, ...)` as `(n, ...)`."""
    import jax

    return jax.tree.map(lambda a: np.asarray(a).reshape(-1, *a.shape[2:]), tree)


def _grid(tree: Any, like: Any) -> Any:
    """`(n, ...)` as `(chain, draw, ...)`, as many as there."""
    import jax

    grid = jax.tree.leaves(like)[0].shape[:2]
    return jax.tree.map(lambda a: a.reshape(*grid, *a.shape[1:]), tree)


def _unconstrain(trace: Callable, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every site through the inverse of the bijection to its support, which may depend on other sites."""
    from numpyro.distributions import biject_to

    def one(row: Mapping[str, Any]) -> dict[str, Any]:
        sites = trace(row)
        return {name: biject_to(sites[name]["fn"].support).inv(row[name]) for name in row}

    found = _grid(at_every_draw(one, _rows(dict(values))), dict(values))
    for name in values:
        edge = int((~np.isfinite(found[name])).any(axis=tuple(range(2, found[name].ndim))).sum())
        if edge:
            raise InputError(
                f"{edge} draws of `{name}` lie on the edge of its support, rounded to {values[name].dtype}: "
                f"keep them unconstrained, mcmc.run(..., extra_fields=('z.{name}', ...)) with every site, or run "
                f"in double precision, numpyro.enable_x64()."
            )
    return {name: found[name] for name in values}


def _potential(kernel: Any, model: Any, args: Any, kwargs: Any) -> Callable:
    """The potential energy that the kernel used, or, where it no longer has it, the one of the model."""
    import jax
    from numpyro import handlers
    from numpyro.infer.util import potential_energy

    made = getattr(kernel, "_potential_fn_gen", None)
    if made is not None:
        return made(*args, **kwargs)
    return lambda z: potential_energy(handlers.seed(model, jax.random.key(0)), args, kwargs, z)


def _gradient(kernel: Any, potential: Callable, unconstrained: Any) -> Any:
    import jax

    forward = getattr(kernel, "_forward_mode_differentiation", False)  # models with a while loop have no other
    gradient = (jax.jacfwd if forward else jax.grad)(potential)
    return _grid(at_every_draw(gradient, _rows(unconstrained)), unconstrained)


def _of_potential(mcmc: Any, kept: Any, extra: Mapping[str, Any]) -> Samples:
    """A run of a bare `potential_fn`: its positions are the unconstrained draws."""
    if mcmc.postprocess_fn is not None:
        raise InputError("the run has a `postprocess_fn`: its unconstrained draws are not there. Run it without one.")
    potential: Any = getattr(mcmc.sampler, "_potential_fn", None)
    gradient = extra["z_grad"] if "z_grad" in extra else _gradient(mcmc.sampler, potential, kept)
    import jax

    return samples_of_tree(kept, jax.tree.map(lambda g: -np.asarray(g), gradient))
