r"""Control variates made of a network's own structure, with a few coefficients that all inputs share."""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..families.method import Control, CrossFit, Fitted, Method, Problem, as_values
from ..runtime.compile_cache import compile_cache
from ..runtime.validation import InputError, reserve
from ..samples.samples import Samples
from ..stein.coordinates import Standardise
from ..stein.folds import Fold
from .classifier import Classifier
from .gauss_newton import gauss_newton_fields
from .last_layer import last_layer_fields
from .model import Array
from .regressor import Regressor


class Plan(NamedTuple):
    """How the shared coefficients are fitted."""

    # A trace of ridge in units of the features' own size: they are few, and nearly equal where omega does not matter.
    ridge: float = 1e-3
    # Outputs count as if they varied by at least this share of what the middle one does.
    least_deviation: float = 0.3
    # How many fields a model has at most, for what their memory is judged by.
    most_fields: int = 8


PLAN = Plan()


@runtime_checkable
class HasFields(Protocol):
    """A model that has fields of its own."""

    def fields(self, theta: Array, score: Array, inputs: Array) -> Array:
        """Return every g_k at one draw, `(input, k)`."""

    def __hash__(self) -> int:
        """A program is compiled once per model."""


Network = Classifier | Regressor | HasFields


@dataclass(frozen=True, eq=False)
class NetworkField(Method):
    r"""$g(\theta, x) = \sum_k c_k g_k(\theta, x)$: fields built from the network itself, amortised over inputs.

    For a `Classifier` the fields move its last layer (`last_layer`), for a `Regressor` they are Gauss-Newton steps
    (`gauss_newton`). The handful of coefficients $c$ is shared by all inputs and fitted by least squares over draws and
    inputs at once, so that `at(inputs)` with the same coefficients is a control variate for inputs never seen.

    **Arguments:**

    - `model`: a `Classifier` or `Regressor`, or an object with `fields(theta, score, inputs)`, `(input, k)`.
    - `inputs`: `(out, ...)`, one for every output of f.
    """

    model: Any  # a `Network`; anything else is refused by name
    inputs: np.ndarray

    def __post_init__(self) -> None:
        if not isinstance(self.model, Network):
            raise InputError(
                f"The 'model' of NetworkField must be a Classifier, a Regressor, or have a function `fields`."
                f" Got {type(self.model).__name__} instead."
            )
        object.__setattr__(self, "inputs", np.asarray(self.inputs))

    def __str__(self) -> str:
        return f"NetworkField({type(self.model).__name__})"

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        raise InputError("NetworkField needs the weights themselves: use it with `predictive`, `estimate` or `fit`.")

    def fields(self, samples: Samples) -> Float[np.ndarray, "chain draw out k"]:
        """Return every $g_k$ at every draw and input."""
        return _fields(self.model, self.inputs, samples)

    def fit(self, samples: Samples, values: ArrayLike, *, seed: int = 0) -> Fitted:
        values = as_values(samples, values)
        if values.shape[-1] != len(self.inputs):
            raise InputError(f"there are values of {values.shape[-1]} outputs and {len(self.inputs)} inputs.")
        return self.fitted(coefficients(self.fields(samples), values), samples.dim)

    def fitted(self, c: np.ndarray, dim: int) -> Fitted:
        """Return g with given coefficients, in the weights as they are: no standard coordinates."""

        def evaluate(theta: np.ndarray, score: np.ndarray) -> np.ndarray:
            return _fields(self.model, self.inputs, Samples(theta, score))[0] @ c

        same = Standardise(np.zeros(dim), np.ones(dim), None)
        info = {"coefficients": c.tolist(), "features": len(c)}
        return Fitted(same, np.ones(len(self.inputs)), Control(evaluate, info))

    def cross_fit(self, samples: Samples, values: np.ndarray, folds: Sequence[Fold], *, seed: int = 0) -> CrossFit:
        start = time.perf_counter()
        fields = self.fields(samples)
        g = np.zeros_like(values)
        info = []
        for fold in folds:
            c = coefficients(fold.train.take(fields), fold.train.take(values))
            fold.test.put(g, fold.test.take(fields) @ c)
            info.append({"coefficients": c.tolist()})
        return CrossFit(g, {"seconds": time.perf_counter() - start, "folds": info})


def coefficients(
    fields: Float[np.ndarray, "chain draw out k"], values: Float[np.ndarray, "chain draw out"]
) -> Float[np.ndarray, " k"]:
    """Return those that make the variance ratio of f + g least, averaged over outputs.

    Outputs that hardly vary count for less: a few of their draws would otherwise decide for all.
    """
    k = fields.shape[-1]
    gram, right = np.zeros((k, k)), np.zeros(k)
    deviation = values.std(axis=(0, 1))
    deviation = np.maximum(deviation, PLAN.least_deviation * np.median(deviation))
    for i in np.flatnonzero(deviation > 0):
        y, x = values[..., i].reshape(-1), fields[..., i, :].reshape(-1, k)
        x = (x - x.mean(0)) / deviation[i]
        gram += x.T @ x / len(y)
        right -= x.T @ ((y - y.mean()) / deviation[i]) / len(y)
    size = np.sqrt(np.maximum(np.diag(gram), 1e-30))
    scaled = gram / np.outer(size, size) + PLAN.ridge * np.eye(k)
    return np.linalg.solve(scaled, right / size) / size


def _fields(model: Network, inputs: np.ndarray, samples: Samples) -> np.ndarray:
    double = not isinstance(model, Classifier)
    kind = np.float64 if double else np.float32
    flat = [a.reshape(-1, samples.dim).astype(kind) for a in (samples.draws, samples.scores)]
    reserve(
        f"{len(inputs)} inputs at {samples.size} draws",
        8.0 * 2 * samples.size * len(inputs) * PLAN.most_fields,
        "Take fewer inputs at a time.",
    )
    with jax.enable_x64(double), compile_cache(), jax.default_matmul_precision("highest"):
        out = _program(model)(jnp.asarray(flat[0]), jnp.asarray(flat[1]), jnp.asarray(inputs, kind))
        found = np.asarray(out, dtype=np.float64)
    if not np.isfinite(found).all():
        raise InputError("the fields of the network are not finite at some draw: look at its weights and scores.")
    return found.reshape(*samples.draws.shape[:2], *found.shape[1:])


@functools.lru_cache(maxsize=8)
def _program(model: Network) -> Callable:
    """Compile the fields of one draw after the other on a CPU, of some side by side on an accelerator.

    Memory does not grow with the draws.
    """
    fields: Callable[[Array, Array, Array], Array]
    if isinstance(model, Classifier):
        fields = functools.partial(last_layer_fields, model)
    elif isinstance(model, Regressor):
        fields = functools.partial(gauss_newton_fields, model)
    else:
        fields = model.fields
    size = 1 if jax.default_backend() == "cpu" else 64

    def every(draws: Array, scores: Array, inputs: Array) -> Array:
        return jax.lax.map(lambda a: fields(a[0], a[1], inputs), (draws, scores), batch_size=size if size > 1 else None)

    return jax.jit(every)
