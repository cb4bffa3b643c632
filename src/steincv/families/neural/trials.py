r"""Trial functions: networks that know their value and their *exact* divergence.

The divergence by one backward pass a coordinate is what makes neural control variates slow. For the networks here it
has a closed form, or is carried forward beside the value; only a user's own function pays for forward mode.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._folds import whole_number
from ..._status import InputError

Params = Any

ACTIVATIONS: dict[str, Callable[[Array], tuple[Array, Array, Array]]] = {}


def _activation(name: str) -> Callable:
    def register(function: Callable) -> Callable:
        ACTIVATIONS[name] = function
        return function

    return register


@_activation("tanh")
def _tanh(u: Array) -> tuple[Array, Array, Array]:
    t = jnp.tanh(u)
    return t, 1 - t * t, -2 * t * (1 - t * t)


@_activation("sigmoid")
def _sigmoid(u: Array) -> tuple[Array, Array, Array]:
    h = jax.nn.sigmoid(u)
    return h, h * (1 - h), h * (1 - h) * (1 - 2 * h)


@_activation("softplus")
def _softplus(u: Array) -> tuple[Array, Array, Array]:
    h = jax.nn.sigmoid(u)
    return jax.nn.softplus(u), h, h * (1 - h)


@_activation("sin")
def _sin(u: Array) -> tuple[Array, Array, Array]:
    return jnp.sin(u), jnp.cos(u), -jnp.sin(u)


class Trial(abc.ABC):
    r"""A parametrised vector field $\Phi$ on R^dim, in standard coordinates, for one output."""

    @abc.abstractmethod
    def init(self, key: Any, dim: int) -> Params:
        """Random weights."""

    @abc.abstractmethod
    def field(self, params: Params, z: Float[Array, "n dim"]) -> tuple[Array, Float[Array, " n"]]:
        r"""$\Phi$, `(n, dim)` (or `(n, 1)` where all coordinates are equal), and $\nabla\cdot\Phi$."""


def check_network(name: str, width: int, depth: int, activation: str) -> None:
    whole_number("width", width, 1)
    whole_number("depth", depth, 1)
    if activation not in ACTIVATIONS:
        raise InputError(
            f"The 'activation' parameter of {name} must be one of {sorted(ACTIVATIONS)}. Got {activation!r} instead."
        )


@dataclass(frozen=True)
class VectorField(Trial):
    r"""$\Phi$: R^dim -> R^dim, a fully connected network; the paper's trial function (2 x 40, sigmoid).

    With one hidden layer $\nabla\cdot\Phi = \sum_k h'(u_k)\,(W_1 W_2)_{kk}$; with two,
    $h'(u_2)^T\,[W_2 \circ (W_1 W_3)^T]\,h'(u_1)$: no loop over coordinates. Deeper networks: exact forward mode.
    """

    width: int = 40
    depth: int = 2
    activation: str = "sigmoid"

    def __post_init__(self) -> None:
        check_network("VectorField", self.width, self.depth, self.activation)

    def init(self, key: Any, dim: int) -> Params:
        return _dense(key, [dim, *[self.width] * self.depth, dim])

    def field(self, params: Params, z: Array) -> tuple[Array, Array]:
        act = ACTIVATIONS[self.activation]
        if self.depth == 1:
            (w1, b1), (w2, b2) = params
            h, slope, _ = act(z @ w1.T + b1)
            return h @ w2.T + b2, slope @ (w1 * w2.T).sum(1)
        if self.depth == 2:
            (w1, b1), (w2, b2), (w3, b3) = params
            h, slope1, _ = act(z @ w1.T + b1)
            h, slope2, _ = act(h @ w2.T + b2)
            return h @ w3.T + b3, (slope2 * (slope1 @ (w2 * (w1 @ w3).T).T)).sum(-1)
        return _forward_mode(lambda x: _mlp(params, act, x), z)


@dataclass(frozen=True)
class ScalarField(Trial):
    r"""One $\phi$ shared by all coordinates, $\Phi = (\phi, \ldots, \phi)$: the paper's choice for Bayesian networks.

    $g = \sum_i \partial_i\phi + \phi \sum_i s_i$. With `context` further inputs, $\phi(z, x)$: those are what the test
    functions are indexed by, and no derivative is taken by them.
    """

    width: int = 40
    depth: int = 1
    activation: str = "sigmoid"
    context: int = 0

    def __post_init__(self) -> None:
        check_network("ScalarField", self.width, self.depth, self.activation)
        whole_number("context", self.context, 0)

    def init(self, key: Any, dim: int) -> Params:
        return _dense(key, [dim + self.context, *[self.width] * self.depth, 1])

    def field(self, params: Params, z: Array, context: Array | None = None) -> tuple[Array, Array]:
        act = ACTIVATIONS[self.activation]
        inputs = z if context is None else jnp.concatenate([z, context], -1)
        # sum_i d phi / d z_i is the derivative along (1, ..., 1, 0, ..., 0): one forward-mode product
        along = jnp.broadcast_to((jnp.arange(inputs.shape[-1]) < z.shape[-1]).astype(z.dtype), inputs.shape)
        phi, divergence = jax.jvp(lambda x: _mlp(params, act, x)[:, 0], (inputs,), (along,))
        return phi[:, None], divergence


@dataclass(frozen=True)
class Potential(Trial):
    r"""$\Phi = \nabla Q$ with $Q$ a network plus a polynomial of degree `degree`: the shape the best $\Phi$ has.

    With one hidden layer $\Delta Q = \sum_k a_k h''(u_k)|w_k|^2$; with more, gradient and Laplacian are carried
    forward through the layers. `Neural` fits one hidden layer of tanh by `_potential_fit`, which is far better and
    faster than Adam alone. `width=None` chooses it by the number of outputs.
    """

    width: int | None = None
    depth: int = 1
    activation: str = "tanh"
    degree: int | None = None

    def __post_init__(self) -> None:
        check_network("Potential", 1 if self.width is None else self.width, self.depth, self.activation)
        if self.degree not in (None, 0, 1, 2):
            raise InputError(f"The 'degree' parameter of Potential must be None, 0, 1 or 2. Got {self.degree!r} instead.")

    def init(self, key: Any, dim: int) -> Params:
        width = 40 if self.width is None else self.width
        layers = _dense(key, [dim, *[width] * self.depth, 1])
        return {"layers": layers, "linear": jnp.zeros(dim), "quadratic": jnp.zeros((dim, dim))}

    def field(self, params: Params, z: Array) -> tuple[Array, Array]:
        act = ACTIVATIONS[self.activation]
        (w, b), *hidden, (last, _) = params["layers"]
        degree = 2 if self.degree is None else self.degree
        linear = params["linear"] * (degree >= 1)
        quadratic = (params["quadratic"] + params["quadratic"].T) * (degree >= 2)
        h, h1, h2 = act(z @ w.T + b)
        if not hidden:
            gradient = (h1 * last[0]) @ w
            laplacian = h2 @ (last[0] * (w * w).sum(-1))
        else:
            jacobian = h1[:, :, None] * w
            laplace = h2 * (w * w).sum(-1)
            for weight, bias in hidden:
                h, h1, h2 = act(h @ weight.T + bias)
                inner = jnp.einsum("kj,njd->nkd", weight, jacobian)
                laplace = h1 * (laplace @ weight.T) + h2 * (inner * inner).sum(-1)
                jacobian = h1[:, :, None] * inner
            gradient = jnp.einsum("k,nkd->nd", last[0], jacobian)
            laplacian = laplace @ last[0]
        return gradient + linear + z @ quadratic, laplacian + jnp.trace(quadratic)


@dataclass(frozen=True)
class Custom(Trial):
    """Any Equinox module or function R^dim -> R^dim; its divergence by exact forward mode.

    The arrays of a module are its weights, and where the fit starts. A function without arrays is scaled by one
    fitted number. `hutchinson`: an unbiased one-probe estimate of the divergence *during training only*.
    """

    function: Any
    hutchinson: bool = False

    def init(self, key: Any, dim: int) -> Params:
        import equinox as eqx

        out = jax.eval_shape(self.function, jax.ShapeDtypeStruct((dim,), jnp.float32))
        if out.shape != (dim,):
            raise InputError(f"`trial` maps a vector of {dim} to shape {out.shape}; it must return {dim} numbers.")
        weights, _ = eqx.partition(self.function, eqx.is_inexact_array)
        return {"weights": weights, "scale": jnp.zeros(()) if not jax.tree.leaves(weights) else jnp.ones(())}

    def _single(self, params: Params) -> Callable[[Array], Array]:
        import equinox as eqx

        _, static = eqx.partition(self.function, eqx.is_inexact_array)
        function = eqx.combine(params["weights"], static)
        return lambda x: params["scale"] * function(x)

    def field(self, params: Params, z: Array) -> tuple[Array, Array]:
        return _forward_mode(jax.vmap(self._single(params)), z)

    def estimate(self, params: Params, z: Array, key: Any) -> tuple[Array, Array]:
        """The field and Hutchinson's estimate of its divergence with one random sign vector a draw."""
        probe = jax.random.rademacher(key, z.shape, z.dtype)
        value, along = jax.jvp(jax.vmap(self._single(params)), (z,), (probe,))
        return value, (probe * along).sum(-1)


