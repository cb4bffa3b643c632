r"""Prediction scores of a Bayesian network with error bars, plain beside controlled, and their entropy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import scipy.special
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..estimating import estimate
from ..families.auto import Auto
from ..families.method import Method
from ..families.polynomial.polynomial import Polynomial
from ..judging.error_bars import ROUND_OFF, Average, average
from ..result import Estimate
from ..runtime.compile_cache import compile_cache
from ..runtime.validation import InputError
from ..samples.samples import Samples
from .classifier import Classifier
from .model import Array
from .network_field import NetworkField
from .regressor import Regressor
from .trust import chains_agree, score_outliers, stable


class Small(NamedTuple):
    """Up to how many weights and inputs the library's own default, `Auto()`, is affordable."""

    weights: int = 20
    inputs: int = 20


SMALL = Small()


@dataclass(frozen=True, eq=False)
class Predictive:
    """Means of predictions over the posterior, one per input.

    - `mean`, `standard_error`, `interval(level)`, `variance_ratio`: with control variates. `plain`: without.
    - `entropy`, `plain_entropy`: $-p\\log p - (1-p)\\log(1-p)$ of the means, for scores. A controlled mean can leave
      [0, 1]; for the entropy, and only there, it is clipped to it.
    - `outside`: how many controlled means lie outside [0, 1].
    - `helped`, `status`: for which inputs a control variate is used, and what happened. Where it would not help, or
      could not be trusted, the plain mean is reported and the status says `no gain`.
    - `outliers`: a few draws carry most of the squared scores, as with approximate samplers, and nothing is trusted.
    - `estimate`: the whole `Estimate` behind it.
    """

    estimate: Estimate
    scores: bool
    outliers: bool = False

    @property
    def mean(self) -> np.ndarray:
        return self.estimate.mean

    @property
    def standard_error(self) -> np.ndarray:
        return self.estimate.standard_error

    @property
    def plain(self) -> Average:
        return self.estimate.plain

    @property
    def variance_ratio(self) -> np.ndarray:
        return self.estimate.variance_ratio

    def interval(self, level: float = 0.95) -> np.ndarray:
        return self.estimate.interval(level)

    @property
    def helped(self) -> np.ndarray:
        return np.array([method != "plain" for method in self.estimate.method])

    @property
    def status(self) -> list[tuple[str, ...]]:
        """Say what happened, for every input: `no gain` wherever the plain mean is reported for want of a better."""
        more = ("score outliers",) if self.outliers else ()
        names = [(*(s.name for s in found), *more) for found in self.estimate.status]
        known = ("no gain", "constant", "exact")
        return [n if ok or set(n) & set(known) else (*n, "no gain") for n, ok in zip(names, self.helped, strict=True)]

    @property
    def outside(self) -> int:
        return int(((self.mean < 0) | (self.mean > 1)).sum()) if self.scores else 0

    @property
    def entropy(self) -> np.ndarray:
        return self._entropy(self.mean)

    @property
    def plain_entropy(self) -> np.ndarray:
        return self._entropy(self.plain.mean)

    def _entropy(self, p: np.ndarray) -> np.ndarray:
        if not self.scores:
            raise InputError("entropy is of scores in [0, 1]; some predictions here lie outside it.")
        return entropy(p)

    def summary(self) -> pandas.DataFrame:
        """Return a row per input: plain and controlled mean with standard errors, ratio, entropies and status."""
        columns: dict[str, np.ndarray | list[str]] = {
            "mean": self.plain.mean,
            "mcse_mean": self.plain.standard_error,
            "mean_cv": self.mean,
            "mcse_cv": self.standard_error,
            "variance_ratio": self.variance_ratio,
        }
        if self.scores:
            columns |= {"entropy": self.plain_entropy, "entropy_cv": self.entropy}
        columns["status"] = [", ".join(names) for names in self.status]
        return pandas.DataFrame(columns)

    def gained(self) -> str:
        """Say what was gained, in one sentence."""
        said = self.estimate.gained()
        no_gain = sum("no gain" in names for names in self.status)
        if no_gain and self.helped.any():
            said += f" No gain for {no_gain} inputs: their plain means are reported."
        if self.outside:
            said += f" {self.outside} controlled scores lie outside [0, 1]."
        return said

    def __repr__(self) -> str:
        return f"Predictive({len(self.mean)} inputs. {self.gained()})"


