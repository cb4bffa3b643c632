"""Row 3 again: what would have to be otherwise for the published gain of the quadratic control variate?

    python benchmarks/published/row03_variants.py

The published 15,000 to 20,000 does not come out. One thing at a time: draws to fit, covariates, prior, random walk,
coordinates that gradients are taken in. Intervals of a true gain over 40 repeats reach from 1 / 1.9 of it to 1.9 times.
Writes results/published/row03_variants.csv.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from swiss import ESTIMATE, REPEATS, notes
from variants import Variant, study, table

SEED = 31
EVERY = 2
x, y = notes()
standard = (x - x.mean(0)) / x.std(0)
with_one = np.column_stack([np.ones(len(y)), standard])


def posterior(features: np.ndarray, prior: float = np.inf, g_prior: bool = False) -> Callable:
    """Return the log density: flat, normal, or the g prior of Marin and Robert, with four coefficients."""

    def logdensity(beta):
        logits = features @ beta
        density = y @ logits - jnp.sum(jax.nn.softplus(logits)) - 0.5 * jnp.sum((beta / prior) ** 2)
        return density - (7 / 4) * jnp.log(logits @ logits) if g_prior else density

    return logdensity


def laplace(features: np.ndarray, prior: float = np.inf) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode and the covariance there, by Newton's steps."""
    mode = np.zeros(features.shape[1])
    for _ in range(60):
        chance = 1 / (1 + np.exp(-features @ mode))
        precision = (features.T * (chance * (1 - chance))) @ features + np.eye(len(mode)) / prior**2
        mode = mode + np.linalg.solve(precision, features.T @ (y - chance) - mode / prior**2)
    return mode, np.linalg.inv(precision)


def probit(beta):
    return jax.scipy.special.log_ndtr((2 * y - 1) * (x @ beta)).sum()


flat, standardised = posterior(x), posterior(standard)
VARIANTS = {
    "as in the table: whitened": (x, np.inf, Variant(flat, whitened=True)),
    "20,000 draws to fit": (x, np.inf, Variant(flat, whitened=True, fit=20_000)),
    "gradients in the parameters as they are": (x, np.inf, Variant(flat)),
    "standardised covariates": (standard, np.inf, Variant(standardised)),
    "and an intercept": (with_one, np.inf, Variant(posterior(with_one))),
    "and proposals of sd .5": (standard, np.inf, Variant(standardised, (0.5,) * 4)),
    "and proposals of sd .2": (standard, np.inf, Variant(standardised, (0.2,) * 4)),
    "and every 20th of 40,000 draws to fit": (standard, np.inf, Variant(standardised, (0.2,) * 4, thin=20)),
    "and proposals of sd .02, every 200th of 400,000 draws to fit": (
        standard,
        np.inf,
        Variant(standardised, (0.02,) * 4, thin=200),
    ),
    "probit in its place, whitened": (x, np.inf, Variant(probit, whitened=True)),
    "g prior": (x, np.inf, Variant(posterior(x, g_prior=True))),
    "normal prior, sd 10": (x, 10.0, Variant(posterior(x, 10.0))),
    "normal prior, sd 3": (x, 3.0, Variant(posterior(x, 3.0))),
    "normal prior, sd 1": (x, 1.0, Variant(posterior(x, 1.0))),
    "standardised, normal prior, sd 1": (standard, 1.0, Variant(posterior(standard, 1.0))),
}


def main() -> None:
    found = {}
    for name, (features, prior, variant) in VARIANTS.items():
        mode, covariance = laplace(features, prior)
        factor = np.linalg.cholesky(covariance)
        start = mode + np.random.default_rng(SEED).normal(size=(REPEATS, len(mode))) @ factor.T
        # adapted from the narrowest direction's own width: coefficients of raw covariates are strongly correlated
        scale = 1 / np.sqrt(np.diag(np.linalg.inv(covariance)))
        found[name] = study(variant, start, scale, ESTIMATE, EVERY, SEED)
        print(name, {key: value.round(2) for key, value in found[name].items()}, flush=True)
    theirs = {"degree 1": "15 to 50", "degree 2": "15000 to 20000"}
    table("row03_variants", "logit: gains for the coefficients", found, theirs)


if __name__ == "__main__":
    main()
