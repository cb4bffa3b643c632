"""The stacking weights of a fold know nothing of the values there, given the members' control variates."""

import numpy as np

from steincv.families.method import CrossFit
from steincv.families.stack import combine
from steincv.stein.folds import make_folds


def test_weights_of_a_fold_come_from_the_others():
    rng = np.random.default_rng(0)
    values, noise = rng.normal(size=(4, 50, 1)), rng.normal(size=(2, 4, 50, 1))
    fits = [CrossFit(-values + noise[0], {}), CrossFit(-values + 0.7 * noise[1], {})]
    folds = make_folds(4, 50)

    def weights(values):
        """Of the first fold: g there is a combination of two known columns."""
        g = folds[0].test.take(combine(["a", "b"], fits, values, folds, 0.0).g).ravel()
        columns = np.stack([folds[0].test.take(fit.g).ravel() for fit in fits], axis=1)
        return np.linalg.lstsq(columns, g, rcond=None)[0]

    changed = values.copy()
    folds[0].test.put(changed, 3 * folds[0].test.take(noise[0]))  # what would make the first member useless
    np.testing.assert_allclose(weights(changed), weights(values), atol=1e-12)
    other = values.copy()
    folds[1].test.put(other, 3 * folds[1].test.take(noise[0]))
    assert np.abs(weights(other) - weights(values)).max() > 0.01
