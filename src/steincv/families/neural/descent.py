"""Adam for the hidden units of a shallow potential, its gradients in closed form, in float32.

A few hundred noisy steps under a firm penalty on the weights find the directions that matter. They only have to find
the units: their coefficients are solved for exactly afterwards, in float64.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...runtime.threads import alone
from .units import Units


class Adam(NamedTuple):
    """Adam's memory of slopes and of their squares, and where numbers are cut off while units are looked for.

    The second memory is shorter than the usual 0.999 (Kingma & Ba 2015), since there are so few steps. Squares of
    numbers beyond `largest`, in standard coordinates, are no float32.
    """

    first: float = 0.9
    second: float = 0.99
    largest: float = 1e4


ADAM = Adam()


class Schedule(NamedTuple):
    """How long and how boldly Adam goes: its steps, draws per step, first rate and penalty on the weights."""

    steps: int
    batch: int
    rate: float
    penalty: float


def train(
    start: Units,
    z: Float[np.ndarray, "n dim"],
    s: Float[np.ndarray, "n dim"],
    y: Float[np.ndarray, "n out"],
    schedule: Schedule,
    rng: np.random.Generator,
) -> Units:
    """Return units trained on y, each output of variance one, with linear heads that are then forgotten."""
    n, dim = z.shape
    data = np.empty((n, 2 * dim + y.shape[1]), np.float32)
    for part, columns in zip((z, s, y), np.split(data, [dim, 2 * dim], axis=1), strict=True):
        np.clip(part, -ADAM.largest, ADAM.largest, out=columns)
    batch = min(schedule.batch, n)
    step = _Steps(start, y.shape[1], batch, schedule)
    rounds = n // batch
    with alone(step.hidden[0].size):
        for k in range(schedule.steps):
            if k % rounds == 0:
                data = data[rng.permutation(n)]
            rows = data[k % rounds * batch : (k % rounds + 1) * batch]
            step.gradient(rows[:, :dim], rows[:, dim : 2 * dim], rows[:, 2 * dim :])
            step.move(k)
    trained = Units(step.weights.w.astype(float), step.weights.b.astype(float))
    return trained if np.isfinite(step.flat).all() else start


class _Weights(NamedTuple):
    """Views of one flat vector."""

    w: np.ndarray
    b: np.ndarray
    heads: np.ndarray
    center: np.ndarray

    @classmethod
    def of(cls, flat: np.ndarray, units: int, dim: int, outputs: int) -> "_Weights":
        w, b, heads, center = np.split(flat, np.cumsum([units * dim, units, units * outputs]))
        return cls(w.reshape(units, dim), b, heads.reshape(units, outputs), center)


class _Steps:
    """The state of Adam, with all arrays made once: a step is too short to wait for memory."""

    def __init__(self, start: Units, outputs: int, batch: int, schedule: Schedule):
        units, dim = start.w.shape
        self.schedule = schedule
        size = units * (dim + 1 + outputs) + outputs
        self.flat, self.slope, self.first, self.second, self.work, shrink = np.zeros((6, size), np.float32)
        self.weights = _Weights.of(self.flat, units, dim, outputs)
        self.slopes = _Weights.of(self.slope, units, dim, outputs)
        self.weights.w[:], self.weights.b[:] = start
        shrinks = _Weights.of(shrink, units, dim, outputs)
        shrinks.w[:], shrinks.heads[:] = 2 * schedule.penalty, 2 * schedule.penalty / outputs
        self.shrink = shrink
        self.hidden = np.empty((5, batch, units), np.float32)
        self.ones = np.ones(batch, np.float32)  # a product with them is the quicker sum over draws

    def gradient(self, z: np.ndarray, s: np.ndarray, y: np.ndarray) -> None:
        """Leave the gradient of the mean squared error and the penalty in `slope`."""
        (w, b, heads, center), (by_w, by_b, by_heads, by_center) = self.weights, self.slopes
        t, inner, first, psi, work = self.hidden
        square = np.einsum("kd,kd->k", w, w)
        np.matmul(z, w.T, out=t)
        t += b
        np.tanh(t, out=t)
        np.multiply(t, t, out=first)
        np.subtract(np.float32(1), first, out=first)
        np.matmul(s, w.T, out=inner)
        np.multiply(t, 2 * square, out=work)
        inner -= work  # w.s - 2 tanh |w|^2, so that psi = tanh' times this
        np.multiply(first, inner, out=psi)
        error = psi @ heads
        error += center
        error -= y
        error *= np.float32(2 / error.size)
        np.matmul(psi.T, error, out=by_heads)
        np.sum(error, axis=0, out=by_center)
        np.matmul(error, heads.T, out=work)
        work *= first  # by w.s
        inner *= t
        first *= square
        inner += first
        inner *= work  # by u, but for a factor of -2
        np.matmul(inner.T, z, out=by_w)
        t *= work
        by_w += (self.ones @ t)[:, None] * (w + w)
        by_w *= np.float32(-2)
        by_w += work.T @ s
        np.matmul(self.ones, inner, out=by_b)
        by_b *= np.float32(-2)
        np.multiply(self.shrink, self.flat, out=self.work)
        self.slope += self.work

    def move(self, k: int) -> None:
        """Make step number k, the rate falling to zero along a cosine."""
        one, two = ADAM.first, ADAM.second
        rate = self.schedule.rate * 0.5 * (1 + np.cos(np.pi * k / self.schedule.steps))
        work = self.work
        self.first *= np.float32(one)
        np.multiply(self.slope, np.float32(1 - one), out=work)
        self.first += work
        self.second *= np.float32(two)
        np.multiply(self.slope, self.slope, out=work)
        work *= np.float32(1 - two)
        self.second += work
        np.multiply(self.second, np.float32(1 / (1 - two ** (k + 1))), out=work)
        np.sqrt(work, out=work)
        work += np.float32(1e-8)
        np.divide(self.first, work, out=work)
        work *= np.float32(rate / (1 - one ** (k + 1)))
        self.flat -= work
