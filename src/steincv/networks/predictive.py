r"""Prediction scores of a Bayesian network with error bars, plain beside controlled, and their entropy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas
import scipy.special
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from ..estimating import estimate
from ..families.auto import Auto
from ..families.method import Method
from ..families.polynomial.polynomial import Polynomial
from ..judging.diagnostics import Code
from ..judging.error_bars import ROUND_OFF, Average, average
from ..result import Estimate
from ..runtime.double import in_double, program, shapes
from ..runtime.validation import InputError
from ..samples.samples import Samples
from ..samples.streamed import refuse_streamed
from .model import Array
from .network_field import HasFields, NetworkField
from .observation import observed


class Limits(NamedTuple):
    """What the default is, and what it may rely on (measured by benchmarks/regression_calibration.py)."""

    # Up to so many weights and inputs the library's own default, `Auto()`, is affordable.
    auto_weights: int = 20
    auto_inputs: int = 20
    # The largest 1 % of squared scores are 1 % of their sum for a Gaussian in many dimensions, .25 for converged HMC
    # draws of the paper's classifier given 40 images, and .84 and .50 for pSGLD given 40 and 200: no variance made of
    # those is known.
    top_share: float = 0.01
    carried: float = 0.35
    # The variance ratio must be below this without any one of the chains.
    stable_ratio: float = 0.9


LIMITS = Limits()


@dataclass(frozen=True, eq=False)
class Predictive:
    """Means of predictions over the posterior, one per input.

    - `mean`, `standard_error`, `interval(level)`, `variance_ratio`: with control variates. `plain`: without. Of several
      logits they have one column per class.
    - `entropy`, `plain_entropy`: $-\\sum_c p_c\\log p_c$ of the means, for scores, clipped to [0, 1] only there.
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
        return np.array([method != "plain" for method in self.estimate.method]).reshape(self.mean.shape)

    @property
    def status(self) -> list[tuple[str, ...]]:
        """Say what happened, for every input: `no gain` wherever the plain mean is reported for want of a better."""
        more = ("score outliers",) if self.outliers else ()
        names = [(*(s.name for s in found), *more) for found in self.estimate.status]
        known = ("no gain", "constant", "exact")
        return [
            n if ok or set(n) & set(known) else (*n, "no gain")
            for n, ok in zip(names, self.helped.ravel(), strict=True)
        ]

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
        return entropy(p) if p.ndim == 1 else np.asarray(scipy.special.entr(np.clip(p, 0.0, 1.0)).sum(axis=1))

    def summary(self) -> pandas.DataFrame:
        """Return a row per input: plain and controlled mean with standard errors, ratio, entropies and status.

        Of more than two classes there is a row per input and class, and no entropies.
        """
        columns: dict[str, np.ndarray | list[str]] = {
            "mean": self.plain.mean.reshape(-1),
            "mcse_mean": self.plain.standard_error.reshape(-1),
            "mean_cv": self.mean.reshape(-1),
            "mcse_cv": self.standard_error.reshape(-1),
            "variance_ratio": self.variance_ratio.reshape(-1),
        }
        if self.mean.ndim == 2:
            case, kind = np.indices(self.mean.shape).reshape(2, -1)
            columns = {"input": case, "class": kind, **columns}
        elif self.scores:
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
    above: ArrayLike | None = None,
    quantile: float | None = None,
    seed: int = 0,
    folds: int | None = None,
    guard: bool = True,
) -> Predictive:
    """Return the posterior mean of a network's prediction at every input, with control variates.

    Or, of a regression network with known noise, what a new observation y will be: the probability that it is above a
    point, or a quantile. Its noise is integrated out first.

    **Arguments:**

    - `samples`: draws of the weights and their scores.
    - `predict`: a `steincv.networks.Network`, your own, or a `Regressor`; or `predict(theta, inputs)`,
      one number per input or one per class, in JAX.
    - `inputs`: `(n, ...)`. All of them go through one fit.
    - `method`: any method of `estimate`. By default `NetworkField`, a network's own structure, for a model (also where
      `predict` is its method); for any other function linear control variates, or `Auto()` where weights and inputs are
      few.
    - `above`: a number, or one per input: return P(y > above).
    - `quantile`: a level between 0 and 1: return that quantile of y.
    - `guard`: report the plain mean, and say so, for inputs where the control variate does not help: it is fitted on
      other chains than it is judged on, and must gain without any one of them. So it is for an input whose chains
      disagree, and for all inputs if a few draws carry most of the squared scores.

    >>> import numpy as np, steincv as scv
    >>> theta = np.random.default_rng(0).normal(size=(4, 200, 2))
    >>> x = np.linspace(-1, 1, 3)[:, None]
    >>> found = scv.predictive(scv.Samples(theta, -theta), lambda theta, x: theta[0] * x[:, 0] + theta[1], x)
    >>> bool(np.abs(found.mean).max() < 1e-6)
    True
    """
    refuse_streamed(samples, "predictive")
    at = np.asarray(inputs)
    if at.ndim == 0 or len(at) == 0 or at.dtype.kind not in "fiub":
        raise InputError(f"`inputs` has shape {at.shape} and dtype {at.dtype}, expected numbers, (n, ...).")
    model = getattr(predict, "__self__", predict)  # also of a method, such as `model.predict`
    function = getattr(predict, "predict", predict)
    if not callable(function):
        raise InputError(f"`predict` must be a function of weights and inputs, got {type(predict).__name__}.")
    values = predictions(samples, function, at)
    if above is not None or quantile is not None:
        model = observed(model, values, len(at), above, quantile)
        values = predictions(samples, model.predict, at)
    if method is None and isinstance(model, HasFields):
        method = NetworkField(model, at)
    elif method is None:
        few = samples.dim <= LIMITS.auto_weights and len(at) <= LIMITS.auto_inputs
        method = Auto() if few else Polynomial(1)
    found = estimate(samples, {"prediction": values}, method, seed=seed, folds=folds, guard=guard)
    outliers = score_outliers(samples)
    if guard:  # chains stuck in different places know one place each
        agree = np.array([all(s.code is not Code.CHAINS_DISAGREE for s in status) for status in found.status])
        found = _plain_where(found, ~(agree & proven(found.values, found.controlled) & (not outliers)))
    if values.ndim == 4:
        shape = values.shape[2:]
        found = replace(found, shape=shape, plain=found.plain.reshape(shape), _average=found._average.reshape(shape))
    return Predictive(found, bool(quantile is None and values.min() >= 0 and values.max() <= 1), outliers)


