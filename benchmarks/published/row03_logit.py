"""Row 3: logistic regression of the Swiss banknotes, random-walk Metropolis, flat priors.

    python benchmarks/published/row03_logit.py

Published (Mira, Solgi, Imparato 2013, 6.2): gains of 15 to 50 with linear control variates, 15,000 to 20,000 with
quadratic ones, over the four coefficients.
"""

import jax
import jax.numpy as jnp
import numpy as np
from common import kept, random_walk, scores_of
from swiss import ESTIMATE, FIT, LINEAR, QUADRATIC, REPEATS, notes, study

SEED = 3
THIN = 1  # they do not thin
PUBLISHED = {LINEAR: (15.0, 50.0), QUADRATIC: (15_000.0, 20_000.0)}

x, y = notes()


def logdensity(beta):
    logits = x @ beta
    return y @ logits - jnp.sum(jax.nn.softplus(logits))


def walk() -> dict[str, np.ndarray]:
    """Return chains (repeat, draw, 4), started near the mode."""
    mode = np.zeros(4)
    for _ in range(30):  # Newton
        chance = 1 / (1 + np.exp(-x @ mode))
        precision = (x.T * (chance * (1 - chance))) @ x
        mode = mode + np.linalg.solve(precision, x.T @ (y - chance))
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    start = mode + np.random.default_rng(SEED).normal(size=(REPEATS, 4)) @ factor.T
    draws = random_walk(logdensity, start, np.sqrt(1 / np.diag(precision)), (FIT + ESTIMATE) * THIN, SEED)[:, ::THIN]
    return {"draws": draws, "scores": scores_of(logdensity, draws)}


def main() -> None:
    study(3, "logit", "random walk", kept("row03-draws", walk), logdensity, PUBLISHED)


if __name__ == "__main__":
    main()
