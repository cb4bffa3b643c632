"""Bayesian regression networks, a curve and the mileage of cars: NUTS, judged on other chains and inputs."""

import functools
import time
from typing import Any

import numpy as np

from steincv.families.polynomial.polynomial import Polynomial
from steincv.judging.diagnostics import stein_check
from steincv.judging.error_bars import average, split_rhat
from steincv.networks.full_gradient import full_gradient
from steincv.networks.network import Regressor
from steincv.networks.network_field import NetworkField, coefficients
from steincv.networks.predictive import predictions
from steincv.runtime.validation import InputError
from steincv.samples.samples import Samples
from steincv.stein.folds import make_folds

from .bnn_fits import Known, coverage_rows, ratio

TIMES = 6  # chains are cut into runs of four, over which coverage is counted


@functools.lru_cache(maxsize=4)  # compiled once
def table(name: str, seed: int) -> tuple[Regressor, np.ndarray]:
    """The network with its training data, and inputs to predict at: the first half seen by the fit, the others not."""
    rng = np.random.default_rng([seed, 3])
    if name == "curve":
        x = np.concatenate([rng.uniform(-2, -0.5, 25), rng.uniform(0.5, 2, 25)])[:, None]
        y = np.sin(2 * x[:, 0]) + 0.3 * x[:, 0] + 0.1 * rng.normal(size=50)
        return Regressor(x, y, noise=0.1), rng.permutation(np.linspace(-3, 3, 60))[:, None]
    try:
        from mlxtend.data import autompg_data
    except ImportError as error:
        raise InputError("the table of cars is mlxtend's: pip install 'steincv[bnn]'.") from error
    x, y = autompg_data()
    x, y = x[:, :7], (y - y.mean()) / y.std()
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    order = rng.permutation(len(x))
    return Regressor(x[order[:292]], y[order[:292]], noise=0.35), x[order[292:]]


def regression_draws(name: str, chains: int, draws: int, warmup: int, seed: int, run: int = 0) -> Samples:
    """Sample by NUTS; runs of one seed share the data."""
    model, _ = table(name, seed)
    start = 0.5 * np.random.default_rng([seed, 4, run]).normal(size=(chains, model.dim))
    return full_gradient(model.log_posterior, start, draws=draws, warmup=warmup, seed=seed + run)


def regression_rows(name: str, chains: int, draws: int, warmup: int, seed: int) -> list[dict[str, Any]]:
    begin = time.perf_counter()
    samples = regression_draws(name, chains, draws, warmup, seed)
    return judged(name, samples, seed, time.perf_counter() - begin)


def judged(name: str, samples: Samples, seed: int, seconds: float) -> list[dict[str, Any]]:
    model, inputs = table(name, seed)
    f = predictions(samples, model.predict, inputs)
    half, seen = samples.chains // 2, len(inputs) // 2
    own = NetworkField(model, inputs, orbits=0).fields(samples)
    known = Known(model, inputs, samples, NetworkField(model, inputs).fields(samples))
    z, rhat, ess = np.abs(stein_check(samples).z), split_rhat(f), average(f).ess
    same = _same(name, samples)
    rows: list[dict[str, Any]] = [same | {"part": "regression sampler", "method": "NUTS", "stein_z": float(z.max()),
                                          "stein_share": float((z > 3).mean()), "rhat_largest": float(rhat.max()),
                                          "ess_least": float(ess.min()), "seconds": seconds}]  # fmt: skip
    train = Samples(samples.draws[:half], samples.scores[:half])
    test = Samples(samples.draws[half:], samples.scores[half:])
    each = {"last layer": own[..., :1], "Gauss-Newton": own, "orbits": known.fields(samples)}
    for method, fields in each.items():
        c = coefficients(fields[:half, :, :seen], f[:half, :, :seen])
        g = fields[half:] @ c
        rows += _ratios(same | {"method": method, "coefficients": " ".join(f"{v:.3g}" for v in c)}, f[half:], g, seen)
    rows += _ratios(same | {"method": "linear"}, f[half:], Polynomial(1).fit(train, f[:half])(test), seen)
    # what `predictive` does: all inputs are asked for, and their fields serve each other
    rows += _ratios(same | {"method": "predictive()"}, f[half:], known.fit(train, f[:half])(test), len(inputs))
    return rows + covered(name, samples, known, f, TIMES)


def covered(name: str, samples: Samples, known: Known, f: np.ndarray, times: int) -> list[dict[str, Any]]:
    """Return how often intervals of four chains hold the mean of all others."""
    g = known.cross_fit(samples, f, make_folds(*f.shape[:2])).g
    return coverage_rows(_same(name, samples) | {"part": "regression coverage"}, known, samples, f + g, times)


def _same(name: str, samples: Samples) -> dict[str, Any]:
    size = {"dim": samples.dim, "draws": samples.size, "chains": samples.chains}
    return {"part": "regression", "data": name, **size}


def _ratios(same: dict[str, Any], f: np.ndarray, g: np.ndarray, seen: int) -> list[dict[str, Any]]:
    left, means = ratio(f + g, f), average(g)
    z = means.mean / np.where(means.standard_error > 0, means.standard_error, np.inf)
    return [
        same | {"image": i, "seen": int(i < seen), "ratio": float(left[i]), "z": float(z[i])} for i in range(len(left))
    ]
