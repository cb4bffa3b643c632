"""Probabilities and quantiles of draws in files: fitted on some of them, averaged over all."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from test_stream import mixture, small_pieces, write  # noqa: F401  (a fixture for every test)

import steincv as scv
from steincv.families import method as fitting

LEVELS = (0.05, 0.5, 0.95)
QUICK = scv.Polynomial(2)
FUNCTIONS = {
    "coordinates": None,
    "linear": lambda v: {"a": v[0] + 2 * v[1]},
    "monotone": lambda v: {"a": v[0] ** 3 + v[0]},
}


@pytest.fixture(autouse=True)
def few_fitted(monkeypatch):
    """Some thousand draws are more than are fitted on."""
    monkeypatch.setattr(fitting, "LARGE", fitting.LargeSamples(draws=900))


def test_a_gaussian_is_exact(tmp_path):
    x = np.random.default_rng(0).normal(size=(2, 2500, 2)) * [1.0, 1e3] + 5
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, -(x - 5) / np.array([1.0, 1e6])))
    found = scv.probability(streamed, above={"x[0]": [5.0, 6.0]}, method=QUICK)
    assert found.labels == ("P(x[0] > 5)", "P(x[0] > 6)")
    np.testing.assert_allclose(found.mean, ndtr([0.0, -1.0]), atol=1e-7)
    result = scv.estimate(streamed, stat=("mean", "sd", *LEVELS), method=QUICK)
    for p in LEVELS:
        np.testing.assert_allclose(result.quantile(p).mean, 5 + ndtri(p) * np.array([1, 1e3]), rtol=1e-5)
    assert result.info["steps"] == {"coordinate": ["x[0]", "x[1]"]}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_about_the_same_as_in_memory(tmp_path, name):
    f = FUNCTIONS[name]
    x, s = mixture(4, 1500, 2)
    streamed, memory = scv.Samples.open(write(tmp_path / "a.zarr", x, s)), scv.Samples(x, s)
    found, known = (scv.probability(given, f, QUICK, below=[0.3, 1.1]) for given in (streamed, memory))
    assert (found.labels, found.shape) == (known.labels, known.shape)
    np.testing.assert_allclose(found.plain.mean, known.plain.mean, rtol=1e-12)
    np.testing.assert_allclose(found.plain.standard_error, known.plain.standard_error, rtol=0.1)
    assert (np.abs(found.mean - known.mean) < 0.5 * found.plain.standard_error).all()
    assert (found.variance_ratio < 0.5).all()
    results = [scv.estimate(given, f, QUICK, stat=("mean", *LEVELS)) for given in (streamed, memory)]
    for p in LEVELS:
        one, other = (result.quantile(p) for result in results)
        error = one.plain.standard_error  # the plain one is a Newton step from the controlled one, not a sorted draw
        assert (np.abs(one.plain.mean - other.plain.mean) < error).all()
        assert (np.abs(one.mean - other.mean) < 0.5 * error).all()
        np.testing.assert_allclose(one.plain.standard_error, other.plain.standard_error, rtol=0.4)


def test_what_is_not_known_of_files_is_said(tmp_path):
    x, s = mixture(2, 2500, 2)
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, s))
    result = scv.probability(streamed, lambda v: {"a": v[0] * v[1]}, QUICK, below=0.0)
    assert result.info["steps"] == {"unknown": ["a"]}
    np.testing.assert_allclose(result.plain.mean, (x[..., 0] * x[..., 1] <= 0).mean())
    with pytest.raises(scv.InputError, match="`cross_fit` is not for draws in a file"):
        scv.probability(streamed, above=0.0, cross_fit=False)
