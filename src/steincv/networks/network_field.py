r"""Control variates made of a network's own structure, with a few coefficients that all inputs share."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..families.method import Control, CrossFit, Fitted, Method, Problem, as_values
from ..runtime.double import in_double, program
from ..runtime.rows import piece
from ..runtime.validation import InputError, reserve, whole_number
from ..samples.samples import Samples
from ..stein.coordinates import Standardise
from ..stein.folds import Fold
from .collapsed import PRICE
from .full_gradient import over_chains
from .model import Array


class Plan(NamedTuple):
    """How the shared coefficients are fitted."""

    # A trace of ridge in units of the features' own size: they are few, and nearly equal where omega does not matter.
    ridge: float = 1e-3
    # Outputs and their fields count as if they varied by at least this share of what all do, in the root mean square:
    # probabilities that are 0 at nearly all draws would otherwise decide for those that are not.
    least_deviation: float = 0.3
    # How many fields a model has at most, for what their memory is judged by.
    most_fields: int = 14
    # What the fields of all inputs have in common: so many directions at most, and draws per direction at least. On the
    # curve of docs/paper.md 80 leave .100, 40 .108 and 120 .103.
    directions: int = 80
    draws_per_direction: int = 15
    # Penalties in units of a direction's own variance, tried on blocks that were left out; the last: no direction.
    penalties: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 1.0, np.inf)
    # One chain is cut into so many blocks.
    blocks: int = 4


PLAN = Plan()
# Draws whose fields an accelerator computes at a time.
SIDE_BY_SIDE = 64


@runtime_checkable
class HasFields(Protocol):
    """A model that has fields of its own; hashable, to be compiled once."""

    def fields(self, theta: Array, score: Array, inputs: Array) -> Array:
        """Return every g_k at one draw, `(input, k)`."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class NetworkField(Method):
    r"""$g(\theta, x) = \sum_k c_k g_k(\theta, x)$: fields built from the network itself, amortised over inputs.

    The fields of a `Network` or a `Regressor` are Gauss-Newton steps (`gauss_newton`), and of one logit also steps of
    its last layer (`last_layer`). A regression with known noise and $N(0, 1)$ priors has averages over orbits
    (`collapsed`) instead, and beside them where orbits are short. The handful of coefficients $c$ is shared by all
    inputs and fitted by least squares over draws and inputs at once: with the same coefficients it is a control variate
    for inputs never seen.

    **Arguments:**

    - `model`: a `Network` or `Regressor`, or an object with `fields(theta, score, inputs)`, `(input, k)`.
    - `inputs`: `(out, ...)`, one for every output of f.
    - `orbits`: how many states every orbit has, a gradient each; 0 for none. By default as many as pay, and no more
      gradients than the sampler took, where `samples.gradients` says how many.
    """

    model: Any  # `HasFields`; anything else is refused by name
    inputs: np.ndarray
    orbits: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.model, HasFields):
            raise InputError(
                f"The 'model' of NetworkField must be a Network, a Regressor, or have a function `fields`."
                f" Got {type(self.model).__name__} instead."
            )
        object.__setattr__(self, "inputs", np.asarray(self.inputs))
        if self.orbits != "auto":
            whole_number("orbits", self.orbits, 0)

    def __str__(self) -> str:
        return f"NetworkField({type(self.model).__name__})"

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        raise InputError("NetworkField needs the weights themselves: use it with `predictive`, `estimate` or `fit`.")

    def fields(self, samples: Samples) -> Float[np.ndarray, "chain draw out k"]:
        """Return every $g_k$ at every draw and input."""
        return self.found(samples, 0)[0]

    def found(
        self, samples: Samples, seed: int, like: Mapping[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, "chain draw out k"], dict[str, Any]]:
        """Return the fields, and what is told of orbits: those told of in `like`, if it is given."""
        reserve(
            f"{len(self.inputs)} inputs at {samples.size} draws",
            8.0 * 2 * samples.size * len(self.inputs) * PLAN.most_fields,
            "Take fewer inputs at a time.",
        )
        collapsed, around = getattr(self.model, "collapsed", None), None
        if like is not None:
            around = collapsed and like and collapsed.averages(samples, self.inputs, like["states"], seed, like["step"])
        elif collapsed is not None and self.orbits not in (0, 1):
            around = collapsed.averages(samples, self.inputs, self.orbits, seed)
        if not around:
            return self._own(samples), {}
        found, info = around
        if info["states"] < PRICE.alone:
            found = np.concatenate([found, self._own(samples)], axis=-1)
        return found, info

    def _own(self, samples: Samples) -> Float[np.ndarray, "chain draw out k"]:
        """Return the fields that the model has itself."""
        double = not getattr(self.model, "single", False)  # a model may ask for single precision
        kind = np.float64 if double else np.float32
        flat = [a.reshape(-1, samples.dim).astype(kind) for a in (samples.draws, samples.scores)]
        x, rows = self.inputs.astype(kind), samples.size if jax.default_backend() == "cpu" else SIDE_BY_SIDE
        # pieces of one size, to be compiled once
        pieces = [piece(flat, i, rows) for i in range(0, samples.size, rows)]
        with jax.default_matmul_precision("highest"):
            run = program(_side_by_side(self.model), *pieces[0], x, double=double)
            found = np.concatenate([in_double(run, *each, x, double=double) for each in pieces])[: samples.size].astype(
                np.float64
            )
        if not np.isfinite(found).all():
            raise InputError("the fields of the network are not finite at some draw: look at its weights and scores.")
        return found.reshape(*samples.draws.shape[:2], *found.shape[1:])

    def fit(self, samples: Samples, values: ArrayLike, *, seed: int = 0) -> Fitted:
        values = as_values(samples, values)
        fields, orbits = self.found(samples, seed)
        if values.shape[-1] != fields.shape[-2]:
            raise InputError(f"there are values of {values.shape[-1]} outputs, and fields of {fields.shape[-2]}.")
        return self.fitted(combine(fields, values), samples.dim, seed, orbits)

    def fitted(
        self, found: "Combination | np.ndarray", dim: int, seed: int = 0, orbits: Mapping[str, Any] | None = None
    ) -> Fitted:
        """Return g in the weights as they are: no standard coordinates. An array is the shared coefficients alone."""
        made = found if isinstance(found, Combination) else Combination.shared_by_all(found, len(self.inputs))

        def evaluate(theta: np.ndarray, score: np.ndarray) -> np.ndarray:
            return made(self.found(Samples(theta, score), seed, orbits)[0][0])

        same = Standardise(np.zeros(dim), np.ones(dim), None)
        info = {"coefficients": made.shared.tolist(), "features": len(made.shared)}
        return Fitted(same, np.ones(made.weights.shape[1]), Control(evaluate, info))

    def cross_fit(self, samples: Samples, values: np.ndarray, folds: Sequence[Fold], *, seed: int = 0) -> CrossFit:
        start = time.perf_counter()
        (fields, orbits), g, info = self.found(samples, seed), np.zeros_like(values), []
        for fold in folds:
            made = combine(fold.train.take(fields), fold.train.take(values))
            fold.test.put(g, made(fold.test.take(fields)))
            info.append({"coefficients": made.shared.tolist(), "directions": len(made.weights)})
        told = {"seconds": time.perf_counter() - start, "folds": info}
        return CrossFit(g, told | ({"orbits": orbits} if orbits else {}))


