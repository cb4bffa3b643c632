"""What a posterior of the league is, and the few pieces all of them are written with.

blocks = Blocks(mu=(), log_tau=(), theta=(8,))
p = blocks(x)                     # {"mu": x[0], "log_tau": x[1], "theta": x[2:10]}
blocks.names                      # ("mu", "log_tau", "theta[0]", ...)
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

DATA = Path(__file__).parent / "data"
Density = Callable[[jax.Array], jax.Array]
Functionals = Callable[[jax.Array], dict[str, jax.Array]]


@dataclass(frozen=True, eq=False)
class Posterior:
    """A density on R^dim with named functionals.

    - `start`, `jitter`: NUTS starts near this point, every coordinate at most so far from it.
    - `dense` asks for a full mass matrix: for strong correlations that do not change from place to place.
    - `acceptance` is the target of the step size; scales that narrow need it closer to 1.
    - `source`: the same posterior in other coordinates and the map from there, where NUTS cannot be trusted in these.
      Its draws are mapped instead.
    """

    name: str
    names: tuple[str, ...]
    logdensity: Density
    functionals: Functionals
    start: np.ndarray | None = None
    dense: bool = False
    acceptance: float = 0.9
    jitter: float = 1.0
    source: tuple[str, Callable[[jax.Array], jax.Array]] | None = None

    @property
    def dim(self) -> int:
        return len(self.names)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the functionals in the order in which they were written; JAX would sort them."""
        with jax.enable_x64(True):
            return tuple(self.functionals(jnp.zeros(self.dim)))


class Blocks:
    """Cut one vector into named arrays: `Blocks(mu=(), theta=(8, 2))` takes 1 + 16 numbers, `mu` a scalar."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self.shapes = shapes
        self.dim = sum(prod(shape) for shape in shapes.values())

    def __call__(self, x: jax.Array) -> dict[str, jax.Array]:
        parts, at = {}, 0
        for name, shape in self.shapes.items():
            parts[name] = x[at : at + prod(shape)].reshape(shape)
            at += prod(shape)
        return parts

    @property
    def names(self) -> tuple[str, ...]:
        def of(name: str, shape: tuple[int, ...]) -> list[str]:
            return [name + (f"[{','.join(map(str, index))}]" if index else "") for index in np.ndindex(shape)]

        return tuple(label for name, shape in self.shapes.items() for label in of(name, shape))

    def point(self, **values: float | np.ndarray) -> np.ndarray:
        """A vector with these blocks filled and zeros elsewhere."""
        parts = [np.broadcast_to(values.get(name, 0.0), shape).ravel() for name, shape in self.shapes.items()]
        return np.concatenate(parts).astype(float)


def load(name: str) -> dict[str, np.ndarray]:
    """The entries of data/NAME.json, or of NAME.json.gz, as arrays."""
    plain, packed = DATA / f"{name}.json", DATA / f"{name}.json.gz"
    text = plain.read_text() if plain.exists() else gzip.decompress(packed.read_bytes()).decode()
    return {key: np.asarray(value) for key, value in json.loads(text).items()}


# Log densities without their constants, summed over entries.


def normal(x: jax.Array, mean: jax.Array | float, log_sd: jax.Array | float) -> jax.Array:
    x = jnp.asarray(x)
    return -0.5 * jnp.sum(((x - mean) * jnp.exp(-log_sd)) ** 2) - jnp.sum(jnp.broadcast_to(log_sd, x.shape))


def standard_normal(*parts: jax.Array) -> jax.Array:
    return -0.5 * sum(jnp.sum(part**2) for part in parts)


def student_t(x: jax.Array, freedom: float, mean: float, scale: float) -> jax.Array:
    return -0.5 * (freedom + 1) * jnp.sum(jnp.log1p(((x - mean) / scale) ** 2 / freedom))


def bernoulli(successes: np.ndarray, trials: np.ndarray | float, logits: jax.Array) -> jax.Array:
    """Of counts of successes, given the logarithm of the odds."""
    return jnp.sum(successes * logits) - jnp.sum(trials * jax.nn.softplus(logits))


def logit_jacobian(u: jax.Array) -> jax.Array:
    """log d(sigmoid(u))/du, summed: of parameters between two bounds, but for a constant."""
    return jnp.sum(jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u))


def correlation_pair(u: jax.Array, shape: float) -> tuple[jax.Array, jax.Array]:
    """r = tanh(u) and the log density of u when the 2 x 2 correlation matrix has the LKJ density of that shape.

    The Cholesky factor's density is (1 - r^2)^(shape - 1) and dr/du = 1 - r^2.
    """
    return jnp.tanh(u), -2 * shape * (jnp.logaddexp(u, -u) - jnp.log(2.0))


def two_versions(
    name: str,
    blocks: Blocks,
    effects: Callable[[dict[str, jax.Array]], tuple[jax.Array, jax.Array]],
    rest: Callable[[dict[str, jax.Array]], jax.Array],
    functionals: Callable[[dict[str, jax.Array]], dict[str, jax.Array]],
    centred: bool,
    start: np.ndarray | None = None,
    better: bool | None = None,
) -> Posterior:
    """The same posterior in two coordinates: block `b` holds the effects, or their deviations in standard units.

    `effects(p)` gives the mean and the log sd of the effects, `rest(p)` the likelihood and the other priors with the
    effects in `p["b"]`. Functionals are those of the effects in both versions, so that their gains can be compared.
    `better` says which version NUTS can be trusted in (True: the centred one), if not both.
    """

    def natural(p):
        if centred:
            return p
        mean, log_sd = effects(p)
        return p | {"b": mean + jnp.exp(log_sd) * p["b"]}

    def logdensity(x):
        p = blocks(x)
        prior = normal(p["b"], *effects(p)) if centred else standard_normal(p["b"])
        return prior + rest(natural(p))

    def from_other(x):
        p = blocks(x)
        mean, log_sd = effects(p)
        b = mean + jnp.exp(log_sd) * p["b"] if centred else (p["b"] - mean) * jnp.exp(-log_sd)
        return jnp.concatenate([jnp.ravel(part) for part in (p | {"b": b}).values()])

    names = (f"{name}_noncentred", f"{name}_centred")
    source = None if better is None or better == centred else (names[better], from_other)
    mine = names[centred]
    return Posterior(mine, blocks.names, logdensity, lambda x: functionals(natural(blocks(x))), start, source=source)
