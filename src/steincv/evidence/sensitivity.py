r"""How a posterior mean changes if the prior or the likelihood is raised to a power, from the draws that are there.

With the prior to the power a, $\frac{d}{d a} E_a[f] = \mathrm{cov}(f, \log p(\theta))$ at a = 1, and the same for the
likelihood. With $u = f - c$ and $v = l - d$ for constants c and d, $\mathrm{cov} = E[uv] - E[u]\,E[v]$, three means
that are controlled. The draws $(uv)_i - \bar v u_i - \bar u v_i + \bar u\bar v$ have its value and, by the delta
method, its error.

Reference: Kallioinen, Paananen, Buerkner, Vehtari (2024), Statistics and Computing 34 (priorsense).
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float

from ..estimating import estimate
from ..families.auto import Auto
from ..families.budget import LIMITS
from ..families.method import Method
from ..families.polynomial.polynomial import Polynomial, feature_count
from ..families.stack import Stack
from ..judging.diagnostics import Code, Status
from ..judging.error_bars import ROUND_OFF as EXACT, Average, as_slow_as, average
from ..judging.verdict import gain_limit, widened_ratio
from ..report.figures import CONTROLLED, GRID, PLAIN, axes_for, height_of, legend_above, name_rows
from ..result import Estimate
from ..runtime.validation import InputError
from ..samples.samples import Samples, unit_range
from ..samples.streamed import refuse_streamed
from ..samples.values import values_of
from ..stein.folds import make_folds

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Settings(NamedTuple):
    """What is fitted by default, and what error bars hold."""

    # The last digits of a covariance are lost to the two means that are taken off: so many units of them.
    round_off: float = 64.0
    # So many errors are as much as an interval of this level, where few draws carry the error.
    errors: float = 3.0
    level: float = 0.95
    # Of a square of a parameter and a log density that is nearly quadratic. Where Auto(), whose polynomials end sooner,
    # left such products to kernels, the far draws of what was left made errors too small (benchmarks/sensitivity.py).
    degree: int = 4


SETTINGS = Settings()


def sensitivity(
    samples: Samples,
    f: Any = None,
    *,
    log_prior: Any = None,
    log_likelihood: Any = None,
    method: Method | None = None,
    seed: int = 0,
) -> Estimate:
    """Return the derivatives of posterior means by the logarithm of a power of the prior and of the likelihood.

    Doubling the power changes the mean by about log 2 times that. A mean that the prior moves as much as the data do,
    in the opposite direction, tells of a conflict between the two; one that neither moves much is weakly informed.

    **Arguments:**

    - `samples`, `f`, `method`, `seed`: as for `estimate`. If `method` is not given, the default is stacked with a
      polynomial of degree 4 where the draws carry one: products with a log density are of a degree two higher.
    - `log_prior`, `log_likelihood`: arrays `(chain, draw)`, or functions of the unconstrained vector; constants do not
      matter. One of them may be left out. The log Jacobian of a change of variables belongs to neither.

    The outputs are called `prior[...]` and `likelihood[...]`; `result["prior"]` are the first. `info["sd"]` has the
    posterior standard deviation of each f: a derivative over it is in the units that priorsense reports.
    `plot_sensitivity` draws them.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 250, 1)) / np.sqrt(2)  # prior N(0, 1), datum 0 with noise N(0, 1)
    >>> samples = scv.Samples(x, -2 * x, names=["theta"])
    >>> log_prior, method = -0.5 * x[..., 0] ** 2, scv.Polynomial(4)
    >>> result = scv.sensitivity(samples, lambda x: {"square": x[0] ** 2}, log_prior=log_prior, method=method)
    >>> bool(abs(result["prior"].mean[0] + 0.25) < 1e-6)  # E[theta^2] = 1 / (a + 1)
    True
    """
    refuse_streamed(samples, "sensitivity")
    given = {"prior": log_prior, "likelihood": log_likelihood}
    given = {name: log for name, log in given.items() if log is not None}
    if not given:
        raise InputError("`log_prior` or `log_likelihood` is needed: arrays (chain, draw), or functions of one vector.")
    values = values_of(f, samples)
    u, _, f_size = unit_range(values.array, center=values.array.mean(axis=(0, 1)))
    known = Samples.trusted(samples.draws, samples.scores, samples.names, samples.log_weights)
    outputs, columns, sizes = len(values.labels), [u], []
    for name, log in given.items():
        v, size = _log(name, log, known)
        columns += [v[..., None], u * v[..., None]]
        sizes.append(size * f_size)
    units = np.concatenate(sizes)
    result = estimate(known, np.concatenate(columns, axis=-1), method or _default(samples), seed=seed)
    own = [outputs + k * (1 + outputs) for k in range(len(given))]  # the columns of the log densities
    plain, controlled = (
        units * np.concatenate([_covariances(series, outputs, at) for at in own], axis=-1)
        for series in (result.values, result.controlled)
    )
    old = _rounded(average(plain), units)
    new = _rounded(as_slow_as(old, average(controlled), controlled), units)
    better = (widened_ratio(old, new) < gain_limit(old.ess)) | (new.standard_error == 0)
    # of every covariance the columns of f, of the log density, and of their product
    parts = [(i, at, at + 1 + i) for at in own for i in range(outputs)]
    used = [next((m for j in part[::-1] if (m := result.method[j]) != "plain"), "plain") for part in parts]
    sd = f_size * np.sqrt(result.plain.ess[:outputs]) * result.plain.standard_error[:outputs]
    return Estimate(
        tuple(f"{name}[{label}]" for name in given for label in values.labels),
        (len(parts),),
        plain,
        np.where(better, controlled, plain),
        old,
        _told(new, old).where(better, old),
        tuple(m if good else "plain" for m, good in zip(used, better, strict=True)),
        tuple(_said([result.status[j] for j in part]) for part in parts),
        {**result.info, "sd": sd.tolist() * len(given)},
    )


def _default(samples: Samples) -> Method:
    """Return the default, with the products of squares and of a quadratic log density where the draws carry them."""
    fitted = min(fold.train.size for fold in make_folds(*samples.draws.shape[:2]))
    if feature_count(samples.dim, SETTINGS.degree) > LIMITS.cubic_features_per_draw * fitted:
        return Auto()
    return Stack([Auto(), Polynomial(SETTINGS.degree)])


def _log(name: str, log: Any, samples: Samples) -> tuple[np.ndarray, float]:
    """Return a log density in [-1, 1] around its mean, and its size."""
    values = values_of(log, samples)
    if values.array.shape[-1] != 1:
        raise InputError(
            f"`log_{name}` has {values.array.shape[-1]} numbers at every draw, expected one: sum over the data."
        )
    array = values.array[..., 0]
    unit, _, size = unit_range(array, center=array.mean())
    return unit, float(size)


def _covariances(series: np.ndarray, outputs: int, at: int) -> Float[np.ndarray, "chain draw out"]:
    """Return draws whose means are the covariances of all outputs with the log density in column `at`."""
    u, v, both = series[..., :outputs], series[..., at : at + 1], series[..., at + 1 : at + 1 + outputs]
    means = u.mean(axis=(0, 1)), v.mean(axis=(0, 1))
    return both - means[1] * u - means[0] * v + means[0] * means[1]


def _said(statuses: list[tuple[Status, ...]]) -> tuple[Status, ...]:
    """Return what was said of f, of the log density and of their product, each kind once; all three must be exact."""
    every = [{s.code for s in found} for found in statuses]
    quiet = {
        code
        for code in (Code.EXACT, Code.CONSTANT, Code.NO_GAIN)
        if not all(code in codes or Code.CONSTANT in codes for codes in every)
    }
    return tuple({s.code: s for found in statuses for s in found if s.code not in quiet}.values())


def _told(found: Average, plain: Average) -> Average:
    """Return the average with error bars of which three are no shorter than a 95 % interval on either side.

    Products are largest at far draws: one or two may carry the error, and most runs do not have them. The interval
    knows that by its degrees of freedom, the error alone does not. What f + g is at a place of probability 1/m nobody
    knows from m effective draws: unless it is exact, the gain that is told is therefore at most m.
    """
    least = np.where(found.standard_error > EXACT * plain.standard_error, plain.standard_error / np.sqrt(plain.ess), 0)
    wider = found.half_width(SETTINGS.level) / SETTINGS.errors
    freedom = np.where(
        wider > 1, scipy.special.stdtridf(0.5 + SETTINGS.level / 2, SETTINGS.errors), found.degrees_of_freedom
    )
    error = np.maximum(np.maximum(wider, 1.0) * found.standard_error, least)
    return replace(found, standard_error=error, degrees_of_freedom=freedom)


def _rounded(found: Average, size: Float[np.ndarray, " out"]) -> Average:
    """Return the average with the round-off of products of that size in its error bar, where there is an error."""
    error = np.hypot(found.standard_error, SETTINGS.round_off * np.finfo(float).eps * size)
    return replace(found, standard_error=np.where(found.standard_error > 0, error, 0.0))


def plot_sensitivity(result: Estimate, ax: "Axes | None" = None) -> "Axes":
    """Draw derivatives of posterior means by powers of the prior and the likelihood, with 95 % intervals.

    Each is in posterior standard deviations of its f, so that outputs of different units stand side by side.

    **Arguments:**

    - `result`: of `sensitivity`.
    - `ax`: where to draw; a new figure if not given.
    """
    if not (isinstance(result, Estimate) and "sd" in result.info and len(result.info["sd"]) == len(result.labels)):
        raise InputError("`result` must be a result of sensitivity.")
    sd = np.array(result.info["sd"])
    sd = np.where(sd > 0, sd, 1.0)
    kinds = [label.partition("[")[0] for label in result.labels]
    names = list(dict.fromkeys(label.partition("[")[2][:-1] for label in result.labels))
    ax = axes_for(ax, (6.4, height_of(len(names))))
    ax.axvline(0, color=GRID, zorder=0)
    for kind, colour, shift in (("prior", PLAIN, -0.15), ("likelihood", CONTROLLED, 0.15)):
        mine = np.array([k == kind for k in kinds])
        if not mine.any():
            continue
        y = np.arange(len(names)) + shift
        low, high = (result.interval(0.95) / sd[:, None])[mine].T
        ax.hlines(y, low, high, color=colour, linewidth=3, label=f"power of the {kind}")
        ax.plot((result.mean / sd)[mine], y, "o", color=colour, markersize=6, markeredgecolor="w")
    ax.set_xlabel("change of the mean per unit of log power, in posterior standard deviations")
    name_rows(ax, names, len(names))
    legend_above(ax, columns=2)
    return ax
