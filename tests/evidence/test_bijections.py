"""Bijections: there and back, and Jacobians against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steincv as scv
from steincv.evidence import Interval, Positive, PowerPosterior, Real, Simplex
from steincv.runtime import threads as _threads
from steincv.runtime.rows import Pieces

EVERY = [
    Real(),
    Real((2, 3)),
    Positive(),
    Positive(4),
    Interval(-1.0, 3.0),
    Interval(0, 1, (2,)),
    Simplex(2),
    Simplex(5),
]


@pytest.mark.parametrize("bijection", EVERY, ids=str)
def test_there_and_back(bijection):
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).normal(size=bijection.size))
        y, _ = bijection.forward(x)
        assert y.shape == bijection.shape
        np.testing.assert_allclose(bijection.inverse(y), x, atol=1e-12)


@pytest.mark.parametrize("bijection", EVERY, ids=str)
@pytest.mark.parametrize("size", [1.0, 6.0])
def test_log_jacobian_is_that_of_finite_differences(bijection, size):
    free = bijection.size  # a simplex has one coordinate more than it has freedom
    with jax.enable_x64(True):
        x = size * np.random.default_rng(1).normal(size=bijection.size)
        h = 1e-6

        def value(x):
            return np.asarray(bijection.forward(jnp.asarray(x))[0]).reshape(-1)[:free]

        columns = [(value(x + h * e) - value(x - h * e)) / (2 * h) for e in np.eye(free)]
        expected = np.linalg.slogdet(np.stack(columns))[1]
        assert float(bijection.forward(jnp.asarray(x))[1]) == pytest.approx(expected, abs=1e-4)


def test_values_are_where_they_belong():
    with jax.enable_x64(True):
        x = jnp.asarray(20 * np.random.default_rng(0).normal(size=(200, 4)))
        assert (jax.vmap(lambda r: Positive(4).forward(r)[0])(x) > 0).all()
        inside = jax.vmap(lambda r: Interval(-1, 3, (4,)).forward(r)[0])(x)
        assert ((inside >= -1) & (inside <= 3)).all()
        parts = jax.vmap(lambda r: Simplex(5).forward(r)[0])(x)
        np.testing.assert_allclose(parts.sum(1), 1, atol=1e-12)
        np.testing.assert_allclose(Simplex(5).forward(jnp.zeros(4))[0], 0.2, atol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Interval(1, 1),
        lambda: Interval(0, np.inf),
        lambda: Simplex(1),
        lambda: Real((0,)),
        lambda: Positive("a"),
    ],
)
def test_bad_ranges(make):
    with pytest.raises(scv.InputError):
        make()


def test_a_density_keeps_its_mass_under_the_change_of_variables():
    """The integral of prior times Jacobian over all of R is one: Gamma(2, 1) and Beta(2, 2)."""
    cases = [
        (Positive(), lambda p: jnp.log(p["y"]) - p["y"]),
        (Interval(0.0, 2.0), lambda p: jnp.log(0.75 * p["y"] * (2 - p["y"]))),
    ]
    for bijection, log_prior in cases:
        model = PowerPosterior(lambda p: 0.0 * p["y"], log_prior, {"y": bijection})
        x = np.linspace(-30, 30, 6001)[:, None]
        assert np.trapezoid(np.exp(model.evaluate(x)[1]), x[:, 0]) == pytest.approx(1, abs=1e-6)


def test_scores_are_those_of_the_unconstrained_density():
    model = PowerPosterior(
        lambda p: -((p["tau"] - 1.0) ** 2) + jnp.log(p["w"]).sum() + p["b"].sum(),
        lambda p: -p["tau"] - 0.5 * (p["b"] ** 2).sum(),
        {"tau": Positive(), "w": Simplex(3), "b": Real((2,)), "q": Interval(0.0, 1.0)},
    )
    assert model.names == ("tau", "w[0]", "w[1]", "b[0]", "b[1]", "q")
    x = np.random.default_rng(0).normal(size=(2, 3, model.dim))
    t, h = 0.3, 1e-6
    samples = model.samples(x, t)

    def density(x):
        likelihood, prior = model.evaluate(x)
        return t * likelihood + prior

    for i, e in enumerate(np.eye(model.dim)):
        slope = (density(x + h * e) - density(x - h * e)) / (2 * h)
        np.testing.assert_allclose(samples.scores[..., i], slope, atol=1e-7)
    assert set(samples.constrain(x[0, 0])) == {"tau", "w", "b", "q"}


@pytest.mark.parametrize(
    ("likelihood", "words"),
    [
        (lambda p: jnp.array([p["y"], p["y"]]), r"`log_likelihood` returned an array of shape \(2,\) at rung 0"),
        (lambda p: {"a": p["y"]}, "returned a dict"),
        (lambda p: p["z"], "`log_likelihood` failed at rung 0: KeyError"),
    ],
)
def test_a_model_that_returns_the_wrong_thing(likelihood, words):
    model = PowerPosterior(likelihood, lambda p: -p["y"], {"y": Positive()})
    with pytest.raises(scv.InputError, match=words):
        model.check()


@pytest.mark.usefixtures("as_users_have_it")
def test_a_model_needs_to_say_where_its_parameters_live():
    for parameters in ({}, {"y": "positive"}, ["y"]):
        with pytest.raises(scv.InputError, match="parameters"):
            PowerPosterior(lambda p: 0.0, lambda p: 0.0, parameters)


def test_settings_of_jax_hold_for_every_piece():
    """Draws are evaluated in pieces by several threads, and settings are a thread's own."""
    model = PowerPosterior(lambda p: jnp.log(p["x"]), lambda p: -0.5 * p["x"] ** 2, {"x": Real()})
    rows = 4 * Pieces().longest
    x = np.ones((rows, 1))
    x[-1] = -1.0
    with _threads._CONTROLLER.limit(limits=2, user_api="blas"):
        assert np.flatnonzero(np.isnan(model.evaluate(x)[0])).tolist() == [rows - 1]
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            model.evaluate(x)
