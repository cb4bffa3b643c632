"""A user's own network: trees of draws, several classes, and what a new observation will be."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

import steincv as scv
from steincv.networks import Network, Regressor, predictive
from steincv.networks.gauss_newton import DAMPINGS

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 2))
NEW = RNG.normal(size=(3, 2))
WEIGHTS = {"a": np.zeros((2, 4)), "b": np.zeros(4), "out": np.zeros((4, 3))}


def two_layers(params, x):
    return jnp.tanh(x @ params["a"] + params["b"]) @ params["out"]


@pytest.fixture(scope="module")
def classes():
    return Network(two_layers, X, np.arange(8) % 3, params=WEIGHTS)


@pytest.fixture(scope="module")
def line():
    """A straight line: its posterior is normal, so there are exact draws and exact answers."""
    x = np.linspace(-1, 1, 6)[:, None]
    y = 0.5 * x[:, 0] + 0.2
    model = Network(lambda p, x: x[:, 0] * p["slope"] + p["at"], x, y, params={"at": 0.0, "slope": 0.0}, noise=0.5)
    design = np.stack([np.ones(6), x[:, 0]], axis=1)
    covariance = np.linalg.inv(np.eye(2) + design.T @ design / 0.25)
    mean = covariance @ design.T @ y / 0.25
    draws = RNG.multivariate_normal(mean, covariance, size=(4, 100))
    return model, model.samples({"at": draws[..., 0], "slope": draws[..., 1]}), mean, covariance


def test_it_is_asked_what_it_is(classes):
    assert (classes.dim, classes.columns, classes.smooth) == (24, 3, True)
    assert classes.last.tolist() == list(range(12, 24))  # "out" alone: "b" comes before the tanh
    for activation, smooth in ((jax.nn.relu, False), (jax.nn.softplus, True), (jax.nn.swish, True)):
        mlp = eqx.nn.MLP(2, "scalar", 4, 2, activation, key=jax.random.key(0))
        model = Network(mlp, X, np.arange(8) % 2)
        assert model.smooth is smooth
        assert model.last.tolist() == list(range(model.dim - 5, model.dim))
    wide = Network(lambda p, x: jnp.tanh(x @ p).sum(1), X, np.arange(8) % 2, params=np.zeros((2, 300)))
    assert not wide.smooth
    assert not len(wide.last)


def test_trees_and_flat_vectors_are_the_same_draws(classes):
    tree = {name: RNG.normal(size=(2, 5, *array.shape)) for name, array in WEIGHTS.items()}
    found = classes.samples(tree)
    flat = np.concatenate([a.reshape(2, 5, -1) for a in tree.values()], axis=-1)
    np.testing.assert_array_equal(found.draws, flat)
    np.testing.assert_allclose(classes.samples(flat).scores, found.scores)
    with jax.enable_x64(True):
        one = jax.tree.map(lambda a: jnp.asarray(a[1, 3]), tree)
        expected = jax.grad(classes.log_density)(one)
    np.testing.assert_allclose(found.scores[1, 3, :8], np.ravel(expected["a"]), rtol=1e-9)
    with pytest.raises(scv.InputError, match="in a tree like `params`"):
        classes.samples({"a": tree["a"]})


def test_the_fields_of_classes_are_div_phi_plus_phi_s(classes):
    """Against (damping + J'WJ)^-1 grad f and its divergence by forward mode, of all weights and of the last layer."""
    with jax.enable_x64(True):
        theta, score = jnp.asarray(RNG.normal(size=(2, classes.dim)))

        def phi(free, damping):
            def field(part):
                at = lambda p: theta.at[free].set(p)  # noqa: E731
                jacobian = jax.jacrev(lambda p: classes.outputs(at(p), X))(part)
                weight = jax.vmap(classes.information)(classes.outputs(at(part), X))
                gram = jnp.einsum("ncs,ncd,ndt->st", jacobian, weight, jacobian)
                slope = jax.grad(lambda p: classes.predict(at(p), NEW)[1, 2])(part)
                return jnp.linalg.solve(damping * jnp.eye(len(free)) + gram, slope)

            return jnp.trace(jax.jacfwd(field)(theta[free])) + field(theta[free]) @ score[free]

        found = jax.jit(classes.fields)(theta, score, NEW)
        assert found.shape == (9, 1 + len(DAMPINGS))
        np.testing.assert_allclose(found[5, 0], jax.jit(lambda: phi(classes.last, 1.0))(), rtol=1e-8)
        np.testing.assert_allclose(found[5, 2], jax.jit(lambda: phi(np.arange(24), DAMPINGS[1]))(), rtol=1e-8)


def test_means_of_classes_add_up(classes):
    """Under the prior alone: every class has a third, and f + g keeps the sum at one."""
    theta = RNG.normal(size=(4, 200, classes.dim))
    vague = Network(two_layers, np.zeros((1, 2)), np.zeros(1), params=WEIGHTS)
    samples = vague.samples(theta)
    g = scv.networks.NetworkField(vague, NEW).fields(samples)
    assert np.abs(g.reshape(800, 3, 3, -1).sum(axis=2)).max() < 1e-8
    prior = predictive(scv.Samples(theta, -theta), classes, NEW, scv.Polynomial(1))
    assert prior.mean.shape == prior.helped.shape == (3, 3)
    assert prior.entropy.shape == (3,)
    assert list(prior.summary().columns[:2]) == ["input", "class"]
    assert (np.abs(prior.mean - 1 / 3) < 5 * prior.standard_error).all()


def test_the_step_along_one_logit_has_mean_zero():
    mlp = eqx.nn.MLP(2, "scalar", 4, 1, jax.nn.relu, key=jax.random.key(0))
    model = Network(mlp, X[:1], np.zeros(1), log_prior=lambda p: sum(-2.0 * (a**2).sum() for a in jax.tree.leaves(p)))
    np.testing.assert_allclose(model.precision, 4.0)
    theta = 0.5 * RNG.normal(size=(2, 1000, model.dim))
    with jax.enable_x64(True):  # weighted by the likelihood, draws of the prior are draws of the posterior
        weight = np.asarray(jax.jit(jax.vmap(lambda t: jnp.exp(model.log_likelihood(t, *model.data)[0])))(theta[0]))
    samples = model.samples(theta[:1])
    g = scv.networks.NetworkField(model, NEW).fields(samples)[0]
    assert g.shape == (1000, 3, 1 + 8)
    product = weight[:, None, None] * g
    z = product.mean(axis=0) / product.std(axis=0) * np.sqrt(1000)
    assert np.abs(z).max() < 4.5


def test_a_new_observation_is_exact_where_the_posterior_is_normal(line):
    model, samples, mean, covariance = line
    at = np.array([[0.3], [1.5]])
    design = np.stack([np.ones(2), at[:, 0]], axis=1)
    center, spread = design @ mean, np.sqrt(np.einsum("ni,ij,nj->n", design, covariance, design) + 0.25)
    found = predictive(samples, model, at)  # Rao and Blackwell, but for a trace of ridge
    np.testing.assert_allclose(found.mean, center, rtol=1e-6)
    above = predictive(samples, model, at, above=[0.4, 1.0])
    truth = ndtr((center - [0.4, 1.0]) / spread)
    assert above.scores
    assert (above.variance_ratio < 0.1).all()
    assert (np.abs(above.mean - truth) < 4 * above.standard_error).all()
    found = predictive(samples, model, at, quantile=0.9)
    assert (found.variance_ratio < 0.2).all()
    assert (np.abs(found.mean - (center + spread * norm.ppf(0.9))) < 4 * found.standard_error).all()
    assert not found.scores


def test_what_cannot_be_asked_is_named(line, classes):
    model, samples, *_ = line
    flat = scv.Samples(np.zeros((4, 60, 24)) + RNG.normal(size=(4, 60, 24)), RNG.normal(size=(4, 60, 24)))
    for arguments, message in (
        ((flat, classes, NEW, None, {"above": 1.0}), "noise is known"),
        ((samples, model, X[:, :1], None, {"above": 1.0, "quantile": 0.5}), "one at a time"),
        ((samples, model, X[:, :1], None, {"quantile": 1.0}), "level between 0 and 1"),
        ((samples, model, X[:, :1], None, {"above": np.zeros(3)}), "one for each of 8 inputs"),
    ):
        with pytest.raises(scv.InputError, match=message):
            predictive(*arguments[:-1], **arguments[-1])
    for arguments, message in (
        (((two_layers, X, np.zeros(7)), {"params": WEIGHTS}), "one for each of 8 inputs"),
        (((two_layers, X, np.zeros(8)), {}), "`params` is needed"),
        (((3, X, np.zeros(8)), {}), "Equinox module or a function"),
        (((two_layers, X, np.full(8, 5.0)), {"params": WEIGHTS}), "classes from 0 to 2"),
        (((two_layers, X, np.zeros(8)), {"params": WEIGHTS, "noise": 1.0}), "one number per input"),
        (((two_layers, X, np.zeros(8)), {"params": WEIGHTS, "noise": -1.0}), "positive number"),
        (((lambda p, x: x @ p["c"], X, np.zeros(8)), {"params": WEIGHTS}), "fails at weights of zero"),
    ):
        with pytest.raises(scv.InputError, match=message):
            Network(*arguments[0], **arguments[1])


def test_a_regressor_answers_the_same_questions(regressor):
    theta = RNG.normal(size=(4, 60, regressor.dim))
    assert isinstance(regressor, Regressor)
    found = predictive(scv.Samples(theta, -theta), regressor, NEW, quantile=0.5)
    assert found.mean.shape == (3,)