def coefficients(
    fields: Float[np.ndarray, "chain draw out k"], values: Float[np.ndarray, "chain draw out"]
) -> Float[np.ndarray, " k"]:
    """Return those that make the variance ratio of f + g least, averaged over outputs.

    Outputs that hardly vary count for less: a few of their draws would otherwise decide for all.
    """
    k = fields.shape[-1]
    gram, right = np.zeros((k, k)), np.zeros(k)
    deviation = at_least(values.std(axis=(0, 1)))
    for i in np.flatnonzero(deviation > 0):
        y, x = values[..., i].reshape(-1), fields[..., i, :].reshape(-1, k)
        x = (x - x.mean(0)) / deviation[i]
        gram += x.T @ x / len(y)
        right -= x.T @ ((y - y.mean()) / deviation[i]) / len(y)
    size = np.sqrt(np.maximum(np.diag(gram), 1e-30))
    scaled = gram / np.outer(size, size) + PLAN.ridge * np.eye(k)
    return np.linalg.solve(scaled, right / size) / size


def at_least(deviation: Float[np.ndarray, "out *k"]) -> Float[np.ndarray, "out *k"]:
    """Return deviations over draws, none of them far below what they are for all outputs."""
    return np.maximum(deviation, PLAN.least_deviation * np.sqrt((deviation**2).mean(axis=0)))


