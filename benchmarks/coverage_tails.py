"""Do 95 % intervals cover where control variates leave little but a heavy tail? Before and after the tail is counted.

    OPENBLAS_NUM_THREADS=1 python benchmarks/coverage_tails.py

Densities in one to three dimensions whose means are known by quadrature, independent draws (by rejection, or by the
map that makes the density) and random-walk Metropolis chains. Where a kernel takes 99 % of the variance out, what is
left sits in the few draws where the fit had no neighbours, and those it has not met yet are missing from the sample
variance. "before" is sd / sqrt(ESS) and Student's t on ESS / 5 - 1 degrees of freedom, on the same controlled draws.
Writes results/coverage_tails.csv and prints a table. Some ten minutes on one core.
"""

import csv
import os
import pathlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.special

from steincv import Code, Kernel, Polynomial, Samples, estimate
from steincv.judging.error_bars import degrees_of_freedom

REPLICATIONS = {"Polynomial(2)": 200, "Kernel": 100}
CHAINS, DRAWS = 4, 1000
THIN = 10  # of the Metropolis chains
BAND, RATIO_BAND = (0.900, 0.985), (0.90, 1.15)
METHODS = {
    "Polynomial(2)": Polynomial(2),
    "Kernel": Kernel("rational quadratic", degree=2, landmarks=300),
}
SAMPLERS = ("iid", "chains")
SEED = 20250
OUT = pathlib.Path(__file__).parent / "results" / "coverage_tails.csv"


