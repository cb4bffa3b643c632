r"""The log normalising constant of a posterior from one run: bridge sampling, both of its sides with control variates.

With q a normalised proposal, $u = \log p - \log q$ and $\sigma$ the logistic function, for any constant C

$$ \log Z = C + \log E_q[\sigma(u - C)] - \log E_{p}[\sigma(C - u)], $$

means of bounded smooth functions. Proposals are fitted to the training chains of every fold and used at its test
chains. Each fold has its own q, and the identity holds for the means over folds as well.
"""

import functools
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float

from ..estimating import enough, estimate
from ..families.method import Method
from ..families.monte_carlo import MonteCarlo
from ..families.polynomial.polynomial import Polynomial, feature_count
from ..judging.diagnostics import LOW_ESS, RHAT_LIMIT, Code, Status, rare_draws_status
from ..judging.error_bars import Average, as_slow_as, average, split_rhat
from ..result import Estimate
from ..runtime.validation import InputError, whole_number
from ..samples.log_density import LogDensity
from ..samples.samples import Samples
from ..samples.streamed import refuse_streamed
from ..stein.coordinates import Standardise, check_standard
from ..stein.folds import Fold, make_folds
from ..stein.orbits import check_model
from .parts import log_evidence_of, mean_of, method_and_seed
from .proposal import Family, families


class Settings(NamedTuple):
    """What is spent on proposals, and when they are too far from the posterior."""

    # Proposals for every posterior draw, and at most so many: they are independent, and cost a density each.
    proposals: int = 8
    most: int = 64_000
    # The answer with the shortest interval of this level, that of three errors, wins: of two, without control variates
    # and with them. Of six, with four C and the classic proposal too, the shortest was mostly one that is too short:
    # on slow chains with the tails of t(5) 84 % were within three errors, with two 96 %, at a third of the error.
    sure: float = 0.997
    # A quadratic on the proposal side needs so many draws a feature. With 2, conjugate regressions in 30 to 50
    # dimensions took 5 to 25 times as long for error bars that differed by less than 1 %.
    per_feature: int = 8
    # Proposals of one fold are judged as so many chains.
    batches: int = 4
    # Effective draws in the overlap, fewer of which are told; a choice, not measured.
    overlapping: float = 50.0
    # Round-off of a log density, in units of its last digit.
    round_off: float = 64.0


SETTINGS = Settings()


