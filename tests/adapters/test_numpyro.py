"""NumPyro: all kinds of sites, kept and computed gradients, and what cannot be used."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import (
    check_log_density,
    check_orbits,
    check_scores,
    check_stein,
    check_summary,
    check_table,
    differences,
    entries,
)

import steincv as scv

pytestmark = pytest.mark.filterwarnings("ignore")  # of a library's own making


@pytest.fixture(scope="module")
def numpyro():
    return pytest.importorskip("numpyro")


def groups(y, scale=1.0):
    """Real, positive, and an interval whose end is another site; a plate, a mask, and a deterministic site."""
    import numpyro
    import numpyro.distributions as dist

    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, scale))
    numpyro.sample("between", dist.Uniform(-1.0, tau + 1))
    with numpyro.plate("group", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, 1.0))
        with numpyro.handlers.mask(mask=jnp.array([True, True, False])):
            numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)
    numpyro.deterministic("total", theta.sum() + tau)


ORDER, SHAPES = ["tau", "mu", "between", "theta"], [(), (), (), (3,)]
Y = np.array([1.0, 2.0, 30.0])
QUICK = scv.Polynomial(2)


def steps(model=None, **options):
    """A kernel with steps of one length, which compiles in a fraction of the time that trees need."""
    from numpyro.infer import HMC

    return HMC(model, num_steps=10, **options)


@pytest.fixture(scope="module")
def mcmc(numpyro):
    from numpyro.infer import MCMC

    mcmc = MCMC(
        steps(groups), num_warmup=300, num_samples=400, num_chains=4, chain_method="vectorized", progress_bar=False
    )
    with jax.enable_x64(True):
        mcmc.run(jax.random.key(0), Y, scale=2.0, extra_fields=("z_grad", "num_steps"))
    return mcmc


@pytest.fixture(scope="module")
def samples(mcmc):
    return scv.from_numpyro(mcmc, Y, scale=2.0)


def without(mcmc, *fields):
    """The same run, had it not kept those fields."""
    other = copy.copy(mcmc)
    other._states = {name: value for name, value in mcmc._states.items() if name not in fields}
    return other


def finished(model, values, *args, **kwargs):
    """A run that found these values, `(chain, draw, ...)`."""
    from numpyro.infer import MCMC

    mcmc = MCMC(steps(model), num_warmup=1, num_samples=1)
    mcmc._states, mcmc._last_state, mcmc._args, mcmc._kwargs = {"z": values}, "the last", args, kwargs
    return mcmc


def density(model, order, shapes, *args, **kwargs):
    """The library's own log density as a function of one row of the draws."""
    from numpyro.infer.util import potential_energy

    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])

    @jax.jit
    def minus_potential(x):
        parts = jnp.split(x, ends[:-1])
        z = {name: part.reshape(shape) for name, part, shape in zip(order, parts, shapes, strict=True)}
        return -potential_energy(model, args, kwargs, z)

    def log_density(x):
        with jax.enable_x64(True):
            return minus_potential(jnp.asarray(x))

    return log_density


def test_scores_are_those_of_the_potential(samples):
    check_scores(samples, density(groups, ORDER, SHAPES, Y, scale=2.0))


def test_the_log_density_is_that_of_the_potential(samples, mcmc):
    for found in (samples, scv.from_numpyro(without(mcmc, "z_grad"))):
        check_log_density(found, density(groups, ORDER, SHAPES, Y, scale=2.0))


def test_orbits_know_the_sites_by_name(samples):
    check_orbits(samples, ["total", "tau"])


def test_gradients_are_counted(samples, mcmc):
    assert samples.gradients == 10 * 1600  # ten steps of one length
    assert scv.from_numpyro(without(mcmc, "num_steps"), Y, scale=2.0).gradients is None


def test_stein_means_are_zero(samples):
    check_stein(samples)


def test_the_table_has_the_sites_of_the_model(samples, mcmc):
    kept = mcmc.get_samples(group_by_chain=True)
    result = check_table(samples, {k: v for name in ORDER for k, v in entries(name, kept[name]).items()})
    assert result.labels == ("tau", "mu", "between", "theta[0]", "theta[1]", "theta[2]")
    assert np.median(result.variance_ratio[np.array(result.method) != "plain"]) < 0.5


