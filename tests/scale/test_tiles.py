"""Many draws in memory: sums over tiles give the fit that all features at once give."""

import numpy as np
import pytest

import steincv as scv
from steincv.families.polynomial import polynomial


@pytest.mark.parametrize("degree", [1, 3])
def test_tiles_are_the_same_fit(monkeypatch, degree):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 700, 3)) + rng.choice([-1.0, 1.0], size=(4, 700, 1))
    samples = scv.Samples(1e3 * x + 5e4, (np.tanh(x.sum(-1, keepdims=True)) - x) / 1e3)
    f = np.stack([x[..., 0], np.sin(x.sum(-1)), np.ones((4, 700))], -1)
    whole = scv.estimate(samples, f, scv.Polynomial(degree))
    monkeypatch.setattr(polynomial, "MANY_DRAWS", 100)
    monkeypatch.setattr(polynomial, "TILE", 333)
    tiles = scv.estimate(samples, f, scv.Polynomial(degree))
    np.testing.assert_allclose(tiles.controlled, whole.controlled, rtol=0, atol=1e-10)
    assert [i["penalty"] for i in tiles.info["folds"]] == [i["penalty"] for i in whole.info["folds"]]
    assert tiles.controlled.tobytes() != whole.controlled.tobytes()  # it was another way
