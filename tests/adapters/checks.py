"""What every adapter must show: scores of the library's own density, and Stein means of zero."""

import numpy as np

import steincv as scv
from steincv.judging.diagnostics import STEIN_LIMIT, stein_check


def differences(log_density, x, step=1e-3):
    """The gradient by central differences of sixth order."""
    weights = {1: 45 / 60, 2: -9 / 60, 3: 1 / 60}
    gradient = np.zeros(len(x))
    for i in range(len(x)):
        for k, weight in weights.items():
            for sign in (1, -1):
                y = np.array(x, float)
                y[i] += sign * k * step
                gradient[i] += sign * weight * float(log_density(y)) / step
    return gradient


def check_scores(samples, log_density, draws=3):
    """Relative 1e-5, of the largest entry of a score where one of them is near zero."""
    total = samples.draws.shape[1]
    for draw in np.linspace(0, total - 1, draws).astype(int):
        chain = draw % samples.chains
        score = samples.scores[chain, draw]
        found = differences(log_density, samples.draws[chain, draw])
        np.testing.assert_allclose(score, found, rtol=1e-5, atol=1e-6 * np.abs(score).max())


def check_stein(samples):
    assert np.abs(stein_check(samples).z).max() <= STEIN_LIMIT


def check_table(samples, means):
    """`estimate` with no other argument lists the user's parameters, constrained, in the model's order."""
    result = scv.estimate(samples, method=scv.Polynomial(2))
    assert result.labels == tuple(means)
    np.testing.assert_allclose(result.plain.mean, list(means.values()), rtol=1e-5, atol=1e-6)
    return result


def entries(name, array):
    """Label and mean of every entry of `(chain, draw, ...)`."""
    array = np.asarray(array, dtype=np.float64)
    shape = array.shape[2:]
    means = array.mean(axis=(0, 1))
    return {f"{name}[{', '.join(map(str, i))}]" if shape else name: float(means[i]) for i in np.ndindex(*shape)}
