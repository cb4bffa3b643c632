"""Objectives for slow chains: each against its definition by brute force, and what they gain where chains are slow."""

import math

import numpy as np
import pytest
import scipy.signal
from densities import bent_mixture, mixture_density, mixture_score
from test_polynomial import hermite, multi_indices

import steincv as scv
from steincv.families.polynomial.polynomial import hermite_basis, stein_features
from steincv.families.polynomial.slow import own_steps
from steincv.families.spectral import draws_per_effective, window_sums, windows_of
from steincv.families.stack import moments
from steincv.judging.error_bars import as_slow_as, average
from steincv.samples.log_density import LogDensity
from steincv.stein.coordinates import Standardise


def bartlett(a, b, window):
    """The windowed sum of cross-covariances of two series of one chain, lag by lag."""
    total = a @ b
    for lag in range(1, window):
        total += (1 - lag / window) * (a[lag:] @ b[:-lag] + b[lag:] @ a[:-lag])
    return total


@pytest.mark.parametrize("window", [1, 2, 7])  # sums begin at every draw
def test_sums_over_windows_have_the_lag_windows_squares(window):
    r = np.random.default_rng(0).normal(size=(3, 40, 2))
    sums = window_sums(r, window)
    expected = [[sum(bartlett(c[:, i], c[:, j], window) for c in r) for j in range(2)] for i in range(2)]
    np.testing.assert_allclose(sums.T @ sums, expected, rtol=1e-12)


def test_sums_at_few_places_are_nearly_those_at_all():
    r = slow(np.random.default_rng(1), 4, 5000, 0.95)[..., None]
    expected = sum(bartlett(c[:, 0], c[:, 0], 80) for c in r)
    few = window_sums(r, 80)
    assert len(few) < r.size / 9
    assert (few**2).sum() == pytest.approx(expected, rel=0.01)


def slow(rng, chains, draws, correlation):
    """Stationary Gaussian chains of variance one."""
    noise = rng.normal(size=(chains, draws))
    noise[:, 1:] *= np.sqrt(1 - correlation**2)
    return scipy.signal.lfilter([1.0], [1.0, -correlation], noise, axis=1)


def test_windows_follow_the_effective_size():
    """An AR(1) chain of correlation r has (1 + r) / (1 - r) draws to an effective one."""
    rng = np.random.default_rng(2)
    series = np.stack([slow(rng, 4, 20_000, r) for r in (0.0, 0.9)] + [np.ones((4, 20_000))], axis=-1)
    slowness = draws_per_effective(series)
    np.testing.assert_allclose(slowness, [1, 19, 1], rtol=0.15)
    assert windows_of(np.array([1.0, 19.0, 1e6]), 20_000).tolist() == [1, 95, 2500]


def test_the_basis_is_that_of_the_features():
    z = np.random.default_rng(3).normal(size=(20, 3))
    expected = [
        math.prod((hermite(n, z[:, i]) for i, n in enumerate(a)), start=1.0)
        / math.sqrt(math.prod(map(math.factorial, a)))
        for a in multi_indices(3, 3)
    ]
    np.testing.assert_allclose(hermite_basis(z, 3), np.stack(expected, axis=-1), atol=1e-12)


def fitted_without_penalty(objective, samples, f):
    fitted = scv.Polynomial(3, penalty=0, objective=objective).fit(samples, f)
    z, s = fitted.standardise(samples)
    return z, s, f + fitted(samples)[..., 0]


def test_the_diffusion_leaves_nothing_along_the_polynomials():
    samples = bent_mixture(4, 4, 100, 2)
    z, _, controlled = fitted_without_penalty("diffusion", samples, np.sin(samples.draws[..., 0]))
    basis = hermite_basis(z, 3)
    left = (basis - basis.mean(axis=0)).T @ (controlled - controlled.mean()).ravel()
    assert np.abs(left).max() < 1e-8


