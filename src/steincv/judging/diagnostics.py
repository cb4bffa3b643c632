"""Checks of what the answer rests on: are the scores those of the draws, have the chains mixed; and what they say."""

import enum
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.special

from ..samples.samples import Samples, unit_range
from ..stein.coordinates import TILE, Standardise
from .error_bars import (
    FREEDOM,
    Average,
    average,
    degrees_of_freedom,
    effective_draws,
    most_effective_draws,
    short_chains,
    split_rhat,
    tail_index,
)

LOW_ESS = 200
# The largest limit of R-hat, for few effective draws: see `rhat_limit`.
RHAT_LIMIT = 1.1
TAIL_LIMIT = 0.5
# Among 2 dim + 1 z values of correct input the largest is beyond this once in ten thousand for dim = 100.
STEIN_LIMIT = 5.0


class Details(NamedTuple):
    """Numbers that only the checks themselves look at."""

    # Where fewer draws than this, and than this share of the effective ones, carry the error bar, it is luck.
    carriers: float = 10.0
    share: float = 1 / 40
    # Fewer degrees of freedom than this, for many draws, only come of f and f + g both having long tails.
    freedom: float = 0.97
    # In shorter chains there is no telling one draw from the next.
    fewest_to_order: int = 10
    # Standard errors from zero.
    positive: float = 4.0
    # Scores of the wrong sign make the mean of z . s + dim 2 dim; beyond this share of dim they are taken for such.
    opposite: float = 1.5
    # Below so many effective draws per dimension coordinates are only scaled one by one: a covariance that is mostly
    # noise makes means of z s of its own. Above so many draws per dimension nobody counts the effective ones.
    whitened: int = 2
    plenty: int = 50
    # The smallest limit of R-hat (Vehtari et al., 2021, doi:10.1214/20-BA1221), and how often chains that agree are to
    # exceed theirs.
    rhat: float = 1.01
    by_chance: float = 1e-3


DETAILS = Details()


#: Why a member of the default went no further than the first fold.
RACED = "added too little on the first fold"