# The densities -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """`log_density` and `score` of x `(..., dim)`; `box` holds all but a negligible part of the mass.

    `width` is that of exp(last / width), long enough for its variance to be finite.
    """

    name: str
    log_density: Callable
    score: Callable
    box: tuple[tuple[float, float], ...]
    width: float = 2.0

    @property
    def dim(self):
        return len(self.box)


def functions(x, width):
    """Every coordinate, the square and the exponential of the last, and a smooth step of the first."""
    named = {f"x{i}": x[..., i] for i in range(x.shape[-1])}
    last = x[..., -1]
    return named | {"last^2": last**2, "exp(last)": np.exp(last / width), "step": scipy.special.expit(3 * x[..., 0])}


# Four doses, five animals each: Racine et al. (1986), as in many textbooks. a and b with weak normal priors.
DOSE, ANIMALS, DEATHS = np.array([-0.86, -0.30, -0.05, 0.73]), np.full(4, 5.0), np.array([0.0, 1.0, 3.0, 5.0])
PRIOR = np.array([2.0, 5.0])


def bioassay(x):
    eta = x[..., :1] + x[..., 1:] * DOSE
    prior = -0.5 * ((x / PRIOR) ** 2).sum(axis=-1)
    return (DEATHS * eta - ANIMALS * np.logaddexp(0, eta)).sum(axis=-1) + prior


def bioassay_score(x):
    rest = DEATHS - ANIMALS * scipy.special.expit(x[..., :1] + x[..., 1:] * DOSE)
    return np.stack([rest.sum(axis=-1), (rest * DOSE).sum(axis=-1)], axis=-1) - x / PRIOR**2


# A line with Student errors, three of the points outliers. Parameters: intercept, slope, log scale.
NU = 4.0
AT = np.linspace(-1.5, 1.5, 20)
SEEN = 0.5 + 0.8 * AT + 0.4 * np.random.default_rng(4).standard_t(NU, 20) + 4.0 * (np.arange(20) % 7 == 3)


def robust_line(x):
    scale = np.exp(x[..., 2:])
    r = (SEEN - x[..., :1] - x[..., 1:2] * AT) / scale
    prior = -0.5 * (x**2 / 25).sum(axis=-1)
    return -(NU + 1) / 2 * np.log1p(r**2 / NU).sum(axis=-1) - len(AT) * x[..., 2] + prior


def robust_line_score(x):
    scale = np.exp(x[..., 2:])
    r = (SEEN - x[..., :1] - x[..., 1:2] * AT) / scale
    pull = (NU + 1) * r / (NU + r**2)
    s = np.stack([(pull / scale).sum(-1), (pull * AT / scale).sum(-1), (pull * r).sum(-1) - len(AT)], axis=-1)
    return s - x / 25


APART = 1.6


def mixture(x):
    return np.logaddexp(*(-0.5 * ((x - m) ** 2).sum(axis=-1) for m in (APART, -APART)))


def mixture_score(x):
    return -x + APART * np.tanh(APART * x.sum(axis=-1, keepdims=True))


def banana(x):
    return -0.5 * x[..., 0] ** 2 - 2 * (x[..., 1] - 0.5 * x[..., 0] ** 2) ** 2


def banana_score(x):
    a, rest = x[..., 0], 4 * (x[..., 1] - 0.5 * x[..., 0] ** 2)
    return np.stack([-a + rest * a, -rest], axis=-1)


def funnel(x):
    """A mild one: x0 has log scale x1 / 2, and x1 has scale 1."""
    return -0.5 * x[..., 1] ** 2 - 0.5 * x[..., 0] ** 2 * np.exp(-x[..., 1]) - 0.5 * x[..., 1]


def funnel_score(x):
    a, b = x[..., 0], x[..., 1]
    return np.stack([-a * np.exp(-b), -b + 0.5 * a**2 * np.exp(-b) - 0.5], axis=-1)


def normal(x):
    return -0.5 * (x**2).sum(axis=-1)


TARGETS = (
    Target("bioassay", bioassay, bioassay_score, ((-8, 10), (-8, 42)), 10.0),
    Target("robust line", robust_line, robust_line_score, ((-3, 5), (-4, 5), (-3.5, 2.5))),
    Target("banana", banana, banana_score, ((-9, 9), (-4, 42)), 8.0),
    Target("funnel", funnel, funnel_score, ((-80, 80), (-8, 8))),
    Target("mixture", mixture, mixture_score, ((-9, 9),) * 2),
    Target("Gaussian", normal, lambda x: -x, ((-9, 9),) * 2),
)


def grid(target):
    """Points `(n, dim)` of an even grid over the box: for smooth densities that vanish at its edge, exact."""
    size = {2: 2001, 3: 181}[target.dim]
    axes = [np.linspace(low, high, size) for low, high in target.box]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, target.dim)


def truths(target, points):
    logs = target.log_density(points)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    return (
        {name: float((weights * value).sum()) for name, value in functions(points, target.width).items()},
        weights,
        logs,
    )


# Draws ---------------------------------------------------------------------------------------------------


def independent(target, rng, size, points, weights, logs):
    """`(size, dim)`, by rejection from a wide Student t whose bound is taken on the grid, with a margin."""
    if target.name == "Gaussian":
        return rng.normal(size=(size, 2))
    if target.name == "mixture":
        return rng.normal(size=(size, 2)) + APART * rng.choice([-1.0, 1.0], size=(size, 1))
    if target.name == "banana":
        a = rng.normal(size=size)
        return np.stack([a, 0.5 * a**2 + 0.5 * rng.normal(size=size)], axis=-1)
    if target.name == "funnel":
        b = rng.normal(size=size)
        return np.stack([np.exp(b / 2) * rng.normal(size=size), b], axis=-1)
    nu, dim = 5.0, target.dim
    mean = weights @ points
    root = np.linalg.cholesky(1.2 * (points - mean).T @ ((points - mean) * weights[:, None]))

    def log_proposal(x):
        u = np.linalg.solve(root, (x - mean).T)
        return -(nu + dim) / 2 * np.log1p((u**2).sum(axis=0) / nu)

    bound = (logs - log_proposal(points)).max() + 0.02
    kept, have = [], 0
    while have < size:
        n = 200_000
        u = rng.normal(size=(n, dim)) / np.sqrt(rng.chisquare(nu, size=(n, 1)) / nu)
        x = mean + u @ root.T
        kept.append(x[np.log(rng.uniform(size=n)) < target.log_density(x) - log_proposal(x) - bound])
        have += len(kept[-1])
    return np.concatenate(kept)[:size]


def metropolis(target, rng, start, root):
    """Chains `(chain, draw, dim)` from starts that are draws already: stationary, nothing to burn."""
    step = 2.4 / np.sqrt(target.dim) * root
    x, log = start, target.log_density(start)
    chains = np.empty((len(start), DRAWS, target.dim))
    for t in range(DRAWS * THIN):
        new = x + rng.normal(size=x.shape) @ step.T
        new_log = target.log_density(new)
        take = np.log(rng.uniform(size=len(x))) < new_log - log
        x, log = np.where(take[:, None], new, x), np.where(take, new_log, log)
        if t % THIN == THIN - 1:
            chains[:, t // THIN] = x
    return chains


def all_draws(target, sampler, replications):
    """The true means, and draws `(replication, chain, draw, dim)`."""
    points = grid(target)
    truth, weights, logs = truths(target, points)
    rng = np.random.default_rng([SEED, [t.name for t in TARGETS].index(target.name), SAMPLERS.index(sampler)])
    if sampler == "iid":
        x = independent(target, rng, replications * CHAINS * DRAWS, points, weights, logs)
    else:
        start = independent(target, rng, replications * CHAINS, points, weights, logs)
        mean = weights @ points
        root = np.linalg.cholesky((points - mean).T @ ((points - mean) * weights[:, None]))
        x = metropolis(target, rng, start, root)
    return truth, x.reshape(replications, CHAINS, DRAWS, target.dim)


# The study -----------------------------------------------------------------------------------------------


def study(target, sampler, method, truth, draws):
    """One row a function. "before" forgets how many draws carry the error bar."""
    true, results = np.array(list(truth.values())), []
    for x in draws:
        values = np.stack(list(functions(x, target.width).values()), axis=-1)
        results.append(estimate(Samples(x, target.score(x)), values, METHODS[method]))
    error = np.array([r.mean for r in results]) - true
    plain = np.array([r.plain.mean for r in results]) - true
    bar = np.array([r.standard_error for r in results])
    ess = np.array([r.ess for r in results])
    before = scipy.special.stdtrit(degrees_of_freedom(ess), 0.975)
    after = np.array([r._average.half_width() for r in results])
    codes = [[{s.code for s in found} for found in r.status] for r in results]
    exact = [all(Code.EXACT in c[k] for c in codes) for k in range(len(true))]
    return [
        {
            "target": target.name,
            "sampler": sampler,
            "method": method,
            "f": name,
            "replications": len(results),
            "true gain": float(f"{(plain[:, k] ** 2).mean() / (error[:, k] ** 2).mean():.3g}"),
            "reported gain": float(f"{np.median([1 / r.variance_ratio[k] for r in results]):.3g}"),
            "se/rmse": round(float(np.sqrt((bar[:, k] ** 2).mean() / (error[:, k] ** 2).mean())), 3),
            "carriers": round(float(np.median([r._average.error_ess[k] / 2 for r in results])), 1),
            "before": round(float((abs(error[:, k]) <= before[:, k] * bar[:, k]).mean()), 3),
            "after": round(float((abs(error[:, k]) <= after[:, k] * bar[:, k]).mean()), 3),
            "wider": round(float(np.median(after[:, k] / before[:, k])), 3),
            "rare draws": round(float(np.mean([Code.RARE_DRAWS in c[k] for c in codes])), 3),
            "plain reported": round(float(np.mean([r.method[k] == "plain" for r in results])), 3),
        }
        for k, name in enumerate(truth)
        if not exact[k]
    ]


def main():
    """Settings that are in the file already are kept: delete it to begin anew."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    rows = read()
    for target in TARGETS:
        for sampler in SAMPLERS:
            wanted = {m: n for m, n in REPLICATIONS.items() if n}
            there = {(r["target"], r["sampler"], r["method"]) for r in rows}
            missing = [m for m in wanted if (target.name, sampler, m) not in there]
            if not missing:
                continue
            truth, draws = all_draws(target, sampler, max(wanted.values()))
            for method in missing:
                rows += study(target, sampler, method, truth, draws[: wanted[method]])
                write(rows)
                print(f"{target.name}, {sampler}, {method}: done", flush=True)
    for row in rows:
        print("  ".join(str(value).ljust(13) for value in row.values()))
    broken = [r for r in rows if not (BAND[0] <= r["after"] and RATIO_BAND[0] <= r["se/rmse"] <= RATIO_BAND[1])]
    for row in broken:
        print("NOT KEPT:", row)
    print(f"{len(rows)} rows, {len(broken)} not kept; written to {OUT}")


def read():
    if not OUT.exists():
        return []
    with OUT.open(newline="") as file:
        words = {"target", "sampler", "method", "f"}
        return [{k: v if k in words else float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def write(rows):
    OUT.parent.mkdir(exist_ok=True)
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
