"""Networks, their values and their exact divergences: the formulas behind `trials`."""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...runtime.validation import InputError


def tanh(u: Array) -> tuple[Array, Array, Array]:
    t = jnp.tanh(u)
    return t, 1 - t * t, -2 * t * (1 - t * t)


def sigmoid(u: Array) -> tuple[Array, Array, Array]:
    h = jax.nn.sigmoid(u)
    return h, h * (1 - h), h * (1 - h) * (1 - 2 * h)


def softplus(u: Array) -> tuple[Array, Array, Array]:
    h = jax.nn.sigmoid(u)
    return jax.nn.softplus(u), h, h * (1 - h)


def sin(u: Array) -> tuple[Array, Array, Array]:
    return jnp.sin(u), jnp.cos(u), -jnp.sin(u)


#: Each gives the value and the first two derivatives.
ACTIVATIONS: dict[str, Callable[[Array], tuple[Array, Array, Array]]] = {
    "tanh": tanh,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "sin": sin,
}


def vector_field(layers: list, activation: str, z: Array) -> tuple[Array, Array]:
    r"""$\nabla\cdot\Phi$ is $\sum_k h'(u_k)(W_1W_2)_{kk}$, or $h'(u_2)^T[W_2\circ(W_1W_3)^T]h'(u_1)$ for two layers."""
    act = ACTIVATIONS[activation]
    if len(layers) == 2:
        (w1, b1), (w2, b2) = layers
        h, slope, _ = act(z @ w1.T + b1)
        return h @ w2.T + b2, slope @ (w1 * w2.T).sum(1)
    if len(layers) == 3:
        (w1, b1), (w2, b2), (w3, b3) = layers
        h, slope1, _ = act(z @ w1.T + b1)
        h, slope2, _ = act(h @ w2.T + b2)
        return h @ w3.T + b3, (slope2 * (slope1 @ (w2 * (w1 @ w3).T).T)).sum(-1)
    return forward_mode(lambda x: mlp(layers, act, x), z)


def scalar_field(layers: list, activation: str, z: Array, context: Array | None) -> tuple[Array, Array]:
    r"""$\sum_i \partial_i\phi$ is the derivative along (1, ..., 1, 0, ..., 0): one forward-mode product."""
    inputs = z if context is None else jnp.concatenate([z, context], -1)
    along = jnp.broadcast_to((jnp.arange(inputs.shape[-1]) < z.shape[-1]).astype(z.dtype), inputs.shape)
    phi, divergence = jax.jvp(lambda x: mlp(layers, ACTIVATIONS[activation], x)[:, 0], (inputs,), (along,))
    return phi[:, None], divergence


def potential(params: dict[str, Any], activation: str, degree: int, z: Array) -> tuple[Array, Array]:
    r"""$\Delta Q = \sum_k a_k h''(u_k)|w_k|^2$; with more layers gradient and Laplacian go forward with the value."""
    act = ACTIVATIONS[activation]
    (w, b), *hidden, (last, _) = params["layers"]
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


def init_potential(key: Array, sizes: list[int]) -> dict[str, Any]:
    return {"layers": dense(key, sizes), "linear": jnp.zeros(sizes[0]), "quadratic": jnp.zeros((sizes[0], sizes[0]))}


def dense(key: Array, sizes: list[int]) -> list[tuple[Array, Array]]:
    """Layers `(weight, bias)` with weights of variance 1 / inputs; the last starts small, so that g starts near 0."""
    layers = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        kw, kb = jax.random.split(jax.random.fold_in(key, i))
        size = 0.1 if i == len(sizes) - 2 else 1.0
        weight = size * jax.random.normal(kw, (outputs, inputs)) / jnp.sqrt(inputs)
        layers.append((weight, size * jax.random.normal(kb, (outputs,)) * (i < len(sizes) - 2)))
    return layers


def mlp(layers: list[tuple[Array, Array]], act: Callable, x: Array) -> Array:
    for weight, bias in layers[:-1]:
        x = act(x @ weight.T + bias)[0]
    weight, bias = layers[-1]
    return x @ weight.T + bias


def forward_mode(function: Callable[[Array], Array], z: Array) -> tuple[Array, Array]:
    """A field of batches and the trace of its Jacobian, one forward-mode product a coordinate."""
    dim = z.shape[-1]

    def along(i: Array) -> Array:
        unit = jnp.broadcast_to(jax.nn.one_hot(i, dim, dtype=z.dtype), z.shape)
        return jax.jvp(function, (z,), (unit,))[1][:, i]

    return function(z), jax.lax.map(along, jnp.arange(dim)).sum(0)


def init_custom(function: Callable[[Array], Array], dim: int) -> dict[str, Any]:
    """Return a module's own arrays as its weights; a function without arrays has a factor, which starts at 0."""
    out = jax.eval_shape(function, jax.ShapeDtypeStruct((dim,), jnp.float32))
    if getattr(out, "shape", None) != (dim,):
        raise InputError(f"`trial` maps a vector of {dim} to {out}; it must return {dim} numbers.")
    weights, _ = eqx.partition(function, eqx.is_inexact_array)
    return {"weights": weights, "scale": jnp.ones(()) if jax.tree.leaves(weights) else jnp.zeros(())}


def custom(function: Callable[[Array], Array], params: dict[str, Any]) -> Callable[[Array], Array]:
    """Return a module or function with these weights, as a function of many draws."""
    _, static = eqx.partition(function, eqx.is_inexact_array)
    whole = eqx.combine(params["weights"], static)
    return jax.vmap(lambda x: params["scale"] * whole(x))


def one_probe(function: Callable[[Array], Array], z: Array, key: Array) -> tuple[Array, Array]:
    """Return a field of batches and Hutchinson's estimate of its divergence, with one random sign vector per draw."""
    probe = jax.random.rademacher(key, z.shape, z.dtype)
    value, along = jax.jvp(function, (z,), (probe,))
    return value, (probe * along).sum(-1)
