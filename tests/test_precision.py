"""Single and double precision in one session, in every order: neither the user's code nor ours may fail."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steincv as scv
from steincv.evidence import PowerPosterior, Real, temper
from steincv.networks import Network, NetworkField, full_gradient
from steincv.networks.predictive import predictions
from steincv.runtime import double
from steincv.runtime.rows import over_rows

X = np.random.default_rng(0).normal(size=(40, 3))
Y = X[:, 0] + np.random.default_rng(1).normal(size=40)
CURVATURE = X.T @ X + np.eye(3)
METHOD = scv.Polynomial(2)


def log_density(b):
    """A regression: the arrays of NumPy are in an inner program and in a scan too."""
    fit = jax.lax.scan(lambda _, row: (0.0, row @ b), 0.0, X)[1]
    return -0.5 * jnp.sum((Y - X @ b) ** 2) - 0.5 * b @ b - 0.0 * fit.sum()


def f(b):
    return jax.jit(lambda v: jax.nn.softplus(X @ v).mean())(b)


def exact():
    """Draws of the posterior with their scores, and f at each."""
    mean = np.linalg.solve(CURVATURE, X.T @ Y)
    rng = np.random.default_rng(2)
    x = mean + rng.normal(size=(2, 60, 3)) @ np.linalg.cholesky(np.linalg.inv(CURVATURE)).T
    return x, -(x - mean) @ CURVATURE, np.log1p(np.exp(x @ X.T)).mean(-1)


@pytest.fixture(params=[False, True], ids=["single", "double"])
def session(request):
    """A session in either precision, with nothing in JAX's memory."""
    jax.clear_caches()
    with jax.enable_x64(request.param):
        yield request.param
    jax.clear_caches()


def theirs(double):
    """What a user does between our calls, in the precision of the session."""
    kind = np.float64 if double else np.float32
    gradient = jax.jit(jax.vmap(jax.grad(lambda b: log_density(b) + f(b))))
    assert gradient(jnp.ones((2, 3))).dtype == kind
    assert (X @ jnp.ones(3)).dtype == (Y + jnp.ones(40)).dtype == kind
    assert jax.jit(f)(jnp.ones(3)).dtype == kind
    return gradient  # as long as it lives JAX remembers its trace


def check_values(result, values):
    np.testing.assert_allclose(result.values[..., 0], values, rtol=1e-13)


OURS = {
    "values": lambda s, at: check_values(scv.estimate(s, f, METHOD, orbits=0), at),
    "orbits": lambda s, at: check_values(scv.estimate(s, f, METHOD, orbits=4), at),
    "quantile": lambda s, at: scv.estimate(s, f, METHOD, stat=("mean", 0.5)),
    "probability": lambda s, at: scv.probability(s, f, METHOD, above=0.8),
    "bridge": lambda s, at: scv.bridge(s, method=METHOD),
}


@pytest.mark.parametrize("first", ["theirs", "ours"])
def test_a_log_density_and_f_that_close_over_arrays(session, first):
    alive = [theirs(session)] if first == "theirs" else []
    x, scores, values = exact()
    samples = scv.Samples(x, scores, log_density=log_density)
    at = samples.log_density(x[0])
    np.testing.assert_allclose(at.gradient, scores[0], rtol=1e-9, atol=1e-9)
    for call in OURS.values():
        alive.append(theirs(session))
        call(samples, values)
    theirs(session)


def networks():
    """A network of the user's that closes over an array, by everything that asks it."""

    def apply(params, x):
        return jnp.tanh(x @ params["hidden"]) @ params["outer"] + (X @ params["hidden"]).mean()

    model = Network(apply, X, Y, params={"hidden": np.zeros((3, 2)), "outer": np.zeros(2)}, noise=1.0)
    start = np.random.default_rng(3).normal(size=(2, 8)) / 4
    samples = full_gradient(model.log_posterior, start, draws=10, warmup=20, leapfrogs=2)
    yield samples.gradients, 2 * 2 * 10
    yield samples.scores, model.samples(samples.draws).scores
    found = NetworkField(model, X[:2], orbits=3).found(samples, 0)[0]
    yield np.isfinite(found).all(), True
    yield predictions(samples, model.predict, X[:2]), np.asarray(by_hand(samples.draws))


def by_hand(draws):
    hidden = draws[..., :6].reshape(2, 10, 3, 2)
    return np.einsum("cdnk,cdk->cdn", np.tanh(X[:2] @ hidden), draws[..., 6:]) + (X @ hidden).mean((2, 3))[..., None]


def tempering():
    """A model whose likelihood closes over the data, from the check of it to the scores of draws."""
    model = PowerPosterior(
        lambda p: -0.5 * ((Y - X @ p["b"]) ** 2).sum(), lambda p: -0.5 * (p["b"] ** 2).sum(), {"b": Real((3,))}
    )
    run = temper(model, [0.0, 0.5, 1.0], draws=5, replicas=2, warmup=10, thin=1)
    yield run.log_likelihoods[-1], -0.5 * ((Y - run.samples[-1].draws @ X.T) ** 2).sum(-1)