class Combination(NamedTuple):
    """g of every output from all fields: its own with shared coefficients, and directions that all fields span."""

    shared: Float[np.ndarray, " k"]
    basis: Float[np.ndarray, "out_k direction"]
    weights: Float[np.ndarray, "direction out"]

    @classmethod
    def shared_by_all(cls, shared: np.ndarray, outputs: int) -> "Combination":
        return cls(shared, np.zeros((0, 0)), np.zeros((0, outputs)))

    def __call__(self, fields: Float[np.ndarray, "*draws out k"]) -> Float[np.ndarray, "*draws out"]:
        g = fields @ self.shared
        if not len(self.weights):
            return g
        return g + fields.reshape(*fields.shape[:-2], -1) @ self.basis @ self.weights


def combine(fields: Float[np.ndarray, "chain draw out k"], values: Float[np.ndarray, "chain draw out"]) -> Combination:
    """Fit the shared coefficients, then what is left on the main directions of the fields of all inputs.

    The penalty is chosen output by output, on chains (of one chain, blocks) that were left out; no direction at all is
    one of the choices.
    """
    shared = coefficients(fields, values)
    chains, draws, out, k = fields.shape
    rank = min(PLAN.directions, chains * draws // PLAN.draws_per_direction, out * k)
    flat = fields.reshape(chains, draws, out * k)
    size = at_least(fields.std(axis=(0, 1))).ravel()
    if rank < 1 or not (size > 0).any():
        return Combination.shared_by_all(shared, out)
    flat, size = flat - flat.mean(axis=(0, 1)), np.where(size > 0, size, np.inf)
    x = flat.reshape(chains * draws, -1) / size
    sketch = x.T @ (x @ np.random.default_rng(0).normal(size=(out * k, rank)))  # one power step towards the main ones
    q = np.linalg.qr(sketch)[0]
    turn = np.linalg.svd(x @ q, full_matrices=False)
    deviation = np.maximum(turn[1] / np.sqrt(len(x)), 1e-12)
    basis = (q / size[:, None]) @ turn[2].T / deviation
    z = flat @ basis
    left = values + fields @ shared
    left = left - left.mean(axis=(0, 1))
    blocks, rest = (
        list(a) if chains > 2 else np.array_split(a.reshape(-1, a.shape[-1]), PLAN.blocks) for a in (z, left)
    )
    grams, rights = [b.T @ b for b in blocks], [b.T @ y for b, y in zip(blocks, rest, strict=True)]
    gram, right, count = sum(grams), sum(rights), sum(map(len, blocks))

    def solved(gram: np.ndarray, right: np.ndarray, count: int, penalty: float) -> np.ndarray:
        if np.isinf(penalty):
            return np.zeros_like(right)
        return -np.linalg.solve(gram + penalty * count * np.eye(rank), right)

    errors = np.zeros((len(PLAN.penalties), out))
    for b, y, own, product in zip(blocks, rest, grams, rights, strict=True):
        for i, penalty in enumerate(PLAN.penalties):
            w = solved(gram - own, right - product, count - len(b), penalty)
            errors[i] += ((y + b @ w) ** 2).sum(axis=0)
    every = np.stack([solved(gram, right, count, penalty) for penalty in PLAN.penalties])
    return Combination(shared, basis, every[errors.argmin(axis=0), :, np.arange(out)].T)


def _side_by_side(model: HasFields) -> Callable:
    """Return the fields of many draws: memory does not grow with them on a CPU, one after the other."""
    return lambda t, s, x: over_chains(lambda t, s: model.fields(t, s, x), t, s)