def test_every_kind_of_support(numpyro):
    """Independent draws of a model without data, by NumPy, as a run would have left them."""
    import numpyro.distributions as dist

    def zoo():
        numpyro.sample("share", dist.Dirichlet(jnp.array([2.0, 3.0, 4.0])))
        base = dist.Normal(jnp.zeros(3), 1.0).to_event(1)
        numpyro.sample("cut", dist.TransformedDistribution(base, dist.transforms.OrderedTransform()))
        numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
        numpyro.sample("unit", dist.Beta(2.0, 3.0))

    order = ["share", "cut", "factor", "unit"]
    rng = np.random.default_rng(0)
    n, r = (4, 250), 2 * rng.beta(2, 2, size=(4, 250)) - 1  # LKJ in two dimensions: (1 + r) / 2 is a beta variable
    x = rng.normal(size=(*n, 3))
    values = {
        "unit": rng.beta(2, 3, size=n),
        "share": rng.dirichlet([2, 3, 4], size=n),
        "cut": np.cumsum(np.concatenate([x[..., :1], np.exp(x[..., 1:])], axis=-1), axis=-1),
        "factor": np.stack([np.stack([r**0, 0 * r], -1), np.stack([r, np.sqrt(1 - r**2)], -1)], axis=-2),
    }
    samples = scv.from_numpyro(finished(zoo, values))
    assert samples.names == ("share[0]", "share[1]", "cut[0]", "cut[1]", "cut[2]", "factor[0]", "unit")
    check_scores(samples, density(zoo, order, [(2,), (3,), (1,), ()]))
    check_stein(samples)
    result = check_table(samples, {k: v for name in order for k, v in entries(name, values[name]).items()})
    means = dict(zip(result.labels, result.mean, strict=True))
    np.testing.assert_allclose(means["share[1]"], 1 / 3, atol=0.01)
    np.testing.assert_allclose(means["factor[1, 0]"], 0.0, atol=0.03)


def test_deterministic_sites_are_there_for_f(samples, mcmc):
    total = np.asarray(mcmc.get_samples(group_by_chain=True)["total"])
    for f in ("total", ["total"], lambda p: p["total"], lambda p: p["theta"].sum() + p["tau"]):
        result = scv.estimate(samples, f, scv.Polynomial(1))
        np.testing.assert_allclose(result.values[..., 0], total, rtol=1e-6)


def test_computed_scores_are_the_kept_ones(samples, mcmc):
    computed = scv.from_numpyro(without(mcmc, "z_grad"))  # with the arguments of the run
    np.testing.assert_allclose(computed.scores, samples.scores, rtol=1e-6, atol=1e-8)
    forgotten = without(mcmc, "z_grad")
    forgotten.sampler = copy.copy(mcmc.sampler)
    forgotten.sampler._potential_fn_gen = None  # as after pickling
    again = scv.from_numpyro(forgotten)
    np.testing.assert_allclose(again.scores, samples.scores, rtol=1e-6, atol=1e-8)


def test_arguments_that_are_given_count(samples, mcmc):
    other = scv.from_numpyro(without(mcmc, "z_grad"), Y + 1, scale=2.0)
    changed = np.abs(other.scores - samples.scores).max(axis=(0, 1)) > 1e-3
    assert [name for name, moved in zip(samples.names, changed, strict=True) if moved] == ["theta[0]", "theta[1]"]


