"""Any shape, any real dtype, any magnitude from 1e-300 to 1e300: an `InputError` or a finite answer in its own units.

Warnings are errors here, so that an overflow on the way fails too.
"""

import jaxtyping
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import steincv as scv

METHODS = (
    scv.MonteCarlo(),
    scv.Polynomial(1),
    scv.Polynomial(2),
    scv.Kernel(lengthscale=2.0, penalty=1e-2),
    scv.Kernel("rational quadratic", lengthscale=3.0, degree=1, landmarks=8, penalty=1e-2),
    scv.Stack([scv.Polynomial(1), scv.Polynomial(2)]),
)
LIMIT = 1e300  # larger numbers are refused by name


@pytest.fixture(autouse=True, scope="module")
def as_users_have_it():
    """Without the types checked at run time, which only the tests have."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


exponents = st.integers(-300, 299)


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(
    method=st.sampled_from(METHODS),
    chains=st.integers(1, 5),
    draws=st.integers(1, 25),
    dim=st.integers(1, 4),
    outputs=st.integers(1, 3),
    scales=st.lists(exponents, min_size=4, max_size=4),
    f_scale=exponents,
    seed=st.integers(0, 10**6),
)
def test_any_magnitude(method, chains, draws, dim, outputs, scales, f_scale, seed):
    """The answer for huge and tiny numbers is that for ordinary ones, in other units, to 1e-6 of the plain error."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(chains, draws, dim))
    f = np.tanh(x.sum(axis=-1, keepdims=True) * np.arange(1, outputs + 1)) + rng.uniform(size=(chains, draws, outputs))
    units, unit = 10.0 ** np.array(scales[:dim]), 10.0**f_scale

    def run(units, unit):
        return scv.estimate(scv.Samples(x * units, -x / units), f * unit, method)

    try:
        plain = run(np.ones(dim), 1.0)
    except scv.InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
        with pytest.raises(scv.InputError):
            run(units, unit)
        return
    try:
        result = run(units, unit)
    except scv.InputError as error:  # 1 / 1e-300 is a score that is out of range
        assert "1e+300" in str(error) or "overflows" in str(error)  # noqa: PT017
        assert np.abs(x / units).max() >= LIMIT
        return
    for number in (result.mean, result.standard_error, result.ess, result.interval(), result.variance_ratio):
        assert np.isfinite(number).all()
    assert (result.standard_error >= 0).all()
    size = plain.plain.standard_error + 1e-9
    np.testing.assert_allclose((result.mean / unit - plain.mean) / size, 0, atol=1e-6)
    np.testing.assert_allclose((result.standard_error / unit - plain.standard_error) / size, 0, atol=1e-6)
    assert [[s.code for s in found] for found in result.status] == [[s.code for s in found] for found in plain.status]


KINDS = ("f2", "f4", "f8", ">f8", "g", "i1", "u2", "i8", "?", "c16", "U8", "S4", "O", "M8[s]")


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    kinds=st.tuples(*[st.sampled_from(KINDS)] * 3),
    shape=st.lists(st.integers(0, 12), min_size=0, max_size=4).map(tuple),
    seed=st.integers(0, 10**6),
)
def test_any_shape_and_dtype(kinds, shape, seed):
    """Whatever the arrays are: an `InputError` of one line, or finite numbers. Real dtypes are taken, others never."""
    rng = np.random.default_rng(seed)
    draws, scores, values = (
        np.round(rng.normal(size=s) * 3).astype("i8").astype(kind)
        for kind, s in zip(kinds, (shape, shape, shape[:2]), strict=True)
    )
    try:
        result = scv.estimate(scv.Samples(draws, scores), values, scv.Polynomial(1))
    except scv.InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    assert all(np.dtype(kind).kind in "fiub" for kind in kinds)
    assert np.isfinite(result.mean).all()
    assert np.isfinite(result.interval()).all()
