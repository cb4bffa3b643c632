"""What is fitted on the classifier's draws, and judged on others: rows of numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from steincv.families.method import Problem as Fit
from steincv.families.neural.neural import CNCV, Neural
from steincv.families.polynomial.polynomial import Polynomial
from steincv.judging.diagnostics import stein_check
from steincv.judging.error_bars import average, split_rhat
from steincv.networks.network_field import NetworkField, coefficients
from steincv.networks.predictive import entropy, predictive
from steincv.samples.samples import Samples
from steincv.stein.coordinates import LIMITS
from steincv.stein.folds import make_folds

from .amortised import Amortised, unseen
from .amortised_fit import fit_amortised
from .bnn_draws import Problem, fall
from .embedding import ImageEmbedding
from .split import Split as Split

METHODS = ("linear", "CNCV, no decay", "low rank", "last layer")
RHAT = 1.05  # of a score, at most
GROUP = 4  # chains of one run whose interval is held against the mean of all the others


def fit(name: str, problem: Problem, split: Split, steps: int, seed: int) -> Callable[[Samples], np.ndarray]:
    """Return g at every image, the seen ones first. Linear control variates know no images: they are fitted to each."""
    seen, images = problem.seen, problem.images
    f = split.f_train[..., :seen]
    if name == "linear":
        return Polynomial(1).fit(split.train, split.f_train, seed=seed)
    if name == "last layer":
        field = NetworkField(problem.model, images)
        return field.fitted(coefficients(field.fields(split.train)[..., :seen, :], f), split.train.dim)
    if name == "low rank":
        trial = Amortised(images[:seen], width=147, shape="potential", embed=ImageEmbedding(), contexts=32)
        method = Neural(trial, penalty=1e-2, steps=steps // 2, batch=64, rate=2e-3, decay=1.0)
        fitted = method.fit(split.train, f, seed=seed)
        other = unseen(fitted, images[seen:], split.f_train[..., seen:])
        return lambda samples: np.concatenate([fitted(samples), other(samples)], axis=-1)
    return _as_published(problem, split, steps, seed)


def _as_published(problem: Problem, split: Split, steps: int, seed: int) -> Callable[[Samples], np.ndarray]:
    """Fit the paper's trial and objective on the weights themselves, in no other coordinates."""
    seen = problem.seen
    trial = Amortised(problem.images[:seen], embed=ImageEmbedding(), contexts=32)
    method = CNCV(trial, steps=steps, batch=64, rate=1e-3, decay=0.0)
    center, scale = split.f_train.mean(axis=(0, 1)), split.f_train.std(axis=(0, 1))
    scale = np.where(scale > 0, scale, 1.0)
    dim = split.train.dim
    y = ((split.f_train - center) / scale)[..., :seen].reshape(split.train.size, -1)
    flat = (split.train.draws.reshape(-1, dim), split.train.scores.reshape(-1, dim))
    made = Fit(*flat, y, (center / scale)[:seen], split.train.chains)
    (control,) = fit_amortised(method, [made], seed, (1e-3,))
    other = control.at(problem.images[seen:])  # type: ignore[attr-defined]

    def g(samples: Samples) -> np.ndarray:
        x, s = samples.draws.reshape(-1, dim), samples.scores.reshape(-1, dim)
        both = np.concatenate([control.evaluate(x, s), other.evaluate(x, s)], axis=1) * scale
        return both.reshape(*samples.draws.shape[:2], -1)

    return g


def ratio(controlled: np.ndarray, f: np.ndarray) -> np.ndarray:
    before, after = f.var(axis=(0, 1)), controlled.var(axis=(0, 1))
    return np.divide(after, before, out=np.ones_like(after), where=before > 0)