def test_one_thinned_chain_in_single_precision(numpyro):
    import numpyro.distributions as dist
    from numpyro.infer import MCMC

    def model():
        rate = numpyro.sample("rate", dist.Gamma(3.0, 2.0))
        numpyro.sample("z", dist.Normal(jnp.zeros(2), rate).to_event(1), obs=jnp.ones(2), obs_mask=False)

    mcmc = MCMC(steps(model), num_warmup=200, num_samples=600, thinning=3, progress_bar=False)
    mcmc.run(jax.random.key(1), extra_fields=("z.rate", "z.z_unobserved"))
    samples = scv.from_numpyro(mcmc)
    assert samples.draws.shape == (1, 200, 3)
    check_stein(samples)
    check_scores(samples, density(model, ["rate", "z_unobserved"], [(), (2,)]))
    check_log_density(samples, density(model, ["rate", "z_unobserved"], [(), (2,)]))
    kept = mcmc.get_samples(group_by_chain=True)
    check_table(samples, entries("rate", kept["rate"]) | entries("z_unobserved", kept["z_unobserved"]))
    # the same draws from the constrained values that are always kept
    recovered = scv.from_numpyro(without(mcmc, "z.rate", "z.z_unobserved"))
    np.testing.assert_allclose(recovered.draws, samples.draws, atol=1e-5)
    rounded = finished(model, dict(kept, rate=kept["rate"].at[0, 3].set(0.0)))
    with pytest.raises(scv.InputError, match=r"1 draws of `rate` lie on the edge .* numpyro.enable_x64"):
        scv.from_numpyro(rounded)
    with pytest.raises(scv.InputError, match="did not keep the sites rate"):
        scv.from_numpyro(finished(model, {"z_unobserved": kept["z_unobserved"]}))


def test_a_bare_potential(numpyro):
    from numpyro.infer import MCMC

    def potential(z):
        return 0.5 * jnp.sum((z["b"] - 1.0) ** 2) + jnp.exp(z["a"]) - 2 * z["a"]

    mcmc = MCMC(steps(potential_fn=potential), num_warmup=200, num_samples=300, progress_bar=False)
    mcmc.run(jax.random.key(0), init_params={"a": jnp.zeros(()), "b": jnp.zeros(2)}, extra_fields=("z_grad",))
    samples = scv.from_numpyro(mcmc)
    check_stein(samples)
    check_table(samples, entries("a", samples.draws[..., 0]) | entries("b", samples.draws[..., 1:]))
    computed = scv.from_numpyro(without(mcmc, "z_grad"))
    np.testing.assert_allclose(computed.scores, samples.scores, atol=1e-4)
    x = samples.draws[0, 7]
    with jax.enable_x64(True):
        check_log_density(samples, lambda x: -potential({"a": jnp.asarray(x[0]), "b": jnp.asarray(x[1:])}))
        found = differences(lambda x: -potential({"a": jnp.asarray(x[0]), "b": jnp.asarray(x[1:])}), x)
    np.testing.assert_allclose(computed.scores[0, 7], found, rtol=1e-5, atol=1e-7)


def test_discrete_sites_are_refused_by_name(numpyro):
    import numpyro.distributions as dist

    def mixture():
        which = numpyro.sample("which", dist.Bernoulli(0.3))
        numpyro.sample("x", dist.Normal(which * 2.0, 1.0))

    x = np.random.default_rng(0).normal(size=(2, 20))
    with pytest.raises(scv.InputError, match="discrete sites, which, which have no score"):
        scv.from_numpyro(finished(mixture, {"which": (x > 0).astype(int), "x": x}))


def test_what_is_no_run_is_refused(numpyro):
    from numpyro.infer import MCMC, NUTS

    with pytest.raises(scv.InputError, match=r"`mcmc` must be a numpyro.infer.MCMC, got dict"):
        scv.from_numpyro({})
    gibbs = finished(groups, {})
    gibbs.sampler = numpyro.infer.HMCECS(NUTS(groups), num_blocks=2)
    with pytest.raises(scv.InputError, match="HMCECS samples with subsamples of the data"):
        scv.from_numpyro(gibbs)
    with pytest.raises(scv.InputError, match=r"holds no draws yet: call mcmc.run"):
        scv.from_numpyro(MCMC(NUTS(groups), num_warmup=1, num_samples=1))


def test_the_summary_is_arviz_s(mcmc):
    az = pytest.importorskip("arviz")
    draws = {name: np.asarray(draws) for name, draws in mcmc.get_samples(group_by_chain=True).items()}
    data = az.from_dict(draws if az.__version__.startswith("0.") else {"posterior": draws})
    check_summary(lambda f: scv.summary(mcmc, Y, 2.0, stat_focus=f, method=QUICK), az, data, ORDER)
