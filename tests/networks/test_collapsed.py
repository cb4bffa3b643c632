"""Orbits of the other weights: the density without the last layer, means that are zero, and who has them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steincv as scv
from steincv.networks import Network, NetworkField, Regressor, collapsed, predictive
from steincv.networks.model import append_one

NEW = np.linspace(-2, 2, 5)[:, None]


def hidden(v, x, width=3):
    return append_one(jnp.tanh(append_one(x) @ v.reshape(width, -1).T))


def test_the_density_and_the_means_are_those_given_the_hidden_weights(regressor):
    """y is normal given the hidden weights, with a covariance in which the last layer is gone; so is an output."""
    x, noise, y = np.random.default_rng(1).normal(size=(3, 2)), regressor.noise, regressor.targets
    found = regressor.collapsed
    normal = jax.scipy.stats.multivariate_normal.logpdf
    with jax.enable_x64(True):
        points = jnp.asarray(np.random.default_rng(0).normal(size=(2, 9)))
        densities, expected = [], []
        for v in points:
            h, new = hidden(v, regressor.inputs), hidden(v, x)
            covariance = noise**2 * jnp.eye(len(y)) + h @ h.T
            densities.append(normal(y, jnp.zeros(len(y)), covariance) - 0.5 * v @ v)
            gain = new @ h.T @ jnp.linalg.inv(covariance)
            expected.append((gain @ y, jnp.diag(new @ new.T - gain @ h @ new.T)))
        at = jax.jit(lambda v: found.layer(v).log_density)
        np.testing.assert_allclose(at(points[0]) - at(points[1]), densities[0] - densities[1], rtol=1e-9)
        both = collapsed.Collapsed(regressor, regressor.predict, lambda mean, variance: jnp.stack([mean, variance]))
        np.testing.assert_allclose(jax.jit(lambda v: both.expected(v, x))(points[0]), expected[0], rtol=1e-8)


def exact(model, rng, chains=4, draws=150):
    """Draws of the posterior by rejection: the likelihood is at most 1."""
    found = []
    while sum(map(len, found)) < chains * draws:
        theta = rng.normal(size=(20_000, model.dim))
        out = np.tanh(theta[:, :1] * model.inputs[:, 0] + theta[:, 1:2]) * theta[:, 2:3] + theta[:, 3:]
        likelihood = np.exp(-0.5 * ((model.targets - out) ** 2).sum(1) / model.noise**2)
        found.append(theta[rng.uniform(size=len(theta)) < likelihood])
    return model.samples(np.concatenate(found)[: chains * draws].reshape(chains, draws, -1))


@pytest.fixture(scope="module")
def small():
    """One hidden unit, three cases: of such a posterior there are exact draws, as many as one likes."""
    return Regressor(np.array([[-1.0], [0.5], [1.5]]), np.array([-0.6, 0.4, 0.9]), noise=0.5, width=1)


@pytest.fixture(scope="module")
def draws(small):
    return exact(small, np.random.default_rng(2))


ASKED = ({}, {"above": 0.5}, {"quantile": 0.9})


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_means_are_right_and_vary_little(small, draws, asked):
    many = exact(small, np.random.default_rng(3), draws=20_000)
    found = predictive(draws, small, NEW, **asked)
    assert found.helped.all()
    assert found.variance_ratio.max() < 0.2
    assert found.estimate.info["orbits"]["states"] == collapsed.PRICE.states
    model = small if not asked else found_of(draws, small, asked)
    with jax.enable_x64(True):
        truth = np.asarray(jax.jit(jax.vmap(lambda t: model.predict(t, NEW)))(many.draws.reshape(-1, small.dim)))
    error = np.hypot(found.standard_error, truth.std(axis=0) / np.sqrt(len(truth)))
    assert (np.abs(found.mean - truth.mean(axis=0)) < 4 * error).all()


def found_of(samples, model, asked):
    """What `predictive` asks of the model."""
    from steincv.networks.observation import observed
    from steincv.networks.predictive import predictions

    values = predictions(samples, model.predict, NEW)
    return observed(model, values, len(NEW), asked.get("above"), asked.get("quantile"))


def test_what_is_fitted_on_some_draws_serves_others(small, draws):
    """With orbits as long, and steps as long, as where it was fitted."""
    train, test = (scv.Samples(draws.draws[k], draws.scores[k]) for k in ([0, 1], [2, 3]))
    f = np.asarray([small.predict(t, NEW) for t in draws.draws.reshape(-1, small.dim)]).reshape(4, -1, len(NEW))
    g = NetworkField(small, NEW, orbits=20).fit(train, f[:2])(test)
    assert ((f[2:] + g).var(axis=(0, 1)) < 0.3 * f[2:].var(axis=(0, 1))).all()
    z = g.mean(axis=(0, 1)) / g.std(axis=(0, 1)) * np.sqrt(test.size)
    assert np.abs(z).max() < 4.5


def test_draws_of_another_density_have_none(small, draws):
    """Of tempered draws, or of other noise, the mean over an orbit would be another one."""
    own = len(NetworkField(small, NEW, orbits=0).fields(draws)[0, 0, 0])
    tempered = scv.Samples(draws.draws, 0.5 * draws.scores)
    assert NetworkField(small, NEW).fields(draws).shape[-1] == 2
    assert NetworkField(small, NEW).fields(tempered).shape[-1] == own
    with pytest.raises(scv.InputError, match="these have others"):
        NetworkField(small, NEW, orbits=8).fields(tempered)
    with pytest.raises(scv.InputError, match="`orbits`"):
        NetworkField(small, NEW, orbits=-1)


@pytest.mark.parametrize(("gradients", "states"), [(0, None), (600 * 2, None), (600 * 12, 7), (600 * 200, 64)])
def test_orbits_take_no_more_gradients_than_the_sampler(small, draws, gradients, states):
    samples = scv.Samples(draws.draws, draws.scores, gradients=gradients)
    fields, told = NetworkField(small, NEW).found(samples, 0)
    assert told.get("states") == states
    if states is not None:
        assert told["gradients"] <= gradients
        own = 0 if states >= collapsed.PRICE.alone else NetworkField(small, NEW, orbits=0).fields(draws).shape[-1]
        assert fields.shape[-1] == 2 + own


def test_who_has_no_collapsed_density(small):
    x, y = small.data
    shapes = {"hidden": np.zeros((1, 2)), "outer": np.zeros(2)}

    def apply(p, x):
        return jnp.tanh(x @ p["hidden"]) @ p["outer"]

    assert Network(apply, x, y, params=shapes, noise=0.5).collapsed is not None
    assert (
        Network(apply, x, y, params=shapes, noise=0.5, log_prior=lambda p: -(p["outer"] ** 2).sum()).collapsed is None
    )
    assert Network(apply, x, 1.0 * (y > 0), params=shapes).collapsed is None
    assert Network(lambda p, x: x @ p, x, y, params=np.zeros(1), noise=0.5).collapsed is None  # nothing would be left
