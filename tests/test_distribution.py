"""Probabilities and quantiles as users ask for them: right, honest, and kept."""

from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
from densities import bent_mixture, gaussian
from scipy.special import ndtr, ndtri

import steincv as scv
from steincv.distribution import with_quantiles
from steincv.estimating import inputs_of
from steincv.judging.error_bars import split_rhat
from steincv.judging.quantiles import in_order, plain_quantiles

QUICK = scv.Polynomial(2)


def standard(seed=0, chains=4, draws=250, dim=3):
    x = np.random.default_rng(seed).normal(size=(chains, draws, dim))
    return scv.Samples(x, -x)


def test_exact_for_a_gaussian():
    """Coordinates of any scale and correlation: the probability is that of the normal distribution, to 1e-9."""
    samples, _ = gaussian(0, 4, 200, 3)
    x = samples.draws
    result = scv.probability(samples, below=[float(np.median(x[..., 0]))], method=QUICK)
    assert (result.variance_ratio < 1e-12).all()
    normal = standard()
    above = scv.probability(normal, above=[-1.0, 0.0, 1.5], method=QUICK)
    assert above.shape == (3, 3)
    np.testing.assert_allclose(above.mean, np.tile(ndtr([1.0, 0.0, -1.5]), (3, 1)), atol=1e-9)
    found = scv.estimate(normal, method=QUICK, stat=("mean", 0.05, 0.5, 0.95))
    for p in (0.05, 0.5, 0.95):
        np.testing.assert_allclose(found.quantile(p).mean, ndtri(p), atol=1e-8)