class Code(enum.Enum):
    """The kinds of status; each value is the text of its message, to be filled with numbers.

    Where the answer would be meaningless the text is raised as an `InputError`; otherwise it is in `result.status`.
    """

    LOW_ESS = (
        "only {ess:.0f} effective draws: the error bar itself is uncertain. Run the sampler longer, "
        "or read the interval as a rough guide."
    )
    NO_GAIN = (
        "control variates did not help here (estimated variance ratio {ratio:.2f}), so the plain mean "
        "is reported. Nothing was lost; more draws may let a richer method help."
    )
    STEIN_MEAN = (
        "the Stein mean of {worst} is off zero by {z:.1f} standard errors, which correct draws and "
        "scores almost never show. Likely: {likely}. The controlled "
        "mean is not to be trusted; check `scores` against grad(log density) at one draw."
    )
    COPIED_CHAINS = (
        "chains {first} and {second} are copies of each other, draw by draw: the error bar counts them as if they were "
        "independent. Give each chain a seed of its own, or leave the copies out."
    )
    HEAVY_TAIL = (
        "the values of f have a heavy tail (Pareto k = {khat:.2f} > {limit:.2f}): the variance may be "
        "infinite and error bars too short. Estimate a bounded function of it, or reparametrise."
    )
    RARE_DRAWS = (
        "about {carriers:.0f} of the draws, far out, carry the error bar, and others as far may not have come yet: "
        "the standard error is more often too small than too large. The interval is widened for that; use it, and "
        "read the gain as a rough guide. More draws help, and a simpler method, such as Polynomial(2), to compare with."
    )
    SLOW_CHAINS = (
        "the chains moved so slowly that {draws:.0f} of their draws count as one, and the gain ({gain:.0f}) is more "
        "than f has effective draws ({ess:.0f}): what lies where they have not been is missing from the error bar, "
        "which may be far too short. Run them longer, or compare with Polynomial(2)."
    )
    CHAINS_DISAGREE = (
        "the chains disagree (split R-hat {rhat:.3f} > {limit:.3f}): they have not mixed and no mean over "
        "them can be trusted. Run longer or improve the sampler first."
    )
    SHORT_CHAINS = (
        "there are {chains} chains of {draws} draws each: what a chain remembers of its start and how slowly it moves "
        "cannot be seen in so few, and the error bar rests on the spread of the chains' means. If these are {draws} "
        "chains, the first two axes are swapped: give `draws` and `scores` as (chain, draw, dim)."
    )
    UNEVEN_WEIGHTS = (
        "the weights have a heavy tail (Pareto k = {khat:.2f} > {limit:.2f}): of all draws a few carry most of the "
        "weight (effective size {ess:.0f}), and error bars may be too short. Use a proposal with heavier tails, or "
        "more temperatures on the way."
    )
    LOW_OVERLAP = (
        "the posterior and the proposal hardly overlap (by {overlap:.1%}, or {draws:.0f} effective draws): the log "
        "evidence rests on these few, and its error bar may be too short. More draws make a better proposal; or use a "
        "ladder of temperatures (`log_evidence`)."
    )
    FEW_BEYOND = (
        "about {count:.0f} effective draws lie beyond this point: they do not know that tail, so the plain estimate is "
        "reported. Run the sampler longer, or ask for a point nearer to the middle."
    )
    TIED = (
        "{share:.0%} of the draws have exactly this value of f: where f is discrete a quantile is one of its values, "
        "so the plain one is reported. A probability can be controlled: steincv.probability."
    )
    EXACT = "f + g is constant to round-off: the estimate is exact for this f (relative spread {spread:.0e})."
    CONSTANT = "f is constant over all draws, so its mean is known exactly and there is nothing to reduce."
    TOO_MANY_FEATURES = (
        "{features} features on {draws} fitting draws: the fit leans on its penalty. Fewer features "
        "(a lower degree) or more draws would be safer."
    )


#: Codes that say the estimate itself, not only its error bar, may be wrong.
ALARMS = frozenset({Code.STEIN_MEAN, Code.CHAINS_DISAGREE, Code.COPIED_CHAINS})


@dataclass(frozen=True)
class Status:
    """One thing that happened: its `code` and a `message` with the numbers in it."""

    code: Code
    message: str

    @classmethod
    def of(cls, code: Code, **numbers: object) -> "Status":
        return cls(code, code.value.format(**numbers))

    @property
    def name(self) -> str:
        """A short name for tables: `no gain`, `low ess`, ..."""
        return self.code.name.lower().replace("_", " ")

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


# Scores --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SteinCheck:
    r"""z values of means that are zero for correct draws and scores.

    In standard coordinates: $E[s_i] = 0$, $E[z_i s_i] = -1$, and the sum of the latter, which is the one that
    sees a score of the wrong size. The last two are of `moved_scores`.
    """

    labels: tuple[str, ...]
    mean: np.ndarray
    z: np.ndarray

    @property
    def worst(self) -> int:
        return int(np.argmax(np.abs(self.z)))


def stein_check(samples: Samples, beyond: float | None = None) -> SteinCheck:
    """Return Stein means of linear trial functions; z values that are certain to be below `beyond` are not exact."""
    standardise = Standardise.of(samples)
    scarce = standardise.factor is not None and samples.size < DETAILS.plenty * samples.dim
    if scarce and average(samples.draws, tails=False).ess.min() < DETAILS.whitened * samples.dim:
        standardise = replace(standardise, factor=None)
    means = _stein_means(samples, standardise, beyond)
    off = stein_z(means, samples.dim, whitened=standardise.factor is not None)
    moved = moved_scores(samples, standardise.scale)
    return SteinCheck(stein_labels(samples.dim), np.append(means.mean, moved.mean), np.append(off, moved.z))


