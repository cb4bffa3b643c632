"""Draws with weights: the same bits where all are alike, exact where theory says so, honest errors, clear words."""

import numpy as np
import pytest
import scipy.stats
from scipy.special import ndtr, ndtri

import steincv as scv
from steincv.families.problem import resampled


def proposed(seed, shape=(4, 200), dim=3, scale=1.3, freedom=5):
    """Draws from wide t distributions, with scores and log weights of a standard normal."""
    x = scale * np.random.default_rng(seed).standard_t(freedom, size=(*shape, dim))
    weight = (-0.5 * x**2 - scipy.stats.t.logpdf(x / scale, freedom)).sum(axis=-1)
    return x, weight


def samples(seed, **more):
    x, weight = proposed(seed, **more)
    return scv.Samples(x, -x, log_weights=weight)


METHODS = {
    "Polynomial": scv.Polynomial(2),
    "Kernel": scv.Kernel(),
    "Stack": scv.Stack([scv.Polynomial(1), scv.Polynomial(2)]),
    "MonteCarlo": scv.MonteCarlo(),
    "Auto": scv.Auto(),
}


@pytest.mark.parametrize("name", ["Polynomial", "Auto"])
def test_weights_that_are_all_one_change_no_bit(name):
    x = np.random.default_rng(0).normal(size=(4, 60, 2))
    f = np.tanh(x)
    plain = scv.estimate(scv.Samples(x, -x), f, METHODS[name], stat=("mean", "sd"))
    for log_weights in (np.zeros((4, 60)), np.full((4, 60), -7.3)):
        weighted = scv.estimate(scv.Samples(x, -x, log_weights=log_weights), f, METHODS[name], stat=("mean", "sd"))
        for one, other in ((plain, weighted), (plain.sd, weighted.sd)):
            assert (one.mean == other.mean).all()
            assert (one.standard_error == other.standard_error).all()
            assert (one.controlled == other.controlled).all()


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_weights(name):
    given = samples(0)
    f = np.stack([np.tanh(given.draws[..., 0]), given.draws[..., 1] ** 2], axis=-1)
    result = scv.estimate(given, f, METHODS[name])
    assert (np.abs(result.mean - [0.0, 1.0]) < 5 * result.standard_error + 1e-9).all()
    assert np.isfinite(result.standard_error).all()
    assert np.allclose(result.controlled.mean(axis=(0, 1)), result.mean)
    g = METHODS[name].fit(given, f)(given)
    w = np.exp(given.log_weights - given.log_weights.max())
    assert np.abs(np.average(g.reshape(-1, 2), axis=0, weights=w.ravel())).max() < 0.3
    if name != "MonteCarlo":
        assert (result.variance_ratio < 0.5).all()


def test_the_plain_mean_is_the_weighted_one_with_its_delta_error():
    given = samples(1)
    f = given.draws[..., 0] + given.draws[..., 1] ** 3
    w = np.exp(given.log_weights)
    result = scv.estimate(given, f, scv.MonteCarlo())
    mean = np.average(f, weights=w)
    assert np.allclose(result.plain.mean, mean)
    error = np.sqrt((w**2 * (f - mean) ** 2).sum()) / w.sum()
    assert np.allclose(result.plain.standard_error, error, rtol=0.15)
    kish = w.sum() ** 2 / (w**2).sum()
    assert np.allclose(result.info["weights"]["ess"], kish)
    # draws of this many would have that error
    assert np.allclose(result.plain.ess * result.plain.standard_error**2, np.average((f - mean) ** 2, weights=w))


def test_exact_for_quadratics_of_a_normal_with_its_deviation():
    given = samples(2)
    result = scv.estimate(given, lambda x: 1 + x[0] + x[1] * x[2], scv.Polynomial(4), stat=("mean", "sd"))
    assert abs(result.mean - 1) < 1e-9
    assert [s.code for s in result.status[0]] == [scv.Code.EXACT]
    assert abs(result.sd.mean - np.sqrt(2)) < 1e-7