def bridge(
    samples: Samples,
    log_density: Any = None,
    seed: int = 0,
    *,
    method: Method | None = None,
    proposals: int | None = None,
    folds: int | None = None,
) -> Estimate:
    r"""Return the log normalising constant of a posterior, the log evidence, from the draws of one run.

    **Arguments:**

    - `samples`: draws and scores in unconstrained coordinates.
    - `log_density`: the log of likelihood times prior, with all constants and the log Jacobian of the change to
      unconstrained coordinates: a function of one vector as `Samples` takes it; `samples.log_density` if not given.
    - `seed`: same seed and draws, same answer; for other draws the same seed gives proposals of their own.
    - `method`: a family for the posterior side; `Auto()` if not given.
    - `proposals`: how many points the model is asked at besides the draws; if not given, eight times the draws, at
      most 64,000.
    - `folds`: as in `estimate`.

    `plain` is bridge sampling as it is known: a normal proposal with the mean and covariance of the other chains, as
    many proposals as draws, and no control variates. `info["overlap"]` is 1 where the proposal is the posterior, and
    near 0 where neither has draws that the other could have made; a status says so.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> result = scv.bridge(scv.Samples(x, -x), lambda x: (-0.5 * x @ x, -x))
    >>> bool(abs(result.mean - np.log(2 * np.pi)) < 1e-9)
    True

    Reference: Meng, Wong (1996), Statistica Sinica 6; Meng, Schilling (2002), J. Comput. Graph. Stat. 11.
    """
    start = time.perf_counter()
    refuse_streamed(samples, "bridge")
    if samples.log_weights is not None:
        raise InputError("`samples` have `log_weights`: a bridge needs draws of the posterior. See smc_evidence.")
    method, seed = method_and_seed(method, seed)
    chains, draws, dim = samples.draws.shape
    enough("`samples` holds", chains, draws)
    model = samples.log_density if log_density is None else LogDensity.of(log_density, samples.draws[0, 0])
    if model is None:
        raise InputError(
            "`log_density` is needed: `samples` does not know its model. Give a function of one unconstrained vector "
            "that JAX can differentiate, or that returns value and gradient: log likelihood, prior and Jacobian."
        )
    check_standard(samples)
    flat = samples.draws.reshape(-1, dim), samples.scores.reshape(-1, dim)
    before = model.spent[0]
    check_model(*flat, model, Standardise.of(samples).scale)
    value = model(flat[0]).value.reshape(chains, draws)
    if not np.isfinite(value).all():
        raise InputError(
            f"`log_density` is not finite at {int((~np.isfinite(value)).sum())} of the {value.size} draws: it is not "
            f"the density they are of."
        )
    plan = make_folds(chains, draws, folds)
    count = min(SETTINGS.proposals * samples.size, SETTINGS.most) if proposals is None else proposals
    count = whole_number("proposals", count, 4 * SETTINGS.batches * len(plan))
    found = families(Samples.trusted(samples.draws, samples.scores, samples.names), value, plan)
    best = min(found, key=lambda family: family.held_out(plan))
    # the draws choose proposals too: with those of one seed alone the errors of two runs would not be independent
    order = np.argsort(samples.draws[..., 0], axis=None, kind="stable")  # the same in all units
    rng = np.random.default_rng([seed, zlib.crc32(order.tobytes())])
    classic = _Sides.of(found[0], plan, model, rng, samples.size)
    sides = _Sides.of(best, plan, model, rng, count)
    plain = classic.plain()
    floor = SETTINGS.round_off * np.finfo(float).eps * (np.abs(value).max() + dim)
    answer, statuses = _judge(samples, value, plain, sides, method, seed, floor)
    half = draws // 2
    info = {
        "proposal": sides.name,
        "proposals": sides.proposed.size,
        "overlap": sides.overlap(),
        "classic_overlap": classic.overlap(),
        "shift": answer.shift,
        "posterior_error": answer.posterior_error,
        "proposal_error": answer.proposal_error,
        "halves": [float(part.mean()) for part in (answer.series[:, :half], answer.series[:, -half:])],
        "not_finite": int(np.isneginf(sides.proposed).sum()),
        "densities": model.spent[0] - before,
        "seconds": time.perf_counter() - start,
    }
    averages = plain.widened(floor), answer.widened(floor)
    return log_evidence_of((plain.series, answer.series), averages, answer.method, statuses, info)


@dataclass(frozen=True, eq=False)
class _Answer:
    """A log normalising constant, as the mean of a series of posterior draws; the error holds the proposal side too."""

    average: Average
    series: Float[np.ndarray, "chain draw"]
    shift: float
    posterior_error: float
    proposal_error: float
    method: str

    @property
    def error(self) -> float:
        return float(self.average.standard_error)

    def widened(self, floor: float) -> Average:
        """Return the average with the round-off of the log density in its error bar."""
        error = np.hypot(self.average.standard_error, floor)
        return replace(self.average, standard_error=np.asarray(error))


