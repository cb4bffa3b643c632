"""BlackJAX: trees and arrays, kept and computed gradients, several chains in every layout."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import check_log_density, check_scores, check_stein, check_table, entries

import steincv as scv

pytestmark = pytest.mark.filterwarnings("ignore")  # of a library's own making


@pytest.fixture(scope="module")
def blackjax():
    return pytest.importorskip("blackjax")


def constrain(position):
    """Positive, interval, ordered and simplex from the real line, in an order that is not the alphabet's."""
    share = jnp.exp(position["share"] - jax.nn.logsumexp(position["share"]))
    return {
        "tau": jnp.exp(position["log_tau"]),
        "between": jax.nn.sigmoid(position["logit"]),
        "cut": jnp.cumsum(jnp.concatenate([position["cut"][:1], jnp.exp(position["cut"][1:])])),
        "share": share,
    }


def logdensity(position):
    """tau is Gamma(3, 1), between is Beta(2, 2), each with its Jacobian."""
    gamma = 3 * position["log_tau"] - jnp.exp(position["log_tau"])
    beta = 2 * jax.nn.log_sigmoid(position["logit"]) + 2 * jax.nn.log_sigmoid(-position["logit"])
    return gamma + beta - 0.5 * jnp.sum(position["cut"] ** 2) - 0.5 * jnp.sum(position["share"] ** 2)


START = {"log_tau": 0.0, "logit": 0.0, "cut": [0.0, 0.0], "share": [0.0, 0.0, 0.0]}


def run(kernel, start, chains, draws, seed=0):
    """States with leading axes (draw, chain): a scan over vectorised kernels, as in BlackJAX's own examples."""
    states = jax.vmap(kernel.init)(jax.tree.map(lambda a: jnp.broadcast_to(a, (chains, *a.shape)), start))

    @jax.jit
    def loop(key, states):
        def one(states, key):
            states, _ = jax.vmap(kernel.step)(jax.random.split(key, chains), states)
            return states, states

        return jax.lax.scan(one, states, jax.random.split(key, draws))[1]

    return loop(jax.random.key(seed), states)


@pytest.fixture(scope="module")
def states(blackjax):
    with jax.enable_x64(True):
        start = jax.tree.map(jnp.array, START, is_leaf=lambda x: isinstance(x, list))
        kernel = blackjax.hmc(logdensity, step_size=0.35, inverse_mass_matrix=jnp.ones(7), num_integration_steps=6)
        return run(kernel, start, chains=4, draws=500)


@pytest.fixture(scope="module")
def samples(states):
    return scv.from_blackjax(states, constrain=constrain)


def of_vector(x):
    """Leaves of a dict come in the order of its keys."""
    return {"cut": x[:2], "log_tau": x[2], "logit": x[3], "share": x[4:]}


def test_scores_are_those_of_the_density(samples):
    with jax.enable_x64(True):
        check_scores(samples, jax.jit(lambda x: logdensity(of_vector(x))))


def test_the_log_density_is_the_one_given(states, samples):
    assert samples.log_density is None
    asked = scv.from_blackjax(states, logdensity, constrain)
    np.testing.assert_allclose(asked.scores, samples.scores, rtol=1e-10, atol=1e-12)
    with jax.enable_x64(True):
        check_log_density(asked, jax.jit(lambda x: logdensity(of_vector(x))))
        single = jax.tree.map(lambda a: np.asarray(a, np.float32), states)
        check_log_density(scv.from_blackjax(single, logdensity), jax.jit(lambda x: logdensity(of_vector(x))))


def test_draws_of_the_warm_up_are_places_to_fit_on(blackjax):
    """One chain, several, and states without the rest of the report; what is not finite is left out."""
    adaptation = blackjax.window_adaptation(blackjax.hmc, logdensity, num_integration_steps=4)
    with jax.enable_x64(True):
        start = jax.tree.map(jnp.array, START, is_leaf=lambda x: isinstance(x, list))
        keys = jax.random.split(jax.random.key(2), 3)
        (states, _), info = jax.jit(jax.vmap(lambda key: adaptation.run(key, start, 60)))(keys)
    by_chain = jax.tree.map(lambda a: jnp.repeat(a[:, None], 5, axis=1), states)
    one = jax.tree.map(lambda a: a[0], info)
    for warmup, rows in ((info, 180), (info.state, 180), (one, 60)):
        draws, scores = scv.from_blackjax(by_chain, warmup=warmup).fitting
        assert draws.shape == scores.shape == (rows, 7)
        for x, score in zip(draws[::20], scores[::20], strict=True):
            with jax.enable_x64(True):
                found = jax.grad(lambda x: logdensity(of_vector(x)))(jnp.asarray(x))
            np.testing.assert_allclose(score, found, rtol=1e-8, atol=1e-10)
    broken = info.state._replace(logdensity_grad={**info.state.logdensity_grad, "logit": np.full((3, 60), np.inf)})
    assert scv.from_blackjax(by_chain, warmup=broken).fitting is None
    walk = blackjax.additive_step_random_walk(logdensity, blackjax.mcmc.random_walk.normal(jnp.ones(7)))
    with pytest.raises(scv.InputError, match="`warmup` must hold gradients, but a RWState keeps none"):
        scv.from_blackjax(by_chain, warmup=walk.init(start))


