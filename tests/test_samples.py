"""Samples and values of f: every accepted form means the same thing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steincv as scv
from steincv.samples.mapped import SIZES
from steincv.samples.values import values_of

X = np.random.default_rng(0).normal(size=(3, 20, 2))
SAMPLES = scv.Samples(X, -X, ["a", "b"])


def constrain(x):
    return {"tau": jnp.exp(x[0]), "theta": jnp.stack([x, 2 * x])}


CONSTRAINED = scv.Samples(X, -X, constrain=constrain)


# --- Samples -------------------------------------------------------------------------------------------


def test_one_chain_needs_no_chain_axis():
    samples = scv.Samples(X[0], -X[0])
    assert samples.draws.shape == (1, 20, 2)
    assert (samples.chains, samples.dim, samples.size) == (1, 2, 20)


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray, np.ndarray.tolist, np.asfortranarray, np.float32])
def test_every_kind_of_array_is_float64_and_contiguous(kind):
    samples = scv.Samples(kind(X), kind(-X))
    assert samples.draws.dtype == samples.scores.dtype == np.float64
    assert samples.draws.flags.c_contiguous
    np.testing.assert_allclose(samples.draws, X, rtol=1e-6)


def test_samples_are_a_copy():
    x = X.copy()
    samples = scv.Samples(x, -x)
    x[:] = 0
    np.testing.assert_array_equal(samples.draws, X)


def test_select_is_a_rectangle():
    part = SAMPLES.select(np.array([0, 2]), np.array([3, 5, 7]))
    np.testing.assert_array_equal(part.draws, X[[0, 2]][:, [3, 5, 7]])
    np.testing.assert_array_equal(part.scores, -X[[0, 2]][:, [3, 5, 7]])
    assert part.names == ("a", "b")


def test_repr_is_short():
    assert repr(SAMPLES) == "Samples(3 chains x 20 draws x 2 dimensions: a, b)"
    assert repr(scv.Samples(np.ones((2, 9)), np.ones((2, 9)))).endswith("x[0], x[1], x[2], x[3], x[4], x[5], ...)")


# --- values of f ---------------------------------------------------------------------------------------


def test_without_f_the_coordinates():
    values = values_of(None, SAMPLES)
    assert values.labels == ("a", "b")
    np.testing.assert_array_equal(values.array, X)


def test_without_f_the_constrained_parameters():
    values = values_of(None, CONSTRAINED)
    assert values.labels == ("tau", "theta[0, 0]", "theta[0, 1]", "theta[1, 0]", "theta[1, 1]")
    np.testing.assert_allclose(values.array[..., 0], np.exp(X[..., 0]), rtol=1e-15)
    np.testing.assert_array_equal(values.array[..., 3:], 2 * X)


FORMS = {
    "function": lambda x: x[0] * x[1],
    "jitted": jax.jit(lambda x: x[0] * x[1]),
    "numpy function": lambda x: np.multiply(*np.asarray(x)),
    "branches": lambda x: x[0] * x[1] if x[0] > 0 else x[1] * x[0],
    "float": lambda x: float(x[0]) * float(x[1]),
    "array": X[..., 0] * X[..., 1],
    "list": (X[..., 0] * X[..., 1]).tolist(),
    "jax array": jnp.asarray(X[..., 0]) * jnp.asarray(X[..., 1]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_f_is_the_same(form):
    """In float64, whatever JAX's flag says (a JAX array given by the user is float32 to begin with)."""
    values = values_of(FORMS[form], SAMPLES)
    assert values.shape == ()
    expected = X[..., 0] * X[..., 1]
    np.testing.assert_allclose(values.array[..., 0], expected, rtol=1e-6 if form == "jax array" else 1e-15, atol=1e-8)
    assert not jax.config.jax_enable_x64


