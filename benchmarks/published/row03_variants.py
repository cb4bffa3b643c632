"""Row 3 again: what would have to be otherwise for the published gain of the quadratic control variate?

    python benchmarks/published/row03_variants.py

The published 15,000 to 20,000 does not come out. Tried one by one: coefficients fitted on ten times as many draws,
standardised covariates, an intercept, a slower random walk, a normal prior.
The share of the variance that a polynomial leaves belongs to the posterior, whatever the sampler: `marginal`.
Writes results/published/row03_variants.csv.
"""

import csv

import jax
import jax.numpy as jnp
import numpy as np
from common import RESULTS, Data, fitted_apart, number, random_walk, scores_of
from swiss import ESTIMATE, FIT, REPEATS, notes
from tables import show

import steincv as scv

SEED = 31
EVERY = 4
x, y = notes()
standard = (x - x.mean(0)) / x.std(0)
VARIANTS = {
    "as published": {"features": x},
    "20,000 draws to fit": {"features": x, "fit": 10 * FIT},
    "standardised": {"features": standard},
    "standardised, intercept": {"features": np.column_stack([np.ones(len(y)), standard])},
    "proposals a fifth as wide": {"features": x, "width": 0.2},
    "normal prior, sd 1": {"features": x, "prior": 1.0},
}


def gains(features: np.ndarray, prior: float = np.inf, fit: int = FIT, width: float = 1.0) -> dict[str, np.ndarray]:
    """Return the gains of polynomials of degree 1 to 3, true and of single draws, coefficient by coefficient."""

    def logdensity(beta):
        logits = features @ beta
        return y @ logits - jnp.sum(jax.nn.softplus(logits)) - 0.5 * jnp.sum((beta / prior) ** 2)

    mode = np.zeros(features.shape[1])
    for _ in range(40):  # Newton
        chance = 1 / (1 + np.exp(-features @ mode))
        precision = (features.T * (chance * (1 - chance))) @ features + np.eye(len(mode)) / prior**2
        mode = mode + np.linalg.solve(precision, features.T @ (y - chance) - mode / prior**2)
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    start = mode + np.random.default_rng(SEED).normal(size=(REPEATS, len(mode))) @ factor.T
    draws = random_walk(logdensity, start, np.sqrt(1 / np.diag(precision)), fit + ESTIMATE, SEED, width)
    scores = scores_of(logdensity, draws)
    found = {}
    for degree in (1, 2, 3):
        run = fitted_apart(scv.Polynomial(degree, penalty=0.0))
        means = []
        for a, s in zip(draws[:, None], scores[:, None], strict=True):
            first = Data(a[:, :fit], s[:, :fit], a[:, :fit])
            means.append(run(Data(a[:, fit:], s[:, fit:], a[:, fit:], first), 0))
        found[f"degree {degree}"] = draws[:, fit:].mean(1).var(0, ddof=1) / np.var(means, axis=0, ddof=1)
        some = scv.Samples(draws[:, fit::EVERY], scores[:, fit::EVERY])
        left = some.draws + scv.Polynomial(degree, penalty=0.0).fit(some, some.draws)(some)
        found[f"marginal {degree}"] = some.draws.var(axis=(0, 1)) / left.var(axis=(0, 1))
    return found


def main() -> None:
    rows = []
    for name, options in VARIANTS.items():
        found = gains(**options)
        rows.append({"variant": name} | {k: f"{number(v.min())} to {number(v.max())}" for k, v in found.items()})
    show(f"logit: smallest and largest gain over the coefficients, {REPEATS} repeats", rows)
    with (RESULTS / "row03_variants.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
