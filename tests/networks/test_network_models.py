"""Models and samplers: counts of weights, scores against autodiff, draws of a known posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steincv as scv
from steincv.networks import Regressor, full_gradient, full_scores
from steincv_paper.classifier import Classifier
from steincv_paper.psgld import Steps, psgld


def test_the_classifier_has_405_weights(classifier):
    assert classifier.dim == 5 * 5 * 2 + 2 + 3 * 3 * 2 * 3 + 3 + 147 * 2 + 2 == 405


def test_the_classifier_is_the_network_it_says(classifier):
    """Against JAX's own convolutions and windows."""
    theta = jnp.asarray(0.3 * np.random.default_rng(1).normal(size=405), jnp.float32)
    ends = np.cumsum([50, 2, 54, 3, 294, 2])
    first, b1, second, b2, last, b3 = np.split(np.asarray(theta), ends[:-1])

    def layer(x, filters, bias):
        out = jax.lax.conv_general_dilated(x, filters, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        out = jax.nn.relu(out + bias)
        return jax.lax.reduce_window(out, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    x = layer(jnp.asarray(classifier.images)[..., None], first.reshape(5, 5, 1, 2), b1)
    # the 18 rows of the second filter are the 3 x 3 shifts of both channels
    x = layer(x, second.reshape(3, 3, 2, 3), b2)
    h = x.transpose(0, 3, 1, 2).reshape(len(x), 147)
    out = h @ last.reshape(147, 2) + b3
    probability = jax.nn.softmax(out)[:, 1]
    np.testing.assert_allclose(jax.jit(classifier.predict)(theta, classifier.images), probability, atol=2e-5)
    likelihood = jnp.log(jnp.where(classifier.labels == 1, probability, 1 - probability)).sum()
    found = jax.jit(classifier.log_posterior)(theta) - classifier.log_prior(theta)
    np.testing.assert_allclose(found, likelihood, rtol=1e-3)


def test_full_scores_in_chunks_are_the_gradient(regressor):
    theta = np.random.default_rng(2).normal(size=(1, 2, regressor.dim)).astype(np.float32)
    expected = jax.jit(jax.vmap(jax.grad(regressor.log_posterior)))(theta[0])
    np.testing.assert_allclose(full_scores(regressor, theta, rows=5)[0], expected, rtol=1e-4, atol=1e-4)


def test_the_regressor_counts_its_weights(regressor):
    assert regressor.dim == 3 * (2 + 2) + 1
    assert Regressor(np.zeros((5, 1)), np.zeros(5), width=20).dim == 61


class Line:
    """y = theta . x + noise with N(0, 1) priors: the posterior is Gaussian and known."""

    def __init__(self):
        rng = np.random.default_rng(3)
        x = rng.normal(size=(40, 2)).astype(np.float32)
        self.data = (x, (x @ np.array([1.0, -0.5]) + rng.normal(size=40)).astype(np.float32))
        precision = np.eye(2) + x.T @ x
        self.covariance = np.linalg.inv(precision)
        self.mean = self.covariance @ (x.T @ self.data[1])

    def log_prior(self, theta):
        return -0.5 * (theta**2).sum()

    def log_likelihood(self, theta, x, y):
        return -0.5 * (y - x @ theta) ** 2

    def log_posterior(self, theta):
        return self.log_prior(theta) + self.log_likelihood(theta, *self.data).sum()


@pytest.fixture(scope="module")
def line():
    return Line()


def test_both_samplers_find_a_known_posterior(line):
    start = np.zeros((4, 2), np.float32)
    exact = full_gradient(line.log_posterior, start, draws=300, warmup=200, leapfrogs=5)
    near = psgld(line, start, draws=400, warmup=300, thin=5, batch=20, steps=Steps(a=5e-3, gamma=0.0))
    for samples, tolerance in ((exact, 0.03), (near, 0.08)):
        assert samples.draws.shape[::2] == (4, 2)
        np.testing.assert_allclose(samples.draws.mean(axis=(0, 1)), line.mean, atol=tolerance)
        score = -(samples.draws - line.mean) @ np.linalg.inv(line.covariance)
        np.testing.assert_allclose(samples.scores, score, atol=2e-3)
    ratio = exact.draws.var(axis=(0, 1)) / np.diag(line.covariance)
    assert (np.abs(ratio - 1) < 0.3).all()
    again = psgld(line, start, draws=400, warmup=300, thin=5, batch=20, steps=Steps(a=5e-3, gamma=0.0))
    np.testing.assert_array_equal(near.draws, again.draws)


def test_a_diverging_run_is_refused():
    class Nowhere(Line):
        def log_likelihood(self, theta, x, y):
            return jnp.nan * (x @ theta)

    with pytest.raises(scv.InputError, match="diverged"):
        psgld(Nowhere(), np.ones((1, 2)), draws=2, warmup=0, thin=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Classifier(np.zeros((3, 28, 27)), np.zeros(3, int)), "28, 28"),
        (lambda: Classifier(np.full((3, 28, 28), 200.0), np.zeros(3, int)), "255"),
        (lambda: Classifier(np.zeros((3, 28, 28)), np.zeros(2, int)), "one label"),
        (lambda: Classifier(np.zeros((3, 28, 28)), np.array([0, 1, 6])), "0 or 1"),
        (lambda: Regressor(np.zeros(3), np.zeros(3)), "one row a case"),
        (lambda: Regressor(np.zeros((3, 1)), np.zeros(4)), "3 inputs"),
        (lambda: Regressor(np.zeros((3, 1)), np.zeros(3), noise=0.0), "noise"),
        (lambda: Steps(a=-1.0), "'a'"),
        (lambda: full_gradient(lambda t: -(t**2).sum(), np.zeros(3)), "chain, dim"),
        (lambda: psgld(Line(), np.zeros(2)), "chain, dim"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(scv.InputError, match=message):
        make()