def stein_labels(dim: int) -> tuple[str, ...]:
    """Name the z values of a `SteinCheck`."""
    kinds = [f"{kind} of standard coordinate {i}" for kind in ("score", "z s + 1") for i in range(dim)]
    return (*kinds, "z . s + dim", "steps (the scores fit the draw before)", "steps (the scores fit the draw after)")


def stein_columns(z: np.ndarray, s: np.ndarray) -> np.ndarray:
    r"""Return $s_i$, $z_i s_i + 1$ and the sum of the latter at every draw."""
    product = z * s + 1
    return np.concatenate([s, product, product.sum(axis=1, keepdims=True)], axis=1)


def _stein_means(samples: Samples, standardise: Standardise, beyond: float | None) -> Average:
    """Return the means of `stein_columns`.

    With `beyond`, effective sizes are asked for only where one of them would put the mean so many standard errors from
    zero; the others have the largest that there is.
    """

    def series(which: np.ndarray) -> np.ndarray:
        parts = [stein_columns(z, s)[:, which] for _, z, s in standardise.tiles(samples)]
        return np.concatenate(parts).reshape(*samples.draws.shape[:2], -1)

    count = 2 * samples.dim + 1
    if beyond is None:
        return average(series(np.arange(count)), tails=False)
    mean, square = np.zeros(count), np.zeros(count)
    for _, z, s in standardise.tiles(samples):
        tile = stein_columns(z, s)
        mean += tile.sum(axis=0) / samples.size
        square += (tile**2).sum(axis=0) / samples.size
    ess = np.full(count, most_effective_draws(samples.size))
    error = np.sqrt(np.maximum(square - mean**2, 0) / ess)
    # the .99 is for rounding, which is large only where the mean is so far from zero that it is doubtful anyway
    doubtful = np.abs(mean) > 0.99 * beyond * error
    if doubtful.any():
        exact = average(series(doubtful), tails=False)
        mean[doubtful], error[doubtful], ess[doubtful] = exact.mean, exact.standard_error, exact.ess
    return Average(mean, error, ess)


def stein_z(means: Average, dim: int, whitened: bool) -> np.ndarray:
    r"""Return z values of the means of $s_i$, of $z_is_i + 1$ and of $z\cdot s$ + dim.

    Standardising by the same draws moves them a little. Taking off the mean moves each $E[z_is_i]$ by 1 / ESS, and
    their sum, which no linear map changes, by dim / ESS; an estimated covariance moves each by up to dim / ESS. (The
    products' own ESS is at most twice the draws'.)

    $-z_is_i$ has mean 1 and is like a square: chains that happened to stay near the centre have a small mean and a
    small error bar. So a mean that is too small is compared on the logarithmic scale, if it is positive beyond doubt:
    that of scores which have nothing to do with the draws is not.
    """
    error = np.where(means.standard_error > 0, means.standard_error, np.inf)
    shift = np.repeat([0.0, dim + 1.0 if whitened else 2.0, 2.0 * dim], [dim, dim, 1]) / means.ess
    beyond = np.maximum(np.abs(means.mean) - shift, 0.0)
    unit = np.repeat([0.0, 1.0, dim], [dim, dim, 1])
    small = (means.mean > 0) & (unit - means.mean > DETAILS.positive * error)
    beyond[small] = -np.log1p(-(beyond / np.maximum(unit, 1.0))[small]) * (unit - means.mean)[small]
    constant = (means.standard_error == 0) & (np.abs(means.mean) > 1e-8)
    return np.where(constant, np.inf, np.sign(means.mean) * _as_normal(beyond / error, means.ess))


class Moved(NamedTuple):
    """For scores of the draw before and of the one after: how far beyond chance they fit better, 0 if they do not."""

    mean: np.ndarray
    z: np.ndarray


