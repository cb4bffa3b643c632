"""How a shallow potential is fitted: polynomial first, Adam to find units, Gauss-Newton for the best, heads last.

All of it is NumPy with closed-form gradients: it starts at once, needs no compiler, and gives the same bits for any
number of threads, since every problem is fitted by one thread with one thread of BLAS.

A problem in two systems of coordinates gets half of the units in each, and one regression on all of them: that costs
what one system does, and left .8 of what two networks of whole size left in the stack (eight schools, funnel).
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...runtime.threads import blas_threads, side_by_side
from ..method import Control, Problem
from ..polynomial.polynomial import feature_count, feature_degrees, polynomial_features
from ..polynomial.ridge import ridge
from ..polynomial.slow import fit_slow
from ..problem import systems
from .descent import Schedule, train
from .directions import Few, hints, mixing
from .heads import Heads, Sums, solve_heads
from .refinement import Draws, choose, refine
from .stretch import Stretch
from .units import Units, features, joined


class Plan(NamedTuple):
    """How many units there are, the share of them that begins along `hints`, how they are trained and refined.

    Fewer units and steps are cheaper and leave more: eight schools with 200 and 300, over 20 sets of draws, took .8
    times the processor time and left 1.07 times the variance. Half as many steps of twice the draws, as here, left as
    much as 400 of 128.

    Refined are copies of the `refined` best units, in the `directions` that these use most, along a path of
    `penalties` with so many `refinements` at each.
    """

    width: int = 300
    hinted: float = 0.25
    schedule: Schedule = Schedule(steps=200, batch=256, rate=3e-2, penalty=2e-3)
    refined: int = 0
    directions: int = 10
    penalties: tuple[float, ...] = (1e-4, 1e-6)
    refinements: int = 12


class Sizes(NamedTuple):
    """How much data is used at a time.

    - `few_outputs`: few units can follow so many outputs very far. What more outputs share is found by more units as
      they are trained: refined ones added little there, and were wild at rare draws of hierarchical models.
    - `unit_draws`: that units are fitted on. They have few weights: more draws make their fit slower, not better.
    - `head_draws`: from which on the heads' regression looks at evenly spaced ones.
    - `piece`: draws at which g is evaluated at a time, so that memory does not grow with them.
    - `noise`: how far a hinted unit starts off its hints, in units of a random start.
    - `features_per_draw`: more polynomials than this beside the units cost more than they bring.
    """

    few_outputs: int = 3
    unit_draws: int = 4000
    head_draws: int = 40_000
    piece: int = 4096
    noise: float = 0.2
    features_per_draw: float = 1 / 8


SIZES = Sizes()
MANY = Plan()
FEW = MANY._replace(width=160, refined=20)


def fit_potentials(
    problems: Sequence[Problem],
    seed: int,
    *,
    width: int | None = None,
    degree: int | None = None,
    objective: str = "variance",
) -> list[Control]:
    """Fit every problem, as if it were alone, in as many threads as the user allows.

    **Arguments:**

    - `width`: units that are trained for all outputs together; fewer where there are few draws.
    - `degree`: of the polynomial beside them, by default what the draws can carry.
    - `objective`: what the heads make small, as in `Polynomial`: "variance" or "spectral".
    """
    plan = choose_plan(problems[0].y.shape[1])
    if width is not None:
        plan = plan._replace(width=width, refined=min(plan.refined, width))
    return side_by_side(
        [functools.partial(_fit, problem, seed, plan, degree, objective) for problem in problems], work=0.0
    )


def choose_plan(outputs: int) -> Plan:
    """Return the plan for so many outputs."""
    return FEW if outputs <= SIZES.few_outputs else MANY


def skip_degree(draws: int, dim: int) -> int:
    """Return the degree of the polynomial that this many draws can carry beside the units."""
    return 2 if feature_count(dim, 2) <= SIZES.features_per_draw * draws else 1 if dim <= draws else 0


class _View(NamedTuple):
    """What is looked at of one system of coordinates, and which polynomials stand beside the units there.

    Rotations join a quadratic, unless the user gave its degree: eight schools 1.4 times the gain.
    """

    few: Few
    dim: int
    degree: int
    turning: bool

    @classmethod
    def of(cls, problem: Problem, degree: int | None) -> "_View":
        n, dim = problem.z.shape
        few = Few.of(problem)
        dim = dim if few.directions is None else len(few.directions)
        found = skip_degree(n, dim) if degree is None else degree
        return cls(few, dim, found, turning=degree is None and found == 2)

    def polynomials(self, z: np.ndarray, s: np.ndarray) -> np.ndarray:
        return polynomial_features(z, s, self.degree, self.turning)

    def degrees(self) -> np.ndarray:
        return feature_degrees(self.dim, self.degree, self.turning)


class _Net(NamedTuple):
    """The units in one system of coordinates, and how it is stretched for them."""

    view: _View
    stretch: Stretch
    units: Units

    def features(self, z: np.ndarray, s: np.ndarray) -> np.ndarray:
        return features(self.units, *self.stretch(z, s))


def validation_draws(n: int, chains: int) -> np.ndarray:
    """A fifth of the draws: the middle of every chain, whose neighbours are few."""
    length = n // chains
    held = np.zeros((chains, length), dtype=bool)
    size = max(1, length // 5)
    start = (length - size) // 2
    held[:, start : start + size] = True
    return held.reshape(-1)


def pad(x: np.ndarray, rows: int) -> np.ndarray:
    """Zeros after the last draw, so that problems of nearly the same length go into one array."""
    return np.pad(x, [(0, rows - len(x)), *[(0, 0)] * (x.ndim - 1)])


@blas_threads(0)  # sums must not depend on how many threads there are
def _fit(problem: Problem, seed: int, plan: Plan, degree: int | None, objective: str) -> Control:
    n = len(problem.z)
    rows: slice | np.ndarray = slice(None, None, -(-n // SIZES.head_draws))
    if objective == "spectral":  # chains must stay equally long
        rows = np.arange(n).reshape(problem.chains, -1)[:, rows].ravel()
    held = validation_draws(n, problem.chains)[rows]
    y = problem.y[rows]
    views = [_View.of(one, degree) for one in problem.views()]
    seen = [view.few(one.z[rows], one.s[rows]) for view, one in zip(views, problem.views(), strict=True)]
    x = np.hstack([view.polynomials(*at) for view, at in zip(views, seen, strict=True)])
    kinds = np.concatenate([view.degrees() for view in views])
    penalties, left = _polynomial(x, y, held, kinds)
    plan = plan._replace(width=plan.width // len(views), refined=plan.refined // len(views))
    rng = np.random.default_rng(seed)
    nets = []
    for view, at in zip(views, seen, strict=True):
        stretch = Stretch.of_scores(at[1])
        draws = Draws(*stretch(*at), x, y)
        nets.append(_Net(view, stretch, _find_units(draws, left, held, penalties, plan, rng)))
    columns = np.hstack([x, *(net.features(*at) for net, at in zip(nets, seen, strict=True))])
    if objective == "spectral":
        heads = _spectral_heads(columns, y, kinds, problem.chains)
    else:
        heads = solve_heads(columns, y, held, penalties, left[held].var(axis=0))
    info = {
        "features": x.shape[1],
        "draws": n,
        "units": sum(len(net.units.b) for net in nets),
        "directions": sum(view.dim for view in views),
        "penalty": heads.penalty.tolist(),
        "validation_error": heads.error.tolist(),
    }
    return Control(functools.partial(_evaluate, nets, heads.coefficients), info)


def _spectral_heads(columns: np.ndarray, y: np.ndarray, degree: np.ndarray, chains: int) -> Heads:
    """Return the coefficients for which the mean over the chains varies least; units count as one degree more."""
    size = np.sqrt((columns**2).mean(axis=0))
    size = np.where(size > 0, size, 1.0)
    kinds = np.full(columns.shape[1], degree.max(initial=0) + 1)
    kinds[: len(degree)] = degree
    fit = fit_slow(columns / size, y, kinds, "auto", chains)
    return Heads(fit.coefficients / size[:, None], fit.penalty, fit.leave_one_out)


def _polynomial(x: np.ndarray, y: np.ndarray, held: np.ndarray, degree: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return one penalty per feature, for all outputs, and what a regression with it on all but `held` draws leaves."""
    if not len(degree):
        return np.zeros(0), y - y[~held].mean(axis=0)
    fit = ridge(x[~held], y[~held] @ mixing(y[~held]), degree, "auto")
    # One penalty for all outputs, since they share the factorisation: the middle one.
    penalties = max(float(np.median(fit.penalty)), 1e-9) * np.median(fit.growth) ** (degree - 1.0)
    moments = Sums.of(x[~held], y[~held]).moments()
    return penalties, y - y[~held].mean(axis=0) - (x - moments.mean) @ moments.solve(penalties)