@dataclass(frozen=True, eq=False)
class _Sides:
    """u of every fold's proposal: at all draws, and at proposals z."""

    name: str
    folds: Sequence[Fold]
    ratio: Float[np.ndarray, "fold chain draw"]
    z: Float[np.ndarray, "fold m dim"]
    proposed: Float[np.ndarray, "fold m"]

    @classmethod
    def of(
        cls, family: Family, folds: Sequence[Fold], model: LogDensity, rng: np.random.Generator, count: int
    ) -> "_Sides":
        each = -(-count // (len(folds) * SETTINGS.batches)) * SETTINGS.batches
        dim = len(family.proposals[0].coordinates.mean)
        z = rng.normal(size=(len(folds), each, dim))
        proposed = [q.ratio_from(points, model) for q, points in zip(family.proposals, z, strict=True)]
        return cls(family.name, folds, family.ratio, z, np.stack(proposed))

    @functools.cached_property
    def at_draws(self) -> Float[np.ndarray, "chain draw"]:
        """u at every draw, from the proposal that has not seen it."""
        return self.own(self.ratio)

    def own(self, at_draws: Float[np.ndarray, "fold chain draw"]) -> Float[np.ndarray, "chain draw"]:
        """Return what is known at every draw from the proposal that has not seen it."""
        found = np.zeros(at_draws.shape[1:])
        for fold, each in zip(self.folds, at_draws, strict=True):
            fold.test.put(found, fold.test.take(each))
        return found

    @property
    def ess(self) -> float:
        """The effective size of u at the draws."""
        return float(mean_of(self.at_draws).ess)

    def balance(self, odds: float) -> float:
        """Return the C that is best if the posterior side is known `odds` times as well as the proposal side."""
        proposed = self.proposed[np.isfinite(self.proposed)]
        if not len(proposed):
            raise InputError(
                f"`log_density` is finite at none of {self.proposed.size} proposals around the draws: there is nothing "
                f"to bridge. Are the coordinates unconstrained?"
            )
        share = len(proposed) / self.proposed.size

        def difference(shift: float) -> float:
            posterior = scipy.special.expit(shift - self.at_draws).mean()
            return float(odds * posterior - share * scipy.special.expit(proposed - shift).mean())

        both = np.concatenate([self.at_draws.ravel(), proposed])
        margin = abs(np.log(odds)) + abs(np.log(share)) + 40.0
        return float(scipy.optimize.bisect(difference, both.min() - margin, both.max() + margin, maxiter=3000))

    def overlap(self) -> float:
        r"""Return $\int 2 p q / (p + q)$: 1 if they are the same, 0 if they have nothing in common."""
        return float(min(2 * scipy.special.expit(self.balance(1.0) - self.at_draws).mean(), 1.0))

    def plain(self) -> _Answer:
        """Return the answer without control variates."""
        shift = self.balance(self.ess / self.proposed.size)
        proposed = scipy.special.expit(self.proposed - shift)
        sides = [average(side.reshape(SETTINGS.batches, -1, 1)) for side in proposed]
        found = self.answer(shift, scipy.special.expit(shift - self.at_draws), sides, "plain")
        assert found is not None  # both sides are positive
        return found

    def answer(
        self, shift: float, posterior: Float[np.ndarray, "chain draw"], sides: Sequence[Average], method: str
    ) -> _Answer | None:
        """Join the two sides, of draws and of every fold's proposals; None if a control variate made one negative."""
        share = np.array([fold.test.size for fold in self.folds]) / posterior.size
        means = np.array([float(side.mean[0]) for side in sides])
        above, below = share @ means, posterior.mean()
        if not (above > 0 and below > 0):
            return None
        value = shift + np.log(above) - np.log(below)
        # folds have different proposals, so means of their own, which is no error: take each one's off
        expected = means * below / above
        away = (posterior - self.own(np.broadcast_to(expected[:, None, None], self.ratio.shape))) / below
        plain = average(scipy.special.expit(shift - self.at_draws)[..., None])
        side = as_slow_as(plain, average(away[..., None]), away[..., None])
        errors = share * np.array([float(side.standard_error[0]) for side in sides]) / above
        squares = np.append(errors**2, side.standard_error[0] ** 2)
        freedom = np.array([float(each.degrees_of_freedom[0]) for each in [*sides, side]])
        total = squares.sum()
        joint = total**2 / (squares**2 / freedom).sum() if total > 0 else freedom[-1]
        found = Average(*map(np.asarray, (value, np.sqrt(total), side.ess[0], side.error_ess[0], joint)))
        own_errors = float(side.standard_error[0]), float(np.sqrt((errors**2).sum()))
        return _Answer(found, value - away, shift, *own_errors, method)


def _judge(
    samples: Samples, value: np.ndarray, plain: _Answer, sides: _Sides, method: Method, seed: int, floor: float
) -> tuple[_Answer, list[Status]]:
    """Return the answer with control variates, or that without if it is known better, and what is to be said."""
    simple = replace(sides.plain(), method=f"{sides.name} proposal")
    answers = [simple]
    said: list[Status] = []
    if simple.error > floor:  # else the proposal is the posterior, and nothing is left to control
        posterior, said = _posterior_side(samples, sides, simple.shift, method, seed)
        proposal = [_proposal_side(z, u - simple.shift, seed) for z, u in zip(sides.z, sides.proposed, strict=True)]
        found = sides.answer(simple.shift, posterior, proposal, str(method))
        answers += [] if found is None else [found]
    best = _best(answers)
    exact = best.error <= floor
    statuses: list[Status] = []
    if plain.average.ess < LOW_ESS and not exact:
        statuses.append(Status.of(Code.LOW_ESS, ess=float(plain.average.ess)))
    if (rhat := float(split_rhat(value[..., None])[0])) > RHAT_LIMIT:
        statuses.append(Status.of(Code.CHAINS_DISAGREE, rhat=rhat, limit=RHAT_LIMIT))
    overlap = sides.overlap()
    if (draws := overlap * sides.ess) < SETTINGS.overlapping:
        statuses.append(Status.of(Code.LOW_OVERLAP, overlap=overlap, draws=draws))
    statuses += [s for s in said if s.code in (Code.STEIN_MEAN, Code.TOO_MANY_FEATURES)]
    if exact:
        return best, [*statuses, Status.of(Code.EXACT, spread=best.error)]
    return best, statuses + rare_draws_status(best.average.reshape((1,)), 0)


def _best(answers: Sequence[_Answer]) -> _Answer:
    """Return the answer with the shortest interval: the smallest of several errors is mostly one that is too small."""
    return min(answers, key=lambda each: each.error * float(each.average.half_width(SETTINGS.sure)))


def _posterior_side(
    samples: Samples, sides: _Sides, shift: float, method: Method, seed: int
) -> tuple[Float[np.ndarray, "chain draw"], list[Status]]:
    """Return controlled draws of the bounded function, each draw's own fold's, and what was said.

    The function of each fold is an output of its own: g is fitted to it on that fold's training draws.
    """
    values = np.moveaxis(scipy.special.expit(shift - sides.ratio), 0, 2)
    known = Samples.trusted(samples.draws, samples.scores, samples.names)
    result = estimate(known, values, method, seed=seed, folds=len(sides.folds))
    said = {s.code: s for found in result.status for s in found}
    return sides.own(np.moveaxis(result.controlled, 2, 0)), list(said.values())


def _proposal_side(z: Float[np.ndarray, "m dim"], u: Float[np.ndarray, " m"], seed: int) -> Average:
    """Return the mean of the bounded function over proposals, controlled: their score in z is -z."""
    m, dim = z.shape
    degree = next((d for d in (2, 1) if SETTINGS.per_feature * feature_count(dim, d) <= m), None)
    batches = z.reshape(SETTINGS.batches, -1, dim)
    values = scipy.special.expit(u).reshape(SETTINGS.batches, -1, 1)
    method = MonteCarlo() if degree is None else Polynomial(degree)
    names = tuple(f"z[{i}]" for i in range(dim))
    return estimate(Samples.trusted(batches, -batches, names), values, method, seed=seed)._average
