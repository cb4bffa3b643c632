"""Row 2: probit regression of the Swiss banknotes, Gibbs sampling by Albert and Chib, flat priors.

    python benchmarks/published/row02_probit.py

Published (Mira, Solgi, Imparato 2013, 6.1): gains of 25 to 100 with linear control variates, 18,000 to 90,000 with
quadratic ones, over the four coefficients.
"""

import numpy as np
from common import kept, scores_of
from jax.scipy.special import log_ndtr
from scipy.special import ndtr, ndtri
from swiss import ESTIMATE, FIT, LINEAR, QUADRATIC, REPEATS, notes, study

BURN_IN = 500
SEED = 2
PUBLISHED = {LINEAR: (25.0, 100.0), QUADRATIC: (18_000.0, 90_000.0)}

x, y = notes()
sign = 2 * y - 1


def logdensity(beta):
    return log_ndtr(sign * (x @ beta)).sum()


def gibbs() -> dict[str, np.ndarray]:
    """Return chains (repeat, draw, 4): latent normals given the coefficients, coefficients given the latent normals."""
    rng = np.random.default_rng(SEED)
    covariance = np.linalg.inv(x.T @ x)
    factor, pull = np.linalg.cholesky(covariance), covariance @ x.T
    beta, path = np.zeros((REPEATS, 4)), []
    for _ in range(BURN_IN + FIT + ESTIMATE):
        mean = beta @ x.T
        # a normal beyond zero on the side of y, by inversion of its distribution function
        away = mean * sign
        latent = mean - sign * ndtri(rng.uniform(size=mean.shape) * ndtr(away))
        beta = latent @ pull.T + rng.normal(size=beta.shape) @ factor.T
        path.append(beta)
    draws = np.stack(path[BURN_IN:], axis=1)
    return {"draws": draws, "scores": scores_of(logdensity, draws)}


def main() -> None:
    study(2, "probit", "Gibbs sampler", kept("row02-draws", gibbs), logdensity, PUBLISHED)


if __name__ == "__main__":
    main()
