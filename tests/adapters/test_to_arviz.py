"""Controlled draws in ArviZ: variables, dims and coordinates, and its own summary of them."""

import numpy as np
import pytest

import steincv as scv
from steincv.samples.samples import Parameters

pytestmark = pytest.mark.filterwarnings("ignore")  # of a library's own making


@pytest.fixture(scope="module")
def arviz():
    return pytest.importorskip("arviz")


@pytest.fixture(scope="module")
def result():
    x = np.random.default_rng(0).normal(size=(4, 250, 4))
    arrays = {"mu": x[..., 0], "theta": x[..., 1:3], "cov": x.reshape(4, 250, 2, 2) ** 2, "odd/name": x[..., 3]}
    parameters = Parameters(arrays, coords={"theta": [["a", "b"]]})
    return scv.estimate(scv.Samples(x, -x, parameters=parameters), method=scv.Polynomial(1), guard=False)


def test_variables_dims_and_coordinates(arviz, result):
    posterior = result.to_arviz()["posterior"]
    assert list(posterior.data_vars) == ["mu", "theta", "cov", "odd.name"]
    assert posterior["theta"].dims == ("chain", "draw", "theta_dim_0")
    assert list(posterior["theta"]["theta_dim_0"].values) == ["a", "b"]
    assert posterior["cov"].shape == (4, 250, 2, 2)
    np.testing.assert_array_equal(posterior["cov"].values.reshape(4, 250, 4), result["cov"].controlled)
    np.testing.assert_array_equal(posterior["theta"].sel(theta_dim_0="b").values, result["theta[b]"].controlled[..., 0])


def test_the_summary_of_arviz_has_our_means_and_errors(arviz, result):
    table = arviz.summary(result.to_arviz(), round_to="none")
    names = [label.replace("odd/name", "odd.name") for label in result.labels]
    assert list(table.index) == names
    np.testing.assert_allclose(table["mean"].astype(float), result.mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(table["mcse_mean"].astype(float), result.standard_error, rtol=0.1, atol=1e-12)


def test_labels_that_are_no_grid(arviz):
    x = np.random.default_rng(0).normal(size=(2, 50, 6))
    names = ["a", "a[0]", "b[x]", "b[y, z]", "c[0, 0]", "c[1, 1]"]
    result = scv.estimate(scv.Samples(x, -x, names), method=scv.MonteCarlo())
    posterior = result.to_arviz()["posterior"]
    assert list(posterior.data_vars) == ["a", "a[0]", "b", "c"]
    assert list(posterior["b"]["b_dim_0"].values) == ["x", "y, z"]
    np.testing.assert_array_equal(posterior["c"].values, x[..., 4:])
