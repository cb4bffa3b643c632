"""From Stan models that can be asked for gradients: those of PyStan 3 and of BridgeStan."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import Any

import numpy as np

from ..runtime.progress import bar
from ..runtime.validation import InputError
from ..samples.log_density import LogDensity
from ..samples.samples import Parameters, Samples
from .cmdstan import bases, gather, gradients_of, label_of, read_table, split_name, stack
from .foreign import foreign
from .shared import entry, labels


def from_stan(fit: object, model: object) -> Samples:
    """Return samples from a fit, with the gradients of its model.

    **Arguments:**

    - `fit`: what `model.sample(...)` of PyStan returned. With a model of BridgeStan also a fit of CmdStanPy, a dict of
      arrays `(chain, draw, ...)` of all parameters, or an array `(chain, draw, dim)` of unconstrained draws.
    - `model`: from `stan.build(...)`, or a `bridgestan.StanModel`.

    The table lists what the parameters block declares; transformed parameters and generated quantities are there
    for f. Warm-up is left out. PyStan needs about 1.5 ms per draw, BridgeStan some microseconds.
    """
    if type(model).__module__.split(".")[0] == "bridgestan":
        return _of_bridgestan(fit, model)
    library = foreign("stan")
    if not isinstance(model, library.model.Model):
        raise InputError(
            f"`model` must come from stan.build, or be a bridgestan.StanModel; got {type(model).__name__}."
        )
    if not isinstance(fit, library.fit.Fit):
        raise InputError(f"`fit` must be what model.sample returned, got {type(fit).__name__}.")
    if tuple(fit.constrained_param_names) != tuple(model.constrained_param_names):
        raise InputError("`fit` and `model` have different parameters: give the model that was sampled.")
    return asyncio.run(_of_pystan(fit, model))


async def _of_pystan(fit: Any, model: Any) -> Samples:
    """Ask PyStan's server for the unconstrained draws and their gradients, one request after the other."""
    # the same requests as model.grad_log_prob makes, without a new server for every one: four times as fast
    from stan.common import HttpstanClient

    arrays = _arrays_of_pystan(fit)
    async with HttpstanClient() as client:

        async def ask(what: str, **given: Any) -> Any:
            response = await client.post(f"/{model.model_name}/{what}", json={"data": model.data, **given})
            if response.status != 200:
                raise InputError(f"Stan cannot evaluate a draw: {' '.join(str(response.json()).split())[:300]}")
            return next(iter(response.json().values()))

        async def constrain(u: list[float]) -> np.ndarray:
            block = {"include_tparams": False, "include_gqs": False}
            return np.array(await ask("write_array", unconstrained_parameters=u, **block))

        def at(chain: int, draw: int, names: Iterable[str]) -> dict[str, Any]:
            return {name: arrays[name][chain, draw].tolist() for name in names}

        # the parameters block comes first, and its size is what one draw without the rest has
        u = list(await ask("transform_inits", constrained_parameters=at(0, 0, arrays)))
        there = model.constrained_param_names[: len(await constrain(u))]
        block = [name for name in arrays if name in bases(there)]
        chains, draws = next(iter(arrays.values())).shape[:2]
        unconstrained = np.empty((chains, draws, len(u)))
        scores = np.empty_like(unconstrained)
        with bar("gradients from Stan", chains * draws, None) as advance:
            for chain, draw in np.ndindex(chains, draws):
                u = list(await ask("transform_inits", constrained_parameters=at(chain, draw, block)))
                unconstrained[chain, draw] = u
                scores[chain, draw] = await ask("log_prob_grad", unconstrained_parameters=u)
                advance(1)
        # Stan does not tell whose a coordinate is; it moves its own parameter, and of others only later ones
        u, here = unconstrained[0, 0].tolist(), await constrain(unconstrained[0, 0].tolist())
        moved = [await constrain([*u[:i], u[i] + 0.1, *u[i + 1 :]]) for i in range(len(u))]
        owners = [split_name(there[int(np.argmax(value != here))])[0] for value in moved]
    entries = {name: iter(labels(name, (n,) if (n := owners.count(name)) > 1 else ())) for name in owners}
    names = [next(entries[name]) for name in owners]
    return Samples(unconstrained, scores, names, parameters=Parameters(arrays, shown=block))