def predictive(
    samples: Samples,
    predict: Any,
    inputs: ArrayLike,
    method: Method | None = None,
    *,
    seed: int = 0,
    folds: int | None = None,
    guard: bool = True,
) -> Predictive:
    """Return the posterior mean of a network's prediction at every input, with control variates.

    **Arguments:**

    - `samples`: draws of the weights and their scores.
    - `predict`: `predict(theta, inputs)`, one number per input, in JAX; or a `Classifier` or `Regressor`.
    - `inputs`: `(n, ...)`. All of them go through one fit.
    - `method`: any method of `estimate`. By default `NetworkField`, a network's own structure, for a `Classifier` or
      `Regressor` (also where `predict` is their method); for any other function linear control variates, or `Auto()`
      where weights and inputs are few.
    - `guard`: report the plain mean, and say so, for inputs where the control variate does not help: it is fitted on
      other chains than it is judged on, and must gain without any one of them. Also where chains disagree about the
      prediction, and everywhere if a few draws carry most of the squared scores.

    >>> import numpy as np, steincv as scv
    >>> theta = np.random.default_rng(0).normal(size=(4, 200, 2))
    >>> x = np.linspace(-1, 1, 3)[:, None]
    >>> found = scv.predictive(scv.Samples(theta, -theta), lambda theta, x: theta[0] * x[:, 0] + theta[1], x)
    >>> found.mean.round(6).tolist()
    [0.0, 0.0, 0.0]
    """
    if not isinstance(samples, Samples):
        raise InputError(f"`samples` must be a steincv.Samples, got {type(samples).__name__}.")
    at = np.asarray(inputs)
    if at.ndim == 0 or len(at) == 0 or at.dtype.kind not in "fiub":
        raise InputError(f"`inputs` has shape {at.shape} and dtype {at.dtype}, expected numbers, (n, ...).")
    model = getattr(predict, "__self__", predict)  # also of a method, such as `model.predict`
    function = predict.predict if isinstance(predict, Classifier | Regressor) else predict
    if not callable(function):
        raise InputError(f"`predict` must be a function of weights and inputs, got {type(predict).__name__}.")
    values = predictions(samples, function, at)
    if method is None:
        method = _default(samples, model if isinstance(model, Classifier | Regressor) else None, at)
    found = estimate(samples, {"prediction": values}, method, seed=seed, folds=folds, guard=guard)
    outliers = score_outliers(samples)
    if guard:
        kept = chains_agree(found) & stable(found.values, found.controlled) & (not outliers)
        found = _plain_where(found, ~kept)
    return Predictive(found, bool(values.min() >= 0 and values.max() <= 1), outliers)


def _plain_where(found: Estimate, which: np.ndarray) -> Estimate:
    """Return the estimate with plain means for some outputs. What is exact or constant stays."""
    which = which & (found.controlled.std(axis=(0, 1)) > ROUND_OFF * found.values.std(axis=(0, 1)))
    controlled = np.where(which, found.values, found.controlled)
    method = tuple("plain" if plain else name for plain, name in zip(which, found.method, strict=True))
    better = average(controlled).reshape(found.shape)
    return replace(found, controlled=controlled, _average=better, method=method)


def _default(samples: Samples, model: Classifier | Regressor | None, inputs: np.ndarray) -> Method:
    if model is not None:
        return NetworkField(model, inputs)
    if samples.dim <= SMALL.weights and len(inputs) <= SMALL.inputs:
        return Auto()
    return Polynomial(1)


def predictions(
    samples: Samples, predict: Callable[[Array, Array], Array], inputs: np.ndarray
) -> Float[np.ndarray, "chain draw out"]:
    """Return the prediction at every draw and input, one draw at a time."""
    single = inputs.dtype == np.float32
    kind = np.float32 if single else np.float64
    with jax.enable_x64(not single), compile_cache():
        x = jnp.asarray(inputs if inputs.dtype.kind != "f" else inputs.astype(kind))
        flat = jnp.asarray(samples.draws.reshape(-1, samples.dim).astype(kind))
        try:
            shape = jax.eval_shape(predict, flat[0], x).shape
        except Exception as error:
            raise InputError(f"`predict` fails at one draw: {type(error).__name__}: {error}") from error
        if shape != (len(inputs),):
            raise InputError(f"`predict` returns shape {shape}, expected ({len(inputs)},): one number an input.")
        found = np.asarray(jax.jit(lambda a, x: jax.lax.map(lambda t: predict(t, x), a))(flat, x), dtype=np.float64)
    return found.reshape(*samples.draws.shape[:2], -1)


def entropy(p: ArrayLike) -> np.ndarray:
    """Return the entropy of a score, from 0 to log 2; what lies outside [0, 1] is clipped to it."""
    q = np.clip(np.asarray(p, dtype=float), 0.0, 1.0)
    return np.asarray(scipy.special.entr(q) + scipy.special.entr(1 - q))
