"""emcee: walkers as chains, gradients by JAX, named parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import check_log_density, check_scores, check_stein, check_table, entries

import steincv as scv

pytestmark = pytest.mark.filterwarnings("ignore")  # of a library's own making


@pytest.fixture(scope="module")
def emcee():
    return pytest.importorskip("emcee")


def log_prob(x):
    """tau = exp(x[0]) is Gamma(3, 1), with its Jacobian; share has a logistic normal law."""
    return 3 * x[0] - jnp.exp(x[0]) - 0.5 * jnp.sum((x[1:] - jnp.array([0.5, -0.5])) ** 2)


def plain(x):
    """The same without JAX, as emcee's users have it."""
    return 3 * x[0] - np.exp(x[0]) - 0.5 * np.sum((x[1:] - np.array([0.5, -0.5])) ** 2)


def constrain(x):
    share = jnp.concatenate([x[1:], jnp.zeros(1)])
    return {"tau": jnp.exp(x[0]), "share": jax.nn.softmax(share)}


def run(emcee, function, **options):
    rng = np.random.default_rng(0)
    sampler = emcee.EnsembleSampler(8, 3, function, **options)
    np.random.seed(0)  # noqa: NPY002
    sampler.run_mcmc(rng.normal(size=(8, 3)), 600)
    return sampler


@pytest.fixture(scope="module")
def sampler(emcee):
    return run(emcee, plain)


@pytest.fixture(scope="module")
def samples(sampler):
    return scv.from_emcee(sampler, log_prob, discard=200, thin=2, constrain=constrain)


def test_scores_are_those_of_the_density(samples):
    assert samples.draws.shape == (8, 200, 3)
    check_scores(samples, plain)
    check_log_density(samples, plain)


def test_stein_means_are_zero(samples):
    check_stein(samples)


def test_the_table_has_the_parameters_of_constrain(samples, sampler):
    x = np.swapaxes(sampler.get_chain(discard=200, thin=2), 0, 1)
    values = jax.vmap(jax.vmap(constrain))(x)
    result = check_table(samples, entries("tau", np.exp(x[..., 0])) | entries("share", values["share"]))
    assert abs(float(result["tau"].mean) - 3) < 5 * float(result["tau"].standard_error)


def test_without_constrain_the_table_has_the_coordinates(sampler):
    samples = scv.from_emcee(sampler, lambda x: (log_prob(x), 0.0), discard=200)
    assert samples.draws.shape == (8, 400, 3)
    assert scv.estimate(samples, method=scv.Polynomial(1)).labels == ("x[0]", "x[1]", "x[2]")


def test_named_parameters(emcee):
    def named(p):
        return log_prob(jnp.concatenate([jnp.array([p["log_tau"]]), jnp.stack(p["logit"])]))

    def listed(p):
        return plain(np.array([p["log_tau"], *p["logit"]]))

    sampler = run(emcee, listed, parameter_names={"log_tau": 0, "logit": [1, 2]})
    samples = scv.from_emcee(sampler, named, discard=200)
    assert samples.names == ("log_tau", "logit[0]", "logit[1]")
    check_scores(samples, plain)
    check_table(samples, entries("log_tau", samples.draws[..., 0]) | entries("logit", samples.draws[..., 1:]))


def test_what_cannot_be_used(emcee, sampler):
    with pytest.raises(scv.InputError, match=r"`sampler` must be an emcee.EnsembleSampler, got list"):
        scv.from_emcee([], log_prob)
    with pytest.raises(scv.InputError, match=r"`log_prob` is not the log density that was sampled: .* constant was"):
        scv.from_emcee(sampler, lambda x: log_prob(x) + x[0])
    with pytest.raises(scv.InputError, match="`log_prob` cannot be differentiated by JAX"):
        scv.from_emcee(sampler, lambda x: float(log_prob(x)))
    with pytest.raises(scv.InputError, match="600 steps, of which 600 are to be discarded"):
        scv.from_emcee(sampler, log_prob, discard=600)
    with pytest.raises(scv.InputError, match="0 steps"):
        scv.from_emcee(emcee.EnsembleSampler(8, 3, plain), log_prob)
