r"""The linear algebra of control functionals: f is explained by $\beta_0 + P\beta + K_0\alpha$."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from ...runtime.validation import InputError

# Stein kernel matrices are not positive definite in float64 without this much, relative to the diagonal.
JITTER = 1e-10


# Which outputs: their numbers, or all of them.
Columns = np.ndarray | slice


class Coefficients(NamedTuple):
    """`mean` is the estimate beta_0 of E[f], `beta` multiplies the features and `alpha` the kernel."""

    mean: Float[np.ndarray, " out"]
    beta: Float[np.ndarray, "feature out"]
    alpha: Float[np.ndarray, "n out"]


def factorise(matrix: Float[np.ndarray, "n n"], nugget: float | np.ndarray) -> Float[np.ndarray, "n n"]:
    """The Cholesky factor L of `matrix` + diag(`nugget`), in the place of `matrix`, which is lost.

    Where rounding has made the matrix indefinite the diagonal is raised tenfold until it is not.
    """
    diagonal = matrix.diagonal() + nugget
    size = diagonal.mean()
    if not np.isfinite(size):
        raise InputError(
            f"The kernel matrix of {len(matrix)} draws overflows (largest diagonal entry "
            f"{diagonal.max():.1e}): some scores are too large for float64. Look at the largest of `scores`."
        )
    # In Fortran's order the lower triangle is our upper one, and our lower one survives a failure.
    for jitter in (0.0, *JITTER * 10.0 ** np.arange(10)):
        np.fill_diagonal(matrix, diagonal + jitter * size)
        factor, failed_at = dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
        if failed_at == 0:
            return factor
        for i in range(len(matrix) - 1):
            matrix[i, i + 1 :] = matrix[i + 1 :, i]
    raise InputError(
        f"The kernel matrix of {len(matrix)} draws is not positive definite even with {jitter:.0e} of its "
        f"mean diagonal {size:.1e} added (Cholesky failed at row {failed_at}). Give a larger `penalty` or a "
        f"shorter `lengthscale`."
    )


def control_functional(
    K0: Float[np.ndarray, "n n"],
    f: Float[np.ndarray, "n out"],
    P: Float[np.ndarray, "n feature"] | None = None,
    nugget: float | Float[np.ndarray, " n"] = 0.0,
    *,
    overwrite: bool = False,
) -> Coefficients:
    r"""Generalised least squares with covariance $A = K_0 + \mathrm{diag}(\text{nugget})$.

    $$ \beta = (\bar P^T A^{-1} \bar P)^{-1} \bar P^T A^{-1} f, \qquad \alpha = A^{-1}(f - \bar P\beta) $$

    with $\bar P = [1, P]$. All columns of f share one factorisation. `overwrite` lets it take the
    place of `K0`.
    """
    L = factorise(K0 if overwrite else K0.copy(), nugget)
    features = np.ones((len(f), 1)) if P is None else np.hstack([np.ones((len(f), 1)), P])
    count = features.shape[1]
    white, _ = dtrtrs(L, np.asfortranarray(np.hstack([features, f])), lower=1, overwrite_b=1)
    size = np.sqrt((white[:, :count] ** 2).sum(axis=0))
    size[size == 0] = 1.0
    scaled, _, _, _ = scipy.linalg.lstsq(
        white[:, :count] / size, white[:, count:], lapack_driver="gelsy", check_finite=False
    )
    beta = scaled / size[:, None]
    rest = white[:, count:] - white[:, :count] @ beta
    alpha, _ = dtrtrs(L, np.asfortranarray(rest), lower=1, trans=1, overwrite_b=1)
    return Coefficients(beta[0], beta[1:], alpha)


class NormalEquations(NamedTuple):
    """Sums over each fold of the draws, from which every penalised fit and its error follow.

    With $\\Psi$ = [1, P, whitened kernel features] and weights w: `gram` = $\\Psi^T w\\Psi$, `cross` =
    $\\Psi^T w f$, `square` = $\\sum w f^2$.
    """

    gram: Float[np.ndarray, "fold k k"]
    cross: Float[np.ndarray, "fold k out"]
    square: Float[np.ndarray, "fold out"]

    @classmethod
    def of(
        cls, pieces: Iterator[tuple[int, np.ndarray, np.ndarray]], folds: int, k: int, out: int
    ) -> "NormalEquations":
        """Sum over `pieces`: the fold, the rows of Psi and those of f, both times sqrt(w)."""
        sums = cls(np.zeros((folds, k, k)), np.zeros((folds, k, out)), np.zeros((folds, out)))
        for fold, psi, f in pieces:
            sums.gram[fold] += psi.T @ psi
            sums.cross[fold] += psi.T @ f
            sums.square[fold] += (f**2).sum(axis=0)
        return sums

    def solver(self, without: int | None = None) -> "Solver":
        """Return what ridge fits on all folds, or on all `without` one, share."""
        gram, cross = self.gram.sum(axis=0), self.cross.sum(axis=0)
        if without is not None:
            gram -= self.gram[without]
            cross -= self.cross[without]
        size = np.sqrt(gram.diagonal())
        size[size == 0] = 1.0
        gram /= size
        gram /= size[:, None]
        return Solver(gram, np.asfortranarray(cross / size[:, None]), size)

    def out_of_fold(self) -> Callable[[Float[np.ndarray, " k"], Columns], Float[np.ndarray, " some"]]:
        """Return, for a ridge and some outputs, the variance of f + g, g on each fold by the fit on the others."""
        solvers = [self.solver(without=fold) for fold in range(len(self.gram))]

        def variance(ridge: Float[np.ndarray, " k"], outputs: Columns) -> Float[np.ndarray, " some"]:
            weight, total, square = 0.0, 0.0, 0.0
            for gram, cross, own, solver in zip(self.gram, self.cross[..., outputs], self.square, solvers, strict=True):
                c = solver(ridge, outputs)
                c[0] = 0.0  # the constant is no part of g
                weight += gram[0, 0]
                total += cross[0] - gram[0] @ c
                square += own[outputs] + np.einsum("ko,ko->o", c, gram @ c - 2 * cross)
            return np.maximum(square / weight - (total / weight) ** 2, 0.0)

        return variance


class Solver(NamedTuple):
    """Normal equations whose columns have norm one, `size` being what it was."""

    gram: Float[np.ndarray, "k k"]
    cross: Float[np.ndarray, "k out"]
    size: Float[np.ndarray, " k"]

    def __call__(self, ridge: Float[np.ndarray, " k"], outputs: Columns) -> Float[np.ndarray, "k some"]:
        """Return the ridge fit of some outputs."""
        # 1e-14 of a column is rounding, and keeps the factor finite
        L = factorise(self.gram.copy(), ridge / self.size**2 + 1e-14)
        coefficients, _ = dpotrs(L, self.cross[:, outputs], lower=1)
        coefficients /= self.size[:, None]
        return coefficients
