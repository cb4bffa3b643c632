"""`predictive`: plain beside controlled, no harm, entropy, any user's model, and the amortised trial."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steincv as scv
from steincv.networks import entropy, predictive
from steincv.networks.predictive import proven, score_outliers
from steincv.samples.source import MemorySource
from steincv.samples.streamed import Streamed
from steincv_paper.amortised import Amortised, unseen


@pytest.fixture(scope="module")
def samples():
    x = np.random.default_rng(0).normal(size=(4, 200, 25))
    return scv.Samples(x, -x)


INPUTS = np.random.default_rng(1).normal(size=(6, 25)) / 5


def logistic(theta, x):
    return 1 / (1 + jnp.exp(-(x @ theta)))


def test_any_users_model(samples):
    found = predictive(samples, logistic, INPUTS)
    assert found.mean.shape == (6,)
    assert found.helped.all()
    assert found.variance_ratio.max() < 0.2
    np.testing.assert_allclose(found.mean, 0.5, atol=0.01)  # by symmetry
    np.testing.assert_allclose(found.entropy, np.log(2), atol=1e-3)
    table = found.summary()
    assert list(table.columns[:5]) == ["mean", "mcse_mean", "mean_cv", "mcse_cv", "variance_ratio"]
    assert found.outside == 0
    assert "6 of 6" in repr(found)


def test_a_coin_flip_has_no_gain_and_says_so(samples):
    steep = predictive(samples, lambda t, x: 1.0 * (jnp.sin(50 * (x @ t) + 300 * t[0]) > 0), INPUTS)
    assert not steep.helped.any()
    np.testing.assert_array_equal(steep.variance_ratio, 1)
    assert all("no gain" in status for status in steep.summary().status)
    wrong = predictive(scv.Samples(samples.draws, 2 * samples.scores), logistic, INPUTS)
    assert all("stein mean" in status and "no gain" in status for status in wrong.summary().status)
    np.testing.assert_array_equal(wrong.mean, wrong.plain.mean)


def test_a_few_huge_scores_are_not_trusted(samples):
    scores = samples.scores.copy()
    scores[0, ::100] *= 60
    assert score_outliers(scv.Samples(samples.draws, scores))
    assert not score_outliers(samples)
    found = predictive(scv.Samples(samples.draws, scores), logistic, INPUTS)
    assert not found.helped.any()
    assert all("score outliers" in status and "no gain" in status for status in found.summary().status)


def test_a_gain_that_one_chain_makes_does_not_count():
    f = np.random.default_rng(5).normal(size=(4, 100, 2))
    controlled = 0.8 * f
    f[0, :, 1] *= 20
    controlled[:, :, 1] = 0.98 * f[:, :, 1]
    controlled[0, :, 1] *= 0.1
    assert ((controlled.var(axis=(0, 1)) / f.var(axis=(0, 1))) < 0.9).all()
    assert proven(f, controlled).tolist() == [True, False]


def test_a_coin_that_every_chain_tosses_is_not_chains_that_disagree():
    """Ratios of .8 that all chains share are proven; the same on average, from .3 to 1.3, is not."""
    rng = np.random.default_rng(6)
    coin = 1.0 * (rng.uniform(size=(4, 400, 2)) < 0.3)
    left = np.sqrt(np.array([[0.8, 0.3], [0.8, 0.5], [0.8, 1.1], [0.8, 1.3]]))[:, None]
    middle = coin.mean(axis=1, keepdims=True)
    assert proven(coin, middle + left * (coin - middle)).tolist() == [True, False]


def test_scores_outside_are_counted_and_clipped_for_the_entropy(samples):
    """A score that is nearly always 1, with a rough fit that nobody guards."""
    sure = predictive(samples, lambda t, x: logistic(t, 9 * x) ** 0.02, INPUTS, scv.Polynomial(1), guard=False)
    assert np.isfinite(sure.entropy).all()
    np.testing.assert_allclose(entropy([-0.2, 0.0, 0.5, 1.0, 1.3]), [0, 0, np.log(2), 0, 0])
    assert sure.outside == int(((sure.mean < 0) | (sure.mean > 1)).sum())


def test_entropy_is_for_scores(samples):
    with pytest.raises(scv.InputError, match="entropy"):
        _ = predictive(samples, lambda t, x: x @ t, INPUTS).entropy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((logistic, np.array(["a"])), "inputs"),
        ((logistic, np.zeros((0, 3))), "inputs"),
        ((3, INPUTS), "predict"),
        ((lambda t, x: t, INPUTS), "one number an input"),
        ((lambda t, x: x @ t[:3], INPUTS), "fails at one draw"),
        ((logistic, INPUTS[0, :6]), r"has shape \(6,\): one row an input, .*inputs\[:, None\]"),
    ],
)
def test_bad_input_is_named(samples, arguments, message):
    with pytest.raises(scv.InputError, match=message):
        predictive(samples, *arguments)


@pytest.mark.usefixtures("as_users_have_it")
def test_draws_in_a_file_are_read_first(samples):
    streamed = Streamed(MemorySource.of(samples))
    with pytest.raises(scv.InputError, match=r"predictive needs draws in memory.*samples\.read\(every=10\)"):
        predictive(streamed, logistic, INPUTS)
    with pytest.raises(scv.InputError, match="`samples` must be a"):
        predictive(samples.draws, logistic, INPUTS)


@pytest.fixture(scope="module")
def family():
    """f(z, x) = tanh(x z_0 + x / 2) at inputs x: one network for all of them."""
    z = np.random.default_rng(2).normal(size=(4, 150, 2))
    x = np.linspace(0.5, 1.5, 12)[:, None]
    return scv.Samples(z, -z), x, np.tanh(x[:, 0] * z[..., :1] + x[:, 0] / 2)


def test_one_network_serves_inputs_it_has_not_seen(family):
    samples, x, f = family
    trial = Amortised(x[::2], width=16, shape="potential", activation="tanh")
    fitted = scv.Neural(trial, penalty=0.0, steps=600, rate=2e-2, batch=64).fit(samples, f[..., ::2])
    other = unseen(fitted, x[1::2], f[..., 1::2])
    fresh = np.random.default_rng(3).normal(size=(1, 2000, 2))
    test = scv.Samples(fresh, -fresh)
    truth = np.tanh(x[:, 0] * fresh[..., :1] + x[:, 0] / 2)
    for g, part in ((fitted(test), truth[..., ::2]), (other(test), truth[..., 1::2])):
        assert ((part + g).var(axis=(0, 1)) < 0.2 * part.var(axis=(0, 1))).all()
        assert (np.abs(g.mean(axis=(0, 1))) < 5 * g.std(axis=(0, 1)) / np.sqrt(2000)).all()


@pytest.mark.parametrize("shape", ["scalar", "field"])
def test_the_amortised_g_is_div_phi_plus_phi_s(shape):
    rng = np.random.default_rng(4)
    x, (z, s) = rng.normal(size=(3, 2)), np.float32(rng.normal(size=(2, 1, 4)))
    trial = Amortised(x, width=5, shape=shape)

    @jax.jit
    def everything(z, s):
        params = trial.init(jax.random.key(0), 4)
        field, divergence = trial.field(params, z)
        jacobian = jax.jacfwd(lambda t: trial.field(params, t[None])[0][0])(z[0])
        g = trial.control(params, z, s, jnp.asarray(trial.context))
        return g, divergence + (field * s).sum(-1), divergence, jnp.trace(jacobian)

    g, expected, divergence, trace = everything(z, s)
    assert g.shape == (1, 3)
    np.testing.assert_allclose(g[:, 0], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(trace, divergence[0], rtol=1e-4, atol=1e-6)


def test_bad_contexts_are_named(family):
    samples, x, f = family
    with pytest.raises(scv.InputError, match="one row an output"):
        Amortised(np.zeros(3))
    with pytest.raises(scv.InputError, match="one of scalar"):
        Amortised(x, shape="round")
    with pytest.raises(scv.InputError, match="12 outputs"):
        scv.Neural(Amortised(x[:3])).fit(samples, f)
    with pytest.raises(scv.InputError, match="has no `context`"):
        unseen(scv.Polynomial(1).fit(samples, f), x, f)
