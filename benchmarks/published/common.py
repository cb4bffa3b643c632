"""What the rows share: kept repeats, random-walk draws, gains with their intervals, and the CSV of a row.

A row runs a few named methods on independent repeats of a published setting. Every finished repeat is a line of a file
in the folder STEINCV_BENCH_CACHE, so that a script that was stopped goes on where it was.
"""

import csv
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))  # sampling.py and tables.py of the other benchmarks

import jax
import jax.numpy as jnp
import numpy as np
import scipy.fft
import scipy.stats
from tables import show

import steincv as scv

DATA = Path(__file__).parent / "data"
RESULTS = Path(__file__).parents[1] / "results" / "published"
LEVEL = 0.95
BOOTSTRAPS = 2000
GAIN, ABSOLUTE, RMSE = "gain", "mean absolute error", "rmse"  # the measures; of the last two less is better


class Interval(NamedTuple):
    """A number and where it lies with 95 % confidence; the same number three times if no interval is known."""

    value: float
    low: float
    high: float


def between(low: float, high: float) -> Interval:
    """Return a published interval with its geometric middle."""
    return Interval(float(np.sqrt(low * high)), low, high)


def exactly(value: float) -> Interval:
    """Return a published number without an interval."""
    return Interval(value, value, value)


@dataclass(frozen=True)
class Line:
    """A line of the table: a published figure and ours beside it. Fields are the columns of the CSV."""

    row: int
    setting: str
    f: str
    method: str
    measure: str
    published_method: str
    published: Interval
    ours: Interval
    repeats: int
    matched: str
    not_matched: str
    source: str
    ratio: Interval = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ratio", advantage(self.ours, self.published, self.measure))


def advantage(ours: Interval, theirs: Interval, measure: str) -> Interval:
    """Return how many times better ours is, with both intervals taken together as if the logarithms were normal."""
    if not (ours.value > 0 and theirs.value > 0):
        return exactly(float("nan"))
    better, other = (ours, theirs) if measure == GAIN else (theirs, ours)
    ratio = better.value / other.value
    down = np.hypot(np.log(better.value / better.low), np.log(other.high / other.value))
    up = np.hypot(np.log(better.high / better.value), np.log(other.value / other.low))
    return Interval(float(ratio), float(ratio * np.exp(-down)), float(ratio * np.exp(up)))


def of_repeats(value: float, repeats: int, measure: str) -> Interval:
    """Return a published error with the interval that so many repeats give it, were the errors normal."""
    relative = np.sqrt(np.pi / 2 - 1) if measure == ABSOLUTE else np.sqrt(0.5)
    half = scipy.stats.norm.ppf((1 + LEVEL) / 2) * relative / np.sqrt(repeats)
    return Interval(value, value * (1 - half), value * (1 + half))


# Intervals ---------------------------------------------------------------------------------------------


def gain(plain: np.ndarray, controlled: np.ndarray) -> Interval:
    """Return the ratio of the variances of independent estimates, with the interval of an F distribution."""
    value = plain.var(ddof=1) / max(controlled.var(ddof=1), np.finfo(float).tiny)
    tail, n, m = (1 - LEVEL) / 2, plain.size - 1, controlled.size - 1
    low, high = (value / scipy.stats.f.ppf(q, n, m) for q in (1 - tail, tail))
    return Interval(float(value), float(low), float(high))


def error(errors: np.ndarray, measure: str) -> Interval:
    """Return the mean absolute error, or the root mean square, of independent repeats, with a bootstrap interval."""
    flat = np.abs(errors).reshape(len(errors), -1)
    mean = (lambda a: a.mean()) if measure == ABSOLUTE else (lambda a: np.sqrt((a**2).mean()))
    rng = np.random.default_rng(0)
    again = [mean(flat[rng.integers(len(flat), size=len(flat))]) for _ in range(BOOTSTRAPS)]
    low, high = np.quantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(mean(flat)), float(low), float(high))


