"""`steincv.estimate` of draws in a file: passes, fits, error bars, verdict."""

import time
from typing import Any

import numpy as np

from ..estimating import enough, estimate, feature_counts, report
from ..families.method import Method
from ..families.monte_carlo import MonteCarlo
from ..families.neural.neural import Neural
from ..families.polynomial.hermite import feature_count
from ..families.polynomial.polynomial import Polynomial
from ..judging.diagnostics import (
    LOW_ESS,
    RHAT_LIMIT,
    STEIN_LIMIT,
    TAIL_LIMIT,
    WHITENED,
    Moved,
    moved_scores,
    stein_labels,
    stein_z,
    value_status,
)
from ..judging.error_bars import Average
from ..judging.status import Code, Status
from ..judging.verdict import verdict
from ..runtime.memory import reserve
from ..runtime.threads import blas_threads
from ..runtime.validation import InputError, whole_number
from ..samples.samples import Samples
from ..samples.source import Source
from ..samples.values import Values
from .coordinates import FoldMap
from .functions import Functions
from .passes import LANES, Control, FoldSums, Passed, Stream, joined
from .polynomial import Moments, fit_polynomial
from .products import BlockProducts
from .segments import range_folds

# Without a method: the quadratic up to this many dimensions, for its sums are (dim^2 / 2)^2 numbers a fold.
QUADRATIC = 60
# Whether scores were moved by a draw is asked of this many draws at the beginning of every chain.
HEAD = 20_000
WORKS = "MonteCarlo(), Polynomial(1), Polynomial(2), Neural(...), NCV() and CNCV()"


def streamed_estimate(
    source: Source,
    f: Any,
    method: Method | None,
    *,
    stat: tuple[str, ...],
    seed: int,
    folds: int | None,
    gap: int,
    cross_fit: bool,
    guard: bool,
    executor: Any,
) -> Any:
    """`steincv.estimate` of draws in a file."""
    start = time.perf_counter()
    chains, draws, dim = source.shape
    method = Polynomial(2 if dim <= QUADRATIC else 1) if method is None else method
    degree = _degree(method)
    refused = {"stat": stat != ("mean",), "cross_fit": not cross_fit, "executor": executor is not None}
    for name in (name for name, given in refused.items() if given):
        raise InputError(f"`{name}` is not for draws in a file. Leave it out, or read the draws into steincv.Samples.")
    seed = whole_number("seed", seed, 0)
    enough(f"{source.where} holds", chains, draws)
    plan = range_folds(chains, draws, folds, gap)
    features = feature_count(dim, degree)
    if min(fold.fitted_on for fold in plan) < 2 * max(features, dim) + 2:
        samples, target = _whole(source, f)  # so few draws that there is nothing to gain from sums
        return estimate(samples, target, method, seed=seed, folds=folds, gap=gap, guard=guard)
    functions = Functions.of(f, source)
    with blas_threads(0):
        stream = Stream.of(source, functions, plan, degree)
        products = BlockProducts.of(stream, LANES)
        sums, judged = stream.first_pass(products)
        maps = [FoldMap.of(s, stream.provisional, source.names) for s in sums.folds]
        controls, infos = _fit(method, stream, sums, maps, judged, seed)
        everything = FoldMap.of(sums.everything, stream.provisional, source.names)
        if products is None:
            passed = stream.second_pass(controls, everything, judged[0])
        else:
            passed = products.passed(controls, everything, sums)
    info = {
        "seconds": time.perf_counter() - start,
        "folds": infos,
        "streamed": {"draws": chains * draws, "block": passed.blocks.size, "blocks": passed.blocks.count},
    }
    alarms = _stein_status(passed.stein.average(), _moved(source), dim)
    return _result(passed, str(method), info, guard, alarms)


def _degree(method: Method) -> int:
    """The degree of the sums that the method needs."""
    if isinstance(method, Polynomial) and method.degree <= 2:
        return method.degree
    if isinstance(method, MonteCarlo | Neural):
        return 1
    raise InputError(f"{method} cannot be fitted to draws in a file. What can: {WORKS}.")