def _plain_where(found: Estimate, which: np.ndarray) -> Estimate:
    """Return the estimate with plain means for some outputs. What is exact or constant stays."""
    which = which & (found.controlled.std(axis=(0, 1)) > ROUND_OFF * found.values.std(axis=(0, 1)))
    controlled = np.where(which, found.values, found.controlled)
    method = tuple("plain" if plain else name for plain, name in zip(which, found.method, strict=True))
    better = average(controlled).reshape(found.shape)
    return replace(found, controlled=controlled, _average=better, method=method)


def score_outliers(samples: Samples) -> bool:
    """Tell whether a hundredth of the draws carries much of the sum of squared scores."""
    size = np.sort((samples.scores**2).sum(axis=-1).reshape(-1))
    last = max(1, round(LIMITS.top_share * len(size)))
    return bool(size[-last:].sum() > max(LIMITS.carried, 3 * last / len(size)) * size.sum())


def proven(values: Float[np.ndarray, "chain draw out"], controlled: np.ndarray) -> Bool[np.ndarray, " out"]:
    """Tell for which outputs the variance falls clearly on chains that g was not fitted on, whichever is left out.

    Left out one by one, chains also say how uncertain the ratio is (the jackknife): it must be below 1 by twice that.
    A coin flip that every chain tosses has large variances and a ratio that all chains share; an output that one chain
    alone decides has not.
    """
    chains = len(values)
    if chains < 2:
        return np.ones(values.shape[-1], dtype=bool)
    found = np.full((chains, values.shape[-1]), np.inf)
    for k, ratio in enumerate(found):
        before, after = (np.delete(a, k, axis=0).var(axis=(0, 1)) for a in (values, controlled))
        np.divide(after, before, out=ratio, where=before > 0)
    finite = np.where(np.isfinite(found), found, 1.0)
    error = np.sqrt((chains - 1) * finite.var(axis=0))
    return (found.max(axis=0) < LIMITS.stable_ratio) & (finite.mean(axis=0) + 2 * error < 1)


def predictions(
    samples: Samples, predict: Callable[[Array, Array], Array], inputs: np.ndarray
) -> Float[np.ndarray, "chain draw n *classes"]:
    """Return the prediction at every draw and input, one draw at a time."""
    double = inputs.dtype != np.float32
    kind = np.float64 if double else np.float32
    x = inputs if inputs.dtype.kind != "f" else inputs.astype(kind)
    flat = samples.draws.reshape(-1, samples.dim).astype(kind)
    try:
        shape = shapes(predict, flat[0], x, double=double).shape
    except Exception as error:
        hint = f" `inputs` has shape {x.shape}: one row an input, (n, k); of one feature inputs[:, None]."
        said = f"`predict` fails at one draw: {type(error).__name__}: {error}"
        raise InputError(said + (hint if x.ndim < 2 else "")) from error
    if shape[:1] != (len(inputs),) or len(shape) > 2:
        raise InputError(f"`predict` returns shape {shape}, expected ({len(inputs)},): one number an input.")
    run = program(lambda a, x: jax.lax.map(lambda t: predict(t, x), a), flat, x, double=double)
    return in_double(run, flat, x, double=double).astype(np.float64).reshape(*samples.draws.shape[:2], *shape)


def entropy(p: ArrayLike) -> np.ndarray:
    """Return the entropy of a score, from 0 to log 2; what lies outside [0, 1] is clipped to it."""
    q = np.clip(np.asarray(p, dtype=float), 0.0, 1.0)
    return np.asarray(scipy.special.entr(q) + scipy.special.entr(1 - q))
