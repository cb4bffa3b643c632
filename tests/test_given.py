"""Arrays that bring something along: masked entries are refused, named axes put in order, labels of columns kept."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import steincv as scv

X = np.random.default_rng(0).normal(size=(4, 30, 2))


def masked(array, *places):
    found = np.ma.array(array, mask=np.zeros(np.shape(array), bool))
    for place in places:
        found[place] = np.ma.masked
    return found


def test_masked_entries_are_refused_by_name_and_number():
    bad = masked(X, (1, 7, 0), (3, 2, 1))
    for given, name in (((bad, -X), "draws"), ((X, bad), "scores"), (([*bad], -X), "draws")):
        with pytest.raises(scv.InputError, match=rf"`{name}` is a masked array: 2 of its 240 .* \(1, 7, 0\)"):
            scv.Samples(*given)
    with pytest.raises(scv.InputError, match="`theta` is a masked array: 2 of its 240"):
        scv.Samples(X, -X, parameters={"theta": bad})
    with pytest.raises(scv.InputError, match=r"`log_weights` is a masked array: 1 of its 120 .* \(0, 3\)"):
        scv.Samples(X, -X, log_weights=masked(X[..., 0], (0, 3)))
    with pytest.raises(scv.InputError, match="`f` is a masked array: 1 of its 120"):
        scv.estimate(scv.Samples(X, -X), masked(X[..., 0], (0, 0)), scv.MonteCarlo())


def test_an_array_without_a_masked_entry_is_an_array():
    np.testing.assert_array_equal(scv.Samples(masked(X), masked(-X)).draws, X)


@pytest.mark.parametrize("order", [("draw", "p", "chain"), ("p", "draw", "chain"), ("chain", "draw", "p")])
def test_named_axes_are_put_in_order(order):
    draws = xr.DataArray(X, dims=("chain", "draw", "p"))
    samples = scv.Samples(draws.transpose(*order), -draws)
    np.testing.assert_array_equal(samples.draws, X)
    np.testing.assert_array_equal(samples.scores, -X)
    f = xr.DataArray(X[..., 0], dims=("chain", "draw"))
    result = scv.estimate(samples, {"f": f.transpose()}, scv.MonteCarlo())
    np.testing.assert_array_equal(result.values[..., 0], X[..., 0])
    known = scv.Samples(X, -X, parameters={"theta": draws.transpose(*order)})
    np.testing.assert_array_equal(known.parameters["theta"], X)


def test_equal_lengths_do_not_hide_the_order():
    square = np.random.default_rng(1).normal(size=(12, 12, 2))
    draws = xr.DataArray(square, dims=("chain", "draw", "p")).transpose("draw", "chain", "p")
    np.testing.assert_array_equal(scv.Samples(draws, -draws).draws, square)


def test_one_named_axis_is_enough_or_refused():
    one = xr.DataArray(X[0], dims=("draw", "p"))
    np.testing.assert_array_equal(scv.Samples(one.T, -one).draws[0], X[0])
    walkers = xr.DataArray(X, dims=("walker", "draw", "p"))
    np.testing.assert_array_equal(scv.Samples(walkers, -walkers).draws, X)
    for order in (("draw", "walker", "p"), ("walker", "p", "draw")):
        with pytest.raises(scv.InputError, match=r"`draws` has the axes .* none is called chain.*rename"):
            scv.Samples(walkers.transpose(*order), -X)


def test_columns_of_a_data_frame_name_the_parameters():
    frame = pd.DataFrame(X[0], columns=["mu", "log_tau"])
    assert scv.Samples(frame, -frame).names == ("mu", "log_tau")
    assert scv.Samples(frame, (-frame).rename(columns=lambda name: f"d_{name}")).names == ("mu", "log_tau")
    assert scv.Samples(frame, -frame, names=["a", "b"]).names == ("a", "b")
    assert scv.Samples(pd.DataFrame(X[0]), -X[0]).names == ("x[0]", "x[1]")
    with pytest.raises(scv.InputError, match="another order, log_tau, mu, than `draws`, mu, log_tau"):
        scv.Samples(frame, -frame[["log_tau", "mu"]])


def test_labels_of_xarray_name_the_parameters():
    draws = xr.DataArray(X, dims=("chain", "draw", "p"), coords={"p": ["mu", "log_tau"]})
    assert scv.Samples(draws.transpose("p", "draw", "chain"), -draws).names == ("mu", "log_tau")
    with pytest.raises(scv.InputError, match="another order"):
        scv.Samples(draws, -draws.isel(p=[1, 0]))