def _find_units(
    draws: Draws, left: np.ndarray, held: np.ndarray, ridge: np.ndarray, plan: Plan, rng: np.random.Generator
) -> Units:
    """Return trained units and, where the plan says so, refined copies of the best of them.

    What the polynomial leaves, `left`, is the unit in which every output counts: a factor gained is a factor gained.
    """
    thin = -(-len(held) // SIZES.unit_draws)
    train_rows, valid_rows = np.flatnonzero(~held)[::thin], np.flatnonzero(held)[::thin]
    left = left[train_rows]
    spread = np.sqrt((left**2).mean(axis=0))
    unit = 1 / np.where(spread > 1e-9, spread, np.inf)
    mix = unit[:, None] * mixing(left * unit)
    left = left @ mix
    part, valid = (d._replace(y=d.y @ mix) for d in (draws.take(train_rows), draws.take(valid_rows)))
    n, dim = part.z.shape
    width = max(2, min(plan.width, len(held) // 4))
    start = _start(rng, width, dim, plan.hinted, hints(part.z, part.y, left))
    schedule = plan.schedule._replace(batch=min(plan.schedule.batch, max(16, n // 4)))
    units = train(start, part.z, part.s, left, schedule, rng)
    if not plan.refined:
        return units
    best = units.take(choose(features(units, part.z, part.s), left, min(plan.refined, width)))
    among = _most_used(best, part.z, part.s, left, plan.directions)
    along = Units(best.w @ among.T, best.b)
    part, valid = (d._replace(z=d.z @ among.T, s=d.s @ among.T) for d in (part, valid))
    refined = refine(along, part, valid, ridge, plan.penalties, plan.refinements)
    return joined([units, Units(refined.w @ among, refined.b)])


def _start(rng: np.random.Generator, width: int, dim: int, hinted: float, given: np.ndarray) -> Units:
    """Return random units, the first of them random mixtures of the given directions."""
    w = rng.normal(size=(width, dim)) / np.sqrt(dim)
    count = int(width * hinted)
    w[:count] = rng.normal(size=(count, len(given))) @ given + SIZES.noise * w[:count]
    return Units(w, rng.normal(size=width))


def _most_used(units: Units, z: np.ndarray, s: np.ndarray, y: np.ndarray, count: int) -> np.ndarray:
    """Return orthonormal directions, `(direction, dim)`: all, or those that the units use most to fit y."""
    dim = units.w.shape[1]
    if dim <= count:
        return np.eye(dim)
    heads = np.linalg.lstsq(features(units, z, s), y, rcond=None)[0]
    weighted = units.w * np.sqrt((heads**2).sum(axis=1))[:, None]
    return np.linalg.svd(weighted, full_matrices=False)[2][:count]


def _evaluate(nets: Sequence[_Net], coefficients: np.ndarray, z: np.ndarray, s: np.ndarray) -> np.ndarray:
    g = np.empty((len(z), coefficients.shape[1]))
    for start in range(0, len(z), SIZES.piece):
        rows = slice(start, start + SIZES.piece)
        here = systems(z[rows], s[rows], len(nets))
        seen = [(net, net.view.few(*at)) for net, at in zip(nets, here, strict=True)]
        columns = [*(net.view.polynomials(*at) for net, at in seen), *(net.features(*at) for net, at in seen)]
        g[rows] = -np.hstack(columns) @ coefficients
    return g