@pytest.mark.parametrize("first", ["theirs", "ours"])
@pytest.mark.parametrize("ours", [networks, tempering])
def test_networks_and_tempering(session, ours, first):
    alive = [theirs(session)] if first == "theirs" else []
    for found, expected in ours():
        alive.append(theirs(session))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_numpyro():
    """In single precision, as it is by default."""
    numpyro = pytest.importorskip("numpyro")
    normal, infer = numpyro.distributions.Normal, numpyro.infer

    def model():
        b = numpyro.sample("b", normal(0, 1).expand([3]).to_event(1))
        numpyro.sample("y", normal(X @ b, 1.0), obs=Y)

    def run(key):
        kernel = infer.HMC(model, num_steps=4, trajectory_length=None)
        mcmc = infer.MCMC(
            kernel, num_warmup=50, num_samples=50, num_chains=2, chain_method="vectorized", progress_bar=False
        )
        mcmc.run(jax.random.key(key))
        return mcmc

    def g(p):
        return f(p["b"])

    def still():
        assert infer.log_likelihood(model, first.get_samples())["y"].dtype == np.float32
        assert (X @ jnp.ones(3)).dtype == np.float32

    jax.clear_caches()
    with jax.enable_x64(False):
        first = run(0)
        samples = scv.from_numpyro(first)
        run(1)
        still()
        x = samples.draws
        for orbits in (0, 4):
            values = scv.estimate(samples, g, METHOD, orbits=orbits).values[..., 0]
            np.testing.assert_allclose(values, np.log1p(np.exp(x @ X.T)).mean(-1), rtol=1e-6)
            still()
        np.testing.assert_allclose(samples.scores, X.T @ Y - x @ CURVATURE, rtol=1e-9, atol=1e-9)
        scv.estimate(samples, g, METHOD, stat=("mean", 0.5))
        still()
        scv.bridge(samples, method=METHOD)
        still()


@pytest.mark.parametrize(
    "wrong", [lambda b: jnp.linalg.cholesky(X @ b), lambda b: np.exp(X @ b), lambda b: (X @ b) + Y[:7]]
)
def test_a_function_that_fails_leaves_nothing_behind(session, wrong):
    """Even with the error at hand, as at a prompt."""
    x, scores, values = exact()
    with pytest.raises(scv.InputError) as kept:
        scv.estimate(scv.Samples(x, scores), lambda b: wrong(b)["a"], METHOD)
    theirs(session)
    check_values(scv.estimate(scv.Samples(x, scores), f, METHOD), values)
    assert kept


def test_a_function_of_the_users_that_failed(session):
    """JAX keeps the trace, with the arrays as they were there."""
    with pytest.raises(TypeError, match="shape"):
        jax.jit(lambda b: (X @ b) + (Y[:7] + b[0]))(jnp.ones(3))
    x, scores, values = exact()
    check_values(scv.estimate(scv.Samples(x, scores), f, METHOD), values)


@pytest.fixture
def cleared(monkeypatch):
    """How often JAX's caches are emptied."""
    found, clear = [], jax.clear_caches
    monkeypatch.setattr(double.jax, "clear_caches", lambda: (found.append(1), clear()))
    return found


def test_nothing_is_emptied_in_double_precision(cleared):
    x, scores, values = exact()
    with jax.enable_x64(True):
        alive = theirs(True)
        samples = scv.Samples(x, scores, log_density=log_density)
        check_values(scv.estimate(samples, f, METHOD, orbits=4), values)
    assert alive
    assert not cleared


def test_nothing_is_emptied_without_need(cleared):
    """Arrays in single precision are the user's, if they stay so: that is known the second time."""
    table = np.arange(3, dtype=np.float32)
    x, scores, _ = exact()
    with jax.enable_x64(False):
        scv.estimate(scv.Samples(x, scores, log_density=lambda b: -b @ b), lambda b: jnp.sin(b[0]), METHOD, orbits=0)
        assert not cleared
        scv.estimate(scv.Samples(x, scores), lambda b: b @ table, METHOD)
        cleared.clear()
        result = scv.estimate(scv.Samples(x, scores), lambda b: b @ table, METHOD)
    np.testing.assert_allclose(result.values[..., 0], x @ table, rtol=1e-13)
    assert not cleared


def test_one_program_for_all_numbers_of_rows():
    compiled = []
    listen = lambda name, *a, **k: compiled.append(name) if "backend_compile" in name else None  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(listen)
    g = over_rows(lambda rows: jnp.tanh(rows["a"] * 1.2345678).sum(-1))
    for n in (1, 7, 64, 65, 500):
        a = np.random.default_rng(n).normal(size=(n, 2))
        np.testing.assert_allclose(g({"a": a}), np.tanh(a * 1.2345678).sum(-1), rtol=1e-13)
    assert len(compiled) == 1


def test_orbits_compile_the_model_and_f_once():
    """Whatever number of states is left on the way; the second call nothing."""
    compiled = []
    listen = lambda name, *a, **k: compiled.append(name) if "backend_compile" in name else None  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(listen)
    x, scores, _ = exact()
    samples = scv.Samples(x, scores, log_density=lambda b: log_density(b) * 1.0 + 0.12345)
    assert len(compiled) == 1
    g = lambda b: jnp.cosh(b[0] - 0.12345)  # noqa: E731
    result = scv.estimate(samples, g, METHOD)
    assert len(compiled) <= 3  # f at the draws, and at the states
    assert 0 <= result.info["orbits"]["compiling"] < result.info["orbits"]["seconds"] + 10
    compiled.clear()
    scv.estimate(samples, g, METHOD)
    assert compiled == []
