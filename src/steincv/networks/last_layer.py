r"""A field on the last layer of a classifier that integrates one direction of its weights out.

Given the other weights, the logit is linear in the last layer's weights d, whose prior is $N(0, I)$: $t = a_x\cdot d$,
up to what does not depend on d. Along a unit direction $r$ write $z = r\cdot d$ and $t = c + \tau z$. If the data
say nothing along $r$, then $z \sim N(0, 1)$ given everything else, a step $1(t > u)$ has conditional mean
$F = N((c - u)/\tau)$, and Stein's equation $\phi' - z\phi = F - 1(t > u)$ has the solution

$$ \phi = F\,N(z)/n(z) \ \text{below the step}, \qquad \phi = (1 - F)\,N(-z)/n(z) \ \text{above}, $$

bounded and continuous: Mills' ratios. A sigmoid is a mixture of steps with u logistic; some of its quantiles do.

Where the data do say something, $g = F - 1(t > u) + \phi\,(z + s_r)$ still has mean zero, and its last factor is the
gradient of the log likelihood along $r$. Directions $r \propto (I + \omega R^T R)^{-1}a_x$, R being the rows $a_i$ of
the training inputs, trade the one against the other: a large $\omega$ leaves the outputs there as they are. $\Phi$ may
also be multiplied by a power $L^\kappa$ of the likelihood, which takes the weight off draws that the data push hard:
$g = L^\kappa\,[F - 1(t > u) + \phi\,(z + s_r + \kappa\,\partial_r\log L)]$.

$\Phi$ depends on activations, never on a gradient below a kink of relu or max-pool.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr

from .model import Array


class Grid(NamedTuple):
    """Decades of omega and powers kappa, among which coefficients choose; docs/paper.md, 5.3, has what they leave."""

    omegas: tuple[float, ...] = (5e-3, 5e-2, 0.5, 5.0)
    powers: tuple[float, ...] = (0.0, 0.3)


GRID = Grid()
# Where the steps are: the quantiles of a logistic variable at the middles of five equal shares.
QUANTILES = tuple(float(np.log(q / (1 - q))) for q in (0.1, 0.3, 0.5, 0.7, 0.9))


class Logits(NamedTuple):
    """Logits at some inputs `(n,)`, and their derivatives with respect to the last layer's weights `(n, k)`."""

    value: Array
    rows: Array


def last_layer_fields(train: Logits, labels: Array, new: Logits, d: Array, score: Array) -> jax.Array:
    """Return g of every direction and power at one draw, `(input, omega x power)`; d: the weights, with their score."""
    values, vectors = jnp.linalg.eigh(train.rows.T @ train.rows)
    along, d, s = new.rows @ vectors, d @ vectors, score @ vectors
    signs, rows = 2.0 * labels - 1.0, train.rows @ vectors
    margins = signs * train.value
    log_likelihood, slope = jax.nn.log_sigmoid(margins).sum(), (signs * jax.nn.sigmoid(-margins)) @ rows

    def one(omega: jax.Array) -> jax.Array:
        r = along / (1 + omega * jnp.maximum(values, 0.0))
        r = r / jnp.maximum(jnp.linalg.norm(r, axis=1, keepdims=True), 1e-20)
        z, tau = r @ d, jnp.maximum((r * along).sum(1), 1e-20)
        jump, phi = jnp.stack([_step(z, new.value - u, tau) for u in QUANTILES]).mean(0)
        return jnp.stack(
            [jnp.exp(k * log_likelihood) * (jump + phi * (z + r @ (s + k * slope))) for k in GRID.powers], 1
        )

    return jax.vmap(one, out_axes=1)(jnp.asarray(GRID.omegas)).reshape(len(along), -1)


def _step(z: Array, t: Array, tau: Array) -> jax.Array:
    r"""Return $F - 1(t > 0)$ and $\phi$, by logarithms, because one factor is huge where the other is tiny."""
    threshold = z - t / tau
    side = jnp.where(t > 0, -1.0, 1.0)
    # the farther of z and the threshold from this side's tail bounds the product
    log_phi = log_ndtr(-side * threshold) + log_ndtr(side * z) + 0.5 * z**2
    return jnp.stack([ndtr(-threshold) - (t > 0), jnp.sqrt(2 * jnp.pi) * jnp.exp(log_phi)])