def _arrays_of_pystan(fit: Any) -> dict[str, np.ndarray]:
    """Return `(chain, draw, ...)` for every variable: PyStan's last axis runs over draws, and faster over chains."""
    skip = ceil(fit.num_warmup / fit.num_thin) if fit.save_warmup else 0
    arrays = {}
    for name, shape in zip(fit.param_names, fit.dims, strict=True):
        by_draw = fit[name].reshape(*shape, -1, fit.num_chains)
        arrays[name] = np.moveaxis(by_draw, (-1, -2), (0, 1))[:, skip:]
    return arrays


def _of_bridgestan(fit: object, model: Any) -> Samples:
    """Ask BridgeStan for the gradients at the draws, unconstrained where they are not."""
    if not isinstance(model, foreign("bridgestan").StanModel):
        raise InputError(f"`model` must be a bridgestan.StanModel, got {type(model).__name__}.")
    names, known = model.param_names(), model.param_names(include_tp=True)
    spent = None
    if isinstance(fit, np.ndarray):
        draws = fit[None] if fit.ndim == 2 else fit
        if draws.ndim != 3 or draws.shape[-1] != model.param_unc_num():
            raise InputError(
                f"`fit` has shape {fit.shape}, expected (chain, draw, {model.param_unc_num()}): unconstrained draws."
            )
        draws = np.asarray(draws, np.float64)
        flat = _each(lambda u: model.param_constrain(u, include_tp=True), draws)
        arrays = gather(known, flat)
    else:
        arrays, spent = _arrays_of(fit)
        missing = [name for name in bases(names) if name not in arrays]
        if missing:
            raise InputError(f"`fit` has no {', '.join(missing)}, and the density depends on all parameters.")
        columns = [entry(arrays[base], index) for base, index in map(split_name, names)]
        draws = _each(model.param_unconstrain, np.stack(columns, axis=-1))
    scores = _each(lambda u: model.log_density_gradient(u, propto=True, jacobian=True)[1], draws)
    coordinates = [label_of(name) for name in model.param_unc_names()]
    parameters = Parameters(arrays, shown=bases(names))

    def constrain(u: object) -> dict[str, Any]:
        """Return parameters and transformed parameters at one vector of numbers, not a traced one."""
        row = np.ascontiguousarray(np.asarray(u), dtype=np.float64)
        flat = model.param_constrain(row, include_tp=True)
        return {name: array[0, 0] for name, array in gather(known, np.asarray(flat)[None, None]).items()}

    return Samples(draws, scores, coordinates, constrain, parameters, _log_density(model), gradients=spent)


def _log_density(model: Any) -> LogDensity:
    """Return the log density of a BridgeStan model, by threads if it was compiled for them (STAN_THREADS).

    A point that Stan refuses has density 0 there: value -inf, gradient 0.
    """
    about = model.model_info() if hasattr(model, "model_info") else ""  # not in its first versions
    threaded = "STAN_THREADS=true" in about  # otherwise even one other thread than the caller's would crash

    def one(u: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            return model.log_density_gradient(u, propto=True, jacobian=True)
        except RuntimeError:
            return -np.inf, np.zeros(len(u))

    def batch(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = np.ascontiguousarray(x, dtype=np.float64)
        if threaded:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                found = list(pool.map(one, rows))
        else:
            found = [one(row) for row in rows]
        values, gradients = zip(*found, strict=True)
        return np.array(values), np.stack(gradients)

    return LogDensity(batch)


def _each(f: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Return f of every draw; what Stan objects to is said on one line."""
    try:
        found = [f(np.ascontiguousarray(row)) for row in rows.reshape(-1, rows.shape[-1])]
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"Stan cannot evaluate a draw: {' '.join(str(error).split())[:300]} Draws read from files need sig_figs=17."
        ) from error
    return np.array(found, dtype=np.float64).reshape(*rows.shape[:2], -1)


def _arrays_of(fit: Any) -> tuple[dict[str, np.ndarray], int | None]:
    """Return the draws of a fit as `(chain, draw, ...)` for every variable, and how many gradients it took."""
    library = type(fit).__module__.split(".")[0]
    if library == "stan":
        return _arrays_of_pystan(fit), None
    if library == "cmdstanpy":
        tables = [read_table(path) for path in fit.runset.csv_files]
        return gather(tables[0].names, stack(tables)), gradients_of(tables)
    if isinstance(fit, Mapping):
        return {str(name): np.asarray(array) for name, array in fit.items()}, None
    raise InputError(
        f"`fit` must be a fit of PyStan or CmdStanPy, a dict of arrays (chain, draw, ...) or an array of "
        f"unconstrained draws; got {type(fit).__name__}."
    )
