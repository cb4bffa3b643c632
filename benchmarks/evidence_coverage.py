"""Is the log evidence where its error bar says, and what do control variates save? Where the truth is known exactly.

    OPENBLAS_NUM_THREADS=1 python benchmarks/evidence_coverage.py

Conjugate regression in 2 to 20 dimensions, new data and new independent draws in every replication; the same sampled by
parallel tempering, whose rungs are correlated; van der Pol, whose power posteriors are sampled on a grid. Writes
results/evidence_coverage.csv, setting by setting: those that are there are kept.
"""

import csv
import functools
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from tables import RESULTS, show

PROCESSES = int(os.environ.get("PROCESSES", "2"))
RUNGS = 30
OUT = RESULTS / "evidence_coverage.csv"


@dataclass(frozen=True)
class Setting:
    """`shape` is (chains, draws) of every rung; `how`: "independent" draws, or "tempered" ones."""

    problem: str
    method: str
    shape: tuple[int, int]
    how: str = "independent"
    replications: int = 200

    @property
    def name(self) -> str:
        return f"{self.problem}, {self.how}, {self.shape[0]} x {self.shape[1]}"


SETTINGS = (
    *(Setting("van der Pol", "Auto()", (1, n), replications=40) for n in (20, 80)),
    *(Setting(f"regression D = {dim}", "Polynomial(2)", (4, 50)) for dim in (2, 5, 10)),
    Setting("regression D = 20", "Polynomial(2)", (4, 100)),
    *(Setting(f"regression D = {dim}", "Auto()", (4, 20)) for dim in (2, 5, 10, 20)),
    *(Setting(f"regression D = {dim}", "Auto()", (4, 50)) for dim in (10, 20)),
    *(Setting(f"regression D = {dim}", "MonteCarlo()", (4, 50)) for dim in (2, 20)),
    *(Setting("regression D = 5", method, (4, 100), "tempered", 100) for method in ("Polynomial(2)", "MonteCarlo()")),
)


def method_of(name):
    import steincv as scv

    return {"Auto()": scv.Auto(), "Polynomial(2)": scv.Polynomial(2), "MonteCarlo()": scv.MonteCarlo()}[name]


@functools.cache
def grid():
    from steincv_paper.models.van_der_pol import van_der_pol

    model = van_der_pol().posterior
    x = np.linspace(-1.6, 1.6, 8192)
    likelihood, prior = model.evaluate(x[:, None])
    slope, prior_slope = model.gradients(x[:, None])
    return x, likelihood, slope[:, 0], prior, prior_slope[:, 0]


@functools.cache
def example():
    from steincv_paper.models.regression import regression

    return regression(5)


def rungs(setting, t, rng):
    """Samples, log likelihoods and the exact log evidence of one replication."""
    import steincv as scv
    from steincv_paper.models.regression import Regression

    if setting.problem == "van der Pol":
        x, likelihood, slope, prior, prior_slope = grid()
        samples, values = [], []
        for u in t:
            mass = np.cumsum(np.exp(prior + u * (likelihood - likelihood.max())))
            draw = np.interp(rng.random(setting.shape), mass / mass[-1], x)
            score = np.interp(draw, x, prior_slope) + u * np.interp(draw, x, slope)
            samples.append(scv.Samples(draw[..., None], score[..., None]))
            values.append(np.interp(draw, x, likelihood))
        density = np.exp(prior + likelihood - likelihood.max())
        return samples, values, float(np.log(np.trapezoid(density, x)) + likelihood.max()), False
    if setting.how == "tempered":
        from steincv.evidence import temper

        found = temper(
            example().posterior, t, draws=setting.shape[1], replicas=setting.shape[0], seed=int(rng.integers(2**31))
        )
        return found.samples, found.log_likelihoods, example().exact, True
    problem = Regression.simulate(int(setting.problem.rpartition(" ")[2]), seed=int(rng.integers(2**31)))
    pairs = [problem.draw(float(u), setting.shape, rng) for u in t]
    return [s for s, _ in pairs], [v for _, v in pairs], problem.exact, False


def replicate(task):
    import steincv as scv

    setting, r = task
    t = scv.temperature_ladder(31 if setting.problem == "van der Pol" else RUNGS)
    # the same draws for every method
    samples, values, exact, coupled = rungs(setting, t, np.random.default_rng([r, *setting.name.encode()]))
    start = time.perf_counter()
    result = scv.log_evidence(samples, values, t, method_of(setting.method), coupled=coupled or None)
    low, high = result.interval(0.95)
    return (
        float(result.mean) - exact,
        float(result.plain.mean) - exact,
        float(result.standard_error),
        result.info["discretisation_error"],
        low <= exact <= high,
        time.perf_counter() - start,
    )


def study(setting, mapped):
    tasks = [(setting, r) for r in range(setting.replications)]
    off, plain, error, spacing, covered, seconds = map(np.array, zip(*mapped(replicate, tasks), strict=True))
    rmse, plain_rmse = (np.sqrt((e**2).mean()) for e in (off, plain))
    return {
        "setting": setting.name,
        "method": setting.method,
        "replications": setting.replications,
        "plain rmse / rmse": float(plain_rmse / rmse),
        "rmse": float(rmse),
        "bias": float(off.mean()),
        "se / rmse": float(np.sqrt((error**2).mean()) / rmse),
        "of it spacing": float(np.sqrt((spacing**2).mean() / (error**2).mean())),
        "within 3 se": float((np.abs(off) < 3 * error).mean()),
        "coverage": float(covered.mean()),
        "seconds": float(np.median(seconds)),
    }


def main(chosen):
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    rows = []
    if OUT.exists():
        with OUT.open(newline="") as file:
            words = ("setting", "method")
            rows = [{k: v if k in words else float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    with ExitStack() as stack:
        mapped = map
        if PROCESSES > 1:
            mapped = stack.enter_context(ProcessPoolExecutor(PROCESSES, get_context("spawn"))).map
        for setting in SETTINGS:
            known = any((row["setting"], row["method"]) == (setting.name, setting.method) for row in rows)
            if known or chosen not in f"{setting.name} {setting.method}":
                continue
            rows.append(study(setting, mapped))
            with OUT.open("w", newline="") as file:
                writer = csv.DictWriter(file, rows[0], lineterminator="\n")
                writer.writeheader()
                writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
            print(f"{setting.name}, {setting.method}: coverage {rows[-1]['coverage']:.3f}", flush=True)
    show("Log evidence against the exact one", rows)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
