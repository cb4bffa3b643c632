"""From PyMC: a trace, and the gradient of its model's log density with the Jacobians of all transforms."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..runtime.validation import InputError
from ..samples.files import kept_gradients, labelled_samples, posterior_parameters
from ..samples.samples import Samples
from .arviz import groups_of
from .columns import at_every_draw, columns
from .foreign import foreign


def from_pymc(data: Any, model: Any = None) -> Samples:
    """Samples from a trace of PyMC 5 or 6, whichever sampler made it.

    **Arguments:**

    - `data`: what `pm.sample` returned. Unconstrained draws and gradients that it kept are used; otherwise they are
      computed from the model.
    - `model`: the model; the one of the `with` block if not given. Its data must be those it was sampled with.

    Deterministics are there for f: `estimate(samples, "theta")`, `estimate(samples, lambda p: p["theta"][0])`.
    """
    with foreign("pymc"):
        import pymc
    try:
        model = pymc.modelcontext(model)
    except TypeError as error:
        raise InputError("`model` is missing: from_pymc(data, model).") from error
    if not isinstance(model, pymc.Model):
        raise InputError(f"`model` must be a pymc.Model, got {type(model).__name__}.")
    discrete = [rv.name for rv in model.free_RVs if rv.dtype.startswith(("int", "uint", "bool"))]
    if discrete:
        raise InputError(
            f"the model has discrete variables, {', '.join(discrete)}, which have no score. Sum over them "
            f"(pymc_extras.marginalize), or condition on them (pm.do, pm.observe)."
        )
    group = groups_of(data)
    posterior = group("posterior")
    if posterior is None:
        raise InputError("`data` has no group posterior.")
    shown = [rv.name for rv in model.free_RVs]
    missing = [name for name in shown if name not in posterior]
    if missing:
        raise InputError(f"`data` has no draws of {', '.join(missing)}, and the density depends on all variables.")
    if kept_gradients("the data", group) is not None:
        return labelled_samples("the data", group, shown)
    parameters = posterior_parameters("the data", posterior, shown)
    unconstrained = _unconstrained(model, {name: parameters[name] for name in shown}, group)
    draws, names = columns(unconstrained)
    score = _at_every_draw(model, model.value_vars, [model.dlogp()], list(unconstrained.values()))
    return Samples(draws, score[0], names, parameters=parameters)


def _unconstrained(model: Any, values: Mapping[str, np.ndarray], group: Callable[[str], Any]) -> dict[str, np.ndarray]:
    """Draws of the value variables, `(chain, draw, ...)`: kept by the trace, or the values transformed forward."""
    kept: dict[str, np.ndarray] = {}
    for dataset in filter(lambda d: d is not None, map(group, ("posterior", "unconstrained_posterior"))):
        there = [v.name for v in model.value_vars if v.name in dataset]
        kept |= {name: dataset[name].transpose("chain", "draw", ...).values for name in there}
    if len(kept) == len(model.value_vars):
        return {v.name: kept[v.name] for v in model.value_vars}
    with foreign("pymc"):
        from pytensor.graph.replace import clone_replace
    rvs = model.free_RVs
    transforms = [model.rvs_to_transforms[rv] for rv in rvs]
    # the inputs of a variable too: its bounds may depend on other variables
    forward = [rv if t is None else t.forward(rv, *rv.owner.inputs) for rv, t in zip(rvs, transforms, strict=True)]
    given = [rv.type(name=rv.name) for rv in rvs]
    outputs = clone_replace(forward, dict(zip(rvs, given, strict=True)))
    found = _at_every_draw(model, given, outputs, list(values.values()))
    return {model.rvs_to_values[rv].name: array for rv, array in zip(rvs, found, strict=True)}


def _at_every_draw(
    model: Any, inputs: Sequence[Any], outputs: Sequence[Any], values: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Outputs of a PyTensor graph at `(chain, draw, ...)` of its inputs: by JAX where it has all operations."""
    grid = values[0].shape[:2]
    rows = [array.reshape(-1, *array.shape[2:]) for array in values]
    try:
        f = _jaxified(inputs, outputs)
        found = at_every_draw(lambda row: list(f(*row)), rows)
    except Exception:  # an operation without a JAX form fails in many ways, and PyTensor's compiler knows them all
        f = model.compile_fn(outputs, inputs=inputs, point_fn=False, on_unused_input="ignore")
        found = [np.stack(column) for column in zip(*(f(*row) for row in zip(*rows, strict=True)), strict=True)]
    return [np.asarray(array).reshape(*grid, *array.shape[1:]) for array in found]


def _jaxified(inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable:
    import jax

    double = jax.config.read("jax_enable_x64")
    try:
        import pytensor.tensor as pt
        from pytensor.compile import SharedVariable
        from pytensor.compile.mode import get_mode
        from pytensor.graph.fg import FunctionGraph
        from pytensor.graph.replace import clone_replace
        from pytensor.graph.traversal import graph_inputs
        from pytensor.link.jax.dispatch import jax_funcify
    finally:  # that import sets JAX's precision for the whole process; it is the user's to set
        jax.config.update("jax_enable_x64", double)
    shared = [v for v in graph_inputs(outputs) if isinstance(v, SharedVariable)]
    constants: Any = {v: pt.constant(v.get_value()) for v in shared}
    fixed = clone_replace(list(outputs), constants)
    graph = FunctionGraph(inputs=list(inputs), outputs=fixed, clone=True)
    with jax.enable_x64(True):  # constants become JAX's arrays here
        get_mode("JAX").optimizer.rewrite(graph)
        return jax_funcify(graph)
