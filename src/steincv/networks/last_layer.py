r"""A field on the last layer of a classifier that integrates one direction of its weights out.

Given the hidden weights, the logit $t = \tilde h_x\cdot\delta$ is linear in the last layer's weights. Along a unit
direction $r$ of $d = \delta/\sqrt2$, whose prior is $N(0, I)$, write $z = r\cdot d$ and $t = c + \tau z$. If the data
say nothing along $r$, then $z \sim N(0, 1)$ given everything else, a step $1(t > u)$ has conditional mean
$F = N((c - u)/\tau)$, and Stein's equation $\phi' - z\phi = F - 1(t > u)$ has the solution

$$ \phi = F\,N(z)/n(z) \ \text{below the step}, \qquad \phi = (1 - F)\,N(-z)/n(z) \ \text{above}, $$

bounded and continuous: Mills' ratios. A sigmoid is a mixture of steps with u logistic; some of its quantiles do.

Where the data do say something, $g = F - 1(t > u) + \phi\,(z + s_r)$ still has mean zero, and its last factor is the
gradient of the log likelihood along $r$. Directions $r \propto (I + \omega H^T H)^{-1}\tilde h_x$ trade the one against
the other: a large $\omega$ leaves the outputs at the training images as they are. $\Phi$ may also be multiplied by a
power $L^\kappa$ of the likelihood, which takes the weight off draws that the data push hard:
$g = L^\kappa\,[F - 1(t > u) + \phi\,(z + s_r + \kappa\,\partial_r\log L)]$.

$\Phi$ depends on activations, never on a gradient below a kink of relu or max-pool.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr

from .classifier import LAST, Classifier
from .model import Array, append_one


class Grid(NamedTuple):
    """Decades of omega and powers kappa, among which coefficients choose; docs/paper.md, 5.3, has what they leave."""

    omegas: tuple[float, ...] = (1e-2, 1e-1, 1.0, 10.0)
    powers: tuple[float, ...] = (0.0, 0.3)


GRID = Grid()
# Where the steps are: the quantiles of a logistic variable at the middles of five equal shares.
QUANTILES = tuple(float(np.log(q / (1 - q))) for q in (0.1, 0.3, 0.5, 0.7, 0.9))


def last_layer_fields(model: Classifier, theta: Array, score: Array, inputs: Array) -> jax.Array:
    """Return g of every direction and power at one draw, `(input, omega x power)`."""
    train, h = (append_one(model.hidden(theta, x)) for x in (model.images, inputs))
    values, vectors = jnp.linalg.eigh(train.T @ train)
    along, d, s = h @ vectors, _difference(theta) @ vectors, _difference(score) @ vectors
    t = jnp.sqrt(2.0) * along @ d
    signs, rows = 2.0 * model.labels - 1.0, jnp.sqrt(2.0) * train @ vectors
    margins = signs * (rows @ d)
    log_likelihood, slope = jax.nn.log_sigmoid(margins).sum(), (signs * jax.nn.sigmoid(-margins)) @ rows

    def one(omega: jax.Array) -> jax.Array:
        r = along / (1 + omega * jnp.maximum(values, 0.0))
        r = r / jnp.maximum(jnp.linalg.norm(r, axis=1, keepdims=True), 1e-20)
        z, tau = r @ d, jnp.maximum(jnp.sqrt(2.0) * (r * along).sum(1), 1e-20)
        jump, phi = jnp.stack([_step(z, t - u, tau) for u in QUANTILES]).mean(0)
        return jnp.stack(
            [jnp.exp(k * log_likelihood) * (jump + phi * (z + r @ (s + k * slope))) for k in GRID.powers], 1
        )

    return jax.vmap(one, out_axes=1)(jnp.asarray(GRID.omegas)).reshape(len(h), -1)


def _step(z: Array, t: Array, tau: Array) -> jax.Array:
    r"""Return $F - 1(t > 0)$ and $\phi$, by logarithms, because one factor is huge where the other is tiny."""
    threshold = z - t / tau
    side = jnp.where(t > 0, -1.0, 1.0)
    # the farther of z and the threshold from this side's tail bounds the product
    log_phi = log_ndtr(-side * threshold) + log_ndtr(side * z) + 0.5 * z**2
    return jnp.stack([ndtr(-threshold) - (t > 0), jnp.sqrt(2 * jnp.pi) * jnp.exp(log_phi)])


def _difference(flat: Array) -> Array:
    r"""Return $d = (w_1 - w_0)/\sqrt2$ of the last layer, bias last; for a score this is its part along d."""
    pairs = flat[LAST].reshape(148, 2)
    return (pairs[:, 1] - pairs[:, 0]) / jnp.sqrt(2.0)
