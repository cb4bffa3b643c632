"""Fields of networks: closed forms against autodiff, and means that are zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steincv as scv
from steincv.networks import NetworkField, Regressor, gauss_newton, last_layer
from steincv.networks.network_field import coefficients, combine
from steincv.networks.predictive import predictions, predictive
from steincv_paper.classifier import Classifier


def test_gauss_newton_is_div_phi_plus_phi_s(regressor):
    """Against P^-1 grad f and its divergence by forward mode."""
    rng = np.random.default_rng(0)
    i = 1
    with jax.enable_x64(True):
        theta, score = jnp.asarray(rng.normal(size=(2, regressor.dim)))
        x = jnp.asarray(rng.normal(size=(3, 2)))

        def phi(theta):
            jacobian = jax.jacrev(lambda t: regressor.predict(t, jnp.asarray(regressor.inputs)))(theta)
            p = gauss_newton.DAMPINGS[1] * jnp.eye(regressor.dim) + jacobian.T @ jacobian / regressor.noise**2
            return jnp.linalg.solve(p, jax.grad(lambda t: regressor.predict(t, x)[i])(theta))

        expected = jax.jit(lambda t: jnp.trace(jax.jacfwd(phi)(t)) + phi(t) @ score)(theta)
        found = jax.jit(lambda t, s: regressor.fields(t, s, x))(theta, score)
        assert found.shape == (3, 1 + len(gauss_newton.DAMPINGS))
        np.testing.assert_allclose(found[i, 2], expected, rtol=1e-9)


def test_the_last_layers_field_is_rao_blackwell(regressor):
    """f + g does not depend on the outer weights: it is their conditional mean."""
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(2, regressor.dim))
    theta[1, :9] = theta[0, :9]
    x = rng.normal(size=(3, 2))

    def left(t):
        score = jax.grad(regressor.log_posterior)(t)
        return regressor.predict(t, x) + regressor.fields(t, score, jnp.asarray(x))[:, 0]

    with jax.enable_x64(True):
        one, other = jax.jit(jax.vmap(left))(jnp.asarray(theta))
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_the_classifiers_field_solves_steins_equation():
    """phi' - z phi is F - 1(t > 0), and phi is continuous across the step."""
    z, c, tau = (
        np.float32([-3, -0.5, 0.4, 2.5, 6.0]),
        np.float32([1.0, -20, 0.3, -9, 3]),
        np.float32([2, 30, 0.5, 4, 0.1]),
    )

    def step(z):
        return last_layer._step(z, c + tau * z, tau)

    (jump, phi), (_, slope) = jax.jit(lambda z: jax.jvp(step, (z,), (jnp.ones_like(z),)))(z)
    np.testing.assert_allclose(slope - z * phi, jump, rtol=2e-3, atol=2e-4)
    below, above = (jax.jit(step)(np.float32(-c / tau + shift))[1] for shift in (-1e-4, 1e-4))
    np.testing.assert_allclose(below, above, rtol=0.02)


def test_without_data_the_last_layer_is_integrated_out(classifier, monkeypatch):
    """Under the prior alone g has mean zero; along the activations it leaves only what hidden weights decide."""
    monkeypatch.setattr(last_layer, "GRID", last_layer.GRID._replace(omegas=(0.0, 0.1)))
    model = Classifier(*classifier.data)
    theta = np.random.default_rng(3).normal(size=(2, 150, 405))
    samples = scv.Samples(theta, -theta)
    x = classifier.images[:4]
    g = NetworkField(model, x).fields(samples)
    z = g.mean(axis=(0, 1)) / g.std(axis=(0, 1)) * np.sqrt(300)
    assert np.abs(z).max() < 4.5
    f = predictions(samples, model.predict, x)
    left = (f + g[..., 0]).var(axis=(0, 1)) / f.var(axis=(0, 1))
    assert left.max() < 0.1


@pytest.fixture(scope="module")
def linear_network():
    """With noise of 1000 one case says nothing: the posterior is the prior, of which there are exact draws."""
    x = np.zeros((1, 1))
    model = Regressor(x, np.zeros(1), noise=1e3, width=2)
    theta = np.random.default_rng(4).normal(size=(4, 200, model.dim))
    return model, scv.Samples(theta, -theta)


def test_means_are_zero_and_error_bars_shrink(linear_network):
    model, samples = linear_network
    x = np.linspace(-2, 2, 7)[:, None]
    g = NetworkField(model, x, orbits=0).fields(samples)
    z = g.mean(axis=(0, 1)) / g.std(axis=(0, 1)) * np.sqrt(samples.size)
    assert np.abs(z).max() < 4.5
    found = predictive(samples, model, x)
    assert found.helped.all()
    assert found.variance_ratio.max() < 0.3
    assert (np.abs(found.mean) < 5 * found.standard_error).all()


def test_coefficients_serve_inputs_that_were_not_seen(linear_network):
    model, samples = linear_network
    seen, other = np.array([[-1.0], [0.5]]), np.array([[1.5], [-0.3]])
    fitted = NetworkField(model, seen).fit(samples, predictions(samples, model.predict, seen))
    c = np.array(fitted.info["coefficients"])
    g = NetworkField(model, other).fitted(c, samples.dim)(samples)
    f = predictions(samples, model.predict, other)
    assert ((f + g).var(axis=(0, 1)) < 0.3 * f.var(axis=(0, 1))).all()


def test_bad_models_are_named(linear_network):
    model, samples = linear_network
    with pytest.raises(scv.InputError, match="must be a Network"):
        NetworkField(lambda t: t, np.zeros((2, 1)))
    with pytest.raises(scv.InputError, match="weights themselves"):
        NetworkField(model, np.zeros((2, 1))).solve([], 0)
    with pytest.raises(scv.InputError, match="3 outputs, and fields of 2"):
        NetworkField(model, np.zeros((2, 1))).fit(samples, np.zeros((4, 200, 3)))


def test_outputs_that_hardly_vary_do_not_decide_for_others():
    """As probabilities that are 0 at nearly all draws: a few draws, or none, make their fields large."""
    rng = np.random.default_rng(7)
    f, rare = rng.normal(size=(2, 4, 300, 5)) * [1.0, 1e-6, 1e-6, 1e-6, 1e-6]
    rare[..., 1:] += 0.1 * (rng.uniform(size=(4, 300, 4)) < 0.01)
    fields = np.stack([-f + rare * [0.1, 1, 1, 1, 1], rare], axis=-1)
    np.testing.assert_allclose(coefficients(fields, f)[0], 1, atol=0.05)
    made = combine(fields[:2], f[:2])
    assert (f[2:] + made(fields[2:]))[..., 0].var() < 0.05 * f[2:, :, 0].var()
