r"""A one-hidden-layer potential fitted by Gauss-Newton with the linear part solved exactly.

$$ Q_j(z) = \sum_k A_{kj} \tanh(w_k \cdot z + b_k) + \text{polynomial}, \qquad
   g = -\Big(X C + \Psi A\Big), \qquad
   \psi_k = h''(u_k)\,|w_k|^2 + h'(u_k)\, w_k \cdot s $$

is linear in $(C, A)$: given the trunk $(w, b)$, which all outputs share, they are a ridge regression. Variable
projection takes that solution along, and Gauss-Newton steps are made in the trunk alone. With $D = \partial\Psi$
and the linear columns $F = [X, \Psi]$ the matrix of such a step is

$$ S = \Omega \circ \big(D^T D - D^T F (F^T F)^{-1} F^T D\big), \qquad \Omega = A\,\mathrm{diag}(\omega)\,A^T, $$

so its cost does not grow with the number of outputs. Some tens of steps reach what Adam does not in thousands.

Ref: Golub & Pereyra (1973), SIAM J. Numer. Anal. 10; Kaufman (1975), BIT 15.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Trunk(NamedTuple):
    """Directions and offsets of the hidden units."""

    w: Float[Array, "*batch width dim"]
    b: Float[Array, "*batch width"]


class Data(NamedTuple):
    """One fit. `train` and `valid` are 0/1 weights of the draws; padding has neither."""

    z: Float[Array, "n dim"]
    s: Float[Array, "n dim"]
    x: Float[Array, "n feature"]
    y: Float[Array, "n out"]
    train: Float[Array, " n"]
    valid: Float[Array, " n"]
    ridge: Float[Array, " feature"]


def init_trunk(key: Any, width: int, dim: int, dtype: Any) -> Trunk:
    kw, kb = jax.random.split(key)
    w = jax.random.normal(kw, (width, dim), dtype) / jnp.sqrt(jnp.asarray(dim, dtype))
    return Trunk(w, jax.random.normal(kb, (width,), dtype))


def features(trunk: Trunk, z: Any, s: Any, numpy: Any = jnp) -> Any:
    r"""$\psi_k = h''(u_k)|w_k|^2 + h'(u_k)\,w_k\cdot s$ for every unit, `(n, width)`."""
    t = numpy.tanh(z @ trunk.w.T + trunk.b)
    slope = 1 - t * t
    return slope * (s @ trunk.w.T) - 2 * t * slope * (trunk.w * trunk.w).sum(-1)


def _derivatives(trunk: Trunk, z: Array, s: Array) -> tuple[Array, Array]:
    """The features, and their derivatives by the unit's own `(w_k, b_k)`, `(n, width * (dim + 1))`."""
    n = len(z)
    t = jnp.tanh(z @ trunk.w.T + trunk.b)
    h1 = 1 - t * t
    h2 = -2 * t * h1
    q, v = s @ trunk.w.T, (trunk.w * trunk.w).sum(-1)
    psi = h2 * v + h1 * q
    by_b = h1 * (6 * t * t - 2) * v + h2 * q
    by_w = by_b[:, :, None] * z[:, None] + h1[:, :, None] * s[:, None] + 2 * h2[:, :, None] * trunk.w
    return psi, jnp.concatenate([by_w, by_b[:, :, None]], -1).reshape(n, -1)


class _Linear(NamedTuple):
    """The ridge regression on the linear columns, at one trunk."""

    coefficients: Array
    factor: Array
    columns: Array
    residual: Array
    cost: Array


def _solve_linear(psi: Array, data: Data, weights: Array, penalty: Array, trunk: Trunk) -> _Linear:
    """Columns and residuals carry the root of the training weight, so plain products are training means."""
    root = jnp.sqrt(data.train / data.train.sum())[:, None]
    columns = root * _centered(jnp.concatenate([data.x, psi], 1), data.train)
    y = root * _centered(data.y, data.train)
    ridge = jnp.concatenate([data.ridge, jnp.full(psi.shape[1], penalty)])
    factor = jnp.linalg.cholesky(columns.T @ columns + jnp.diag(ridge + 1e-12))
    coefficients = jax.scipy.linalg.cho_solve((factor, True), columns.T @ y)
    residual = y - columns @ coefficients
    loss = (weights * (residual**2).sum(0)).sum() + (weights * (ridge[:, None] * coefficients**2).sum(0)).sum()
    return _Linear(coefficients, factor, columns, residual, loss + penalty * (trunk.w**2).sum())