def test_shapes_and_labels():
    assert values_of(lambda x: jnp.outer(x, x), SAMPLES).shape == (2, 2)
    assert values_of(lambda x: jnp.outer(x, x), SAMPLES).labels == ("f[0, 0]", "f[0, 1]", "f[1, 0]", "f[1, 1]")
    assert values_of(X[..., None], SAMPLES).shape == (2, 1)

    def energy(x):
        return x @ x

    assert values_of(energy, SAMPLES).labels == ("energy",)
    mixed = values_of({"e": energy, "first": X[..., 0], "all": X}, SAMPLES)
    assert mixed.labels == ("e", "first", "all[0]", "all[1]")
    assert mixed.shape == (4,)


def test_a_function_gets_the_constrained_parameters():
    values = values_of(lambda p: p["tau"] + p["theta"].sum(), CONSTRAINED)
    np.testing.assert_allclose(values.array[..., 0], np.exp(X[..., 0]) + 3 * X.sum(axis=-1), rtol=1e-14)
    untraceable = values_of(lambda p: float(p["tau"]), CONSTRAINED)
    np.testing.assert_allclose(untraceable.array[..., 0], np.exp(X[..., 0]), rtol=1e-6)


def test_a_function_may_return_a_dict():
    values = values_of(lambda x: {"p": x[0], "q": x}, SAMPLES)
    assert values.labels == ("p", "q[0]", "q[1]")


def test_one_chain_may_leave_out_the_chain_axis():
    one = scv.Samples(X[0], -X[0])
    np.testing.assert_array_equal(values_of(X[0], one).array, X[:1])
    np.testing.assert_array_equal(values_of(X[:1], one).array, X[:1])


def test_what_f_closes_over_may_change():
    """The compiled program of an earlier call must not answer for a changed one: as in a notebook."""
    state = {"power": 2, "table": np.arange(3.0)}

    def f(x):
        return x[0] ** state["power"] + jnp.asarray(state["table"])[1]

    before = values_of(f, SAMPLES).array[..., 0]
    state["power"] = 3
    np.testing.assert_allclose(values_of(f, SAMPLES).array[..., 0], X[..., 0] ** 3 + 1, rtol=1e-14)
    state["table"] = np.arange(3.0) + 10
    np.testing.assert_allclose(values_of(f, SAMPLES).array[..., 0], X[..., 0] ** 3 + 11, rtol=1e-14)
    np.testing.assert_allclose(before, X[..., 0] ** 2 + 1, rtol=1e-14)


def test_same_numbers_under_other_names_are_not_confused():
    assert values_of(lambda x: {"p": x[0]}, SAMPLES).labels == ("p",)
    assert values_of(lambda x: {"q": x[0]}, SAMPLES).labels == ("q",)


def test_many_draws_are_evaluated_in_pieces(monkeypatch):
    whole = values_of(lambda x: jnp.sin(x), SAMPLES).array
    monkeypatch.setattr("steincv.samples.mapped.SIZES", SIZES._replace(piece=7))
    np.testing.assert_array_equal(values_of(lambda x: jnp.sin(x), SAMPLES).array, whole)


def test_a_callable_object_that_cannot_be_hashed():
    class Power:
        __hash__ = None

        def __call__(self, x):
            return x[0] ** 2

    np.testing.assert_allclose(values_of(Power(), SAMPLES).array[..., 0], X[..., 0] ** 2)


@pytest.mark.parametrize("of", [lambda f: f, jax.grad], ids=["value", "gradient"])
@pytest.mark.parametrize("single", [False, True])
def test_an_array_that_a_program_in_single_precision_holds(of, single):
    """JAX hands it out as it is there, single, as long as that program lives: f is evaluated all the same."""
    scale = np.array([15.0, 10.0, 0.1])
    x = np.random.default_rng(0).normal(size=(2, 20, 3))

    def f(x):
        return jax.jit(lambda y: y / scale)(x).sum()

    with jax.enable_x64(not single):
        alive = jax.jit(jax.vmap(jax.vmap(of(f))))
        alive(x)
        result = scv.estimate(scv.Samples(x, -x), f, scv.Polynomial(1))
    np.testing.assert_allclose(result.values[..., 0], (x / scale).sum(-1), rtol=1e-13, atol=1e-11)