def moved_scores(samples: Samples, scale: np.ndarray) -> Moved:
    r"""Return whether the scores are those of a neighbouring draw. `scale`: of the coordinates, against overflow.

    In a slow chain the score of a neighbour is nearly right, and $E[z \cdot s]$ hardly tells. Steps do: with
    $\Delta z_t = z_{t+1} - z_t$, the mean of $\Delta z_t\cdot\Delta s_t$ is negative for scores in their place, and
    that of $\Delta z_t\cdot\Delta s_{t+1}$ or $\Delta z_t\cdot\Delta s_{t-1}$ for scores that were moved. Scores of the
    wrong sign, which are not meant here, make the first positive, by more than the others are negative.
    """
    draws = samples.draws.shape[1]
    if draws < DETAILS.fewest_to_order:
        return Moved(np.zeros(2), np.zeros(2))

    def columns(rows: slice) -> np.ndarray:
        dz = np.diff(samples.draws[:, rows] / scale, axis=1)
        ds = np.diff(samples.scores[:, rows] * scale, axis=1)
        here = (dz * ds).sum(axis=-1)
        before, after = (dz[:, :-1] * ds[:, 1:]).sum(axis=-1), (dz[:, 1:] * ds[:, :-1]).sum(axis=-1)
        return np.stack([here[:, :-1] - before, -here[:, :-1] - before, here[:, 1:] - after, -here[:, 1:] - after], -1)

    size = max(1, TILE // samples.chains)
    parts = [columns(slice(i, min(i + size, draws - 2) + 2)) for i in range(0, draws - 2, size)]
    means = average(np.concatenate(parts, axis=1), tails=False)
    t = np.divide(means.mean, means.standard_error, out=np.zeros(4), where=means.standard_error > 0)
    normal = np.maximum(_as_normal(t, means.ess), 0.0).reshape(2, 2).min(axis=1)
    return Moved(np.where(normal > 0, means.mean[::2], 0.0), normal)


def _as_normal(t: np.ndarray, ess: np.ndarray) -> np.ndarray:
    """Student's t on the degrees of freedom of an error bar, as the z value at the edge of alarm that is as rare."""
    tail = scipy.special.ndtr(-STEIN_LIMIT)
    return t * STEIN_LIMIT / -scipy.special.stdtrit(degrees_of_freedom(ess), tail)


def stein_status(samples: Samples) -> list[Status]:
    """Return an alarm if any Stein mean is too far from zero for correct input, or chains are copies."""
    check = stein_check(samples, beyond=STEIN_LIMIT)
    return stein_alarm(check.z, samples.dim, check.mean[2 * samples.dim]) + _copied_chains(samples)


def _copied_chains(samples: Samples) -> list[Status]:
    """Return an alarm if two chains have the same draws, of which the first, middle and last are compared first."""
    few = samples.draws[:, [0, samples.draws.shape[1] // 2, -1]].reshape(samples.chains, -1)
    _, first, which = np.unique(few, axis=0, return_index=True, return_inverse=True)
    for second, one in enumerate(first[which.reshape(-1)]):
        if second != one and np.array_equal(samples.draws[one], samples.draws[second]):
            return [Status.of(Code.COPIED_CHAINS, first=int(one), second=second)]
    return []


def status_of_stein_means(means: Average, moved: Moved, dim: int) -> list[Status]:
    """Return an alarm of means of whitened coordinates that are there already."""
    z = np.append(stein_z(means, dim, whitened=True), moved.z)
    if means.ess[:dim].min() < DETAILS.whitened * dim:  # the coordinates are mostly noise, on which their sum is not
        z[dim : 2 * dim] = 0.0
    return stein_alarm(z, dim, means.mean[2 * dim])


def stein_alarm(z: np.ndarray, dim: int, total: float) -> list[Status]:
    """Return an alarm if any of the z values of Stein means is too large; `total`: the mean of z . s + dim."""
    worst = int(np.argmax(np.abs(z)))
    if abs(z[worst]) <= STEIN_LIMIT:
        return []
    likely = (
        "scores of another density or in constrained coordinates without the Jacobian, a support with an edge, or "
        "chains that have not mixed"
    )
    if total > DETAILS.opposite * dim:
        likely = "the scores have the opposite sign, as the gradient of a potential (minus the log density) has"
    return [Status.of(Code.STEIN_MEAN, worst=stein_labels(dim)[worst], z=z[worst], likely=likely)]


# Values of f ---------------------------------------------------------------------------------------


def rhat_limit(chains: int, ess: np.ndarray) -> np.ndarray:
    r"""Return the split R-hat that chains which agree exceed once in a thousand outputs, from 1.01 to 1.1.

    The means of m half chains then vary as $m / \mathrm{ESS}$ of the variance within them, so that
    $(\hat R^2 - 1)\,\mathrm{ESS}\,(m - 1) / m$ is chi-squared with $m - 1$ degrees of freedom; two such numbers, of
    values and of their distances from the median, are looked at. docs/diagnostics.md has the table.
    """
    halves = 2 * chains
    far = scipy.special.chdtri(halves - 1, DETAILS.by_chance / 2)
    return np.clip(np.sqrt(1 + halves / (halves - 1) * far / ess), DETAILS.rhat, RHAT_LIMIT)


def limits_of_rhat(values: np.ndarray, rhat: np.ndarray) -> np.ndarray:
    """Return the limit of every output of `(chain, draw, out)`, whose R-hat is known.

    The effective size is that within chains, of values or of their distances from the median, whichever is less: chains
    that disagree would lower their own, and so raise the limit.
    """
    limits = np.full(len(rhat), DETAILS.rhat)
    doubtful = rhat > DETAILS.rhat
    if doubtful.any():
        unit = unit_range(values[..., doubtful]).unit
        both = np.concatenate([unit, np.abs(unit - np.median(unit, axis=(0, 1)))], axis=-1)
        ess = effective_draws(both - both.mean(axis=1, keepdims=True)).reshape(2, -1).min(axis=0)
        limits[doubtful] = rhat_limit(len(values), ess)
    return limits


def value_status(values: np.ndarray, ess: np.ndarray, *, two_valued: bool = False) -> list[list[Status]]:
    """Return what the values of f themselves say, for every output of `(chain, draw, out)`; two values have no tail."""
    rhat = split_rhat(values, two_valued=two_valued)
    khat = np.zeros(len(rhat)) if two_valued else tail_index(values)
    found = status_of_values(rhat, limits_of_rhat(values, rhat), khat, ess)
    chains, draws, _ = values.shape
    if chains > draws and short_chains(chains, draws):
        said = Status.of(Code.SHORT_CHAINS, chains=chains, draws=draws)
        found = [[*each, said] for each in found]
    return found


def status_of_values(rhat: np.ndarray, limit: np.ndarray, khat: np.ndarray, ess: np.ndarray) -> list[list[Status]]:
    """Return what R-hat with its limit, the tail index and the effective size of every output say."""
    statuses: list[list[Status]] = [[] for _ in rhat]
    for k, found in enumerate(statuses):
        if ess[k] < LOW_ESS:
            found.append(Status.of(Code.LOW_ESS, ess=ess[k]))
        if rhat[k] > limit[k]:
            found.append(Status.of(Code.CHAINS_DISAGREE, rhat=rhat[k], limit=limit[k]))
        if khat[k] > TAIL_LIMIT:
            found.append(Status.of(Code.HEAVY_TAIL, khat=khat[k], limit=TAIL_LIMIT))
    return statuses


def rare_draws_status(mean: Average, k: int) -> list[Status]:
    """Say whether draws that have not come may decide about output k.

    Few draws often carry an error bar, and the interval and the gain allow for that by the tail index. They cannot
    where those few stand apart or have no tail that could be fitted, or where the tails of f itself are long too.
    """
    carriers, tail = mean.carriers[k], mean.tail[k]
    few = carriers < min(DETAILS.carriers, DETAILS.share * mean.ess[k])
    least = DETAILS.freedom / (1 + FREEDOM.scarce / mean.ess[k])
    if not few or (np.isfinite(tail) and mean.degrees_of_freedom[k] >= least):
        return []
    return [Status.of(Code.RARE_DRAWS, carriers=carriers)]