FUNCTIONS = {
    "monotone": (lambda x: jnp.exp(x[0]), 1.5, ndtr(np.log(1.5)), 1e-3),
    "falling": (lambda x: -(x[1] ** 3) - x[1], 2.0, ndtr(1.0), 1e-3),
    "linear": (lambda x: x[0] - 2 * x[2], 1.0, ndtr(1 / np.sqrt(5)), 1e-3),
    "of several": (lambda x: x[0] + 0.1 * x[1] ** 2, 0.0, None, 0.1),
    "no steady slope": (lambda x: (x**2).sum(), 3.0, 0.6083748237289109, 0.5),
    "with a scale": (lambda x: jnp.exp(x[1]) * (x[0] - x[2]), 0.0, 0.5, 0.05),
    "a product": (lambda x: x[0] * x[1], 0.0, 0.5, 0.2),
    "of a size": (lambda x: jnp.abs(x[0]), 1.0, 0.6826894921370859, 0.01),
    "the larger": (lambda x: jnp.maximum(x[0], x[1]), 0.0, 0.25, 0.4),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_place_of_the_jump_is_found(name):
    f, c, truth, ratio = FUNCTIONS[name]
    result = scv.probability(standard(draws=500), f, below=c, method=QUICK)
    assert result.variance_ratio < ratio
    if truth is not None:
        low, high = result.interval(0.9999)
        assert low - 1e-8 <= truth <= high + 1e-8
    median = scv.estimate(standard(draws=500), f, stat=("mean", 0.5), method=QUICK).quantile(0.5)
    assert median.variance_ratio < 2 * ratio


def test_arrays_of_values():
    """Linear ones and those of one coordinate are as good as functions; others by what a regression finds."""
    samples = standard(draws=500)
    x = samples.draws
    result = scv.probability(
        samples, {"a": np.exp(x[..., 0]), "b": x[..., 0] + x[..., 1], "c": x[..., 0] * x[..., 1],
         "d": x[..., 0] + 0.2 * x[..., 1] * x[..., 2]},
        above=1.0, method=QUICK,
    )  # fmt: skip
    assert result.info["steps"] == {"coordinate": ["a"], "linear": ["b"], "unknown": ["c"], "regression": ["d"]}
    assert (result.variance_ratio[:2] < 1e-3).all()


def test_what_is_not_gaussian_is_covered_and_gained():
    """True errors over 20 sets: smaller, and within four of their standard errors."""
    truth = np.array([float(np.mean(bent_mixture(99, 1, 10**6, 2).draws[..., k] <= 0.3)) for k in range(2)])
    found = [scv.probability(bent_mixture(k, 4, 250, 2), below=0.3, method=QUICK) for k in range(20)]
    plain, better = (np.array([e.mean for e in each]) - truth for each in ([r.plain for r in found], found))
    assert (np.square(better).mean(axis=0) < 0.7 * np.square(plain).mean(axis=0)).all()
    z = better / np.hypot([r.standard_error for r in found], 5e-4)
    assert np.abs(z).max() < 4


def test_quantiles_do_not_cross_and_are_kept(tmp_path):
    samples = bent_mixture(5, 4, 60, 2)
    levels = (0.05, 0.1, 0.12, 0.14, 0.5, 0.9, 0.95)
    result = scv.estimate(samples, stat=("mean", "sd", *levels), method=QUICK)
    means = np.array([result.quantile(p).mean for p in levels])
    assert (np.diff(means, axis=0) >= 0).all()
    for p in levels:
        one = result.quantile(p)
        np.testing.assert_allclose(one.controlled.mean(axis=(0, 1)), one.mean, atol=1e-10)
        np.testing.assert_allclose(one.plain.mean, np.quantile(samples.draws, p, axis=(0, 1)))
    result.save(tmp_path / "r.npz")
    read = scv.Estimate.load(tmp_path / "r.npz")
    assert tuple(read.quantiles) == levels
    np.testing.assert_array_equal(read.quantile(0.9).mean, result.quantile(0.9).mean)
    np.testing.assert_array_equal(result["x[1]"].quantile(0.9).mean, result.quantile(0.9).mean[1])


def test_in_order_pools_neighbours_that_cross():
    means, errors = ([np.array([v]) for v in row] for row in ([1.0, 3.0, 2.0, 4.0], [0.1, 1.0, 1.0, 0.1]))
    assert [m[0] for m in in_order(means, errors)] == [1.0, 2.5, 2.5, 4.0]


@pytest.mark.parametrize("correlation", [0.0, 0.95])
def test_the_plain_quantile_is_arviz_s(correlation):
    arviz_stats = pytest.importorskip("arviz_stats.base").array_stats
    noise = np.random.default_rng(0).normal(size=(4, 301, 5))
    x = scipy.signal.lfilter([1.0], [1.0, -correlation], noise, axis=1)
    x[..., 1], x[..., 2] = np.round(x[..., 1]), 3.0  # ties, and a constant
    levels = (0.001, 0.25, 0.5, 0.99)
    for level, found in zip(levels, plain_quantiles(x, levels), strict=True):
        how = {"chain_axis": 0, "draw_axis": 1, "method": "quantile", "prob": level}
        each = [x[..., k] for k in range(5)]
        np.testing.assert_allclose(found.standard_error, [arviz_stats.mcse(one, **how) for one in each], rtol=1e-12)
        np.testing.assert_allclose(found.ess, [arviz_stats.ess(one, **how) for one in each], rtol=1e-12)
        np.testing.assert_allclose(found.mean, np.quantile(x, level, axis=(0, 1)), rtol=1e-12)


def test_far_out_the_plain_estimate_is_reported_and_said_so():
    samples = standard(draws=100)
    result = scv.estimate(samples, stat=("mean", 0.001), method=QUICK).quantile(0.001)
    assert result.method == ("plain",) * 3
    assert all(found[0].code is scv.Code.FEW_BEYOND for found in result.status)
    never = scv.probability(samples, above=50.0, method=QUICK)
    assert (never.mean == 0).all()
    assert (never.standard_error == 1 / samples.size).all()
    assert all(found[0].code is scv.Code.FEW_BEYOND for found in never.status)


def test_a_constant_has_its_quantiles():
    samples = standard()
    result = scv.estimate(samples, {"one": np.ones((4, 250)), "x": samples.draws[..., 0]}, stat=(0.5,), method=QUICK)
    assert result.quantile(0.5).mean[0] == 1.0
    assert result.quantile(0.5).status[0][0].code is scv.Code.CONSTANT


def test_probabilities_lie_between_zero_and_one_and_are_in_order():
    cuts = np.linspace(-4, 4, 30)
    result = scv.probability(bent_mixture(7, 4, 50, 1), below=cuts, method=QUICK)
    assert (np.diff(result.mean[0]) >= 0).all()
    assert result.mean.min() >= 0
    assert result.mean.max() <= 1
    both = scv.probability(bent_mixture(7, 4, 50, 1), above=cuts, method=QUICK).mean + result.mean
    np.testing.assert_allclose(both, 1.0, atol=1e-10)


def test_thresholds_by_name():
    samples = standard()
    result = scv.probability(samples, above={"x[1]": 0.0, "x[0]": [0.0, 1.0]}, method=QUICK)
    assert result.labels == ("P(x[0] > 0)", "P(x[0] > 1)", "P(x[1] > 0)")
    assert scv.probability(samples, above={"x": 0.0}, method=QUICK).shape == (3,)


def test_workers_held_out_draws_and_orbits_give_answers():
    samples = bent_mixture(8, 4, 60, 2)
    alone = scv.probability(samples, below=0.0, method=QUICK)
    with ThreadPoolExecutor(2) as pool:
        together = scv.probability(samples, below=0.0, method=QUICK, executor=pool)
    np.testing.assert_array_equal(alone.controlled, together.controlled)
    held = scv.estimate(samples, stat=("mean", 0.5), method=QUICK, cross_fit=False)
    assert held.quantile(0.5).values.shape == held.values.shape == (4, 30, 2)
    x = np.random.default_rng(1).normal(size=(4, 50, 2))
    known = scv.Samples(x, -x, log_density=lambda x: -0.5 * (x**2).sum())
    around = scv.probability(known, lambda x: x[0] + 0.1 * x[1] ** 2, above=0.0, method=QUICK, orbits=4)
    assert around.info["orbits"]["states"] == 4
    assert around.variance_ratio < 0.1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: scv.probability(s), "`above` or `below`"),
        (lambda s: scv.probability(s, above=0, below=1), "`above` or `below`"),
        (lambda s: scv.probability(s, above=np.nan), "`above` holds"),
        (lambda s: scv.probability(s, above=[[1.0]]), "expected a number"),
        (lambda s: scv.probability(s, above={"y": 1.0}), "names 'y'"),
        (lambda s: scv.probability(s, above={}), "empty dict"),
        (lambda s: scv.estimate(s, stat=("mean", 1.5)), "between 0 and 1"),
        (lambda s: scv.estimate(s, stat=("mean", 5)), "between 0 and 1"),
        (lambda s: scv.estimate(s, stat=()), "between 0 and 1"),
        (lambda s: scv.estimate(s, method=QUICK).quantile(0.5), "there is no quantile 0.5"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(scv.InputError, match=words):
        call(standard(draws=20))


KINKED = {
    "size": (lambda x: jnp.abs(x[0]), 1.0, 0.31731),
    "larger": (lambda x: jnp.maximum(x[0], x[1]), 1.0, 0.29214),
    "kink": (lambda x: jnp.where(x[0] > 0, x[0], 3 * x[0]) + 0.1 * x[1] ** 2, 0.5, 0.3441),
    "jump": (lambda x: 0.3 * x[0] ** 2 + x[1] + 2 * (x[1] > 0), 3.0, 0.2402),
    "ramp": (lambda x: jnp.maximum(x[0] + x[1] - 1, 0), 0.5, 0.14442),
}


@pytest.mark.parametrize("name", KINKED)
def test_no_step_is_taken_along_a_gradient_that_jumps(name):
    """The field would jump with it, and its mean would not be zero: these were off by .2 with errors of .0001."""
    f, above, truth = KINKED[name]
    x = np.random.default_rng(1).normal(size=(4, 500, 2))
    result = scv.probability(scv.Samples(x, -x), f, scv.Polynomial(2), above=above)
    assert np.isfinite(result.mean)
    assert abs(result.mean - truth) < 4 * result.standard_error
    assert "gradient" not in result.info["steps"]


@pytest.mark.parametrize("seed", range(3))
def test_quantiles_where_the_slope_of_f_vanishes(seed):
    x = np.random.default_rng(seed).normal(size=(4, 100, 1))
    levels = (0.05, 0.3, 0.5, 0.95)
    result = scv.estimate(scv.Samples(x, -x), x[..., 0] ** 3, scv.Polynomial(2), stat=("mean", *levels))
    for level in levels:
        np.testing.assert_allclose(result.quantile(level).mean, ndtri(level) ** 3, atol=1e-4)


def test_a_place_that_is_only_known_between_draws_widens_the_error():
    z = []
    for seed in range(20):
        x = np.random.default_rng(seed).normal(size=(4, 100, 1))
        result = scv.probability(scv.Samples(x, -x), np.floor(x[..., 0]), scv.Polynomial(2), above=0.0)
        z.append((result.mean - 0.158655) / result.standard_error)
    assert np.abs(z).max() < 5


def test_a_quantile_of_a_discrete_f_is_one_of_its_values():
    x = np.random.default_rng(0).normal(size=(4, 250, 1))
    result = scv.estimate(scv.Samples(x, -x), np.floor(x[..., 0]), scv.Polynomial(2), stat=("mean", 0.845))
    assert result.quantile(0.845).mean in (0.0, 1.0)
    assert result.quantile(0.845).status[0][0].code is scv.Code.TIED


def test_coordinates_by_name():
    x = np.random.default_rng(0).normal(size=(4, 100, 2))
    samples = scv.Samples(x, -x, names=("mu", "nu"))
    result = scv.probability(samples, "nu", scv.Polynomial(2), above=0.0)
    assert result.labels == ("P(nu > 0)",)
    np.testing.assert_allclose(result.plain.mean, (x[..., 1] > 0).mean())
    with pytest.raises(scv.InputError, match="`f` names zeta; the coordinates are mu, nu"):
        scv.estimate(samples, "zeta")
    with pytest.raises(scv.InputError, match="`above` holds"):
        scv.probability(samples, "mu", above=float("nan"))


@pytest.mark.parametrize("method", [QUICK, scv.Polynomial(1), scv.Auto()])
def test_means_and_quantiles_share_what_is_made_of_the_draws_alone(method):
    """Neither is changed by it: means are those without levels, and quantiles those of a fit by itself."""
    samples = bent_mixture(3, 4, 200, 3)
    both = scv.estimate(samples, method=method, stat=("mean", "sd", 0.1, 0.5))
    alone = scv.estimate(samples, method=method, stat=("mean", "sd"))
    np.testing.assert_allclose(both.mean, alone.mean, rtol=1e-12)
    np.testing.assert_allclose(both.sd.standard_error, alone.sd.standard_error, rtol=1e-9)
    taken = inputs_of(samples, None, method, 0, (None, 0, True, 0.5), True, None, "auto", "auto")
    by_itself = with_quantiles(alone, taken, (0.1, 0.5), None)
    for level in (0.1, 0.5):
        np.testing.assert_allclose(both.quantile(level).mean, by_itself.quantile(level).mean, rtol=1e-9)
        errors = (r.quantile(level).standard_error for r in (both, by_itself))
        np.testing.assert_allclose(*errors, rtol=1e-6)


def test_the_r_hat_of_two_values_needs_no_ranks():
    values = 1.0 * (np.cumsum(np.random.default_rng(0).normal(size=(4, 100, 5)), axis=1) > [0, 1, 2, 3, 90])
    values[..., 0] = np.arange(400).reshape(4, 100) % 2  # half of each
    np.testing.assert_allclose(split_rhat(values, two_valued=True), split_rhat(values), rtol=1e-12)


def test_of_a_constant_f_every_probability_is_known():
    result = scv.probability(standard(), lambda x: 3.0 + 0 * x[0], above=[2.0, 3.0, 4.0], method=QUICK)
    assert result.mean.tolist() == [1.0, 0.0, 0.0]
    assert result.standard_error.tolist() == [0.0] * 3
    assert {s.code for found in result.status for s in found} == {scv.Code.CONSTANT}


@pytest.mark.parametrize("cut", [np.nan, [0.0, np.inf], {"x[0]": [np.nan]}])
def test_a_threshold_that_is_no_number_is_said_to_be_one(cut):
    with pytest.raises(scv.InputError, match="and a threshold is a finite number"):
        scv.probability(standard(), above=cut, method=QUICK)


def test_a_direction_chosen_by_draws_has_not_seen_those_that_are_judged():
    """Chosen with them, it is off by 2.8 standard errors on average here, and its intervals hold the truth in .4."""
    dim, cut, off = 50, 1.73, []

    def f(x):
        return jnp.abs(x[0] + x[1] - 0.5) + x.sum() / np.sqrt(dim)

    big = np.random.default_rng(99).normal(size=(200_000, dim))
    truth = np.mean(np.abs(big[:, 0] + big[:, 1] - 0.5) + big.sum(axis=1) / np.sqrt(dim) > cut)
    for seed in range(8):
        x = np.random.default_rng(seed).normal(size=(4, 30, dim))
        found = scv.probability(scv.Samples(x, -x), f, above=cut, method=scv.Polynomial(1))
        assert found.info["steps"] == {"lines": ["f"]}
        off.append(float((found.mean - truth) / found.standard_error))
    assert abs(np.mean(off)) < 1.3


def test_quantiles_do_not_mind_the_units_of_coordinates():
    rng = np.random.default_rng(3)
    h, w = rng.normal(size=(4, 250)), rng.normal(size=(4, 250, 2))
    x = np.concatenate([h[..., None], np.exp(0.5 * h)[..., None] * w], axis=-1)
    s = np.concatenate([(-h + 0.5 * (w**2 - 1).sum(-1))[..., None], -np.exp(-0.5 * h)[..., None] * w], axis=-1)
    units = np.array([1e100, 1e-120, 3e7])
    one, other = (
        scv.estimate(samples, np.sin(x[..., 0]) * x[..., 1], scv.Polynomial(2), stat=("mean", 0.05, 0.5))
        for samples in (scv.Samples(x, s), scv.Samples(x * units, s / units))
    )
    for level in (0.05, 0.5):
        a, b = one.quantile(level), other.quantile(level)
        assert a.method == b.method
        np.testing.assert_allclose(b.mean, a.mean, atol=1e-6 * float(a.standard_error))
        np.testing.assert_allclose(b.standard_error, a.standard_error, rtol=1e-6)
