"""From PyMC: a trace, and the gradient of its model's log density with the Jacobians of all transforms."""

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ..runtime.rows import over_rows
from ..runtime.validation import InputError
from ..samples.files import kept_gradients, labelled_samples, posterior_parameters
from ..samples.log_density import LogDensity
from ..samples.samples import Constrain, Samples
from .arviz import gradients_of, groups_of, warm_up, with_model
from .foreign import foreign
from .shared import at_draws, columns, labels, splitter

Rows = list[np.ndarray]


def from_pymc(data: object, model: Any = None) -> Samples:
    """Return samples from a trace of PyMC 5 or 6, whichever sampler made it.

    **Arguments:**

    - `data`: what `pm.sample` returned. Unconstrained draws and gradients that it kept are used; otherwise they are
      computed from the model.
    - `model`: the model; the one of the `with` block if not given. Its data must be those it was sampled with.

    Deterministics are there for f: `estimate(samples, "theta")`, `estimate(samples, lambda p: p["theta"][0])`.
    """
    pymc = foreign("pymc")
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
    if not shown:
        raise InputError(
            f"`model` has no free variables, and `data` has {', '.join(map(str, posterior))}: it is not the model of "
            f"the trace. Pass the one that was sampled: from_pymc(trace, model)."
        )
    missing = [name for name in shown if name not in posterior]
    if missing:
        raise InputError(f"`data` has no draws of {', '.join(missing)}, and the density depends on all variables.")
    if kept_gradients("the data", group) is not None:
        samples = labelled_samples("the data", group, shown)
        places = _places(model, samples.names)
        constrain = _constrain(model, samples.parameters.arrays if samples.parameters else shown, places)
        more = {"fitting": warm_up(group), "gradients": gradients_of(group)}
        return with_model(samples, constrain, log_density=_log_density(model, places), **more)
    parameters = posterior_parameters("the data", posterior, shown)
    draws, names = columns(_unconstrained(model, {name: parameters[name] for name in shown}, group))
    log_density = _log_density(model)
    scores, constrain = at_draws(log_density, draws)[1], _constrain(model, parameters.arrays)
    spent = gradients_of(group)
    return Samples(draws, scores, names, constrain, parameters, log_density=log_density, gradients=spent)


def _unconstrained(model: Any, values: Mapping[str, np.ndarray], group: Callable[[str], Any]) -> dict[str, np.ndarray]:
    """Return draws of the value variables, `(chain, draw, ...)`: kept ones, or the values transformed forward."""
    kept: dict[str, np.ndarray] = {}
    for dataset in filter(lambda d: d is not None, map(group, ("posterior", "unconstrained_posterior"))):
        there = [v.name for v in model.value_vars if v.name in dataset]
        kept |= {name: dataset[name].transpose("chain", "draw", ...).values for name in there}
    if len(kept) == len(model.value_vars):
        return {v.name: kept[v.name] for v in model.value_vars}
    from pytensor.graph.replace import clone_replace

    rvs = model.free_RVs
    transforms = [model.rvs_to_transforms[rv] for rv in rvs]
    # the inputs of a variable too: its bounds may depend on other variables
    forward = [rv if t is None else t.forward(rv, *rv.owner.inputs) for rv, t in zip(rvs, transforms, strict=True)]
    given = [rv.type(name=rv.name) for rv in rvs]
    outputs = clone_replace(forward, dict(zip(rvs, given, strict=True)))
    rows = [array.reshape(-1, *array.shape[2:]) for array in values.values()]
    found = _over_rows(model, given, outputs)(rows)
    grid = next(iter(values.values())).shape[:2]
    named = zip((model.rvs_to_values[rv].name for rv in rvs), found, strict=True)
    return {name: array.reshape(*grid, *array.shape[1:]) for name, array in named}


def _log_density(model: Any, order: Sequence[int] | None = None) -> LogDensity:
    """Return the log density with all Jacobians, and its gradient; it is compiled when it is first asked for.

    Coordinates are those of the value variables one after the other, or in another `order`: column i is theirs at
    `order[i]`.
    """
    place = slice(None) if order is None else np.asarray(order)
    first = model.initial_point()
    split = splitter([first[v.name].shape for v in model.value_vars])

    @functools.cache
    def compiled() -> Callable[[Rows], Rows]:
        return _over_rows(model, model.value_vars, [model.logp(), model.dlogp()])

    def batch(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = np.empty(x.shape)
        rows[:, place] = x
        values, gradients = compiled()(split(rows))
        return values, gradients[:, place]

    return LogDensity(batch)


def _constrain(model: Any, wanted: Iterable[str], order: Sequence[int] | None = None) -> Constrain:
    """Return a function from one unconstrained vector to those variables of the model that were kept."""
    names = [name for name in wanted if name in model.named_vars]
    first = model.initial_point()
    split = splitter([first[v.name].shape for v in model.value_vars])
    dim = sum(first[v.name].size for v in model.value_vars)
    own = np.arange(dim) if order is None else np.argsort(order)  # where each coordinate of the model is in the vector

    @functools.cache
    def by_jax() -> Callable | None:
        try:
            return _jaxified(model.value_vars, outputs())
        except Exception:  # an operation without a JAX form fails in many ways
            return None

    @functools.cache
    def by_pytensor() -> Callable:
        return model.compile_fn(outputs(), inputs=model.value_vars, point_fn=False, on_unused_input="ignore")

    @functools.cache
    def outputs() -> list[Any]:
        return model.replace_rvs_by_values([model[name] for name in names])

    def constrain(x: Any) -> dict[str, Any]:
        f = by_jax()
        # without a JAX form the vector must be one of numbers: what asks with a traced one then asks one by one
        row = np.asarray(x) if f is None else x
        return dict(zip(names, (f or by_pytensor())(*split(row[own])), strict=True))

    return constrain


def _places(model: Any, names: Sequence[str]) -> list[int]:
    """Return where each named coordinate is among the value variables.

    nutpie calls theta[0] theta_0, and grid[0, 1] grid_0.1.
    """
    first = model.initial_point()
    own = [label for v in model.value_vars for label in labels(v.name, first[v.name].shape)]
    known = {re.sub(r"\[(.*)\]$", lambda m: "_" + m[1].replace(", ", "."), label): i for i, label in enumerate(own)}
    known |= {label: i for i, label in enumerate(own)}
    missing = [name for name in names if name not in known]
    if missing or len(names) != len(own):
        raise InputError(
            f"`data` has the coordinates {', '.join(names[:6])}, `model` has {', '.join(own[:6])}: give the model that "
            f"was sampled."
        )
    return [known[name] for name in names]


def _over_rows(model: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[Rows], Rows]:
    """Return the outputs of a PyTensor graph at rows `(n, ...)` of its inputs: by JAX where it has all operations."""

    @functools.cache
    def by_jax() -> Callable[[Rows], Rows]:
        f = _jaxified(inputs, outputs)
        return over_rows(jax.vmap(lambda row: list(f(*row))))

    @functools.cache
    def by_pytensor() -> Callable:
        return model.compile_fn(outputs, inputs=inputs, point_fn=False, on_unused_input="ignore")

    def at(rows: Rows) -> Rows:
        if by_pytensor.cache_info().currsize == 0:
            # an operation without a JAX form fails in many ways, and PyTensor's compiler knows them all
            with contextlib.suppress(Exception):
                return by_jax()(rows)
        found = (by_pytensor()(*row) for row in zip(*rows, strict=True))
        return [np.stack(column) for column in zip(*found, strict=True)]

    return at


def _jaxified(inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable:
    """Return the graph as a JAX function of its inputs, with the data of the model as constants."""
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
