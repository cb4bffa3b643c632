"""Networks with their data: a user's own, an Equinox module or a function, and one hidden layer of tanh."""

import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from ..runtime.double import in_double, look, program, shapes as shapes_of
from ..runtime.validation import InputError, whole_number
from ..samples.samples import Samples, finite_array
from .collapsed import Collapsed
from .gauss_newton import gauss_newton_fields
from .last_layer import Logits, last_layer_fields
from .model import Array, append_one, full_scores, training_data


class Asked(NamedTuple):
    """How a network is asked what it is, and up to what size all of its weights are moved together."""

    # A decomposition of P is needed at every draw: 10 ms for 180 weights, the third power beyond.
    most_weights: int = 400
    # Whether outputs are linear in a layer: second differences over a step across any kink, at so many places.
    step: float = 10.0
    places: int = 4
    round_off: float = 1e-8
    # Where the prior says nothing of a weight: far below any prior that does.
    least_precision: float = 1e-6


ASKED = Asked()
# Operations that a function has kinks or jumps by; within these named functions they make none.
KINKS = frozenset(
    {"max", "min", "abs", "sign", "floor", "ceil", "round", "select_n", "clamp", "sort", "argmax", "argmin"}
    | {"reduce_max", "reduce_min", "reduce_window_max", "reduce_window"}
)
SMOOTH = frozenset({"logaddexp"})


