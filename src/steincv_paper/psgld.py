r"""Preconditioned stochastic gradient Langevin dynamics, whole chains in one compiled program.

$$ V \leftarrow \alpha V + (1 - \alpha)\,\bar g^2, \quad G = 1 / (\epsilon_0 + \sqrt V), \quad
   \theta \leftarrow \theta
   + \tfrac{\epsilon_t}{2}\, G\,\big(\nabla\log p_0 + \tfrac Nn \textstyle\sum_b \nabla\log p_b\big)
   + N(0, \epsilon_t G) $$

with the mean gradient $\bar g$ of a minibatch of n of the N cases, and steps $\epsilon_t = a (1 + t/b)^{-\gamma}$. The
term $\Gamma$ with the derivative of $G$ is left out, as its authors do. The draws are only near the posterior.

Reference: Li, Chen, Carlson, Carin (2016), AAAI.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from steincv.networks.full_gradient import over_chains
from steincv.networks.model import Array, Model, full_scores
from steincv.runtime.compile_cache import compile_cache
from steincv.runtime.validation import InputError, whole_number
from steincv.samples.samples import Samples


@dataclass(frozen=True)
class Steps:
    r"""$\epsilon_t = a (1 + t/b)^{-\gamma}$, and the preconditioner's memory $\alpha$ and floor $\epsilon_0$.

    Where all cases are fitted the gradient vanishes and $G$ is $1/\epsilon_0$. A prior $N(0, 1)$ is then followed
    stably while $a < 4\epsilon_0$, which the floor of $10^{-5}$ that its authors use does not give.
    """

    a: float = 1e-3
    b: float = 1000.0
    gamma: float = 0.33
    alpha: float = 0.99
    floor: float = 1e-2

    def __post_init__(self) -> None:
        allowed = {"a": self.a > 0, "b": self.b > 0, "gamma": 0 <= self.gamma <= 1, "alpha": 0 < self.alpha < 1,
                   "floor": self.floor > 0}  # fmt: skip
        for name, good in allowed.items():
            if not good:
                raise InputError(f"The '{name}' parameter of Steps is out of range: {getattr(self, name)!r}.")


def psgld(
    model: Model,
    start: ArrayLike,
    *,
    draws: int = 1000,
    warmup: int = 2000,
    thin: int = 10,
    batch: int = 50,
    steps: Steps | None = None,
    seed: int = 0,
) -> Samples:
    """Sample a posterior; return its draws with the scores of the full posterior at each of them.

    **Arguments:**

    - `model`: has `data`, arrays of n rows; `log_prior(theta)`; `log_likelihood(theta, *rows)`, one number per row.
    - `start`: `(chain, dim)`, where each chain begins.
    - `draws`, `warmup`, `thin`: kept draws per chain, steps before them, and steps from one to the next.
    - `batch`: rows per minibatch. `steps`: the schedule of step sizes.
    """
    for name, value, low in (("draws", draws, 1), ("warmup", warmup, 0), ("thin", thin, 1), ("batch", batch, 1)):
        whole_number(name, value, low)
    first = np.asarray(start)
    if first.ndim != 2:
        raise InputError(f"`start` has shape {first.shape}, expected (chain, dim).")
    data = tuple(jnp.asarray(a) for a in model.data)
    batch = min(batch, len(data[0]))
    with compile_cache():
        run = _program(model, draws, warmup, thin, batch, Steps() if steps is None else steps)
        keys = jax.random.split(jax.random.key(seed), len(first))
        found = np.asarray(run(jnp.asarray(first, jnp.float32), keys, data))
    if not np.isfinite(found).all():
        raise InputError("pSGLD diverged: draws are not finite. Use smaller steps, Steps(a=...).")
    return Samples(found, full_scores(model, found))


@functools.lru_cache(maxsize=8)
def _program(model: Model, draws: int, warmup: int, thin: int, batch: int, steps: Steps) -> Callable:
    def likelihood(theta: Array, rows: tuple[Array, ...]) -> Array:
        return model.log_likelihood(theta, *rows).sum()

    def chain(start: jax.Array, key: jax.Array, data: tuple[Array, ...]) -> jax.Array:
        n = len(data[0])

        def step(t: jax.Array | int, state: tuple) -> tuple:
            theta, second = state
            pick, noise = jax.random.split(jax.random.fold_in(key, t))
            rows = tuple(a[jax.random.randint(pick, (batch,), 0, n)] for a in data)
            gradient = jax.grad(likelihood)(theta, rows)
            second = steps.alpha * second + (1 - steps.alpha) * (gradient / batch) ** 2
            metric = 1 / (steps.floor + jnp.sqrt(second))
            size = steps.a * (1 + t / steps.b) ** -steps.gamma
            drift = jax.grad(model.log_prior)(theta) + n / batch * gradient
            theta = theta + 0.5 * size * metric * drift
            return theta + jnp.sqrt(size * metric) * jax.random.normal(noise, theta.shape), second

        def keep(state: tuple, i: jax.Array) -> tuple:
            first = warmup + i * thin
            state = jax.lax.fori_loop(first, first + thin, step, state)
            return state, state[0]

        state = jax.lax.fori_loop(0, warmup, step, (start, jnp.ones_like(start)))
        return jax.lax.scan(keep, state, jnp.arange(draws))[1]

    return jax.jit(lambda starts, keys, data: over_chains(lambda s, k: chain(s, k, data), starts, keys))
