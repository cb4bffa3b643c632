r"""Gradients of many small two-layer vector fields in one GPU kernel, a network a block.

Compiled operation by operation, a step of 512 of the paper's networks spends its time on writing the activations of all
of them to memory and reading them back. Here they stay on the chip. With $u = sW_3$ and $M = W_2\circ(W_1W_3)^T$,

$$ g = h'(a_2)\cdot Mh'(a_1) + h(a_2)\cdot u + b_3\cdot s, \quad a_1 = W_1z + b_1,\ a_2 = W_2h(a_1) + b_2, $$

and the derivatives of $\frac1n\sum (y + g - c)^2 + \lambda g^2$ follow by hand. tests/test_neural.py compares them with
those of `jax.grad`.
"""

import functools
import itertools
import math
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .fields import ACTIVATIONS
from .trials import Trial, VectorField


class Shape(NamedTuple):
    """Draws that a block works on at a time, its warps, and the networks and data for which the kernel is used.

    16 and 4 were the fastest of six choices for the paper's network on an H200. Within `widths`, `dim` and `batch` it
    was seen to be 1.1 to 2.2 times faster than operation by operation. Matrices are filled up to powers of two, and a
    block has to hold several: narrower and wider networks gain nothing, nor do a few networks on large batches.
    """

    rows: int = 16
    warps: int = 4
    widths: range = range(33, 65)
    dim: int = 64
    batch: int = 256


SHAPE = Shape()


def applies(trial: Trial, dim: int, batch: int) -> bool:
    """Whether there is a kernel for this network, in float32, on the device there is."""
    if not (isinstance(trial, VectorField) and trial.depth == 2 and trial.activation in ("sigmoid", "tanh")):
        return False
    if (
        trial.width not in SHAPE.widths
        or dim > SHAPE.dim
        or batch > SHAPE.batch
        or jnp.result_type(float) != jnp.float32
    ):
        return False
    device = jax.config.jax_default_device or jax.devices()[0]  # type: ignore[attr-defined]
    capability = str(getattr(device, "compute_capability", ""))  # NVIDIA's have numbers; from 8 on they know TF32
    return jax.device_count() == 1 and capability.split(".")[0].isdigit() and float(capability) >= 8


def gradients(
    trial: Trial,
    flat: Float[Array, "network weight"],
    center: Float[Array, " network"],
    problem: Int[Array, " network"],
    output: Int[Array, " network"],
    penalty: Float[Array, " network"],
    batch: tuple[Array, ...],
    *,
    interpret: bool = False,
) -> tuple[Float[Array, "network weight"], Float[Array, " network"]]:
    """Derivatives of every network's mean of $(y + g - c)^2 + \\lambda g^2$ by its weights and by its centre c.

    `batch` is z, s and y of all problems, each `(problem, n, ...)`. `interpret` runs the kernel operation by operation
    on any device, for tests.
    """
    pallas, triton = _pallas()
    kernel = functools.partial(_kernel, trial=trial, exact=interpret)
    call = pallas.pallas_call(
        kernel,
        (jax.ShapeDtypeStruct(flat.shape, flat.dtype), jax.ShapeDtypeStruct(center.shape, center.dtype)),
        grid=(len(flat),),
        interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=SHAPE.warps, num_stages=1),
    )
    return call(flat, center, jnp.int32(problem), jnp.int32(output), penalty, *batch)


def _kernel(*references: Any, trial: Trial, exact: bool) -> None:
    """Work on one network; matrices are filled up with zeros to powers of two, which changes no derivative kept.

    `references` are those that Pallas makes of what `gradients` gives and returns, for all networks.
    """
    flat, center, problem, output, penalty, z, s, y, by_flat, by_center = references
    assert isinstance(trial, VectorField)
    pallas, triton = _pallas()
    act = ACTIVATIONS[trial.activation]
    dot = functools.partial(triton.dot, allow_tf32=not exact)
    me = pallas.program_id(0)
    n, dim = z.shape[1:]
    places = _places(dim, trial.width)
    w1, b1, w2, b2, w3, b3 = (triton.load(flat.at[me, at], mask=inside, other=0.0) for at, inside in places)
    which, out, weight, c = problem[me], output[me], penalty[me], center[me]
    through = dot(w1, w3).T
    m = w2 * through
    column = jnp.arange(_padded(dim))[None, :]

    def add(tile: Array, sums: tuple) -> tuple:
        d1, e1, d2, e2, d3, e3, dm, dc = sums
        row = tile * SHAPE.rows + jnp.arange(SHAPE.rows)
        inside = (row < n)[:, None] & (column < dim)
        x, t = (triton.load(a.at[which, row[:, None], column], mask=inside, other=0.0) for a in (z, s))
        f = triton.load(y.at[which, row, out], mask=row < n, other=0.0)
        h1, slope1, bend1 = act(dot(x, w1, trans_b=True) + b1[None, :])
        h2, slope2, bend2 = act(dot(h1, w2, trans_b=True) + b2[None, :])
        v, u = dot(slope1, m, trans_b=True), dot(t, w3)
        g = (slope2 * v + h2 * u).sum(1) + (t * b3[None, :]).sum(1)
        share = jnp.where(row < n, 2.0 / n, 0.0)
        by_g = (share * (f + g - c + weight * g))[:, None]
        by_a2 = by_g * (bend2 * v + slope2 * u)
        by_v = by_g * slope2
        by_a1 = dot(by_a2, w2) * slope1 + dot(by_v, m) * bend1
        return (
            d1 + dot(by_a1, x, trans_a=True),
            e1 + by_a1.sum(0),
            d2 + dot(by_a2, h1, trans_a=True),
            e2 + by_a2.sum(0),
            d3 + dot(t, by_g * h2, trans_a=True),
            e3 + (by_g * t).sum(0),
            dm + dot(by_v, slope1, trans_a=True),
            dc - (share * (f + g - c)).sum(),
        )

    zeros = tuple(jnp.zeros(a.shape, jnp.float32) for a in (w1, b1, w2, b2, w3, b3, m))
    d1, e1, d2, e2, d3, e3, dm, dc = jax.lax.fori_loop(0, -(-n // SHAPE.rows), add, (*zeros, jnp.float32(0)))
    by_product = (dm * w2).T
    d1 += dot(by_product, w3, trans_b=True)
    d2 += dm * through
    d3 += dot(w1, by_product, trans_a=True)
    for (at, inside), value in zip(places, (d1, e1, d2, e2, d3, e3), strict=True):
        triton.store(by_flat.at[me, at], value, mask=inside)
    by_center[me] = dc


def _places(dim: int, width: int) -> list[tuple[Array, Array]]:
    """Where weights and biases are in a network's flat vector, and which entries of the filled-up ones exist."""
    shapes = [(width, dim), (width,), (width, width), (width,), (dim, width), (dim,)]
    starts = itertools.accumulate(map(math.prod, shapes[:-1]), initial=0)
    found = []
    for start, shape in zip(starts, shapes, strict=True):
        row = jnp.arange(_padded(shape[0]))
        if len(shape) == 1:
            found.append((start + row, row < shape[0]))
        else:
            column = jnp.arange(_padded(shape[1]))[None, :]
            row = row[:, None]
            found.append((start + row * shape[1] + column, (row < shape[0]) & (column < shape[1])))
    return found


def _padded(size: int) -> int:
    """The next power of two, and what a product of matrices takes at least."""
    return max(16, 1 << (size - 1).bit_length())


def _pallas() -> tuple[ModuleType, ModuleType]:
    """Return the languages of GPU kernels, imported where there is a GPU, or a test."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    return pallas, triton
