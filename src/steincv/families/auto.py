"""The default: stack what can help, and spend in proportion to what can be gained."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..runtime.threads import both
from ..samples.samples import Samples
from ..stein.folds import Fold
from .kernel.kernel import Kernel
from .method import WORK_A_DRAW, Control, CrossFit, Method, Problem, Simpler
from .neural.neural import Neural
from .neural.trials import VectorField
from .polynomial.hermite import feature_count
from .polynomial.polynomial import Polynomial
from .stack import Stack, combine

# Below this share of the variance there is nothing left to win, only round-off.
SOLVED = 1e-18
# A vector field, one network an output, is trained only for outputs that keep more of their variance than this ...
UNSOLVED = 0.2
# ... and for this many networks at most.
MOST_NETWORKS = 48
# The choice of a member on fewer draws than this is a coin flip; the smallest sets get the simplest members only.
FEW, SOME = 60, 200


@dataclass(frozen=True)
class Auto(Method):
    """Stacks the plain mean, polynomials, a kernel and networks; which of them is decided by draws and dimension.

    Members come cheapest first. Outputs that one of them already solves to round-off are not fitted again, and vector
    fields are trained only where everything else leaves much. `result.info["members"]` lists weights, out-of-fold
    variance ratios and seconds.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> result = scv.estimate(scv.Samples(x, -x), np.tanh(x[..., 0]), scv.Auto())
    >>> bool(result.variance_ratio < 0.1)
    True
    """

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        n, dim = problems[0].z.shape
        return Stack(candidates(n, dim)).solve(problems, seed)

    def begin(
        self,
        samples: Samples,
        values: np.ndarray,
        folds: Sequence[Fold],
        *,
        seed: int = 0,
        outputs: np.ndarray | None = None,
    ) -> Callable[[], CrossFit]:
        start = time.perf_counter()
        n = min(len(fold.train.chains) * len(fold.train.draws) for fold in folds)
        judged = sum(len(fold.test.chains) * len(fold.test.draws) for fold in folds)
        f = values if outputs is None else values[..., outputs]
        asked = np.arange(values.shape[-1]) if outputs is None else np.arange(values.shape[-1])[outputs]
        left = np.ones(f.shape[-1])
        names: list[str] = []
        fits: list[CrossFit] = []

        def ask(member: Method, wanted: np.ndarray) -> tuple[Method, np.ndarray, Callable[[], CrossFit]]:
            return member, wanted, member.begin(samples, values, folds, seed=seed, outputs=asked[wanted])

        def add(member: Method, before: np.ndarray, begun: Callable[[], CrossFit]) -> None:
            """A member's g for the outputs that are still wanted, and zero for the others.

            It was begun for those wanted before the other members had their answers.
            """
            wanted = before & (left > SOLVED)
            if not wanted.any():
                return
            fit = begun() if (wanted == before).all() else ask(member, wanted)[2]()
            g = np.zeros_like(f)
            g[..., wanted] = fit.g
            names.append(str(member))
            fits.append(CrossFit(g, fit.info))
            np.minimum(left, _ratio(f, g, folds, judged), out=left)

        members = candidates(n, samples.dim)
        # the cheap ones at once; the others when it is known what they leave
        cheap = [ask(member, left > SOLVED) for member in members if isinstance(member, Polynomial)]

        def finish() -> CrossFit:
            for begun in cheap:
                add(*begun)
            dear = [ask(m, left > SOLVED) for m in members if not isinstance(m, Polynomial) and left.max() > SOLVED]
            # A kernel's linear algebra goes on while Python prepares a network's program. In the rare case that the
            # kernel solves some outputs to round-off the network is fitted again, to the others.
            if len(dear) == 2:
                (kernel, wanted, by_kernel), (network, _, by_network) = dear
                fit, deep_fit = both(by_kernel, by_network, samples.size * WORK_A_DRAW)
                dear = [(kernel, wanted, lambda: fit), (network, wanted, lambda: deep_fit)]
            for begun in dear:
                add(*begun)
            unsolved = left > UNSOLVED
            if n >= SOME and 0 < unsolved.sum() * len(folds) <= MOST_NETWORKS:
                add(*ask(Neural(VectorField(), penalty=1e-3, ensemble=1), unsolved))
            stacked = combine(names, fits, f, folds, start)
            return replace(stacked, simpler=_best_polynomial(stacked, names, fits)) if n >= SOME else stacked

        return finish


def _best_polynomial(stacked: CrossFit, names: Sequence[str], fits: Sequence[CrossFit]) -> Simpler:
    """Of each output the polynomial that leaves least: a kernel or a network can be far out at a draw or two."""
    few = [k for k, name in enumerate(names) if name.startswith(Polynomial.__name__)]
    ratios = np.array([stacked.info["members"][k]["variance_ratio"] for k in few])
    best = [few[int(k)] for k in ratios.argmin(axis=0)]
    g = np.stack([fits[k].g[..., out] for out, k in enumerate(best)], axis=-1)
    return Simpler(g, tuple(names[k] for k in best))


def candidates(n: int, dim: int) -> list[Method]:
    """The members that n fitting draws in `dim` dimensions can carry, cheapest first."""
    members: list[Method] = [Polynomial(1)]
    quadratic, cubic = feature_count(dim, 2), feature_count(dim, 3)
    if n >= FEW and quadratic <= 3 * n:
        members.append(Polynomial(2))
    if cubic <= n / 8:
        members.append(Polynomial(3))
    if n >= FEW and dim <= 40:
        landmarks = 500 if n > 1000 else None
        degree = 2 if quadratic <= n / 8 else 1
        members.append(Kernel("rational quadratic", degree=degree, landmarks=landmarks))
    if n >= SOME:
        members.append(Neural())
    return members


def _ratio(values: np.ndarray, g: np.ndarray, folds: Sequence[Fold], judged: int) -> np.ndarray:
    """Out-of-fold variance of f + g over that of f, at the draws that were judged."""
    whole = judged == values.shape[0] * values.shape[1]
    f = values if whole else folds[0].test.take(values)
    controlled = f + (g if whole else folds[0].test.take(g))
    size = np.abs(f).max(axis=(0, 1))
    unit = np.where(size > 0, size, 1.0)  # squares of f itself could overflow
    before, after = (f / unit).var(axis=(0, 1)), (controlled / unit).var(axis=(0, 1))
    return np.divide(after, before, out=np.zeros_like(after), where=before > 0)
