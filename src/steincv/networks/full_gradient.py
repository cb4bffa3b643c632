"""The reference sampler: HMC or NUTS of BlackJAX with the gradient of all data, whole chains in one program."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from ..runtime.double import in_double, program
from ..runtime.validation import InputError, whole_number
from ..samples.samples import Samples
from .model import Array


def full_gradient(
    log_posterior: Callable[[Array], Array],
    start: ArrayLike,
    *,
    draws: int = 1000,
    warmup: int = 500,
    thin: int = 1,
    leapfrogs: int | None = None,
    target: float = 0.8,
    seed: int = 0,
) -> Samples:
    """Sample a posterior; return its draws with their scores, and how many gradients they took.

    **Arguments:**

    - `log_posterior`: a JAX function of one flat vector.
    - `start`: `(chain, dim)`, where each chain begins. Its dtype is the precision of the run.
    - `draws`, `warmup`, `thin`: kept draws per chain, iterations before them, and iterations from one to the next.
    - `leapfrogs`: steps per trajectory of HMC; without it the trajectories are those of NUTS.
    - `target`: the acceptance rate that the step size is adapted to.
    """
    for name, value, low in (("draws", draws, 1), ("warmup", warmup, 0), ("thin", thin, 1)):
        whole_number(name, value, low)
    first = np.asarray(start)
    if first.ndim != 2:
        raise InputError(f"`start` has shape {first.shape}, expected (chain, dim).")
    double = first.dtype == np.float64
    first = first if double else first.astype(np.float32)
    with jax.enable_x64(double):
        keys = jax.random.split(jax.random.key(seed), len(first))
    run = program(_sampler(log_posterior, draws, warmup, thin, leapfrogs, target), first, keys, double=double)
    found, scores, spent = in_double(run, first, keys, double=double)
    return Samples(found, scores, gradients=int(spent.sum()))


def _sampler(
    log_posterior: Callable[[Array], Array], draws: int, warmup: int, thin: int, leapfrogs: int | None, target: float
) -> Callable:
    try:
        import blackjax
    except ImportError as error:
        raise InputError("the full-gradient sampler needs BlackJAX: pip install 'steincv[blackjax]'.") from error

    algorithm = blackjax.nuts if leapfrogs is None else blackjax.hmc
    steps = {} if leapfrogs is None else {"num_integration_steps": leapfrogs}

    def chain(start: jax.Array, key: jax.Array) -> tuple[jax.Array, ...]:
        warm, run = jax.random.split(key)
        adapt = blackjax.window_adaptation(algorithm, log_posterior, target_acceptance_rate=target, **steps)
        (state, parameters), _ = adapt.run(warm, start, num_steps=warmup)
        kernel = algorithm(log_posterior, **parameters).step

        def keep(state: Any, key: jax.Array) -> tuple:
            def step(i: Array | int, before: tuple) -> tuple:
                state, info = kernel(jax.random.fold_in(key, i), before[0])
                return state, before[1] + info.num_integration_steps

            state, spent = jax.lax.fori_loop(0, thin, step, (state, 0))
            return state, (state.position, state.logdensity_grad, spent)

        return jax.lax.scan(keep, state, jax.random.split(run, draws))[1]

    return lambda starts, keys: over_chains(chain, starts, keys)


def over_chains(chain: Callable, *arguments: Array) -> Any:
    """Run all chains in one program: side by side on an accelerator; one after the other on a CPU, faster there."""
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda a: chain(*a), arguments)
    return jax.vmap(chain)(*arguments)
