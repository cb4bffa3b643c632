r"""Gradients of many small vector fields of one or two hidden layers in one GPU kernel, a network a block.

Compiled operation by operation, a step of 512 of the paper's networks spends its time on writing the activations of all
of them to memory and reading them back. Here they stay on the chip. With $u = sW_3$ and $M = W_2\circ(W_1W_3)^T$,

$$ g = h'(a_2)\cdot Mh'(a_1) + h(a_2)\cdot u + b_3\cdot s, \quad a_1 = W_1z + b_1,\ a_2 = W_2h(a_1) + b_2, $$

and the derivatives of $\frac1n\sum (y + g - c)^2 + \lambda g^2$ follow by hand. tests/test_neural.py compares them with
those of `jax.grad`.
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .fields import ACTIVATIONS
from .trials import Trial, VectorField


class Shape(NamedTuple):
    """Draws that a block works on at a time, its warps, and the networks and data for which the kernel is used.

    `rows` is by the hidden layers; these and 4 warps were the fastest of six choices on an H200. Within `widths`, `dim`
    and `batch` a step was seen to be 1.1 to 2.5 times faster than operation by operation. Matrices are filled up to
    powers of two, and a block has to hold several: narrower and wider networks gain nothing, nor do a few networks on
    large batches.
    """

    rows: Mapping[int, int] = MappingProxyType({1: 32, 2: 16})
    warps: int = 4
    widths: range = range(33, 65)
    dim: int = 64
    batch: int = 256


SHAPE = Shape()


def applies(trial: Trial, dim: int, batch: int) -> bool:
    """Whether there is a kernel for this network, in float32, on the device there is."""
    if not (isinstance(trial, VectorField) and trial.depth in KERNELS and trial.activation in ("sigmoid", "tanh")):
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
    assert isinstance(trial, VectorField)
    kernel = functools.partial(KERNELS[trial.depth], trial=trial, exact=interpret)
    call = pallas.pallas_call(
        kernel,
        (jax.ShapeDtypeStruct(flat.shape, flat.dtype), jax.ShapeDtypeStruct(center.shape, center.dtype)),
        grid=(len(flat),),
        interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=SHAPE.warps, num_stages=1),
    )
    return call(flat, center, jnp.int32(problem), jnp.int32(output), penalty, *batch)


class _Tiles(NamedTuple):
    """What a block sees: its network's weights, and its problem's draws a tile at a time."""

    weights: list[Array]
    number: int
    tile: Callable[[Array], tuple[Array, Array, Array, Array]]
    error: Callable[[Array, Array], tuple[Array, Array]]
    store: Callable[[Sequence[Array], Array], None]


def _tiles(references: Sequence[Any], trial: VectorField) -> _Tiles:
    """Open what Pallas makes of that which `gradients` gives and returns, for all networks.

    Matrices are filled up with zeros to powers of two, which changes no derivative kept.
    """
    flat, center, problem, output, penalty, z, s, y, by_flat, by_center = references
    pallas, triton = _pallas()
    me = pallas.program_id(0)
    n, dim = z.shape[1:]
    rows = SHAPE.rows[trial.depth]
    places = _places(dim, trial)
    weights = [triton.load(flat.at[me, at], mask=inside, other=0.0) for at, inside in places]
    which, out, weight, c = problem[me], output[me], penalty[me], center[me]
    column = jnp.arange(_padded(dim))[None, :]

    def tile(number: Array) -> tuple[Array, Array, Array, Array]:
        """Return z and s of some draws, f about the centre, and the draws' share in a mean of two such, or zero."""
        row = number * rows + jnp.arange(rows)
        inside = (row < n)[:, None] & (column < dim)
        x, t = (triton.load(a.at[which, row[:, None], column], mask=inside, other=0.0) for a in (z, s))
        f = triton.load(y.at[which, row, out], mask=row < n, other=0.0)
        return x, t, f - c, jnp.where(row < n, 2.0 / n, 0.0)

    def store(derivatives: Sequence[Array], of_center: Array) -> None:
        for (at, inside), value in zip(places, derivatives, strict=True):
            triton.store(by_flat.at[me, at], value, mask=inside)
        by_center[me] = of_center

    return _Tiles(weights, -(-n // rows), tile, lambda f, g: (f + g + weight * g, f + g), store)


def _one_layer(*references: Any, trial: VectorField, exact: bool) -> None:
    """Work on one network with one hidden layer: $g = h'(a)\\cdot m + h(a)\\cdot sW_2 + b_2\\cdot s$."""
    act, dot = _tools(trial, exact)
    here = _tiles(references, trial)
    w1, b1, w2, b2 = here.weights
    m = (w1 * w2.T).sum(1)

    def add(number: Array, sums: tuple) -> tuple:
        d1, e1, d2, e2, dm, dc = sums
        x, t, f, share = here.tile(number)
        h, slope, bend = act(dot(x, w1, trans_b=True) + b1[None, :])
        u = dot(t, w2)
        g = (slope * m[None, :] + h * u).sum(1) + (t * b2[None, :]).sum(1)
        by_g, by_c = (share * error for error in here.error(f, g))
        by_g = by_g[:, None]
        by_a = by_g * (bend * m[None, :] + slope * u)
        return (
            d1 + dot(by_a, x, trans_a=True),
            e1 + by_a.sum(0),
            d2 + dot(t, by_g * h, trans_a=True),
            e2 + (by_g * t).sum(0),
            dm + (by_g * slope).sum(0),
            dc - by_c.sum(),
        )

    zeros = tuple(jnp.zeros(a.shape, jnp.float32) for a in (w1, b1, w2, b2, m))
    d1, e1, d2, e2, dm, dc = jax.lax.fori_loop(0, here.number, add, (*zeros, jnp.float32(0)))
    d1 += dm[:, None] * w2.T
    d2 += (dm[:, None] * w1).T
    here.store((d1, e1, d2, e2), dc)


def _two_layers(*references: Any, trial: VectorField, exact: bool) -> None:
    """Work on one network with two hidden layers, by the formula above."""
    act, dot = _tools(trial, exact)
    here = _tiles(references, trial)
    w1, b1, w2, b2, w3, b3 = here.weights
    through = dot(w1, w3).T
    m = w2 * through

    def add(number: Array, sums: tuple) -> tuple:
        d1, e1, d2, e2, d3, e3, dm, dc = sums
        x, t, f, share = here.tile(number)
        h1, slope1, bend1 = act(dot(x, w1, trans_b=True) + b1[None, :])
        h2, slope2, bend2 = act(dot(h1, w2, trans_b=True) + b2[None, :])
        v, u = dot(slope1, m, trans_b=True), dot(t, w3)
        g = (slope2 * v + h2 * u).sum(1) + (t * b3[None, :]).sum(1)
        by_g, by_c = (share * error for error in here.error(f, g))
        by_g = by_g[:, None]
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
            dc - by_c.sum(),
        )

    zeros = tuple(jnp.zeros(a.shape, jnp.float32) for a in (w1, b1, w2, b2, w3, b3, m))
    d1, e1, d2, e2, d3, e3, dm, dc = jax.lax.fori_loop(0, here.number, add, (*zeros, jnp.float32(0)))
    by_product = (dm * w2).T
    d1 += dot(by_product, w3, trans_b=True)
    d2 += dm * through
    d3 += dot(w1, by_product, trans_a=True)
    here.store((d1, e1, d2, e2, d3, e3), dc)


#: The kernel for so many hidden layers.
KERNELS = {1: _one_layer, 2: _two_layers}


def _tools(trial: VectorField, exact: bool) -> tuple[Callable, Callable]:
    """Return the activation with its derivatives, and the product of matrices, in TF32 unless it is to be exact."""
    return ACTIVATIONS[trial.activation], functools.partial(_pallas()[1].dot, allow_tf32=not exact)


def _places(dim: int, trial: VectorField) -> list[tuple[Array, Array]]:
    """Where weights and biases are in a network's flat vector, and which entries of the filled-up ones exist."""
    sizes = [dim, *[trial.width] * trial.depth, dim]
    shapes = [shape for many, few in itertools.pairwise(sizes) for shape in ((few, many), (few,))]
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