def of_mean(values: np.ndarray) -> Interval:
    """Return the mean of independent numbers, with a normal interval."""
    half = scipy.stats.norm.ppf((1 + LEVEL) / 2) * values.std(ddof=1) / np.sqrt(len(values))
    return Interval(float(values.mean()), float(values.mean() - half), float(values.mean() + half))


def tukey_hanning(width: int) -> np.ndarray:
    """Return the weights of lags 0 to `width`."""
    return 0.5 + 0.5 * np.cos(np.pi * np.arange(width + 1) / width)


def trapezium(width: int) -> np.ndarray:
    """Return weights of lags that are one up to `width` and fall to zero at twice that."""
    return np.concatenate([np.ones(width + 1), np.linspace(1, 0, width)])


def lag_variance(series: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the spectral variance at zero of every column of one chain by these weights of lags."""
    y = series - series.mean(axis=0)
    size = scipy.fft.next_fast_len(len(y) + len(weights))
    square = np.abs(scipy.fft.rfft(y, size, axis=0)) ** 2
    covariance = scipy.fft.irfft(square, size, axis=0)[: len(weights)] / len(y)
    return weights[0] * covariance[0] + 2 * weights[1:] @ covariance[1:]


# Repeats -----------------------------------------------------------------------------------------------


class Planned(NamedTuple):
    """A method, `run(data, seed)` giving its estimates (out,), and on how many of the repeats it is run."""

    run: Callable
    repeats: int


def ours(method: scv.Method, coordinates: str = "auto", **options: object) -> Callable:
    """Return what asks the library for the means of `data.values`, as a user would."""

    def run(data, seed):
        samples = scv.Samples(data.draws, data.scores)
        return scv.estimate(samples, data.values, method, seed=seed, coordinates=coordinates, **options).mean

    return run


def in_sample(method: scv.Method) -> Callable:
    """Return the protocol of control functionals: fitted on all draws and averaged over the same."""

    def run(data, seed):
        samples = scv.Samples(data.draws, data.scores)
        return (data.values + method.fit(samples, data.values, seed=seed)(samples)).mean(axis=(0, 1))

    return run


def fitted_apart(method: scv.Method) -> Callable:
    """Return the protocol of the first papers: coefficients from draws of their own, applied to all others."""

    def run(data, seed):
        fitted = method.fit(scv.Samples(data.first.draws, data.first.scores), data.first.values, seed=seed)
        g = fitted(scv.Samples(data.draws, data.scores))
        return (data.values + g).mean(axis=(0, 1))

    return run


class Data(NamedTuple):
    """Draws, scores and values of f, (chain, draw, ...), and those that come before them and are only fitted on."""

    draws: np.ndarray
    scores: np.ndarray
    values: np.ndarray
    first: "Data | None" = None


def folder() -> Path:
    found = Path(os.environ.get("STEINCV_BENCH_CACHE", Path(tempfile.gettempdir()) / "steincv_bench"))
    found.mkdir(parents=True, exist_ok=True)
    return found


def kept(name: str, make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the arrays of a file of the cache; they are made when there is none."""
    path = folder() / f"published-{name}.npz"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            np.savez(file, **make())
        part.replace(path)
    with np.load(path) as file:
        return dict(file)


def replicate(name: str, data: Callable[[int], Data], planned: Mapping[str, Planned]) -> dict[str, np.ndarray]:
    """Run every method on its repeats, those of the cache excepted; return estimates (repeat, out) by method."""
    path = folder() / f"published-{name}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(line["method"], line["repeat"]): line for line in lines}
    for r in range(max(plan.repeats for plan in planned.values())):
        wanted = [label for label, plan in planned.items() if r < plan.repeats and (label, r) not in done]
        given = data(r) if wanted else None
        for label in wanted:
            start = time.process_time()
            estimates = np.asarray(planned[label].run(given, r), dtype=float).reshape(-1)
            seconds = time.process_time() - start
            line = {"method": label, "repeat": r, "estimates": estimates.tolist(), "seconds": seconds}
            done[label, r] = line
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{name} {label} {r + 1}/{planned[label].repeats}: {seconds:.1f} s", flush=True)
    return {
        label: np.array([done[label, r]["estimates"] for r in range(plan.repeats)]) for label, plan in planned.items()
    }


def agree(estimates: Mapping[str, np.ndarray], labels: Sequence[str]) -> None:
    """Print how far the mean of each method's estimates is from that of the most accurate other one, in errors."""
    centre = {k: (e.mean(0), e.std(0, ddof=1) / np.sqrt(len(e))) for k, e in estimates.items() if len(e) > 2}
    for k, label in enumerate(labels):
        for mine, (mean, own) in centre.items():
            other = min((o for o in centre if o != mine), key=lambda o: centre[o][1][k])
            z = (mean[k] - centre[other][0][k]) / np.hypot(own[k], centre[other][1][k])
            if abs(z) > 3.5:
                print(f"  {label}, {mine}: {z:.1f} standard errors from {other}")


# Draws -------------------------------------------------------------------------------------------------


def scores_of(logdensity: Callable, draws: np.ndarray) -> np.ndarray:
    """Return the gradient of the log density at draws (..., dim), in float64, some at a time."""
    flat = draws.reshape(-1, draws.shape[-1])
    with jax.enable_x64(True):
        score = jax.jit(jax.vmap(jax.grad(logdensity)))
        parts = [np.asarray(score(part)) for part in np.array_split(flat, max(1, len(flat) // 20_000))]
    return np.concatenate(parts).reshape(draws.shape)


def random_walk(
    logdensity: Callable, start: np.ndarray, scale: np.ndarray, steps: int, seed: int, adapt: bool = True
) -> np.ndarray:
    """Return Metropolis chains (chain, step, dim) with normal proposals.

    `scale`: a standard deviation per coordinate. If `adapt`, three short runs put 2.38 / sqrt(dim) times the covariance
    of all chains in its place; their draws are dropped.
    """
    dim = start.shape[1]

    def run(key, state, factor, count):
        def step(state, key):
            x, height = state
            propose, accept = jax.random.split(key)
            y = x + jax.random.normal(propose, x.shape) @ factor.T
            there = jax.vmap(logdensity)(y)
            there = jnp.where(jnp.isnan(there), -jnp.inf, there)
            moved = jnp.log(jax.random.uniform(accept, height.shape)) < there - height
            state = jnp.where(moved[:, None], y, x), jnp.where(moved, there, height)
            return state, state[0]

        return jax.lax.scan(step, state, jax.random.split(key, count))

    with jax.enable_x64(True):
        compiled = jax.jit(run, static_argnums=3)
        keys = jax.random.split(jax.random.key(seed), 4)
        state = jnp.asarray(start), jax.vmap(logdensity)(jnp.asarray(start))
        factor, wide = np.diag(scale), 2.38 / np.sqrt(dim)
        for key in keys[:3] if adapt else ():
            state, path = compiled(key, state, factor * wide, 1000)
            factor = np.linalg.cholesky(np.cov(np.asarray(path[300:]).reshape(-1, dim).T))
        path = np.asarray(compiled(keys[3], state, factor * (wide if adapt else 1.0), steps)[1])
    return path.swapaxes(0, 1)


# What a row leaves -------------------------------------------------------------------------------------


def number(value: float) -> str:
    return f"{value:.4g}"


def keep(lines: Sequence[Line], name: str) -> None:
    """Print the lines and write results/published/NAME.csv."""
    rows = []
    for line in lines:
        row = asdict(line)
        for column in ("published", "ours", "ratio"):
            middle, low, high = row.pop(column)
            row |= {column: number(middle), f"{column}_low": number(low), f"{column}_high": number(high)}
        rows.append(row)
    order = ["row", "setting", "f", "method", "measure", "published_method"]
    order += [f"{column}{end}" for column in ("published", "ours", "ratio") for end in ("", "_low", "_high")]
    order += ["repeats", "matched", "not_matched", "source"]
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, order, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    show(f"row {lines[0].row}: {lines[0].setting}", [{k: row[k] for k in order[2:16]} for row in rows])
