"""Row 9: log evidence of the van der Pol oscillator, 31 rungs (i/30)^5, 20 draws a rung.

    python benchmarks/published/row09_van_der_pol.py

Published (Sun, Barp, Briol, vvCV): rmse .152 plain, .138 with a kernel at every rung, .116 with kernels that share
rungs; second-order rule. The evidence is known by quadrature. One parameter, so that draws are made exactly, by
inversion on a grid of log theta; theirs are from a pool of 500 draws per rung.
"""

import jax
import jax.numpy as jnp
import numpy as np
from common import RMSE, Line, Planned, error, keep, kept, of_repeats, replicate

import steincv as scv
from steincv_paper.models.van_der_pol import EXACT, PRIOR_SD, log_likelihood

DRAWS = 20
LADDER = (np.arange(31) / 30) ** 5
REPEATS, SOME, FEWEST = 100, 40, 2
SEED = 9
GRID = np.linspace(-6 * PRIOR_SD, 6 * PRIOR_SD, 20_001)
PUBLISHED = {"plain": 0.152, "scalar CV": 0.138, "vvCV": 0.116}
SOURCE = "Sun, Barp, Briol, vvCV"


def model(z):
    """The log likelihood at log theta."""
    return log_likelihood({"theta": jnp.exp(z)})


def heights() -> dict[str, np.ndarray]:
    with jax.enable_x64(True):
        return {"grid": np.asarray(jax.jit(model)(jnp.asarray(GRID)))}


def make(r: int) -> tuple[list[scv.Samples], list[np.ndarray]]:
    """Return 20 independent draws of every power posterior with their scores, and their log likelihoods."""
    loglik = kept("row09-grid", heights)["grid"]
    rng = np.random.default_rng([SEED, r])
    z = []
    for t in LADDER:
        log = t * loglik - 0.5 * (GRID / PRIOR_SD) ** 2
        density = np.exp(log - log.max())
        upto = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
        z.append(np.interp(rng.uniform(size=DRAWS) * upto[-1], upto, GRID))
    points = np.array(z)
    with jax.enable_x64(True):
        value, slope = (np.asarray(a).reshape(points.shape) for a in both(jnp.asarray(points.ravel())))
    scores = LADDER[:, None] * slope - points / PRIOR_SD**2
    samples = [scv.Samples(x[None, :, None], s[None, :, None]) for x, s in zip(points, scores, strict=True)]
    return samples, list(value[:, None, :])


both = jax.jit(lambda z: (model(z), jax.grad(lambda u: jnp.sum(model(u)))(z)))


def evidence(method: scv.Method | None, rule: str | None = None):
    """Return the log evidence: as reported, or by one rule alone."""

    def run(data, seed):
        result = scv.log_evidence(*data, LADDER, method, seed=seed, coupled=False)
        return result.mean if rule is None else result.info["values_by_rule"][rule]["controlled"]

    return run


def plain(data, seed):
    result = scv.log_evidence(*data, LADDER, scv.MonteCarlo(), seed=seed, coupled=False)
    return result.info["values_by_rule"]["second-order"]["plain"]


METHODS = {
    "plain": Planned(plain, REPEATS),
    "Kernel(), as theirs": Planned(evidence(scv.Kernel(), "second-order"), SOME),
    "Polynomial(2)": Planned(evidence(scv.Polynomial(2)), REPEATS),
    "Kernel()": Planned(evidence(scv.Kernel()), SOME),
    "CNCV()": Planned(evidence(scv.CNCV()), FEWEST),
    "Auto()": Planned(evidence(None), SOME),
}


def main() -> None:
    found = replicate("row09", make, METHODS)
    lines = []
    for label, estimates in found.items():
        beside = {"plain": "plain", "Kernel(), as theirs": "scalar CV"}.get(label, "vvCV")
        rule = beside != "vvCV"  # the second-order rule as it is; ours takes off what is left of its error
        lines.append(
            Line(9, "van der Pol, log evidence", "log evidence", label, RMSE, beside,
                 of_repeats(PUBLISHED[beside], 100, RMSE), error(estimates - EXACT, RMSE), len(estimates),
                 "model, data, ladder, 20 draws a rung" + ", rule" * rule,
                 "exact independent draws; control variates in log theta" + "; our rule" * (not rule), SOURCE)
        )  # fmt: skip
    keep(lines, "row09")


if __name__ == "__main__":
    main()
