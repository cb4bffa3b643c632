"""A race on the first fold: which members are worth fitting on the others."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from .budget import LIMITS
from .method import CrossFit, Member, Training
from .stack import convex_weights, moments


def race(
    training: Training, asked: Sequence[Member], before: Sequence[CrossFit]
) -> tuple[list[tuple[Member, CrossFit]], list[Member]]:
    """Fit members on the first fold, those that are needed there on all folds, and return these and the dropped ones.

    A member with a sketch, a cheaper version of itself, sends that into the race.

    `before`: fits that are there already, which the stack has in any case.
    """
    if len(training.folds) == 1 or len(asked) <= 1:
        return list(zip(asked, training.fit(asked), strict=True)), []
    sketches = [member._replace(method=member.method.sketch(training.states)) for member in asked]
    first = training.fit(sketches, [[0]] * len(sketches))
    kept = _needed(training, asked, first, before)
    begun = [sketches[k].method is asked[k].method for k in kept]
    rest = training.fit([asked[k] for k in kept], [range(done, len(training.folds)) for done in begun])
    found = [
        (asked[k], _joined(first[k], fit) if done else fit) for k, done, fit in zip(kept, begun, rest, strict=True)
    ]
    return found, [member for k, member in enumerate(asked) if k not in kept]


def _needed(
    training: Training, asked: Sequence[Member], first: Sequence[CrossFit], before: Sequence[CrossFit]
) -> list[int]:
    """Return the numbers of the members without which the stack of the first fold would leave more.

    One after the other, the member that is missed least is taken out, as long as none of the outputs misses it much.
    """
    test, outputs = training.folds[0].test, training.f.shape[-1]
    some = np.unique(np.linspace(0, outputs - 1, min(outputs, LIMITS.raced_outputs)).astype(int))
    f = test.take(training.f)[..., some]
    size = np.abs(f - f[0, 0]).max(axis=(0, 1))
    f, unit = f / np.where(size > 0, size, 1.0), np.where(size > 0, size, 1.0)
    columns = [test.take(fit.g)[..., some] / unit for fit in before]
    for member, fit in zip(asked, first, strict=True):
        fitted = np.arange(outputs) if member.outputs is None else member.outputs
        mine, place = np.intersect1d(some, fitted, assume_unique=True, return_indices=True)[1:]
        g = np.zeros(f.shape)
        g[..., mine] = test.take(fit.g[..., place])
        columns.append(g / unit)
    second = moments(f, np.stack(columns))
    kept = np.ones(len(columns), dtype=bool)
    weights, now = _best(second, kept)
    left = now
    while kept[len(before) :].any():
        trials = {}
        for k in len(before) + np.flatnonzero(kept[len(before) :]):
            without = kept.copy()
            without[k] = False
            used = weights[k] > 0  # others are combined as before
            trials[k] = without, weights.copy(), left.copy()
            trials[k][1][:, used], trials[k][2][used] = _best(second[used], without)
        missed = {k: np.log(trial[2] / now) for k, trial in trials.items()}
        least = min(missed, key=lambda k: float(missed[k].mean()))
        if missed[least].max() > np.log(LIMITS.needed_by_one) or missed[least].mean() > np.log(LIMITS.needed_by_all):
            break
        kept, weights, left = trials[least]
    return [int(k) for k in np.flatnonzero(kept[len(before) :])]


def _best(second: Float[np.ndarray, "out column column"], kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the best convex combination of these members, and the variance it leaves, per output."""
    weights = convex_weights(second, np.repeat(kept[:, None], len(second), axis=1))
    whole = np.concatenate([1 - weights.sum(axis=0, keepdims=True), weights])
    left = np.einsum("ko,okl,lo->o", whole, second, whole)
    return weights, np.maximum(left, 1e-300)


def _joined(first: CrossFit, rest: CrossFit) -> CrossFit:
    """Return one fit of the first fold's and of all others'."""
    info = {
        "seconds": first.info["seconds"] + rest.info["seconds"],
        "folds": [*first.info["folds"], *rest.info["folds"]],
    }
    rest.g[...] += first.g
    return CrossFit(rest.g, info, fitted=[*first.fitted, *rest.fitted])