def test_a_constant_factor_of_the_weights_does_not_matter():
    x, weight = proposed(3)
    given = (scv.Samples(x, -x, log_weights=w) for w in (weight, weight + 800.0))
    first, second = (scv.estimate(s, np.cos(x), scv.Polynomial(2)) for s in given)
    assert np.allclose(first.mean, second.mean, rtol=1e-9)
    assert np.allclose(first.standard_error, second.standard_error, rtol=1e-6)


def test_error_bars_are_honest(as_users_have_it):
    """Of 200 sets, intervals of 95 % hold between 90 % and 99.5 %: correct ones fail this once in a thousand times."""
    truth = np.array([np.exp(-0.5), 3.0])
    held, off = [], []
    for seed in range(200):
        given = samples(seed, shape=(4, 100), dim=2)
        f = np.stack([np.cos(given.draws[..., 0]), given.draws[..., 1] ** 4], axis=-1)
        result = scv.estimate(given, f, scv.Polynomial(2))
        low, high = np.moveaxis(result.interval(), -1, 0)
        held.append((low <= truth) & (truth <= high))
        off.append([result.mean - truth, result.plain.mean - truth])
    assert (np.mean(held, axis=0) > 0.90).all()
    assert (np.mean(held, axis=0) < 0.995).all()
    better, plain = np.mean(np.square(off), axis=0)
    assert (better < 0.5 * plain).all()


def test_probabilities_and_quantiles_are_exact_for_a_normal():
    given = samples(6)
    found = scv.probability(given, above=[0.0, 1.0], method=scv.Polynomial(2))
    np.testing.assert_allclose(found.mean, np.tile(ndtr([0.0, -1.0]), (given.dim, 1)), atol=1e-8)
    w = np.exp(given.log_weights)
    np.testing.assert_allclose(found.plain.mean[0, 0], w[given.draws[..., 0] > 0].sum() / w.sum())
    result = scv.estimate(given, stat=("mean", 0.05, 0.5), method=scv.Polynomial(2))
    for level in (0.05, 0.5):
        np.testing.assert_allclose(result.quantile(level).mean, ndtri(level), atol=1e-7)
    held = scv.estimate(given, stat=("mean", 0.5), method=scv.Polynomial(2), cross_fit=False)
    np.testing.assert_allclose(held.quantile(0.5).mean, 0.0, atol=1e-7)
    table = scv.summary(given, method=scv.Polynomial(2))
    np.testing.assert_allclose(table.frame()["sd"], result_sd(given))
    assert "ess" in table.frame()
    assert "r_hat" not in table.frame()


def result_sd(given):
    return scv.estimate(given, stat=("mean", "sd"), method=scv.Polynomial(2)).sd.plain.mean


@pytest.mark.parametrize("kind", ["probability", "quantile"])
def test_plain_probabilities_and_quantiles_are_honest(kind):
    """Their intervals, of 100 weighted sets, hold the truth about as often as they say."""
    held = []
    for seed in range(100):
        given = samples(seed)
        if kind == "probability":
            found, truth = scv.probability(given, below=[-1.0, 0.5], method=scv.MonteCarlo()), ndtr([-1.0, 0.5])
        else:
            found, truth = scv.estimate(given, stat=(0.2,), method=scv.MonteCarlo()).quantile(0.2), ndtri(0.2)
        low, high = np.moveaxis(found.plain.interval(0.9), -1, 0)
        held.append(np.mean((low <= truth) & (truth <= high)))
    assert 0.85 < np.mean(held) < 0.95


def test_parts_keep_their_weights():
    given = samples(4)
    part = given.select(np.array([1, 2]), np.arange(50))
    assert (part.log_weights == given.log_weights[1:3, :50]).all()
    result = scv.estimate(given, given.draws[..., 0] ** 2, scv.Polynomial(2), cross_fit=False)
    assert abs(result.mean - 1) < 1e-9
    one = scv.Samples(given.draws[0], -given.draws[0], log_weights=given.log_weights[0])
    assert abs(scv.estimate(one, one.draws[..., 0] ** 2, scv.Polynomial(2)).mean - 1) < 1e-9


