"""Folds: nothing that is judged has been fitted on, and neighbours in a chain stay together."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import steincv as scv
from steincv.stein.folds import held_out, make_folds


def cells(block):
    return {(int(c), int(d)) for c in block.chains for d in block.draws}


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(chains=st.integers(1, 9), draws=st.integers(20, 50), folds=st.none() | st.integers(2, 9), gap=st.integers(0, 3))
def test_every_draw_is_tested_once_and_never_by_a_fit_that_saw_it(chains, draws, folds, gap):
    folds = None if folds is None else min(folds, chains) if chains > 1 else folds
    if folds == 1:
        folds = None
    made = make_folds(chains, draws, folds, gap)
    tested = [cell for fold in made for cell in cells(fold.test)]
    assert sorted(tested) == [(c, d) for c in range(chains) for d in range(draws)]
    for fold in made:
        assert not cells(fold.train) & cells(fold.test)
        assert len(fold.train.draws) > 0
        if chains > 1:  # whole chains, and a chain on one side only
            assert not set(fold.train.chains) & set(fold.test.chains)
            assert len(fold.train.draws) == len(fold.test.draws) == draws
        else:  # a contiguous block, and nothing of the fit within `gap` of it
            assert (np.diff(fold.test.draws) == 1).all()
            distance = np.abs(np.subtract.outer(fold.train.draws, fold.test.draws)).min()
            assert distance == gap + 1
    assert len(made) == (folds or (5 if chains == 1 else min(chains, 5)))


def test_blocks_are_of_equal_size_up_to_one():
    sizes = [len(fold.test.draws) for fold in make_folds(1, 23)]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("chains", [1, 4])
def test_held_out_is_the_end_of_every_chain(chains):
    fold = held_out(chains, 10, 0.3)
    np.testing.assert_array_equal(fold.train.draws, np.arange(7))
    np.testing.assert_array_equal(fold.test.draws, np.arange(7, 10))
    assert len(fold.train.chains) == len(fold.test.chains) == chains


def test_take_and_put_are_inverse():
    array = np.arange(60.0).reshape(3, 10, 2)
    out = np.full_like(array, np.nan)
    for fold in make_folds(3, 10):
        fold.test.put(out, fold.test.take(array))
    np.testing.assert_array_equal(out, array)


@pytest.mark.parametrize("chains", [1, 4])
@pytest.mark.parametrize("method", [scv.Polynomial(2), scv.Kernel(lengthscale=2.0)])
def test_no_leakage(method, chains):
    """Changing the values at the tested draws changes nothing of g there: the fit has not seen them.

    In-sample and random folds fail this. Of a stack it holds for its members; its few weights come from the other
    folds' controlled draws, whose fits have seen the tested ones (tests/test_coverage.py: no harm is measurable).
    """
    x = np.random.default_rng(0).normal(size=(chains, 240 // chains, 2))
    samples, values = scv.Samples(x, -x), np.sin(x[..., :1]) + x[..., 1:]
    folds = make_folds(*x.shape[:2])
    before = method.cross_fit(samples, values, folds).g
    changed = values.copy()
    fold = folds[1]
    fold.test.put(changed, 5 + 3 * fold.test.take(values) ** 2)
    after = method.cross_fit(samples, changed, folds).g
    np.testing.assert_allclose(fold.test.take(after), fold.test.take(before), rtol=0, atol=1e-9)
    assert not np.allclose(folds[0].test.take(after), folds[0].test.take(before))


@pytest.mark.parametrize(("chains", "draws", "gap", "message"), [(1, 20, 9, "leaves"), (1, 20, 20, "leaves 0 draws")])
def test_a_gap_that_leaves_nothing(chains, draws, gap, message):
    with pytest.raises(scv.InputError, match=message):
        make_folds(chains, draws, 2, gap)