@dataclass(frozen=True, eq=False, init=False)
class Network:
    r"""A posterior over the weights of your own network, for `predictive`.

    **Arguments:**

    - `network`: an Equinox module of one input; or a function `apply(params, inputs)` of many, such as the `apply` of a
      Flax module. With `noise` it gives one number per input; without, the logits of classes, or a single one of
      class 1.
    - `inputs`, `targets`: the training data, one row per case. Targets are numbers, or classes from 0.
    - `params`: weights as the function takes them, for their shapes alone. An Equinox module holds its own.
    - `noise`: the known standard deviation of $y$ around the output. Without it targets are classes.
    - `log_prior`: a function of `params`, in JAX; by default $N(0, 1)$ on every weight.

    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 5)[:, None]
    >>> model = Network(lambda p, x: x @ p["w"] + p["b"], x, x[:, 0], params={"b": 0.0, "w": np.zeros(1)}, noise=0.1)
    >>> model.dim, model.last.tolist(), model.smooth
    (2, [0, 1], True)
    """

    apply: Callable[[PyTree, Array], Array]
    inputs: np.ndarray
    targets: np.ndarray
    noise: float | None
    prior: Callable[[PyTree], Array] | None
    shapes: tuple[tuple[int, ...], ...]
    structure: Any
    columns: int
    precision: Float[np.ndarray, " dim"]
    last: np.ndarray
    smooth: bool

    def __init__(
        self,
        network: Any,
        inputs: Any,
        targets: Any,
        *,
        params: PyTree = None,
        noise: float | None = None,
        log_prior: Callable[[PyTree], Array] | None = None,
    ):
        apply, params = _function_of(network, params)
        x, y = training_data(inputs, targets, noise)
        leaves, structure = jax.tree.flatten(params)
        shapes = tuple(np.shape(leaf) for leaf in leaves)
        self._set(apply=apply, inputs=x, noise=noise, prior=log_prior, shapes=shapes, structure=structure)
        try:
            given = shapes_of(self.raw, np.zeros(self.dim), x).shape
        except Exception as error:
            raise InputError(f"`network` fails at weights of zero: {type(error).__name__}: {error}") from error
        if given not in ((len(x),), (len(x), 1)) and not (noise is None and len(given) == 2 and given[0] == len(x)):
            wanted = "one number per input" if noise is not None else "one logit per input, or one per class"
            raise InputError(f"`network` returns shape {given} for {len(x)} inputs, expected {wanted}.")
        columns = given[1] if len(given) == 2 else 1
        if noise is None:
            if not np.isin(y, np.arange(max(columns, 2))).all():
                raise InputError(
                    f"`targets` must be classes from 0 to {max(columns, 2) - 1}. Numbers need their `noise`."
                )
            y = y.astype(np.int64)
        self._set(targets=y, columns=columns)
        curve = jax.vmap(lambda v: jax.jvp(jax.grad(self.log_prior), (jnp.zeros(self.dim),), (v,))[1] @ v)
        precision = -in_double(program(curve, np.eye(self.dim)), np.eye(self.dim))
        kinks, last = look(self.raw, _kinks, np.zeros(self.dim), x), self._linear_leaves()
        precision = np.maximum(np.where(np.isfinite(precision), precision, 0.0), ASKED.least_precision)
        self._set(precision=precision, last=last, smooth=not kinks and self.dim <= ASKED.most_weights)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def dim(self) -> int:
        return sum(map(math.prod, self.shapes))

    @property
    def places(self) -> list[slice]:
        """Where every leaf is in a flat vector."""
        ends = itertools.accumulate(map(math.prod, self.shapes))
        return [slice(end - math.prod(shape), end) for end, shape in zip(ends, self.shapes, strict=True)]

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return self.inputs, self.targets

    def params(self, theta: Array) -> PyTree:
        """Return one flat vector as the network takes it: its leaves one after the other, in the tree's order."""
        leaves = [theta[place].reshape(shape) for place, shape in zip(self.places, self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)

    def raw(self, theta: Array, inputs: Array) -> Array:
        """Return what the network gives, in its own shape."""
        return self.apply(self.params(theta), inputs)

    def outputs(self, theta: Array, inputs: Array) -> Array:
        """Return what the network gives, `(n, c)`."""
        return self.raw(theta, inputs).reshape(len(inputs), -1)

    def information(self, outputs: Array) -> Array:
        """Return what the likelihood of one case knows of its outputs `(c,)`: a matrix `(c, c)`."""
        if self.noise is not None:
            return jnp.full((1, 1), self.noise**-2)
        if self.columns == 1:
            return (jax.nn.sigmoid(outputs) * jax.nn.sigmoid(-outputs))[None]
        p = jax.nn.softmax(outputs)
        return jnp.diag(p) - jnp.outer(p, p)

    def log_prior(self, theta: Array) -> Array:
        """Return the log prior density at one vector, up to a constant."""
        return -0.5 * (theta**2).sum() if self.prior is None else self.prior(self.params(theta))

    def log_likelihood(self, theta: Array, inputs: Array, targets: Array) -> Array:
        """Return the log likelihood of each of some cases, up to a constant."""
        found = self.outputs(theta, inputs)
        if self.noise is not None:
            return -0.5 * ((targets - found[:, 0]) / self.noise) ** 2
        if self.columns == 1:
            return jax.nn.log_sigmoid(found[:, 0] * (2.0 * targets - 1.0))
        return jnp.take_along_axis(jax.nn.log_softmax(found), targets[:, None], 1)[:, 0]

    def log_posterior(self, theta: Array) -> Array:
        """Return the log posterior density at one flat vector, given all cases, up to a constant."""
        return self.log_prior(theta) + self.log_likelihood(theta, *self.data).sum()

    def log_density(self, params: PyTree) -> Array:
        """Return the same of weights as the network takes them: what a sampler of trees is given."""
        return self.log_posterior(jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(params)]))

    def predict(self, theta: Array, inputs: Array) -> Array:
        """Return the mean of y, or the probability of class 1, `(n,)`; of more classes all probabilities, `(n, c)`."""
        found = self.outputs(theta, inputs)
        if self.noise is not None:
            return found[:, 0]
        return jax.nn.sigmoid(found[:, 0]) if self.columns == 1 else jax.nn.softmax(found)

    def fields(self, theta: Array, score: Array, inputs: Array) -> jax.Array:
        """Return every g at one draw, `(output, k)`: Gauss-Newton steps, and for one logit the last layer's steps."""
        steps = gauss_newton_fields(self, self.predict, theta, score, inputs)
        if self.noise is not None or self.columns > 1 or not len(self.last):
            return steps
        size, free, rest = jnp.sqrt(self.precision[self.last]), self.last, jnp.asarray(theta)

        def logits(x: Array) -> Logits:
            def one(row: Array) -> tuple[Array, Array]:
                return jax.value_and_grad(lambda d: self.outputs(rest.at[free].set(d), row[None])[0, 0])(rest[free])

            value, rows = jax.vmap(one)(jnp.asarray(x, rest.dtype))
            return Logits(value, rows / size)

        train, new = logits(self.inputs), logits(inputs)
        more = last_layer_fields(train, self.targets, new, rest[free] * size, score[free] / size)
        return jnp.concatenate([steps, more], 1)

    @property
    def collapsed(self) -> Collapsed | None:
        """The density that is left once the last layer of a regression is integrated out, where that can be done."""
        if self.noise is None or self.prior is not None or not 0 < len(self.last) < self.dim:
            return None
        return Collapsed(self, self.predict, lambda mean, variance: mean)

    def samples(self, draws: PyTree) -> Samples:
        """Return draws of the weights with their scores.

        `draws` has leaves `(chain, draw, ...)`, as NumPyro's `get_samples(group_by_chain=True)` and BlackJAX' stacked
        positions have them; or is one array `(chain, draw, dim)` of flat vectors.
        """
        leaves, structure = jax.tree.flatten(draws)
        shapes = tuple(np.shape(leaf)[2:] for leaf in leaves)
        if shapes != ((self.dim,),) and (structure != self.structure or shapes != self.shapes):
            raise InputError(
                f"`draws` has leaves of shapes {[np.shape(leaf) for leaf in leaves]}; expected chain and draw "
                f"before {list(self.shapes)}, in a tree like `params`."
            )
        lead = np.shape(leaves[0])[:2]
        flat = finite_array("draws", np.concatenate([np.reshape(a, (*lead, -1)) for a in leaves], axis=-1))
        return Samples(flat, full_scores(self, flat))

    def _linear_leaves(self) -> np.ndarray:
        """Return the places of the last leaves in which together the outputs are linear, by asking the network."""
        rng = np.random.default_rng(0)
        outputs = program(self.raw, np.zeros(self.dim), self.inputs)
        found = np.zeros(self.dim, dtype=bool)
        for place in self.places[::-1]:
            tried = found.copy()
            tried[place] = True
            for _ in range(ASKED.places):
                theta, v = rng.normal(size=(2, self.dim))
                at = [in_double(outputs, theta + k * ASKED.step * v * tried, self.inputs) for k in (-1, 0, 1)]
                bend, size = np.abs(at[0] - 2 * at[1] + at[2]).max(), max(np.abs(a).max() for a in at)
                if not bend <= ASKED.round_off * size:
                    break
            else:
                found = tried
        return np.flatnonzero(found)