def test_gradients_are_counted(states):
    class Info(NamedTuple):
        num_integration_steps: np.ndarray

    counted = Info(np.full(np.shape(states.logdensity), 6))
    assert scv.from_blackjax(states, logdensity, info=counted).gradients == 6 * 2000
    assert scv.from_blackjax(states, logdensity).gradients is None


def test_stein_means_are_zero(samples):
    check_stein(samples)


def test_the_table_has_the_parameters_of_constrain(samples, states):
    with jax.enable_x64(True):
        values = jax.vmap(jax.vmap(constrain))(jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), states.position))
    order = ("tau", "between", "cut", "share")
    result = check_table(samples, {k: v for name in order for k, v in entries(name, values[name]).items()})
    assert abs(float(result["tau"].mean) - 3) < 5 * float(result["tau"].standard_error)
    assert abs(float(result["between"].mean) - 0.5) < 5 * float(result["between"].standard_error)


def test_without_constrain_the_table_has_the_position(states):
    samples = scv.from_blackjax(states)
    assert samples.draws.shape == (4, 500, 7)
    position = {name: np.swapaxes(np.asarray(array), 0, 1) for name, array in states.position.items()}
    check_table(samples, {k: v for name in sorted(position) for k, v in entries(name, position[name]).items()})
    values = scv.estimate(samples, lambda p: jnp.exp(p["log_tau"]), scv.Polynomial(1)).values[..., 0]
    np.testing.assert_allclose(values, np.exp(position["log_tau"]))


def test_every_layout_is_the_same(states, samples):
    by_chain = jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), states)
    chains = [jax.tree.map(lambda a, k=k: a[k], by_chain) for k in range(4)]
    for other in (by_chain, chains):
        np.testing.assert_array_equal(scv.from_blackjax(other, constrain=constrain).draws, samples.draws)
        np.testing.assert_array_equal(scv.from_blackjax(other, constrain=constrain).scores, samples.scores)
    np.testing.assert_array_equal(scv.from_blackjax(chains[2]).draws, samples.draws[2:3])


def test_states_without_gradients(blackjax):
    """A random walk on one array: f is a function of the vector."""

    def log_density(x):
        return -0.5 * jnp.sum((x - jnp.arange(2.0)) ** 2)

    walk = blackjax.additive_step_random_walk(log_density, blackjax.mcmc.random_walk.normal(jnp.full(2, 1.5)))
    states = run(walk, jnp.zeros(2), chains=2, draws=800)
    samples = scv.from_blackjax(states, log_density)
    np.testing.assert_allclose(samples.scores, np.arange(2.0) - samples.draws, atol=1e-6)
    check_stein(samples)
    assert scv.estimate(samples, method=scv.Polynomial(1)).labels == ("x[0]", "x[1]")
    result = scv.estimate(samples, lambda x: x[0] + x[1], scv.Polynomial(1))
    assert float(result.mean) == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(scv.InputError, match="RWState keeps no gradient: from_blackjax"):
        scv.from_blackjax(states)
    with pytest.raises(scv.InputError, match="`logdensity_fn` is not the log density that was sampled"):
        scv.from_blackjax(states, lambda x: 2 * log_density(x))


def test_what_has_no_chains_is_refused(blackjax, states):
    with pytest.raises(scv.InputError, match=r"BlackJAX states with a position, such as an HMCState; got dict"):
        scv.from_blackjax(states.position)
    with pytest.raises(scv.InputError, match=r"got TemperedSMCState\. Weighted particles"):
        scv.from_blackjax(blackjax.smc.tempered.TemperedSMCState(jnp.zeros((10, 2)), jnp.ones(10), 1.0))
    with pytest.raises(scv.InputError, match=r"`states.logdensity` has shape \(\), expected \(draw,\)"):
        scv.from_blackjax(jax.tree.map(lambda a: a[0, 0], states))