def test_the_diffusion_minimises_its_asymptotic_variance():
    """In one dimension by quadrature: the coefficients solve E[psi' psi'] c = E[psi (f - Ef)], the minimum of
    E (Q_f' - Q')^2; 200,000 independent draws know them to a few per cent."""
    grid = np.linspace(-7, 7, 20_001)
    p = mixture_density(grid)
    p /= p.sum()
    samples = bent_mixture(5, 4, 50_000, 1)
    f = np.tanh(samples.draws[..., 0])
    fitted = scv.Polynomial(3, penalty=1e-13, objective="diffusion").fit(samples, f)
    affine = fitted.standardise
    z = (grid - affine.mean[0]) / affine.scale[0]
    basis = hermite_basis(z[:, None], 3)
    slope = np.gradient(basis, z, axis=0)
    target = np.tanh(grid) - p @ np.tanh(grid)
    c = np.linalg.solve(slope.T @ (p[:, None] * slope), basis.T @ (p * target))
    at = np.linspace(-2, 2.5, 40)[:, None]
    ours = fitted(scv.Samples(at, mixture_score(at)))[0, :, 0]
    features = stein_features((at - affine.mean) / affine.scale, mixture_score(at) * affine.scale, 3)
    expected = features * np.array([1, 2, 3]) @ c
    np.testing.assert_allclose(ours, expected, atol=0.05 * np.abs(expected).max())


def test_the_spectral_variance_is_least():
    rng = np.random.default_rng(6)
    x = np.stack([slow(rng, 4, 300, 0.9), rng.normal(size=(4, 300))], axis=-1)
    samples = scv.Samples(x, -x)
    f = np.sin(x[..., 0]) + x[..., 1] ** 2
    z, s, controlled = fitted_without_penalty("spectral", samples, f)
    turn = own_steps(z, 4, 1, 1)
    features = stein_features(z @ turn.draws, s @ turn.scores, 3)
    features -= features.mean(axis=0)
    window = int(windows_of(draws_per_effective(f[..., None]), 300)[0])
    assert window > 10
    r = window_sums((controlled - controlled.mean())[..., None], window)
    assert np.abs(window_sums(features.reshape(4, 300, -1), window).T @ r).max() < 1e-6 * (r**2).sum()


def test_own_steps_are_alike_in_all_directions():
    """Of every part; scores go with the coordinates; independent draws are only turned, chains that stand still too."""
    rng = np.random.default_rng(12)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    mixed = np.stack([slow(rng, 4, 5000, r) for r in (0.0, 0.9, 0.999)], axis=-1) @ rotation
    both = np.concatenate([mixed, rng.normal(size=(4, 5000, 3))], axis=-1).reshape(-1, 6)
    turn = own_steps(both, 4, 1, 2)
    np.testing.assert_allclose(turn.draws @ turn.scores.T, np.eye(6), atol=1e-12)
    steps = np.diff((both @ turn.draws).reshape(4, -1, 6), axis=1).reshape(-1, 6)
    squares = (steps.T @ steps / len(steps))[:3, :3]
    # three steps of the average size are added, some twentieth of the slow direction's own
    np.testing.assert_allclose(squares, squares[0, 0] * np.eye(3), atol=0.15 * squares[0, 0])
    np.testing.assert_allclose(turn.draws[3:, 3:] @ turn.draws[3:, 3:].T, np.eye(3), atol=0.05)
    assert not turn.draws[:3, 3:].any()
    assert not turn.draws[3:, :3].any()
    still = own_steps(np.zeros((8, 2)), 2, 1, 1)
    np.testing.assert_allclose(still.draws @ still.scores.T, np.eye(2))


