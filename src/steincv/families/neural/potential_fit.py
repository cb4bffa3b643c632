"""How a shallow potential is fitted: polynomial first, Adam to find the basin, Gauss-Newton to finish, heads last."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...runtime.memory import reserve
from ..method import Control, Problem
from ..polynomial.hermite import degrees, feature_count, stein_features
from ..polynomial.ridge import ridge
from .stretch import Stretch

# Penalties on trunk and heads, in units of what the polynomial leaves, walked from large to small.
PENALTIES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


class Plan(NamedTuple):
    """Penalties on the weights of the starts (one each), and how many of the starts are kept and refined how often.

    `hinted`: the share of each start's units that begin along `hints`.
    """

    width: int
    penalties: tuple[float, ...]
    hinted: tuple[float, ...]
    steps: int
    rate: float
    members: int
    refinements: int


NARROW = Plan(
    width=20,
    penalties=(3e-3,) * 6 + (1e-3,) * 2,
    hinted=(0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0),
    steps=1000,
    rate=2e-2,
    members=3,
    refinements=10,
)
WIDE = Plan(width=160, penalties=(1e-5, 2e-3), hinted=(0.25,) * 2, steps=1000, rate=1e-2, members=2, refinements=0)
# At most this many hints of each kind.
HINTS = 3
FEW_OUTPUTS, FEWEST_UNITS = 3, 8
# The trunk has few parameters: more draws than this make its fit slower, not better. The heads use them all.
TRUNK_DRAWS = 4000
# A Gauss-Newton step solves for all weights of the trunk at once; beyond this many Adam has to do.
TRUNK_WEIGHTS = 800
# Members whose validation error is within this factor of the best are averaged.
CLOSE = 1.5
# Penalties below this over the number of draws are not used: few validation draws cannot tell wild fits from good ones.
LEAST = 3e-3


def fit_potentials(
    problems: Sequence[Problem], seed: int, *, width: int | None = None, degree: int | None = None
) -> list[Control]:
    """Fit all problems in one compiled program each for the warm start and for Gauss-Newton.

    One or few outputs: several narrow trunks, refined by Gauss-Newton. Many outputs: a wide trunk that they share,
    whose linear part is solved exactly; there is then little that Gauss-Newton adds for its cost.
    """
    import jax
    import jax.numpy as jnp

    from .gauss_newton import Data, fit_paths
    from .warm_start import warm_starts

    dim, outputs = problems[0].z.shape[1], problems[0].y.shape[1]
    fewest = min(len(p.z) for p in problems)
    degree = skip_degree(fewest, dim) if degree is None else degree
    plan = choose_plan(dim, outputs)
    width = plan.width if width is None else width
    width = max(2, min(width, fewest // 4, TRUNK_WEIGHTS // (dim + 1) if plan.refinements else width))
    prepared = [_prepare(p, degree) for p in problems]
    rows = max(len(p["z"]) for p in prepared)
    weights = width * (dim + 1)
    reserve(
        f"A potential with {width} units on {rows} draws in {dim} dimensions",
        8.0 * (4 * rows * weights + 6 * weights**2 + len(problems) * rows * (3 * dim + feature_count(dim, degree))),
        "Use a smaller width.",
    )
    stack = {name: np.stack([pad(p[name], rows) for p in prepared]) for name in ("z", "s", "x", "y", "train", "valid")}
    stack["ridge"] = np.stack([p["ridge"] for p in prepared])
    residual = np.stack([pad(p["residual"], rows) for p in prepared])
    keys = jax.random.split(jax.random.key(seed), len(problems))
    with jax.default_matmul_precision("highest"):
        single = Data(**{k: jnp.asarray(v, jnp.float32) for k, v in stack.items()})
        batch = int(min(128, max(16, fewest // 4)))
        penalties = jnp.asarray(plan.penalties, jnp.float32)
        left = jnp.asarray(residual, jnp.float32)
        given = jnp.asarray(np.stack([p["hints"] for p in prepared]), jnp.float32)
        hinted = jnp.asarray(np.arange(width) < width * np.array(plan.hinted)[:, None], jnp.float32)
        found, errors = warm_starts(single, left, given, hinted, keys, penalties, width, plan.steps, batch, plan.rate)
        order = np.argsort(np.asarray(errors), axis=1)[:, : plan.members]
        best = jax.tree.map(lambda a: np.take_along_axis(np.asarray(a), _like(order, a.ndim), 1), found)
        with jax.enable_x64(True):
            double = Data(**{k: jnp.asarray(v, jnp.float64) for k, v in stack.items()})
            begin = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), best)
            trunks, errors = fit_paths(double, begin, jnp.asarray(PENALTIES), plan.refinements)
    trunks = jax.tree.map(np.asarray, trunks)
    return [
        _finish(p, made, jax.tree.map(lambda a, i=i: a[i], trunks), np.asarray(errors[i]), degree, outputs)
        for i, (p, made) in enumerate(zip(problems, prepared, strict=True))
    ]


def choose_plan(dim: int, outputs: int) -> Plan:
    """Gauss-Newton for few outputs, as long as its system is of a size to be solved some hundred times."""
    fitting = TRUNK_WEIGHTS // (dim + 1)
    if outputs > FEW_OUTPUTS or fitting < FEWEST_UNITS:
        return WIDE
    return NARROW if fitting >= NARROW.width else NARROW._replace(width=fitting, members=1, refinements=6)


def skip_degree(draws: int, dim: int) -> int:
    """The polynomial terms that this many draws can carry beside the network."""
    return 2 if feature_count(dim, 2) <= draws / 8 else 1 if dim <= draws / 4 else 0


def validation_draws(n: int, chains: int) -> np.ndarray:
    """A fifth of the draws: the middle of every chain, whose neighbours are few."""
    length = n // chains
    held = np.zeros((chains, length), dtype=bool)
    size = max(1, length // 5)
    start = (length - size) // 2
    held[:, start : start + size] = True
    return held.reshape(-1)


def _prepare(problem: Problem, degree: int) -> dict[str, Any]:
    """The part of a problem that its trunk is fitted on, with polynomial features and what they leave."""
    n, dim = problem.z.shape
    stretch = Stretch.of(problem)
    thin = -(-n // TRUNK_DRAWS)
    z, s, y = problem.z[::thin], problem.s[::thin], problem.y[::thin]
    held = validation_draws(n, problem.chains)[::thin]
    x = stein_features(z, s, degree) if degree else np.zeros((len(z), 0))
    penalty = np.zeros(0)
    left = y
    if degree:
        fit = ridge(x[~held], y[~held], degrees(dim, degree), "auto")
        # One penalty for all outputs, since they share the factorisation: the middle one.
        growth = np.median(fit.growth)
        penalty = max(float(np.median(fit.penalty)), 1e-9) * growth ** (degrees(dim, degree) - 1.0)
        left = y - x @ fit.coefficients
    left = left - left.mean(axis=0)
    spread = np.sqrt((left**2).mean(axis=0))
    plain = np.array([np.mean((left[held, k] - left[held, k].mean()) ** 2) for k in range(y.shape[1])])
    z, s = stretch(z, s)
    return {
        "stretch": stretch,
        "z": z,
        "s": s,
        "x": x,
        "y": y,
        "train": (~held).astype(float),
        "valid": held.astype(float),
        "ridge": penalty,
        "residual": left / np.where(spread > 1e-9, spread, np.inf),
        "hints": _hints(z[~held], y[~held], left[~held] / np.where(spread > 1e-9, spread, np.inf)),
        "polynomial_error": plain,
    }


def _hints(z: np.ndarray, y: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """Directions along which f is likely to vary, of length one, `(hint, dim)`.

    Those along which the outputs grow, and those along which what the polynomial leaves curves most.
    """
    slopes = np.linalg.lstsq(z - z.mean(axis=0), y - y.mean(axis=0), rcond=None)[0].T
    grows = np.linalg.svd(slopes, full_matrices=False)[2][:HINTS]
    weight = residual @ np.random.default_rng(0).normal(size=residual.shape[1])  # one mixture of all outputs
    values, vectors = np.linalg.eigh((z * weight[:, None]).T @ z / len(z))
    curves = vectors[:, np.argsort(-np.abs(values))[:HINTS]].T
    return np.concatenate([grows, curves])


def _finish(
    problem: Problem, made: dict[str, Any], trunks: Any, errors: np.ndarray, degree: int, outputs: int
) -> Control:
    """Choose penalties and members by validation error, and solve the linear part on all draws in float64."""
    from .gauss_newton import Trunk, features

    allowed = np.array(PENALTIES) * len(problem.z) >= LEAST
    errors = np.where(np.isfinite(errors) & allowed[:, None], errors, np.inf)
    members, stages, _ = errors.shape
    flat = errors.reshape(members * stages, outputs)
    # no network at all is a candidate too: the polynomial alone
    best = np.minimum(flat.min(axis=0), made["polynomial_error"])
    stage = errors.argmin(axis=1)
    x = stein_features(problem.z, problem.s, degree) if degree else np.zeros((len(problem.z), 0))
    wide_z, wide_s = made["stretch"](problem.z, problem.s)
    parts: list[tuple[Any, np.ndarray]] = []
    share = np.zeros((members, outputs))
    lowest = errors.min(axis=1)
    share[lowest <= CLOSE * best] = 1.0
    alone = share.sum(axis=0) == 0
    share /= np.where(alone, 1.0, share.sum(axis=0))
    skip = np.zeros((x.shape[1], outputs))
    for m in range(members):
        for k in np.unique(stage[m]):
            used = (stage[m] == k) & (share[m] > 0)
            if used.any():
                trunk = Trunk(trunks.w[m, k], trunks.b[m, k])
                psi = features(trunk, wide_z, wide_s, np)
                c = _heads(x, psi, problem.y[:, used], made["ridge"], PENALTIES[k])
                heads = np.zeros((psi.shape[1], outputs))
                heads[:, used] = c[x.shape[1] :] * share[m, used]
                skip[:, used] += c[: x.shape[1]] * share[m, used]
                parts.append((trunk, heads))
    if alone.any() and degree:
        skip[:, alone] = _heads(x, np.zeros((len(x), 0)), problem.y[:, alone], made["ridge"], 1.0)
    info = {
        "features": int(x.shape[1]),
        "draws": len(problem.z),
        "units": int(trunks.w.shape[-2]),
        "penalty": [PENALTIES[k] for k in stage[lowest.argmin(axis=0), np.arange(outputs)]],
        "members": share.astype(bool).sum(axis=0).tolist(),
        "validation_error": best.tolist(),
    }
    return Control(functools.partial(_evaluate, degree, skip, parts, made["stretch"]), info)


def _heads(x: np.ndarray, psi: np.ndarray, y: np.ndarray, penalty: np.ndarray, head_penalty: float) -> np.ndarray:
    """Ridge coefficients of the polynomial and the hidden units together."""
    columns = np.concatenate([x, psi], axis=1)
    columns -= columns.mean(axis=0)
    shrink = np.append(penalty, np.full(psi.shape[1], head_penalty)) + 1e-12
    return np.linalg.solve(columns.T @ columns / len(y) + np.diag(shrink), columns.T @ (y - y.mean(axis=0)) / len(y))


def _evaluate(degree: int, skip: np.ndarray, parts: list, stretch: Stretch, z: np.ndarray, s: np.ndarray) -> np.ndarray:
    from .gauss_newton import features

    g = np.zeros((len(z), skip.shape[1]))
    if degree:
        g -= stein_features(z, s, degree) @ skip
    z, s = stretch(z, s)
    for trunk, heads in parts:
        g -= features(trunk, z, s, np) @ heads
    return g


def pad(x: np.ndarray, rows: int) -> np.ndarray:
    """Zeros after the last draw, so that problems of nearly the same length go into one array."""
    return np.pad(x, [(0, rows - len(x)), *[(0, 0)] * (x.ndim - 1)])


def _like(order: np.ndarray, ndim: int) -> np.ndarray:
    return order.reshape(order.shape + (1,) * (ndim - 2))
