r"""Control functionals: Phi in the reproducing kernel Hilbert space of a radial kernel."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg.lapack import dtrtrs

from ...runtime.threads import blas_threads
from ...runtime.validation import InputError, reserve
from ..method import Control, Method, Problem
from ..polynomial.polynomial import feature_count, stein_features
from .control_functional import JITTER, NormalEquations, control_functional, factorise
from .distinct import FOLDS, Distinct
from .stein_kernels import KERNELS, SteinKernel


class Search(NamedTuple):
    """What "auto" tries, on how many draws, and how large a piece of work is.

    - `lengthscales`: candidates, in medians of the distance between draws; `penalties`: those for the penalty. The
      largest come first: of two that do equally well the first is taken, and it is the safer one.
    - `fewest`, `most`: draws on which the choice is made, so that it costs less than the fit.
    - `sketched`: landmarks with which a race is run, and draws on which their length scale is chosen.
    - `outputs`: by which a length scale is chosen where the penalties are not, evenly spaced.
    - `factors`: different penalties in one fit; outputs share the factorisations of all draws.
    - `worth`: an output has another length scale than most, or a penalty behind a rise, where that leaves so many times
      less of its variance.
    - `entries`: numbers in a temporary array, 32 MiB of them.
    - `device`: draws from which an accelerator is asked; a CPU fits fewer before the arrays have travelled.
    """

    lengthscales: tuple[float, ...] = (10.0, 5.5, 3.0, 1.7, 1.0, 0.55, 0.3)
    penalties: tuple[float, ...] = (1e2, 1.0, 1e-1, 1e-2, 1e-4, 1e-6, 1e-8)
    fewest: int = 400
    most: int = 800
    sketched: int = 200
    outputs: int = 64
    factors: int = 2
    worth: float = 2.0
    entries: int = 2**22
    device: int = 3000


SEARCH = Search()
# At landmarks only the length scale is chosen on few draws: the penalty comes from all.
COARSE = SEARCH.penalties[1::2]


@dataclass(frozen=True)
class Kernel(Method):
    r"""$g(x) = -(P(x)\beta + \sum_i \alpha_i K_0(x, x_i))$ with $K_0$ the Stein operator on both sides of k.

    $\alpha$ and $\beta$ are those of the regression f = beta_0 + P beta + K_0 alpha with the penalty
    $\lambda\,\overline{\mathrm{diag}K_0}\;\alpha^T K_0\alpha$. All outputs with the same penalty share one
    factorisation. Rejected proposals, that is repeated draws, count as one draw with a larger weight.

    **Arguments:**

    - `kernel`: with u = |x - y|^2 in standard coordinates, "gaussian" exp(-u / lengthscale^2), "rational
      quadratic" 1 / (1 + u / lengthscale^2), or "matern" of smoothness 5/2 (order 1) or 9/2 (order 2).
    - `lengthscale`: a positive number, or "auto": out-of-fold variance over 0.3 to 10 median distances, two of them
      where outputs differ.
    - `degree`: P are the Stein features of all polynomials up to this degree, not penalised. 1 or more
      is the semi-exact control functional: exact for such polynomials under a Gaussian density.
    - `landmarks`: use the kernel at this many of the draws only (Nystrom). Time is then linear in draws.
    - `order`: 1 for a vector field Phi, 2 for a gradient field Phi = grad Q.
    - `penalty`: lambda in [0, inf), or "auto": the least out-of-fold variance, for each output. Where
      nothing beats the plain mean it is infinite and g = 0. Folds are whole chains or contiguous
      blocks, because leaving out one draw of a Markov chain leaves its near-copies in.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> f = np.sin(x[..., 0]) + x[..., 1]
    >>> g = scv.Kernel().fit(scv.Samples(x, -x), f)(scv.Samples(x, -x))[..., 0]
    >>> bool(np.var(f + g) < 1e-3 * np.var(f))
    True

    Reference: Oates, Girolami, Chopin (2017), JRSS B 79; South, Karvonen, Nemeth, Girolami, Oates
    (2022), Biometrika 109.
    """

    kernel: str = "gaussian"
    lengthscale: float | Literal["auto"] = "auto"
    degree: int = 0
    landmarks: int | None = None
    order: int = 1
    penalty: float | Literal["auto"] = "auto"

    together = False

    def __post_init__(self) -> None:
        self._check("kernel", self.kernel in KERNELS, f"one of {', '.join(map(repr, KERNELS))}")
        number = _is_number(self.lengthscale) and 0 < float(self.lengthscale) < np.inf
        self._check("lengthscale", self.lengthscale == "auto" or number, "'auto' or a positive number")
        self._check("degree", _is_whole(self.degree) and self.degree >= 0, "a whole number of at least 0")
        counted = self.landmarks is None or (_is_whole(self.landmarks) and self.landmarks >= 1)
        self._check("landmarks", counted, "None or a whole number of at least 1")
        self._check("order", _is_whole(self.order) and self.order in (1, 2), "1 or 2")
        number = _is_number(self.penalty) and 0 <= float(self.penalty) < np.inf
        self._check("penalty", self.penalty == "auto" or number, "'auto' or a number in [0, inf)")

    def _check(self, name: str, valid: bool, allowed: str) -> None:
        if not valid:
            got = getattr(self, name)
            raise InputError(f"The '{name}' parameter of Kernel must be {allowed}. Got {got!r} instead.")

    def sketch(self, states: int = 1) -> Method:
        fewer = self.landmarks is not None and self.landmarks > SEARCH.sketched
        return replace(self, landmarks=SEARCH.sketched) if fewer else self

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is looked for, and refused with numbers
            return [self._solve(problem, seed) for problem in problems]

    def _solve(self, problem: Problem, seed: int) -> Control:
        draws = Distinct.of(problem)
        n, dim = draws.z.shape
        features = feature_count(dim, self.degree)
        if features + 1 >= n:
            raise InputError(
                f"Kernel(degree={self.degree}) has {features} polynomial features in {dim} dimensions, but "
                f"there are only {n} distinct draws to fit them on. Use a lower degree."
            )
        m = n if self.landmarks is None else min(n, self.landmarks)
        everywhere = m == n
        self._reserve(n, m, features, draws.y.shape[1])
        lengthscale, penalty = self._choose(draws, m)
        centres = draws if everywhere else draws.part(_one_of_each_stretch(n, m, seed))
        beta, alpha = np.zeros((features, len(penalty))), np.zeros((m, len(penalty)))
        parts = [(float(one), np.flatnonzero(lengthscale == one)) for one in np.unique(lengthscale)]
        for one, outputs in parts:
            kernel, some = SteinKernel(self.kernel, one, self.order), replace(draws, y=draws.y[:, outputs])
            if everywhere:
                beta[:, outputs], alpha[:, outputs] = self._fit(some, kernel, penalty[outputs])
            else:
                penalty[outputs], beta[:, outputs], alpha[:, outputs] = self._fit_landmarks(some, centres, kernel)
        if not (np.isfinite(alpha).all() and np.isfinite(beta).all()):
            raise InputError(
                f"The kernel regression on {n} draws is not finite (length scale {lengthscale.max():.3g}, penalty "
                f"{penalty.min():.1e}, largest score {np.abs(draws.s).max():.1e}). Give a larger `penalty`."
            )

        def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
            g = np.zeros((len(z), alpha.shape[1]))
            for one, outputs in parts:
                if alpha[:, outputs].any():
                    kernel = SteinKernel(self.kernel, one, self.order)
                    g[:, outputs] -= kernel.times(z, s, centres.z, centres.s, alpha[:, outputs])
            if beta.any():
                for rows in _pieces(len(z), features):
                    g[rows] -= self._features(z[rows], s[rows]) @ beta
            return g

        info = {
            "lengthscale": lengthscale.tolist(),
            "penalty": penalty.tolist(),
            "features": features,
            "landmarks": m,
            "distinct_draws": n,
        }
        return Control(evaluate, info)

    def _features(self, z: Float[np.ndarray, "n dim"], s: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n k"]:
        return stein_features(z, s, self.degree) if self.degree else np.empty((len(z), 0))

    def _reserve(self, n: int, m: int, features: int, out: int) -> None:
        if m == n:
            # The factor takes the place of the matrix; features and values are there once, whitened once
            # more, and twice in the least-squares solver.
            needed = 8.0 * (n * n + 4 * n * (features + out))
            reserve(f"Kernel() on {n} distinct draws", needed, "Use Kernel(landmarks=1000).")
            return
        k = 1 + features + m
        needed = 8.0 * ((FOLDS + 3) * k * k + 3 * max(SEARCH.entries, k) + 4 * n * out)
        reserve(f"Kernel(landmarks={self.landmarks}) on {n} distinct draws", needed, "Use fewer landmarks.")

    def _choose(self, draws: Distinct, m: int) -> tuple[Float[np.ndarray, " out"], Float[np.ndarray, " out"]]:
        """The length scale and the penalty of every output, by the out-of-fold variance; two length scales at most.

        The kernel is to sit at m of the draws.

        A smooth f wants a long one. A wave or a step that has to share it is followed between the draws and missed
        beyond them, by many times its size.
        """
        out = draws.y.shape[1]
        n = len(draws.z)
        everywhere = m == n
        given = np.full(out, np.inf if self.penalty == "auto" else float(self.penalty))
        # At landmarks the penalty is chosen on all draws, in `_fit_landmarks`.
        if self.lengthscale != "auto" and (self.penalty != "auto" or not everywhere):
            return np.full(out, float(self.lengthscale)), given
        few, most = (SEARCH.fewest, SEARCH.most) if everywhere else (SEARCH.sketched, SEARCH.fewest)
        size = min(n, max(few, min(most, n // 5 if everywhere else m)))
        part = draws.part(np.linspace(0, n - 1, size).astype(int))
        if not everywhere:
            part = replace(part, y=part.y[:, :: -(-out // SEARCH.outputs)])
        if self.lengthscale == "auto":
            unit = median_distance(part.z)
            candidates = [unit * multiple for multiple in SEARCH.lengthscales]
        else:
            candidates = [float(self.lengthscale)]
        penalties = (SEARCH.penalties if everywhere else COARSE) if self.penalty == "auto" else (float(self.penalty),)
        ratios: dict[int, np.ndarray] = {}

        def left(k: int) -> Float[np.ndarray, " out"]:
            if k not in ratios:
                kernel = SteinKernel(self.kernel, candidates[k], self.order)
                ratios[k] = self._out_of_fold(part, kernel, penalties)
            return np.asarray(np.log(np.clip(ratios[k].min(axis=0), 1e-12, 1.0)))

        best = _descend(lambda k: float(left(k).mean()), len(candidates))
        if part.y.shape[1] < out:  # only some outputs were looked at
            return np.full(out, candidates[best]), given
        other = min(ratios, key=lambda k: float(np.minimum(left(k), left(best)).mean()))
        used = np.where(left(other) < left(best) - np.log(SEARCH.worth), other, best)
        for k in np.unique(used) if self.penalty == "auto" else ():
            given[used == k] = least_penalty(ratios[k][:, used == k], penalties, SEARCH.factors)
        return np.asarray(candidates)[used], given

    def _out_of_fold(
        self, draws: Distinct, kernel: SteinKernel, penalties: Sequence[float]
    ) -> Float[np.ndarray, "penalty out"]:
        """The variance of f + g over that of f, for every penalty, each fold by a fit on the others."""
        K0 = kernel.gram(draws.z, draws.s)
        size = K0.diagonal().mean()
        P = self._features(draws.z, draws.s)
        controlled = np.repeat(draws.y[None], len(penalties), axis=0)
        for fold in np.unique(draws.fold):
            test, train = np.flatnonzero(draws.fold == fold), np.flatnonzero(draws.fold != fold)
            K_train, K_test = K0[np.ix_(train, train)], K0[np.ix_(test, train)]
            for i, penalty in enumerate(penalties):
                nugget = (penalty / draws.count[train] + JITTER) * size
                fit = control_functional(K_train, draws.y[train], P[train], nugget)
                controlled[i, test] -= K_test @ fit.alpha + P[test] @ fit.beta
        return draws.variance(controlled) / draws.plain_variance()

    def _fit(
        self, draws: Distinct, kernel: SteinKernel, penalty: Float[np.ndarray, " out"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """beta and alpha of every output; outputs of equal penalty share a factorisation."""
        P = self._features(draws.z, draws.s)
        beta, alpha = np.zeros((P.shape[1], len(penalty))), np.zeros((len(P), len(penalty)))
        for value in np.unique(penalty[np.isfinite(penalty)]):
            columns = np.flatnonzero(penalty == value)
            if len(P) >= SEARCH.device:
                from . import device as device  # brings JAX, which the closed forms do without

                if device.accelerator():
                    given = (kernel, draws.z, draws.s, draws.y[:, columns], P, value / draws.count)
                    fit = device.control_functional_on_device(*given)
                    beta[:, columns], alpha[:, columns] = fit.beta, fit.alpha
                    continue
            # Made anew for each penalty: cheap next to its factor, and one matrix is all that is ever held.
            K0 = kernel.gram(draws.z, draws.s)
            nugget = (value / draws.count + JITTER) * K0.diagonal().mean()
            with blas_threads(len(P) ** 3 / 3):
                fit = control_functional(K0, draws.y[:, columns], P, nugget, overwrite=True)
            beta[:, columns], alpha[:, columns] = fit.beta, fit.alpha
        return beta, alpha

    def _fit_landmarks(
        self, draws: Distinct, centres: Distinct, kernel: SteinKernel
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Penalties, beta and alpha of the ridge regression on the kernel at the landmarks."""
        K0 = kernel.gram(centres.z, centres.s)
        size, m = K0.diagonal().mean(), len(K0)
        L = factorise(K0, JITTER * size)
        features = feature_count(draws.z.shape[1], self.degree)
        k, out = 1 + features + m, draws.y.shape[1]

        def pieces() -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
            for rows in _pieces(len(draws.z), k, draws.fold):
                z, s, root = draws.z[rows], draws.s[rows], np.sqrt(draws.count[rows])[:, None]
                K = kernel(z, s, centres.z, centres.s)
                # Whitened features have the identity as penalty: their condition is not squared.
                white, _ = dtrtrs(L, K.T, lower=1, overwrite_b=1)
                psi = np.hstack([np.ones_like(root), self._features(z, s), white.T])
                yield draws.fold[rows.start], psi * root, draws.y[rows] * root

        sums = NormalEquations.of(pieces(), int(draws.fold.max()) + 1, k, out)
        ridge = np.r_[np.zeros(1 + features), np.full(m, size)]
        if self.penalty == "auto":
            error = sums.out_of_fold()

            def of_penalty(which: int, outputs: np.ndarray) -> np.ndarray:
                return error((SEARCH.penalties[which] + JITTER) * ridge, outputs)

            errors = _valley(of_penalty, len(SEARCH.penalties), out)
            penalty = least_penalty(errors / draws.plain_variance(), SEARCH.penalties)
        else:
            penalty = np.full(out, float(self.penalty))
        coefficients, solver = np.zeros((k, out)), sums.solver()
        for value in np.unique(penalty[np.isfinite(penalty)]):
            columns = penalty == value
            coefficients[:, columns] = solver((value + JITTER) * ridge, columns)
        alpha, _ = dtrtrs(L, np.asfortranarray(coefficients[1 + features :]), lower=1, trans=1)
        return penalty, coefficients[1 : 1 + features], alpha