def test_quadratics_are_those_of_the_chains_own_diffusion():
    """A banana by a random walk equally wide in all directions, fitted on four chains and seen on twelve others.

    It leaves less than a third of what the quadratic of the diffusion with steps like the draws' spread leaves.
    """
    rng = np.random.default_rng(13)
    x, kept = rng.normal(size=(16, 2)), []

    def bend(x):
        return x[:, 1] + 0.1 * x[:, 0] ** 2 - 1

    for _ in range(12_000):
        new = x + 0.8 * rng.normal(size=x.shape)
        change = (x[:, 0] ** 2 - new[:, 0] ** 2) / 20 + (bend(x) ** 2 - bend(new) ** 2) / 2
        x = np.where((np.log(rng.random(16)) < change)[:, None], new, x)
        kept.append(x)
    draws = np.stack(kept[2000:], axis=1)
    off = draws[..., 1] + 0.1 * draws[..., 0] ** 2 - 1
    samples = scv.Samples(draws, np.stack([-draws[..., 0] * (0.1 + 0.2 * off), -off], axis=-1))
    f = draws.sum(axis=-1)
    first = scv.Samples(draws[:4], samples.scores[:4])
    z, s = Standardise.of(first)(samples)
    whitened = np.einsum("nk,k->n", stein_features(z, s, 2), _diffusion(z[:40_000], s[:40_000], f[:4].ravel()))
    fitted = scv.Polynomial(2, objective="diffusion").fit(first, f[:4])
    left = [f + g.reshape(16, -1) for g in (fitted(samples)[..., 0], whitened)]
    ours, theirs = ((window_sums(r[4:, :, None], 2000) ** 2).sum() for r in left)
    assert ours < theirs / 3


def _diffusion(z, s, f):
    basis, features = hermite_basis(z, 2), stein_features(z, s, 2)
    basis -= basis.mean(axis=0)
    return -np.linalg.solve(basis.T @ features, basis.T @ f)


def banana_runs(count):
    """Independent runs of four chains of a banana whose long side is slow, with their scores."""
    for seed in range(count):
        rng = np.random.default_rng([7, seed])
        u, v = slow(rng, 4, 1000, 0.97), slow(rng, 4, 1000, 0.5)
        yield scv.Samples(np.stack([u, 0.5 * u**2 + v], axis=-1), np.stack([-u + u * v, -v], axis=-1))


@pytest.mark.parametrize("objective", ["spectral", "diffusion"])
def test_what_counts_is_the_variance_of_the_mean(objective):
    """A banana whose long side is slow: least squares over draws follow the quick short side.

    True variances over 40 independent runs with the same draws: spectral a fifth, diffusion a half of the usual one.
    """
    methods = [scv.MonteCarlo(), scv.Polynomial(2), scv.Polynomial(2, objective=objective)]
    means = [
        [float(scv.estimate(run, run.draws.sum(-1), m, guard=False).mean) for m in methods] for run in banana_runs(40)
    ]
    plain, usual, ours = np.var(means, axis=0)
    assert ours < 0.8 * usual < plain


def test_networks_have_the_spectral_objective():
    """Judged by the spectral standard error out of fold; the true variances of six runs would tell nothing."""
    methods = [scv.Neural(), scv.Neural(objective="spectral")]
    ratios = []
    for run in banana_runs(4):
        f = np.tanh(run.draws[..., 0]) + run.draws[..., 1]
        usual, ours = (scv.estimate(run, f, m, guard=False) for m in methods)
        ratios.append(float(ours.standard_error / usual.standard_error))
    assert np.median(ratios) < 1
    with pytest.raises(scv.InputError, match="is for a network whose last layer is solved for"):
        scv.Neural(scv.VectorField(), objective="spectral")


def test_slow_chains_bring_the_objectives_into_the_default():
    rng = np.random.default_rng(8)
    for correlation, there in ((0.5, False), (0.97, True)):
        x = slow(rng, 8, 500, correlation).reshape(4, 2, 500).transpose(0, 2, 1).copy()
        result = scv.estimate(scv.Samples(x, -x), np.tanh(x[..., 0]), scv.Auto())
        assert any("spectral" in member["method"] for member in result.info["members"]) == there
        assert any("diffusion" in member["method"] for member in result.info["members"]) == there


