"""The default: stack what can help, and spend in proportion to what can be gained."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..judging.diagnostics import RACED
from ..judging.verdict import gain_limit
from ..stein.coordinates import Standardise
from .budget import LIMITS, Stage, plan
from .method import Control, CrossFit, Kind, Member, Method, Problem, Simpler, Term, Training, WeightedSum
from .racing import race
from .spectral import draws_per_effective, windows_of
from .stack import Stack, combine


@dataclass(frozen=True)
class Auto(Method):
    """Stacks the plain mean, polynomials, a kernel and networks; which of them is decided by draws and dimension.

    Members come in stages, cheapest first (`budget.plan`). Outputs that one of them already solves to round-off are
    not fitted again. Dear members are raced on the first fold; those that the others make up for go no further.
    Members are fitted in affine and, where the scores show a shape, in learned coordinates; in many dimensions the
    dearer ones, for each output, only in those that suited its closed forms better. A network has units in both.
    `result.info["members"]` lists weights, out-of-fold variance ratios and seconds.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> result = scv.estimate(scv.Samples(x, -x), np.tanh(x[..., 0]), scv.Auto())
    >>> bool(result.variance_ratio < 0.1)
    True
    """

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        n, dim = problems[0].z.shape
        stages = plan(n, dim, problems[0].y.shape[1]).stages
        return Stack([entry.method for stage in stages for entry in stage.entries]).solve(problems, seed)

    def across(self, training: Training) -> CrossFit:
        start = time.perf_counter()
        f = training.f
        left = {kind: np.ones(f.shape[-1]) for kind in _kinds(training)}
        members: list[Member] = []
        fits: list[CrossFit] = []
        closed = 0
        slowness = draws_per_effective(f)
        slow = bool((slowness >= LIMITS.slow).any())
        steps, dim = training.base is not None, training.draws.shape[-1]
        planned = plan(training.fewest, dim, f.shape[-1], slow, steps, training.states)
        left_out = list(planned.left_out)
        limit = gain_limit(f.shape[0] * f.shape[1] / slowness)
        for stage in planned.stages:
            asked = _asked(stage, left)
            before = np.min(list(left.values()), axis=0)
            if stage.closed or stage.clearly:
                found = list(zip(asked, training.fit(asked), strict=True))
            else:
                found, dropped = race(training, asked, fits)
                left_out += [(str(member), RACED) for member in dropped]
            for member, fit in found:
                # members beside this one may have solved some outputs to round-off
                outputs = np.arange(f.shape[-1])[member.outputs]
                wanted = np.min(list(left.values()), axis=0)[outputs] > stage.above
                if stage.clearly:
                    wanted &= _ratio(training, fit.g, outputs) < (limit * before)[outputs]
                if not wanted.any():
                    continue
                g = fit.g
                if not wanted.all() or len(outputs) < f.shape[-1]:
                    g = np.zeros_like(f)
                    g[..., outputs[wanted]] = fit.g[..., wanted]
                fits.append(CrossFit(g, fit.info, fitted=_of_all(member, fit, wanted, f.shape[-1])))
                members.append(member)
                closed += stage.closed
                if member.kind in left:
                    np.minimum(left[member.kind], _ratio(training, g), out=left[member.kind])
        names = [str(member) for member in members]
        windows = np.where(slowness >= LIMITS.slow, windows_of(slowness, f.shape[1]), 1) if slow else None
        stacked = combine(names, fits, f, training.folds, start, LIMITS.within, windows)
        if left_out:
            stacked = replace(stacked, info={**stacked.info, "left_out": tuple(left_out)})
        if training.fewest < LIMITS.some:
            return stacked
        return replace(stacked, simpler=_best(stacked, names[:closed], fits))


def _kinds(training: Training) -> list[Kind]:
    """Return the kinds of coordinates that members are fitted in: learned ones where the scores of a fold show any."""
    if training.coordinates != "auto":
        return ["learned" if training.coordinates == "learned" else "affine"]
    training.prepare(["affine", "learned"])
    found = (training.problem(k, "learned").coordinates for k in range(len(training.folds)))
    return ["affine"] if all(isinstance(c, Standardise) for c in found) else ["affine", "learned"]


def _asked(stage: Stage, left: Mapping[Kind, np.ndarray]) -> list[Member]:
    """Return a stage's members with the outputs and coordinates that each is to be fitted to."""
    shares = np.array(list(left.values()))
    unsolved = shares.min(axis=0) > stage.above
    best = shares.argmin(axis=0)
    asked = []
    two = len(left) > 1
    for entry in stage.entries:
        for k, kind in enumerate(left if entry.apart or not two else ()):
            outputs = np.flatnonzero(unsolved if stage.everywhere else unsolved & (best == k))
            if len(outputs):
                asked.append(Member(entry.method, entry.usual if kind == "affine" else entry.learned, outputs))
        if entry.both and two and unsolved.any():
            asked.append(Member(entry.method, "both", np.flatnonzero(unsolved)))
    return asked


def _of_all(member: Member, fit: CrossFit, wanted: np.ndarray, outputs: int) -> list[WeightedSum]:
    """Return the kept g of every fold as functions of all outputs, zero where the member is not wanted."""
    return [WeightedSum([Term(g, 1.0 * wanted, member.outputs)], outputs) for g in fit.fitted]


def _best(stacked: CrossFit, names: Sequence[str], fits: Sequence[CrossFit]) -> Simpler:
    """Return of each output the closed form that leaves least: a kernel or network can be far out at a draw or two."""
    ratios = np.array([stacked.info["members"][k]["variance_ratio"] for k in range(len(names))])
    best = ratios.argmin(axis=0)
    g = np.stack([fits[k].g[..., out] for out, k in enumerate(best)], axis=-1)
    folds = range(len(fits[0].fitted))
    kept = [
        WeightedSum([Term(fits[k].fitted[fold], 1.0 * (best == k)) for k in range(len(names))], len(best))
        for fold in folds
    ]
    return Simpler(g, tuple(names[k] for k in best), kept)


def _ratio(training: Training, g: np.ndarray, outputs: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Return the out-of-fold variance of f + g over that of f, at the draws that are judged, for those outputs of f."""
    tests = [fold.test for fold in training.folds]
    whole = sum(test.size for test in tests) == training.f.shape[0] * training.f.shape[1]
    f, g = (training.f, g) if whole else (tests[0].take(training.f), tests[0].take(g))
    f = f[..., outputs]
    size = np.abs(f).max(axis=(0, 1))
    unit = np.where(size > 0, size, 1.0)  # squares of f itself could overflow
    before, after = (f / unit).var(axis=(0, 1)), ((f + g) / unit).var(axis=(0, 1))
    return np.divide(after, before, out=np.zeros_like(after), where=before > 0)