def median_distance(z: Float[np.ndarray, "n dim"]) -> float:
    """The median of |z_i - z_j| over pairs."""
    norms = np.einsum("ni,ni->n", z, z)
    squares = norms[:, None] + norms - 2 * z @ z.T
    return float(np.sqrt(max(0.0, np.median(squares[np.tril_indices(len(z), -1)]))))


def least_penalty(
    ratio: Float[np.ndarray, "penalty out"], penalties: Sequence[float], most: int | None = None
) -> Float[np.ndarray, " out"]:
    """For each output the penalty of the least variance ratio, infinite where none is below one.

    With `most`, no more different ones than that: those that are together the best for all outputs.
    """
    kept = np.unique(ratio.argmin(axis=0))
    if most is not None and len(kept) > most:
        cost = np.log(np.clip(ratio, 1e-12, 1.0))
        kept = np.array(min(combinations(kept, most), key=lambda some: cost[list(some)].min(axis=0).sum()))
    best = kept[ratio[kept].argmin(axis=0)]
    return np.where(np.take_along_axis(ratio, best[None], 0)[0] < 1, np.asarray(penalties)[best], np.inf)


def _descend(score: Callable[[int], float], count: int) -> int:
    """Return where a score with a single valley is least, from the middle on: each step asks for one more value.

    Of two equal ones the first is taken.
    """
    at = (count - 1) // 2
    for step in (-1, 1):
        moved = False
        while 0 <= at + step < count and (score(at + step), step) < (score(at), 0):
            at, moved = at + step, True
        if moved:
            break
    score(at)
    return at


