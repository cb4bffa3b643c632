"""g at a draw depends on that draw alone, wherever it stands: a swap of the chain and draw axes would move it."""

import numpy as np
import pytest
from densities import bent_mixture

import steincv as scv


@pytest.mark.parametrize("method", [scv.Polynomial(2), scv.Kernel(lengthscale=2.0, landmarks=20)], ids=str)
def test_many_chains_are_as_many_single_ones(method):
    samples = bent_mixture(0, 4, 30, 2)
    fitted = method.fit(samples, np.sin(samples.draws))
    every = fitted(samples)
    assert every.shape == (4, 30, 2)
    for c in range(4):
        alone = fitted(scv.Samples(samples.draws[c], samples.scores[c]))[0]
        np.testing.assert_allclose(every[c], alone, rtol=1e-9, atol=1e-12)


def test_folds_of_two_chains_each():
    """Cross-fitted g of a fold with several chains, against fits by hand."""
    samples = bent_mixture(1, 4, 30, 2)
    f = np.sin(samples.draws[..., 0])
    controlled = scv.estimate(samples, f, scv.Polynomial(2), folds=2, guard=False).controlled[..., 0]
    for test, train in (([0, 1], [2, 3]), ([2, 3], [0, 1])):
        fitted = scv.Polynomial(2).fit(scv.Samples(samples.draws[train], samples.scores[train]), f[train])
        for c in test:
            g = fitted(scv.Samples(samples.draws[c], samples.scores[c]))[0, :, 0]
            np.testing.assert_allclose(controlled[c], f[c] + g, rtol=1e-9)