def test_moments_over_windows_are_those_of_their_sums():
    rng = np.random.default_rng(9)
    values, g = rng.normal(size=(2, 60, 2)), rng.normal(size=(1, 2, 60, 2))
    found = moments(values, g, np.array([1, 5]))
    np.testing.assert_allclose(found[0], moments(values, g)[0])
    columns = np.stack([values[..., 1], (values + g[0])[..., 1]], axis=-1)
    sums = window_sums(columns - columns.mean(axis=(0, 1)), 5)
    np.testing.assert_allclose(found[1], sums.T @ sums)


@pytest.mark.parametrize("objective", ["spectral", "diffusion"])
def test_objectives_work_with_orbits(objective):
    """Exact for a Gaussian, whichever the states and their weights."""
    x = slow(np.random.default_rng(10), 12, 200, 0.9).reshape(4, 3, 200).transpose(0, 2, 1).copy()
    samples = scv.Samples(x, -x, log_density=LogDensity(lambda v: (-0.5 * (v**2).sum(1), -v)))
    result = scv.estimate(samples, lambda v: v[0] * v[1] + v[2] ** 2, scv.Polynomial(2, objective=objective), orbits=4)
    assert float(result.mean) == pytest.approx(1, abs=1e-9)


def test_an_unknown_objective_is_named():
    with pytest.raises(scv.InputError, match=r"'variance', 'diffusion' or 'spectral'.*Got 'means'"):
        scv.Polynomial(2, objective="means")


def test_a_single_chain_is_judged_by_its_stretches():
    x = slow(np.random.default_rng(11), 2, 900, 0.9).T[None].copy()
    for objective in ("diffusion", "spectral"):
        result = scv.estimate(scv.Samples(x, -x), np.tanh(x[..., 0]), scv.Polynomial(2, objective=objective))
        assert result.variance_ratio < 0.5


def test_error_bars_know_how_slowly_f_moves():
    """Noise of variance one and a hidden part of variance .002 that moves with f, 399 draws of which count as one.

    Its autocorrelations drown in noise; it makes .8 of 1.8 parts of the mean's variance.
    """
    rng, before, after = np.random.default_rng(14), [], []
    for _ in range(20):
        u = slow(rng, 4, 10_000, 0.995)
        left = np.sqrt(0.002) * u + rng.normal(size=u.shape)
        plain, better = average(u[..., None]), average(left[..., None])
        found = as_slow_as(plain, better, left[..., None])
        assert found.degrees_of_freedom <= plain.degrees_of_freedom
        np.testing.assert_allclose(found.standard_error**2 * found.ess, better.standard_error**2 * better.ess)
        before.append(better.standard_error**2)
        after.append(found.standard_error**2)
    truth = (1 + 0.002 * 399) / 40_000
    assert np.mean(before) < 0.8 * truth < np.mean(after) < 1.25 * truth


def test_error_bars_of_quick_chains_stay_as_they_are():
    x = slow(np.random.default_rng(15), 4, 500, 0.5)[..., None]
    plain, better = average(x), average(np.abs(x))
    found = as_slow_as(plain, better, np.abs(x))
    for name, value in vars(better.beside(plain)).items():
        np.testing.assert_array_equal(getattr(found, name), value)


@pytest.mark.parametrize(("correlation", "said"), [(0.99, True), (0.0, False)])
def test_a_gain_beyond_what_slow_chains_know_is_said(correlation, said):
    """f + g is nearly constant: with 20 effective draws nobody knows that, with 4,000 its tails tell."""
    rng = np.random.default_rng(0)
    x = np.empty((4, 1000, 2))
    x[:, 0] = rng.normal(size=(4, 2))
    for t in range(1, 1000):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * rng.normal(size=(4, 2))
    f = x[..., 0] + 1e-5 * np.sin(3 * x[..., 1])
    result = scv.estimate(scv.Samples(x, -x), f, scv.Polynomial(1))
    assert (scv.Code.SLOW_CHAINS in [status.code for status in result.status[0]]) == said