def ratio_rows(
    problem: Problem, split: Split, how: str, steps: int, seed: int, methods: Sequence[str] = METHODS
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Return per method and image the variance ratio on training and test draws, and the z value of g on the latter.

    And for every method the controlled scores of all images, from the test draws.
    """
    rows, scores = [], {}
    for name in methods:
        g = fit(name, problem, split, steps, seed)
        g_train, g_test = g(split.train), g(split.test)
        scores[name] = (split.f_test + g_test).mean(axis=(0, 1))
        means = average(g_test)
        z = means.mean / np.where(means.standard_error > 0, means.standard_error, np.inf)
        before, after = ratio(split.f_train + g_train, split.f_train), ratio(split.f_test + g_test, split.f_test)
        rows += [
            {"part": "ratio", "split": how, "method": name, "image": i, "seen": int(i < problem.seen),
             "ratio_train": float(before[i]), "ratio": float(after[i]), "z": float(z[i])}
            for i in range(len(problem.images))
        ]  # fmt: skip
    return rows, scores


def default_rows(problem: Problem, split: Split, seed: int) -> list[dict[str, Any]]:
    """Run the default of `predictive` on some chains, and judge its choice and its g on the others."""
    found = predictive(split.train, problem.model, problem.images, seed=seed)
    g = NetworkField(problem.model, problem.images).fit(split.train, split.f_train)(split.test)
    after = np.where(found.helped, ratio(split.f_test + g, split.f_test), 1.0)
    statuses = [", ".join(names) for names in found.status]
    return [
        {"part": "default", "method": "predictive()", "image": i, "seen": 1, "ratio": float(after[i]),
         "helped": int(found.helped[i]), "status": statuses[i]}
        for i in range(len(after))
    ]  # fmt: skip


class Known(NetworkField):
    """The default of `predictive` for draws whose fields are known already."""

    def __init__(self, model: Any, inputs: np.ndarray, samples: Samples, fields: np.ndarray):
        super().__init__(model, inputs)
        flat = samples.draws.reshape(-1, samples.dim)
        table = {draw.tobytes(): i for i, draw in enumerate(flat)}
        object.__setattr__(self, "_known", (table, fields.reshape(len(flat), *fields.shape[2:])))

    def found(self, samples: Samples, seed: int, like: object = None) -> tuple[np.ndarray, dict[str, Any]]:
        table, found = self._known  # type: ignore[attr-defined]
        rows = [table[draw.tobytes()] for draw in samples.draws.reshape(-1, samples.dim)]
        return found[rows].reshape(*samples.draws.shape[:2], *found.shape[1:]), {}


def coverage_rows(
    same: dict[str, Any], known: Known, samples: Samples, controlled: np.ndarray, times: int = 1
) -> list[dict[str, Any]]:
    """Take every few chains as a run; return how often its 95 % interval holds the mean of all other chains.

    Errors of one run are alike at all inputs, so a few runs say little: chains are cut into runs `times` times, the
    first time in order, then at random.
    """
    rows, rng, count = [], np.random.default_rng(0), max(2, samples.chains // GROUP)
    orders = [np.arange(samples.chains), *(rng.permutation(samples.chains) for _ in range(times - 1))]
    groups = [np.sort(group) for order in orders for group in np.array_split(order, count)]
    for k, group in enumerate(groups):
        others = np.setdiff1d(np.arange(samples.chains), group)
        run = Samples(samples.draws[group], samples.scores[group])
        found = predictive(run, known.model, known.inputs, known)
        truth = average(controlled[others])
        half = (found.interval()[..., 1] - found.mean) / found.standard_error
        off = np.abs(found.mean - truth.mean) / np.hypot(found.standard_error, truth.standard_error)
        rows.append(
            same | {"method": "predictive()", "group": k, "covered": float((off <= half).mean()),
                    "z_rms": float(np.sqrt((off**2).mean())), "ratio": float(found.variance_ratio.mean()),
                    "helped": float(found.helped.mean())}
        )  # fmt: skip
    return rows


def tempered_coverage(problem: Problem, samples: Samples, f: np.ndarray) -> list[dict[str, Any]]:
    fields = NetworkField(problem.model, problem.images).fields(samples)
    known = Known(problem.model, problem.images, samples, fields)
    g = known.cross_fit(samples, f, make_folds(*f.shape[:2])).g
    return coverage_rows({"part": "coverage"}, known, samples, f + g)


def score_rows(
    problem: Problem, samples: Samples, f: np.ndarray, controlled: dict[str, np.ndarray], seed: int
) -> list[dict[str, Any]]:
    """Return scores and entropies: plain, by the default of `predictive`, with every method, and of one MLE network."""
    found = predictive(samples, problem.model, problem.images, seed=seed)
    theta = jnp.asarray(fall(problem.model, seed, 400, prior=False))
    single = np.asarray(problem.model.predict(theta, problem.images))
    columns = {"plain BNN": f.mean(axis=(0, 1)), **controlled, "predictive()": found.mean, "single MLE network": single}
    errors = {"plain BNN": found.plain.standard_error, "predictive()": found.standard_error}
    return [
        {"part": "score", "method": name, "image": i, "seen": int(i < problem.seen), "score": float(p),
         "entropy": float(entropy(p)), "outside": int(not 0 <= p <= 1)}
        | ({"error": float(errors[name][i])} if name in errors else {})
        for name, column in columns.items()
        for i, p in enumerate(column)
    ]  # fmt: skip


def sampler_row(problem: Problem, samples: Samples, f: np.ndarray) -> dict[str, Any]:
    """Return how far the draws are from the posterior by their Stein means, and how large the scores get."""
    # so few that coordinates are scaled one by one: a covariance of 405 weights would be mostly noise
    every = -(-samples.size // (LIMITS.draws_per_dimension * samples.dim))
    check = stein_check(samples.select(np.arange(samples.chains), np.arange(0, samples.draws.shape[1], every)))
    z, s = np.abs(check.z), np.abs(samples.scores)
    size = np.sqrt((samples.scores**2).mean())
    rhat, ess, half = split_rhat(f), average(f).ess, samples.chains // 2
    one, two = average(f[:half]), average(f[half:])
    off = np.abs(one.mean - two.mean) / np.maximum(np.hypot(one.standard_error, two.standard_error), 1e-300)
    return {
        "part": "sampler",
        "draws": samples.size,
        "chains": samples.chains,
        "stein_z": float(min(z.max(), 1e6)),
        "stein_z_median": float(np.median(z)),
        "stein_share": float((z > 3).mean()),
        "score_rms": float(size),
        "score_largest": float(s.max() / size),
        "score_median": float(np.median(s) / size),
        "rhat": float(np.median(rhat)),
        "rhat_largest": float(rhat.max()),
        "rhat_share": float((rhat <= RHAT).mean()),
        "ess": float(np.median(ess)),
        "ess_least": float(ess.min()),
        "halves_agree": float((off < 2).mean()),
        "score_sd": float(f.std(axis=(0, 1)).mean()),
        "coin_flips": float(((f < 0.05) | (f > 0.95)).mean()),
        "source": problem.source,
    }