@dataclass(frozen=True, eq=False, init=False)
class Regressor(Network):
    r"""$y = w\cdot\tanh(V\tilde x) + b + \text{noise}$, with $\tilde x = (x, 1)$ and $N(0, 1)$ on every weight.

    A vector of weights has V row by row, then w and b.

    **Arguments:**

    - `inputs`: `(n, k)`, best with mean 0 and variance 1.
    - `targets`: `(n,)`, likewise.
    - `noise`: the standard deviation of the noise.
    - `width`: hidden units.
    """

    width: int

    def __init__(self, inputs: object, targets: object, noise: float = 0.1, width: int = 20):
        x, y = training_data(inputs, targets, noise)
        if x.ndim != 2:
            raise InputError(f"`inputs` has shape {x.shape}, expected (n, k): one row a case.")
        whole_number("width", width, 1)
        shapes = ((width, x.shape[1] + 1), (width + 1,))
        self._set(apply=_tanh_layer, inputs=x, targets=y, noise=noise, prior=None, width=width, columns=1)
        self._set(shapes=shapes, structure=jax.tree.structure({"hidden": 0, "outer": 0}))
        # what other networks are asked for
        self._set(precision=np.ones(self.dim), last=np.arange(self.dim - width - 1, self.dim), smooth=True)


def _tanh_layer(params: PyTree, inputs: Array) -> Array:
    hidden = jnp.tanh(append_one(inputs) @ params["hidden"].T)
    return hidden @ params["outer"][:-1] + params["outer"][-1]


def _function_of(network: Any, params: PyTree) -> tuple[Callable[[PyTree, Array], Array], PyTree]:
    """Return a network as a function of its weights and many inputs, with weights that show their shapes."""
    equinox = sys.modules.get("equinox")  # whoever has a module of it has imported it
    if equinox is not None and isinstance(network, equinox.Module):
        weights, rest = equinox.partition(network, equinox.is_inexact_array)
        return lambda p, x: jax.vmap(equinox.combine(p, rest))(x), weights if params is None else params
    if not callable(network):
        raise InputError(f"`network` must be an Equinox module or a function, got {type(network).__name__}.")
    if params is None:
        raise InputError(
            "`params` is needed for the shapes of the weights: Network(apply, inputs, targets, params=...)."
        )
    return network, params


def _kinks(program: Any) -> bool:
    """Tell whether a program of JAX has operations with kinks, in itself or in what it calls."""
    for step in program.eqns:
        inner = [getattr(value, "jaxpr", value) for value in step.params.values()]
        called = [one for one in inner if hasattr(one, "eqns") and one.debug_info.func_name not in SMOOTH]
        if step.primitive.name in KINKS or any(map(_kinks, called)):
            return True
    return False
