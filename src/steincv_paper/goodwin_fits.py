"""Draws of the Goodwin oscillator's power posteriors, and what is fitted on them: rows of numbers."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steincv.estimating import estimate
from steincv.evidence.ladder import temperature_ladder
from steincv.evidence.power_posterior import PowerPosterior
from steincv.evidence.rung import no_usable_mean
from steincv.evidence.tempered import Tempered
from steincv.evidence.tempering import temper
from steincv.evidence.thermodynamic import log_evidence
from steincv.families.auto import Auto
from steincv.families.method import Fitted, Method, make_problem
from steincv.judging.diagnostics import stein_check
from steincv.runtime.compile_cache import cache_folder
from steincv.runtime.double import in_double, program
from steincv.runtime.threads import blas_threads
from steincv.runtime.validation import InputError
from steincv.samples.samples import Samples

from .models.goodwin import SIGMA, Goodwin, field, path, raw_coordinates
from .split import Split as Split

# Training sizes are compared on every so-manieth rung.
EVERY = 4
# Draws per rung at which the solver is held against diffrax.
CHECKED = 6


@dataclass(frozen=True, eq=False)
class Draws:
    """The kept states of all rungs, their log likelihoods, and how well the chains mixed."""

    tempered: Tempered
    model: PowerPosterior
    integrator: str
    seed: int
    part: Path | None

    @classmethod
    def of(
        cls,
        species: int,
        observed: str,
        integrator: str,
        iterations: int,
        kept: int,
        replicas: int,
        rungs: int,
        seed: int,
    ) -> "Draws":
        """Sample by the paper's protocol. Until everything is fitted the draws are kept in the user's cache folder."""
        folder = cache_folder()
        name = f"goodwin-{species}-{observed}-{integrator}-{iterations}-{kept}-{replicas}-{rungs}-{seed}.npz"
        part = None if folder is None else folder / name
        model = Goodwin.simulate(species, observed, integrator, seed).posterior
        half, each = iterations // 2, kept // replicas
        keep = np.sort(np.random.default_rng([seed, species]).choice(half, each, replace=False))
        settings: dict[str, Any] = {"draws": half, "warmup": iterations - half, "thin": 1, "replicas": replicas}
        settings |= {"keep": keep, "seed": seed, "checkpoint": part, "keep_checkpoint": part is not None}
        try:
            tempered = temper(model, temperature_ladder(rungs), **settings)
        except InputError:  # left behind by another version of the model or the sampler
            if part is None or not part.exists():
                raise
            part.unlink()
            tempered = temper(model, temperature_ladder(rungs), **settings)
        return cls(tempered, model, integrator, seed, part)

    def forget(self) -> None:
        """Remove the draws from the cache folder."""
        if self.part is not None:
            with suppress(OSError):
                self.part.unlink(missing_ok=True)

    @property
    def rungs(self) -> range:
        return range(len(self.tempered.temperatures))

    def samples(self, k: int, coordinates: str) -> Samples:
        return self.tempered.samples[k] if coordinates == "log" else raw_coordinates(self.tempered.samples[k])


def fit(method: Method, splits: Sequence[Split], seed: int) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Return f + g on the test draws of every split, and on the training draws where g is to be had there.

    By two threads, each of which fits half of the splits in one program where the family has one. `Auto()` is what
    `estimate` does with it: weights of its members from the test draws, and the plain mean where nothing helps.
    """

    def by_estimate(split: Split) -> tuple[np.ndarray, np.ndarray | None]:
        # one after the other, as `estimate` wants them
        both = (split.train, split.test)
        x, s = (np.concatenate([getattr(a, n) for a in both], axis=1) for n in ("draws", "scores"))
        values = np.concatenate([split.f_train, split.f_test], axis=1)
        share = split.f_test.shape[1] / values.shape[1]
        result = estimate(Samples(x, s), values, method, seed=seed, cross_fit=False, test_fraction=share)
        return result.controlled[..., 0], None

    def fit_all(some: Sequence[Split]) -> list[tuple[np.ndarray, np.ndarray | None]]:
        made = [make_problem(split.train, split.f_train[..., None]) for split in some]
        results: list[tuple[np.ndarray, np.ndarray | None]] = []
        controls = method.solve([problem for problem, _, _ in made], seed)
        for split, (_, standardise, scale), control in zip(some, made, controls, strict=True):
            test, train = (Fitted(standardise, scale, control)(x)[..., 0] for x in (split.test, split.train))
            results.append((split.f_test + test, split.f_train + train))
        return results

    with blas_threads(0), ThreadPoolExecutor(2) as pool:
        if isinstance(method, Auto):
            return list(pool.map(by_estimate, splits))
        half = -(-len(splits) // 2)
        parts = [splits[:half], splits[half:]] if method.together else [[split] for split in splits]
        return [result for results in pool.map(fit_all, filter(None, parts)) for result in results]


def ratio_rows(
    draws: Draws, methods: Mapping[str, Method], coordinates: str, how: str, few: int,
    sizes: Sequence[int | None] = (None,), every: slice = slice(None), part: str = "ratio",
) -> list[dict[str, Any]]:  # fmt: skip
    """Return variance ratios per method and rung: on all test draws, on a `few` of them, on the training draws.

    For each of the `sizes` of training draws, and all of these fitted together.
    """
    rungs = [k for _ in sizes for k in draws.rungs[every]]
    of_rung = [draws.samples(k, coordinates) for k in draws.rungs]
    values = draws.tempered.log_likelihoods
    splits = [Split.of(of_rung[k], values[k], how, draws.seed, size) for size in sizes for k in draws.rungs[every]]
    z = [float(np.abs(stein_check(split.train).z).max()) for split in splits]
    rows = []
    for name, method in methods.items():
        for k, split, worst, (test, train) in zip(rungs, splits, z, fit(method, splits, draws.seed), strict=True):
            some = np.linspace(0, test.shape[1] - 1, max(few // len(test), 1)).round().astype(int)
            rows.append(
                {
                    "part": part,
                    "coordinates": coordinates,
                    "split": how,
                    "rung": k,
                    "temperature": float(draws.tempered.temperatures[k]),
                    "method": name,
                    "n": split.f_train.size,
                    "ratio": _ratio(test, split.f_test),
                    "ratio_few": _ratio(test[:, some], split.f_test[:, some]),
                    "ratio_train": None if train is None else _ratio(train, split.f_train),
                    "stein_z": worst,
                }
            )
    return rows


def _ratio(controlled: np.ndarray, plain: np.ndarray) -> float | None:
    """Return a variance ratio, or none where f is so long-tailed that its squares overflow."""
    size = np.abs(plain).max()
    ratio = float((controlled / size).var() / (plain / size).var())
    return ratio if np.isfinite(ratio) else None


def size_rows(draws: Draws, methods: Mapping[str, Method], sizes: Sequence[int], few: int) -> list[dict[str, Any]]:
    """Return variance ratios for several numbers of training draws, on some of the rungs."""
    some = slice(EVERY // 2, None, EVERY)
    return ratio_rows(draws, methods, "log", "random", few, sizes, some, "size") if sizes else []


def rung_rows(draws: Draws) -> list[dict[str, Any]]:
    """Return how the sampler did at every rung, and the error of the solver there."""
    t = draws.tempered
    error = solver_errors(draws)
    return [
        {
            "part": "sampler",
            "rung": k,
            "temperature": float(t.temperatures[k]),
            "acceptance": float(t.acceptance[k]),
            "swap": float(t.swaps[k]) if k < len(t.swaps) else None,
            "rhat": float(t.rhat[k]),
            "ess": float(t.ess[k]),
            "round_trips": int(t.round_trips.sum()),
            "usable": no_usable_mean(t.log_likelihoods[k]) is None,
            "least_log_likelihood": float(t.log_likelihoods[k].min()),
            "solver_error": error[k],
            "seconds": t.seconds,
        }
        for k in draws.rungs
    ]


def solver_errors(draws: Draws) -> list[float | None]:
    """Return the largest error of x at some draws per rung, in units of sigma or, where x is above one, of x sigma.

    None where diffrax is not installed, does not get there in its steps, or has nothing to be held against.
    """
    none: list[float | None] = [None] * len(draws.rungs)
    if draws.integrator != "ode":
        return none
    try:
        import diffrax
    except ImportError:
        return none

    def reference(p: Any) -> Any:
        slope = field(p)
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda s, x, _: slope(x)),
            diffrax.Tsit5(),
            0.0,
            80.0,
            0.01,
            jnp.zeros(p["k"].shape[0] + 1),
            saveat=diffrax.SaveAt(ts=jnp.arange(41.0, 81.0)),
            stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-10),
            max_steps=20_000,
            throw=False,
        ).ys

    def error(x: Any) -> Any:
        p = draws.model.constrain(x)
        exact = reference(p)
        return jnp.max(jnp.abs(path(p) - exact) / (SIGMA * jnp.maximum(1.0, jnp.abs(exact))))

    flat = [samples.draws.reshape(-1, samples.dim) for samples in draws.tempered.samples]
    some = [x[np.linspace(0, len(x) - 1, CHECKED).astype(int)] for x in flat]
    run = program(jax.vmap(error), some[0], once=True)
    worst = [float(np.max(in_double(run, x))) for x in some]
    return [w if np.isfinite(w) else None for w in worst]


def evidence_rows(draws: Draws, methods: Mapping[str, Method]) -> list[dict[str, Any]]:
    """Return the log evidence, plain and with every method; replicas are the chains."""
    t = draws.tempered
    rows = []
    for name, method in methods.items():
        found = log_evidence(t.samples, t.log_likelihoods, t.temperatures, method, seed=draws.seed, coupled=True)
        rows.append(
            {
                "part": "evidence",
                "method": name,
                "log_evidence": float(found.mean),
                "error": float(found.standard_error),
                "plain": float(found.plain.mean),
                "plain_error": float(found.plain.standard_error),
                "statistical_error": found.info["statistical_error"],
                "discretisation_error": found.info["discretisation_error"],
                "bridged": len(found.info["bridged"]),
                "refitted": len(found.info["refitted"]),
                "status": ", ".join(s.name for s in found.status[0]),
                "seconds": found.info["seconds"],
            }
        )
    return rows
