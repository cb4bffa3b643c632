"""Whatever name a table prints can be asked for: entries of arrays by their labels, alone and among others."""

import numpy as np
import pytest

import steincv as scv
from steincv.samples.samples import Parameters

X = np.random.default_rng(0).normal(size=(4, 100, 3))
COORDS = {"b": [["age", "sex"]]}
QUICK = scv.Polynomial(2)


def constrain(x):
    return {"b": x[:2], "tau": x[2]}


def density(x):
    return -0.5 * (x**2).sum()


def known(**more):
    arrays = Parameters({"b": X[..., :2], "tau": X[..., 2]}, coords=COORDS)
    return scv.Samples(X, -X, ["b_age", "b_sex", "tau"], parameters=arrays, **more)


@pytest.mark.parametrize("more", [{}, {"constrain": constrain}, {"constrain": constrain, "log_density": density}])
def test_an_entry_is_asked_for_by_the_label_that_the_table_prints(more):
    samples = known(**more)
    assert scv.estimate(samples, method=QUICK).labels == ("b[age]", "b[sex]", "tau")
    one = scv.estimate(samples, "b[sex]", QUICK)
    assert one.labels == ("b[sex]",)
    np.testing.assert_allclose(one.plain.mean, [X[..., 1].mean()], atol=1e-9 if "log_density" not in more else 0.2)


def test_entries_beside_whole_parameters_keep_their_labels():
    for more in ({}, {"constrain": constrain}):
        assert scv.estimate(known(**more), ["tau", "b[age]"], QUICK).labels == ("tau", "b[age]")
    with pytest.raises(scv.InputError, match=r"Several outputs of `f` are called b\[age\]"):
        scv.estimate(known(), ["b", "b[age]"], QUICK)


def test_a_probability_of_an_entry_knows_its_function():
    result = scv.probability(known(constrain=constrain), "b[age]", QUICK, above=0.0)
    assert result.labels == ("P(b[age] > 0)",)
    assert result.mean[0] == pytest.approx(0.5, abs=0.01)


def test_labels_of_what_constrain_returns_and_of_coordinates():
    samples = scv.Samples(X, -X, constrain=constrain)
    assert scv.estimate(samples, ["b[1]", "tau"], QUICK).labels == ("b[1]", "tau")
    assert scv.estimate(scv.Samples(X, -X), "x[1]", QUICK).labels == ("x[1]",)


def test_what_is_not_there_is_told_with_what_is():
    with pytest.raises(scv.InputError, match=r"no parameter `b\[agee\]`; there are b\[age\], b\[sex\]"):
        scv.estimate(known(), "b[agee]", QUICK)
    with pytest.raises(scv.InputError, match=r"no parameter `c\[0\]`; there are b, tau"):
        scv.estimate(known(constrain=constrain), "c[0]", QUICK)
    with pytest.raises(scv.InputError, match=r"`f` names b\[2\], which `constrain` does not return"):
        scv.estimate(scv.Samples(X, -X, constrain=constrain), "b[2]", QUICK)