def test_draws_without_weight_count_for_nothing():
    x, weight = proposed(5)
    weight[:, ::2] = -np.inf
    kept = scv.Samples(x[:, 1::2], -x[:, 1::2], log_weights=weight[:, 1::2])
    found = scv.estimate(scv.Samples(x, -x, log_weights=weight), np.cos(x), scv.Polynomial(2))
    assert np.allclose(found.plain.mean, scv.estimate(kept, np.cos(x[:, 1::2]), scv.Polynomial(2)).plain.mean)
    assert (found.variance_ratio < 0.9).all()


def test_a_proposal_that_is_too_narrow_is_told():
    rng = np.random.default_rng(0)
    x = 0.5 * rng.normal(size=(4, 500, 4))
    given = scv.Samples(x, -x, log_weights=(-0.5 * x**2 + 2 * x**2).sum(axis=-1))
    result = scv.estimate(given, x[..., 0] ** 2, scv.MonteCarlo())
    assert scv.Code.UNEVEN_WEIGHTS in {s.code for s in result.status[0]}
    assert result.info["weights"]["pareto_k"] > 0.7


def test_wrong_scores_ring_and_right_ones_do_not():
    for seed in range(20):
        x, weight = proposed(seed, shape=(4, 500))
        good, bad = (scv.Samples(x, s, log_weights=weight) for s in (-x, -1.3 * x))
        first, second = (scv.estimate(s, x[..., 0], scv.Polynomial(1)) for s in (good, bad))
        assert scv.Code.STEIN_MEAN not in {s.code for s in first.status[0]}
        assert scv.Code.STEIN_MEAN in {s.code for s in second.status[0]}
        assert second.method == ("plain",)


def test_resampling_takes_each_draw_as_often_as_its_weight_says():
    weight = np.array([0.0, 3.0, 1.0, 0.0, 2.0, 0.0])
    assert resampled(weight).tolist() == [1, 1, 1, 2, 4, 4]


def changed(value, index=(0, 0)):
    weight = np.random.default_rng(0).normal(size=(4, 20))
    weight[index] = value
    return weight


BAD = {
    "NaN": (changed(np.nan, (2, 3)), r"`log_weights` holds 1 entries .* nan at index \(2, 3\)"),
    "plus infinity": (changed(np.inf), "`log_weights` holds 1 entries"),
    "no weight": (np.full((4, 20), -np.inf), "minus infinity at all 80 draws"),
    "one draw": (changed(1e4, (1, 5)), "draw 5 of chain 1 100.00% of all the weight: 80 draws count as 1.0"),
    "two draws": (changed(1e4, ([1, 2], [5, 7])), "draw 5 of chain 1 50.00% of all the weight: 80 draws count as 2.0"),
    "shape": (np.zeros((4, 21)), r"shape \(4, 21\), expected \(4, 20\)"),
    "words": ("heavy", "`log_weights` cannot be read"),
    "complex numbers": (np.zeros((4, 20)) + 1j, "`log_weights` cannot be read"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_weights_are_named(case, as_users_have_it):
    x = np.random.default_rng(1).normal(size=(4, 20, 2))
    given, message = BAD[case]
    with pytest.raises(scv.InputError, match=message):
        scv.Samples(x, -x, log_weights=given)


def test_what_weights_cannot_do_is_said():
    x, weight = proposed(0, shape=(4, 20))
    with pytest.raises(scv.InputError, match="`fitting`"):
        scv.Samples(x, -x, log_weights=weight, fitting=(x, -x))
    given = scv.Samples(x, -x, log_weights=weight, log_density=lambda x: (-0.5 * x @ x, -x))
    with pytest.raises(scv.InputError, match="`orbits`"):
        scv.estimate(given, orbits=4)
    with pytest.raises(scv.InputError, match="`log_weights`"):
        scv.bridge(given)
    weight[1:] = -np.inf
    with pytest.raises(scv.InputError, match="all the weight is in chain 0"):
        scv.estimate(scv.Samples(x, -x, log_weights=weight))