def _valley(
    error: Callable[[int, Int[np.ndarray, " some"]], Float[np.ndarray, " some"]], count: int, outputs: int
) -> Float[np.ndarray, "count out"]:
    """Return the errors around every output's least one, from the middle on; infinite where none was asked for.

    Each output's error is followed down, first to one side, then to the other, and over a single rise: near the penalty
    at which the landmarks begin to interpolate there may be one, before a valley thirty times as deep. What lies behind
    it counts `SEARCH.worth` times: of two that are alike the nearer one is the safer.
    """
    errors = np.full((count, outputs), np.inf)
    middle = count // 2
    errors[middle] = error(middle, np.arange(outputs))
    for step in (-1, 1):
        at = middle
        while 0 <= at + step < count and len(near := np.flatnonzero(np.abs(errors.argmin(axis=0) - at) <= 1)):
            behind = errors[at, near] > errors[:, near].min(axis=0)
            at += step
            errors[at, near] = error(at, near) * np.where(behind, SEARCH.worth, 1.0)
    return errors


def _one_of_each_stretch(n: int, m: int, seed: int) -> Int[np.ndarray, " m"]:
    """m of n indices, one drawn from each of m equal stretches: spread over all chains."""
    edges = np.arange(m + 1) * n // m
    return np.random.default_rng(seed).integers(edges[:-1], edges[1:])


def _pieces(n: int, width: int, fold: np.ndarray | None = None) -> Iterator[slice]:
    """Stretches of n rows, none across a change of fold, whose arrays of `width` columns stay small."""
    step = max(16, SEARCH.entries // width)
    edges = [0, n] if fold is None else [0, *(np.flatnonzero(np.diff(fold)) + 1), n]
    for start, stop in pairwise(edges):
        for i in range(start, stop, step):
            yield slice(i, min(i + step, stop))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
