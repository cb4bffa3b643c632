r"""Stacking: a convex combination of the plain mean and several control variates."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import nnls

from ..judging.error_bars import ROUND_OFF
from ..runtime.validation import InputError
from ..stein.folds import Block, Fold, make_folds
from .method import Control, CrossFit, Member, Method, Place, Problem, Term, Training, WeightedSum
from .spectral import window_sums

# Outputs whose moments are made at a time, so that memory does not grow with them.
PIECE = 256


@dataclass(frozen=True)
class Stack(Method):
    r"""$g = \sum_k w_k g_k$ with $w_k \ge 0$, $\sum_k w_k \le 1$, from the *out-of-fold* $g_k$ of the members.

    The weights minimise the variance of f + g at draws that the members were not fitted on. They are shrunk hard: a
    convex combination contains the plain mean and every single member, and cannot extrapolate. Each fold's weights
    come from the other folds.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> stack = scv.Stack([scv.Polynomial(1), scv.Polynomial(2)])
    >>> result = scv.estimate(scv.Samples(x, -x), x[..., 0] ** 2, stack)
    >>> bool(abs(result.mean - 1) < 1e-6)
    True

    Reference: Breiman (1996), Machine Learning 24; van der Laan, Polley, Hubbard (2007).
    """

    members: Sequence[Method]

    def __post_init__(self) -> None:
        members = tuple(self.members) if isinstance(self.members, Iterable) else ()
        if not members or not all(isinstance(member, Method) for member in members):
            raise InputError(f"The 'members' of Stack must be one or more methods. Got {self.members!r} instead.")
        object.__setattr__(self, "members", members)

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        return [self._solve(problem, seed) for problem in problems]

    def _solve(self, problem: Problem, seed: int) -> Control:
        chains, outputs = problem.chains, problem.y.shape[1]
        draws = len(problem.z) // chains
        folds = make_folds(chains, draws)
        parts = [_part(problem, fold.train) for fold in folds]
        g = np.zeros((len(self.members), chains, draws, outputs))
        final = []
        for k, member in enumerate(self.members):
            *inner, whole = member.solve([*parts, problem], seed)
            final.append(whole)
            for fold, control in zip(folds, inner, strict=True):
                test = _part(problem, fold.test)
                size = (len(fold.test.chains), len(fold.test.draws), outputs)
                fold.test.put(g[k], control.evaluate(test.z, test.s).reshape(size))
        weights = convex_weights(moments(problem.y.reshape(chains, draws, outputs), g))

        def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
            return sum(w * control.evaluate(z, s) for w, control in zip(weights, final, strict=True))

        return Control(evaluate, {"weights": weights.tolist(), "members": [str(m) for m in self.members]})

    def across(self, training: Training) -> CrossFit:
        start = time.perf_counter()
        names = [str(member) for member in self.members]
        simple = [m for m in self.members if type(m).across is Method.across]
        fits = dict(zip(map(id, simple), training.fit([Member(m, m.kind(training)) for m in simple]), strict=True))
        found = [fits[id(m)] if id(m) in fits else m.across(training) for m in self.members]
        return combine(names, found, training.f, training.folds, start)


def combine(
    names: Sequence[str],
    fits: Sequence[CrossFit],
    values: np.ndarray,
    folds: Sequence[Fold],
    start: float,
    within: float = np.inf,
    windows: Int[np.ndarray, " out"] | None = None,
) -> CrossFit:
    """Stack out-of-fold control variates; the weights of a fold come from the others.

    `windows`: of so many draws of each output, where chains are slow: what counts is then the variance of their means.

    A member enters the stack of an output only if it leaves at most `within` times the variance that the best leaves:
    one that is far out at a few draws looks good in the folds that do not have them.
    """
    columns = [fit.g for fit in fits]
    size = np.abs(values - values[0, 0]).max(axis=(0, 1))
    size = np.where(size > 0, size, 1.0)

    def of_fold(test: Block, some: slice) -> np.ndarray:
        f = test.take(values[..., some]) / size[some]
        g = np.stack([test.take(column[..., some]) for column in columns]) / size[some]
        return moments(f, g, None if windows is None else windows[some])

    few = [slice(k, k + PIECE) for k in range(0, values.shape[-1], PIECE)]
    parts = [np.concatenate([of_fold(fold.test, some) for some in few]) for fold in folds]
    total = np.sum(parts, axis=0)
    g = np.zeros_like(values)
    # With a single held-out fold there is no other one; its own few weights hardly matter.
    others = [np.sum(parts[:k] + parts[k + 1 :], axis=0) for k in range(len(parts))] if len(folds) > 1 else parts
    left = np.maximum(np.einsum("okk->ko", total), 0)
    kept = None if np.isinf(within) else left[1:] <= within * left[1:].min(axis=0)
    weights = [convex_weights(moment, kept) for moment in others]
    for fold, w in zip(folds, weights, strict=True):
        fold.test.put(g, sum(wk * fold.test.take(c) for wk, c in zip(w, columns, strict=True)))
    ratio = np.divide(left[1:], left[0], out=np.ones_like(left[1:]), where=left[0] > 0)
    members = [
        {
            "method": name,
            "weight": np.mean([w[k] for w in weights], axis=0).tolist(),
            "variance_ratio": ratio[k].tolist(),
            "seconds": fit.info.get("seconds", 0.0),
        }
        for k, (name, fit) in enumerate(zip(names, fits, strict=True))
    ]
    functions = [
        WeightedSum([Term(fit.fitted[k], wk) for fit, wk in zip(fits, w, strict=True)], values.shape[-1])
        for k, w in enumerate(weights)
        if all(fit.fitted for fit in fits)
    ]
    return CrossFit(g, {"seconds": time.perf_counter() - start, "members": members}, fitted=functions)


def moments(
    values: Float[np.ndarray, "chain draw out"],
    g: Float[np.ndarray, "member chain draw out"],
    windows: Int[np.ndarray, " out"] | None = None,
) -> Float[np.ndarray, "out column column"]:
    """Centred second moments of f and of f + g of every member: of single draws, or of sums over `windows` of them."""
    columns = np.concatenate([values[None], values + g])
    columns = columns - columns.mean(axis=(1, 2), keepdims=True)
    if windows is None:
        columns = columns.reshape(len(columns), -1, values.shape[-1])
        return np.einsum("jno,kno->ojk", columns, columns, optimize=True)
    sums = [window_sums(np.moveaxis(columns[..., out], 0, -1), int(width)) for out, width in enumerate(windows)]
    return np.stack([each.T @ each for each in sums])


def convex_weights(
    second_moments: Float[np.ndarray, "out column column"], kept: Bool[np.ndarray, "member out"] | None = None
) -> Float[np.ndarray, "member out"]:
    r"""The weights of the members that minimise $w^T C w$ over the simplex, whose first corner is the plain mean.

    With $C = A^T A$, the minimiser is that of $|A u|^2 + (1 - \sum_k u_k)^2$ over $u \ge 0$, made to sum to one.
    """
    weights = np.zeros((second_moments.shape[1] - 1, len(second_moments)))
    for out, whole in enumerate(second_moments):
        members = np.arange(len(weights)) if kept is None else np.flatnonzero(kept[:, out])
        columns = np.r_[0, 1 + members]
        c = whole[np.ix_(columns, columns)]
        if c[0, 0] <= ROUND_OFF**2 * np.trace(c):  # f does not vary: nothing to reduce
            continue
        u = _least(c / c[0, 0])
        if u.sum() > 0:
            weights[members, out] = u[1:] / u.sum()
    return weights


def _least(c: Float[np.ndarray, "column column"]) -> Float[np.ndarray, " column"]:
    r"""Return the $u \ge 0$ that minimises $u^T C u + (1 - \sum_k u_k)^2$.

    SciPy's solver may go in circles where columns are nearly equal, or of very different size. It is then asked for
    columns of length one with a little noise of their own each; at last the best column is taken alone.
    """
    target = np.append(np.zeros(len(c)), 1.0)
    size = np.sqrt(c.diagonal() + ROUND_OFF)
    for unit, noise in ((np.ones(len(c)), 0.0), (size, ROUND_OFF)):
        values, vectors = np.linalg.eigh(c / np.outer(unit, unit))
        root = np.sqrt(np.maximum(values, 0) + noise)[:, None] * vectors.T
        try:
            return np.asarray(nnls(np.vstack([root, 1 / unit]), target)[0]) / unit
        except RuntimeError:
            continue
    return np.eye(len(c))[c.diagonal().argmin()]


def _part(problem: Problem, block: Block) -> Problem:
    """The block's draws of a problem, in the same standard coordinates."""
    draws = len(problem.z) // problem.chains

    def cut(x: np.ndarray) -> np.ndarray:
        return block.take(x.reshape(problem.chains, draws, -1)).reshape(len(block.chains) * len(block.draws), -1)

    place = problem.place and Place(problem.place.sample, cut(problem.place.draw)[:, 0])
    return Problem(cut(problem.z), cut(problem.s), cut(problem.y), problem.offset, len(block.chains), place=place)
