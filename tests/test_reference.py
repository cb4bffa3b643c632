"""Polynomial control variates against the R package ZVCV; see reference/README.md for the origin of the numbers."""

import json
import pathlib

import numpy as np
import pytest

from steincv import Polynomial, Samples

ORACLE = json.loads((pathlib.Path(__file__).parent / "reference" / "zvcv_south.json").read_text())
DRAWS, SCORES = (np.array(ORACLE[name]).reshape(200, 4) for name in ("draws", "scores"))
VALUES = np.array(ORACLE["values"]).reshape(200, 3)
TRUTH = np.array([1.0, 1.0, 0.0])
# The promise is 1e-6. Both sides solve least squares in float64: with 69 features of 200 draws they differ by the
# conditioning of the design, about 1e3 roundings. Means that are zero have no relative error: hence `SIZE`.
RELATIVE = 1e-11
SIZE = VALUES.std(axis=0)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_in_sample(degree):
    samples = Samples(DRAWS, SCORES)
    g = Polynomial(degree, penalty=0).fit(samples, VALUES)(samples)
    np.testing.assert_allclose(
        (VALUES + g[0]).mean(axis=0) / SIZE, ORACLE[f"zvcv_order_{degree}"] / SIZE, atol=RELATIVE
    )


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_fit_on_the_first_half_and_evaluate_on_the_rest(degree):
    fitted = Polynomial(degree, penalty=0).fit(Samples(DRAWS[:100], SCORES[:100]), VALUES[:100])
    g = fitted(Samples(DRAWS[100:], SCORES[100:]))
    expected = ORACLE[f"zvcv_order_{degree}_fit_on_first_100_evaluate_on_rest"]
    np.testing.assert_allclose((VALUES[100:] + g[0]).mean(axis=0) / SIZE, expected / SIZE, atol=RELATIVE)


@pytest.mark.parametrize(("degree", "exact"), [(1, []), (2, [1]), (3, [1, 2]), (4, [1, 2])])
def test_exact_outputs_are_those_theory_names(degree, exact):
    """x1^2 from degree 2 on, x3^3 + x4 from degree 3 on; the first never is. Guards against a file of truths."""
    error = np.abs(ORACLE[f"zvcv_order_{degree}"] - TRUTH)
    assert np.flatnonzero(error < 1e-12).tolist() == exact