def _dense(key: Any, sizes: list[int]) -> list[tuple[Array, Array]]:
    """Layers `(weight, bias)` with weights of variance 1 / inputs; the last starts small, so that g starts near 0."""
    layers = []
    for i, (inputs, outputs) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        kw, kb = jax.random.split(jax.random.fold_in(key, i))
        size = 0.1 if i == len(sizes) - 2 else 1.0
        weight = size * jax.random.normal(kw, (outputs, inputs)) / jnp.sqrt(inputs)
        layers.append((weight, size * jax.random.normal(kb, (outputs,)) * (i < len(sizes) - 2)))
    return layers


def _mlp(layers: list[tuple[Array, Array]], act: Callable, x: Array) -> Array:
    for weight, bias in layers[:-1]:
        x = act(x @ weight.T + bias)[0]
    weight, bias = layers[-1]
    return x @ weight.T + bias


def _forward_mode(function: Callable[[Array], Array], z: Array) -> tuple[Array, Array]:
    """A field of batches and the trace of its Jacobian, one forward-mode product a coordinate."""
    dim = z.shape[-1]

    def along(i: Array) -> Array:
        unit = jnp.broadcast_to(jax.nn.one_hot(i, dim, dtype=z.dtype), z.shape)
        return jax.jvp(function, (z,), (unit,))[1][:, i]

    return function(z), jax.lax.map(along, jnp.arange(dim)).sum(0)