def _fit(
    method: Method, stream: Stream, sums: FoldSums, maps: list[FoldMap], judged: list[tuple], seed: int
) -> tuple[list[Control], list[dict[str, Any]]]:
    if isinstance(method, Polynomial):
        fits = [
            fit_polynomial(few, Moments.of(all_), m, stream.target, rows, method.degree, method.penalty)
            for few, all_, m, rows in zip(sums.regressions, sums.folds, maps, judged, strict=True)
        ]
        return list(fits), [fit.info for fit in fits]
    if isinstance(method, Neural):
        from .networks import fit_networks

        return fit_networks(method, stream, sums.folds, maps, seed)
    outputs = len(stream.target.center)
    return [lambda t, s: np.zeros((outputs, t.shape[1])) for _ in maps], [{} for _ in maps]


def _whole(source: Source, f: Any) -> tuple[Samples, Any]:
    """All draws in memory, and f as `steincv.estimate` takes it."""
    chains, draws, dim = source.shape
    reserve(f"{source.where}: its {chains * draws} draws", 48.0 * chains * draws * dim, "Use a lower degree.")
    names = [f] if isinstance(f, str) else f if isinstance(f, list | tuple) else []
    pieces = list(source.tiles(names))
    samples = Samples(joined(p.draws for p in pieces), joined(p.scores for p in pieces), source.names)
    others = [joined(p.others[k] for p in pieces) for k in range(len(names))]
    return samples, dict(zip(names, others, strict=True)) if names else f


def _result(passed: Passed, method: str, info: dict[str, Any], guard: bool, alarms: list[Status]) -> Any:
    values = Values(passed.plain.means(), passed.labels, passed.shape)
    plain, better = passed.plain.average(), passed.controlled.average()
    ess = np.minimum(plain.ess, better.ess)
    statuses = value_status(values.array, ess) if passed.blocks.size == 1 else _value_status(passed, ess)
    controlled, methods = passed.controlled.means(), [method] * len(values.labels)
    features, fitted_on = feature_counts(info)
    largest = passed.plain.largest
    found = verdict(plain, better, largest, statuses, alarms, guard=guard, features=features, fitted_on=fitted_on)
    return report(values, controlled, plain, found, methods, info)


def _value_status(passed: Passed, ess: np.ndarray) -> list[list[Status]]:
    """As `_diagnostics.value_status`, from what was kept of the draws."""
    rhat = passed.plain.split_rhat()
    statuses: list[list[Status]] = [[] for _ in passed.labels]
    for k, found in enumerate(statuses):
        if ess[k] < LOW_ESS:
            found.append(Status.of(Code.LOW_ESS, ess=ess[k]))
        if rhat[k] > RHAT_LIMIT:
            found.append(Status.of(Code.CHAINS_DISAGREE, rhat=rhat[k], limit=RHAT_LIMIT))
        if passed.tail[k] > TAIL_LIMIT:
            found.append(Status.of(Code.HEAVY_TAIL, khat=passed.tail[k], limit=TAIL_LIMIT))
    return statuses


def _moved(source: Source) -> Moved:
    """Whether the scores at the beginning of the file are those of a neighbouring draw."""
    (piece,) = source.tiles(starts=[0])
    draws, scores = (np.asarray(a[:, :HEAD], dtype=float) for a in (piece.draws, piece.scores))
    scale = np.abs(draws - draws[0, 0]).max(axis=(0, 1))  # its size is enough
    return moved_scores(Samples.trusted(draws, scores, source.names), np.where(scale > 0, scale, 1.0))


def _stein_status(means: Average, moved: Moved, dim: int) -> list[Status]:
    """As `_diagnostics.stein_check`, from averages that are there already."""
    z = np.append(stein_z(means, dim, whitened=True), moved.z)
    if means.ess[:dim].min() < WHITENED * dim:  # the coordinates are mostly noise; their sum does not depend on them
        z[dim : 2 * dim] = 0.0
    worst = int(np.argmax(np.abs(z)))
    if abs(z[worst]) <= STEIN_LIMIT:
        return []
    return [Status.of(Code.STEIN_MEAN, worst=stein_labels(dim)[worst], z=z[worst])]
