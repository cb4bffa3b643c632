"""Parameters that are known at every draw, instead of a function that constrains."""

import jax.numpy as jnp
import numpy as np
import pytest

import steincv as scv
from steincv.samples.samples import Parameters
from steincv.samples.values import values_of

X = np.random.default_rng(0).normal(size=(3, 20, 2))
ARRAYS = {"tau": np.exp(X[..., 0]), "mu": X[..., 1], "theta": np.stack([X, 2 * X], axis=-2)}
SAMPLES = scv.Samples(X, -X, parameters=ARRAYS)


def test_the_table_is_in_their_order():
    values = values_of(None, SAMPLES)
    assert values.labels == ("tau", "mu", "theta[0, 0]", "theta[0, 1]", "theta[1, 0]", "theta[1, 1]")
    np.testing.assert_array_equal(values.array[..., 0], ARRAYS["tau"])
    np.testing.assert_array_equal(values.array[..., 5], 2 * X[..., 1])


def test_a_constrained_dict_keeps_its_order_too():
    samples = scv.Samples(X, -X, constrain=lambda x: {"tau": jnp.exp(x[0]), "mu": x[1], "a": x})
    assert values_of(None, samples).labels == ("tau", "mu", "a[0]", "a[1]")
    assert values_of(lambda p: {"z": p["mu"], "b": p["tau"]}, samples).labels == ("z", "b")
    assert values_of(lambda p: {"z": float(p["mu"]), "b": 1.0}, samples).labels == ("z", "b")  # one by one


@pytest.mark.parametrize("seen", [lambda p: p["mu"] + p["theta"][1, 0], lambda p: float(p["mu"]) + p["theta"][1, 0]])
def test_functions_of_them(seen):
    np.testing.assert_allclose(values_of(seen, SAMPLES).array[..., 0], X[..., 1] + 2 * X[..., 0])


def test_functions_of_one_after_the_other():
    """Programs are found again by what they compute, and that is which parameter they look at."""
    for name in ("tau", "mu", "tau"):
        np.testing.assert_array_equal(values_of(lambda p, name=name: p[name], SAMPLES).array[..., 0], ARRAYS[name])


def test_names_of_them():
    assert values_of("theta", SAMPLES).labels == tuple(f"theta[{i}, {j}]" for i in (0, 1) for j in (0, 1))
    assert values_of(["theta", "tau"], SAMPLES).labels[-1] == "tau"
    with pytest.raises(scv.InputError, match="there is no parameter `nu`; there are tau, mu, theta"):
        values_of("nu", SAMPLES)


def test_shown_and_coords():
    arrays = ARRAYS | {"count": np.ones((3, 20), int), "bad": np.full((3, 20), np.nan), "none": np.ones((3, 20, 0))}
    coords = {"theta": [["a", "b"], [2001, 2002]]}
    samples = scv.Samples(X, -X, parameters=Parameters(arrays, ["theta", "none", "mu"], coords))
    labels = ("theta[a, 2001]", "theta[a, 2002]", "theta[b, 2001]", "theta[b, 2002]", "mu")
    assert values_of(None, samples).labels == labels
    assert values_of("count", samples).array.sum() == 60
    with pytest.raises(scv.InputError, match="`bad` holds 60 non-finite"):
        values_of("bad", samples)
    repeated = Parameters({"theta": X}, coords={"theta": [["a", "a"]]})
    assert values_of(None, scv.Samples(X, -X, parameters=repeated)).labels == ("theta[0]", "theta[1]")


def test_they_are_selected_with_the_draws():
    part = SAMPLES.select(np.array([2, 0]), np.arange(5, 15)).select(np.array([1]), np.array([3, 4]))
    np.testing.assert_array_equal(part.draws, X[[0]][:, [8, 9]])
    np.testing.assert_array_equal(values_of("mu", part).array[..., 0], X[[0]][:, [8, 9], 1])
    np.testing.assert_array_equal(values_of(lambda p: p["mu"], part).array[..., 0], X[[0]][:, [8, 9], 1])


@pytest.mark.parametrize(
    ("parameters", "constrain", "message"),
    [
        ({}, None, "`parameters` is empty"),
        ({"a": X[:2, ..., 0]}, None, r"the parameter `a` has shape \(2, 20\), expected \(3, 20\)"),
        ({"a": X.astype(str)}, None, "the parameter `a` has dtype <U"),
    ],
)
def test_bad_parameters(parameters, constrain, message):
    with pytest.raises(scv.InputError, match=message):
        scv.Samples(X, -X, constrain=constrain, parameters=parameters)
    with pytest.raises(scv.InputError, match="there are no values of b at every draw"):
        Parameters({"a": X}, shown=["a", "b"])
    with pytest.raises(scv.InputError, match=r"the labels of `a` count \(1,\), its axes have \(2,\)"):
        Parameters({"a": X}, coords={"a": [["one"]]})