def _centered(x: Array, weight: Array) -> Array:
    return x - (weight @ x) / weight.sum()


def _step(state: tuple, _: None, data: Data, weights: Array, penalty: Array) -> tuple[tuple, None]:
    """One damped Gauss-Newton step in the trunk; refused where it does not lower the cost."""
    trunk, damping = state
    width, dim = trunk.w.shape
    psi, jacobian = _derivatives(trunk, data.z, data.s)
    linear = _solve_linear(psi, data, weights, penalty, trunk)
    a = linear.coefficients[data.x.shape[1] :]
    root = jnp.sqrt(data.train / data.train.sum())[:, None]
    jacobian = root * _centered(jacobian, data.train)
    cross = jax.scipy.linalg.solve_triangular(linear.factor, linear.columns.T @ jacobian, lower=True)
    omega = jnp.repeat(jnp.repeat((a * weights) @ a.T, dim + 1, 0), dim + 1, 1)
    shrink = jnp.tile(jnp.append(jnp.full(dim, penalty), 0.0), width)
    matrix = omega * (jacobian.T @ jacobian - cross.T @ cross) + jnp.diag(shrink)
    pull = (linear.residual * weights) @ a.T
    gradient = shrink * _flat(trunk) - (jacobian.reshape(-1, width, dim + 1) * pull[:, :, None]).sum(0).reshape(-1)
    diagonal = jnp.diagonal(matrix)
    damped = matrix + jnp.diag(damping * (diagonal + 1e-3 * diagonal.mean()) + 1e-12)
    move = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(damped), True), gradient)
    trial = _unflat(_flat(trunk) - move, trunk)
    cost = _solve_linear(features(trial, data.z, data.s), data, weights, penalty, trial).cost
    better = cost < linear.cost  # false for NaN as well
    trunk = jax.tree.map(lambda new, old: jnp.where(better, new, old), trial, trunk)
    return (trunk, jnp.clip(jnp.where(better, damping / 4, damping * 6), 1e-8, 1e8)), None


def _flat(trunk: Trunk) -> Array:
    return jnp.concatenate([trunk.w, trunk.b[:, None]], 1).reshape(-1)


def _unflat(flat: Array, like: Trunk) -> Trunk:
    both = flat.reshape(like.w.shape[0], -1)
    return Trunk(both[:, :-1], both[:, -1])


def _valid_error(linear: _Linear, psi: Array, data: Data) -> Array:
    """Mean squared error of every output at the validation draws."""
    columns = _centered(jnp.concatenate([data.x, psi], 1), data.train)
    error = _centered(data.y, data.train) - columns @ linear.coefficients
    return (data.valid @ (error - (data.valid @ error) / data.valid.sum()) ** 2) / data.valid.sum()


def _fit(data: Data, start: Trunk, penalties: Array, steps: int) -> tuple[Trunk, Array]:
    """The trunk at every penalty of a path from large to small, each started from the last, with its error."""
    one = jnp.asarray(1.0, data.z.dtype)

    # What the polynomial leaves is the unit in which each output counts: a factor gained is a factor gained.
    nothing = jnp.zeros((len(data.z), start.w.shape[0]), data.z.dtype)
    outputs = jnp.ones(data.y.shape[1], data.z.dtype)
    left = (_solve_linear(nothing, data, outputs, one, start).residual ** 2).sum(0)
    weights = 1 / (jnp.maximum(left, 1e-8) * len(outputs))

    def stage(state: tuple, penalty: Array) -> tuple[tuple, tuple]:
        step = functools.partial(_step, data=data, weights=weights, penalty=penalty)
        (trunk, damping), _ = jax.lax.scan(step, state, None, length=steps) if steps else (state, None)
        psi = features(trunk, data.z, data.s)
        error = _valid_error(_solve_linear(psi, data, weights, penalty, trunk), psi, data)
        return (trunk, damping), (trunk, error)

    _, path = jax.lax.scan(stage, (start, 1e-2 * one), penalties)
    return path


@functools.partial(jax.jit, static_argnames="steps")
def fit_paths(data: Data, starts: Trunk, penalties: Array, steps: int) -> tuple[Trunk, Array]:
    """Every member of every problem: trunks `(problem, member, penalty, ...)`, errors `(..., out)`."""

    def problem(args: tuple) -> Any:
        one, members = args
        return jax.lax.map(lambda start: _fit(one, start, penalties, steps), members)

    return jax.lax.map(problem, (data, starts))
