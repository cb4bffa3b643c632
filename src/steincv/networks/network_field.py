r"""Control variates made of a network's own structure, with a few coefficients that all inputs share."""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..families.method import Control, CrossFit, Fitted, Method, Problem, as_values
from ..runtime.compile_cache import compile_cache
from ..runtime.memory import reserve
from ..runtime.validation import InputError
from ..samples.samples import Samples
from ..stein.coordinates import Standardise
from ..stein.folds import Fold
from .classifier import Classifier
from .gauss_newton import gauss_newton_fields
from .last_layer import last_layer_fields
from .regressor import Regressor

# A trace of ridge in units of the features' own size: they are few, and nearly equal where nothing depends on omega.
RIDGE = 1e-3
# Outputs count as if they varied by at least this share of what the middle one does.
FLOOR = 0.3
FIELDS: dict[type, Callable] = {Classifier: last_layer_fields, Regressor: gauss_newton_fields}


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

    model: Any
    inputs: Any

    def __post_init__(self) -> None:
        if type(self.model) not in FIELDS and not callable(getattr(self.model, "fields", None)):
            raise InputError(
                f"The 'model' of NetworkField must be a Classifier, a Regressor, or have a function `fields`."
                f" Got {type(self.model).__name__} instead."
            )

    def __str__(self) -> str:
        return f"NetworkField({type(self.model).__name__})"

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        raise InputError("NetworkField needs the weights themselves: use it with `predictive`, `estimate` or `fit`.")

    def fields(self, samples: Samples) -> Float[np.ndarray, "chain draw out k"]:
        """Every $g_k$ at every draw and input."""
        return _fields(self.model, self.inputs, samples)

    def fit(self, samples: Samples, values: Any, *, seed: int = 0) -> Fitted:
        values = as_values(samples, values)
        if values.shape[-1] != len(self.inputs):
            raise InputError(f"there are values of {values.shape[-1]} outputs and {len(self.inputs)} inputs.")
        return self.fitted(coefficients(self.fields(samples), values), samples.dim)

    def fitted(self, c: np.ndarray, dim: int) -> Fitted:
        """g with given coefficients. It keeps to the weights as they are: no standard coordinates."""

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
    """Those that make the variance ratio of f + g least, averaged over outputs.

    Outputs that hardly vary count for less: a few of their draws would otherwise decide for all.
    """
    k = fields.shape[-1]
    gram, right = np.zeros((k, k)), np.zeros(k)
    deviation = values.std(axis=(0, 1))
    deviation = np.maximum(deviation, FLOOR * np.median(deviation))
    for i in np.flatnonzero(deviation > 0):
        y, x = values[..., i].reshape(-1), fields[..., i, :].reshape(-1, k)
        x = (x - x.mean(0)) / deviation[i]
        gram += x.T @ x / len(y)
        right -= x.T @ ((y - y.mean()) / deviation[i]) / len(y)
    size = np.sqrt(np.maximum(np.diag(gram), 1e-30))
    scaled = gram / np.outer(size, size) + RIDGE * np.eye(k)
    return np.linalg.solve(scaled, right / size) / size


def _fields(model: Any, inputs: Any, samples: Samples) -> np.ndarray:
    import jax
    import jax.numpy as jnp

    inputs = np.asarray(inputs)
    double = not isinstance(model, Classifier)
    kind = np.float64 if double else np.float32
    flat = [a.reshape(-1, samples.dim).astype(kind) for a in (samples.draws, samples.scores)]
    width = 8
    reserve(
        f"{len(inputs)} inputs at {samples.size} draws",
        8.0 * 2 * samples.size * len(inputs) * width,
        "Take fewer inputs at a time.",
    )
    with jax.enable_x64(double), compile_cache(), jax.default_matmul_precision("highest"):
        out = _program(model)(jnp.asarray(flat[0]), jnp.asarray(flat[1]), jnp.asarray(inputs, kind))
        found = np.asarray(out, dtype=np.float64)
    if not np.isfinite(found).all():
        raise InputError("the fields of the network are not finite at some draw: look at its weights and scores.")
    return found.reshape(*samples.draws.shape[:2], *found.shape[1:])


@functools.lru_cache(maxsize=8)
def _program(model: Any) -> Callable:
    """One draw after the other on a CPU, some side by side on an accelerator: memory does not grow with the draws."""
    import jax

    own = FIELDS.get(type(model))
    fields = functools.partial(own, model) if own is not None else model.fields
    size = 1 if jax.default_backend() == "cpu" else 64

    def every(draws: Any, scores: Any, inputs: Any) -> Any:
        return jax.lax.map(lambda a: fields(a[0], a[1], inputs), (draws, scores), batch_size=size if size > 1 else None)

    return jax.jit(every)
