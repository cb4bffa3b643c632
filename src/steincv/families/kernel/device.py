r"""The full kernel fit on an accelerator: the matrix, its Cholesky factor and the solves never leave it.

The same regression as `control_functional.control_functional`, in float64 whatever JAX's flag says. What a GPU does in
a second takes a CPU core minutes: for n draws it is $n^3/3$ operations.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...runtime.validation import InputError
from .control_functional import JITTER, Coefficients
from .stein_kernels import SteinKernel, radial


def accelerator() -> bool:
    """Whether JAX computes on something else than the CPU."""
    return jax.default_backend() != "cpu"


def control_functional_on_device(
    kernel: SteinKernel,
    z: Float[np.ndarray, "n dim"],
    s: Float[np.ndarray, "n dim"],
    f: Float[np.ndarray, "n out"],
    P: Float[np.ndarray, "n feature"],
    penalty: Float[np.ndarray, " n"],
) -> Coefficients:
    """Generalised least squares with the covariance $K_0$ plus a diagonal: `penalty` times the mean of its own."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        points = [jnp.asarray(a, jnp.float64) for a in (z, s)]
        sides = jnp.asarray(np.hstack([np.ones((len(f), 1)), P, f]), jnp.float64)
        for jitter in (0.0, *JITTER * 10.0 ** np.arange(10)):
            nugget = jnp.asarray(penalty + JITTER + jitter)
            beta, alpha = _solve(kernel, *points, sides, nugget, 1 + P.shape[1])
            if bool(jnp.isfinite(alpha).all()):
                found = np.asarray(beta)
                return Coefficients(found[0], found[1:], np.asarray(alpha))
    raise InputError(
        f"The kernel matrix of {len(z)} draws is not positive definite even with {jitter:.0e} of its mean diagonal "
        f"added. Give a larger `penalty` or a shorter `lengthscale`."
    )


@functools.partial(jax.jit, static_argnames=("kernel", "count"))
def _solve(
    kernel: SteinKernel, z: Array, s: Array, sides: Array, nugget: Array, count: int
) -> tuple[Float[Array, "count out"], Float[Array, "n out"]]:
    K0 = stein_matrix(kernel, z, s)
    size = jnp.diagonal(K0).mean()
    L = jnp.linalg.cholesky(K0 + jnp.diag(nugget * size), symmetrize_input=False)
    white = jax.scipy.linalg.solve_triangular(L, sides, lower=True)
    left, right = white[:, :count], white[:, count:]
    scale = jnp.sqrt((left**2).sum(0))
    beta = jnp.linalg.lstsq(left / scale, right)[0] / scale[:, None]
    return beta, jax.scipy.linalg.solve_triangular(L, right - left @ beta, lower=True, trans=1)


def stein_matrix(kernel: SteinKernel, x: Float[Array, "n dim"], s: Float[Array, "n dim"]) -> Float[Array, "n n"]:
    """Return $K_0(x_i, x_j)$ by the formulas of `stein_kernels`."""
    D = x.shape[1]
    xx, xs = (x * x).sum(1), (x * s).sum(1)
    u = jnp.maximum(xx[:, None] + xx - 2 * x @ x.T, 0.0)
    cross = x @ s.T
    ds, dt, st = xs[:, None] - cross.T, cross - xs, s @ s.T
    phi = radial(kernel.kernel, u, kernel.lengthscale, kernel.order, jnp)
    if kernel.order == 1:
        return -2 * D * phi[1] - 4 * u * phi[2] + 2 * phi[1] * (dt - ds) + phi[0] * st
    slope = 2 * (D + 2) * phi[2] + 4 * u * phi[3]
    return (
        4 * D * (D + 2) * phi[2]
        + 16 * (D + 2) * u * phi[3]
        + 16 * u**2 * phi[4]
        - 2 * slope * (dt - ds)
        - 4 * phi[2] * ds * dt
        - 2 * phi[1] * st
    )
