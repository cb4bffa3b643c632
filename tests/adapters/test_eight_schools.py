"""Three libraries on one posterior: the same controlled means."""

import itertools

import jax
import numpy as np
import pytest
from eight_schools import EFFECT, ERROR

import steincv as scv

pytestmark = pytest.mark.filterwarnings("ignore")  # of a library's own making


def by_numpyro():
    numpyro = pytest.importorskip("numpyro")
    import numpyro.distributions as dist
    from numpyro.infer import HMC, MCMC

    def model():
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfNormal(5))
        with numpyro.plate("school", 8):
            eta = numpyro.sample("eta", dist.Normal(0, 1))
            theta = numpyro.deterministic("theta", mu + tau * eta)
            numpyro.sample("y", dist.Normal(theta, ERROR), obs=EFFECT)

    mcmc = MCMC(
        HMC(model, trajectory_length=2.0, target_accept_prob=0.9),
        num_warmup=500,
        num_samples=500,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(2), extra_fields=("z_grad",))
    return scv.from_numpyro(mcmc)


def by_pymc(nutpie_sample):
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 5)
        theta = pm.Deterministic("theta", mu + tau * pm.Normal("eta", 0, 1, shape=8))
        pm.Normal("y", theta, ERROR, observed=EFFECT)
    return scv.from_pymc(nutpie_sample(model, draws=500, tune=400, seed=3), model)


def test_three_libraries_agree(stan_samples, nutpie_sample):
    found = {
        name: scv.estimate(samples, ["mu", "tau", "theta"], scv.Polynomial(2))
        for name, samples in {"numpyro": by_numpyro(), "pymc": by_pymc(nutpie_sample), "stan": stan_samples}.items()
    }
    for result in found.values():
        assert result.labels == ("mu", "tau", *(f"theta[{i}]" for i in range(8)))
        assert np.median(result.variance_ratio) < 0.2  # the comparison is sharper than one of plain means
    for one, two in itertools.combinations(found.values(), 2):
        error = np.hypot(one.standard_error, two.standard_error)
        assert (np.abs(one.mean - two.mean) / error).max() < 3
