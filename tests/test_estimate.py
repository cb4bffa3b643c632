"""The one verb: statuses, alarms, the guard, standard deviations, and the shape of what comes back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
from densities import bent_mixture, gaussian

import steincv as scv
from steincv.estimating import gain_limit
from steincv.families.method import CrossFit
from steincv.judging.diagnostics import STEIN_LIMIT, stein_check
from steincv.stein.coordinates import TILE, Standardise
from steincv.stein.folds import make_folds


def names(result, k=0):
    return [status.name for status in result.status[k]]


def mild(seed, *shape):
    """A density a quadratic control variate helps a lot with, and is not exact for."""
    samples = bent_mixture(seed, *shape)
    return samples, np.sin(samples.draws[..., 0]) + samples.draws[..., 1]


# --- gains, fall-backs, statuses ---------------------------------------------------------------------


def test_a_gain_is_a_gain():
    samples, f = mild(0, 4, 500, 2)
    result = scv.estimate(samples, f, scv.Polynomial(3))
    assert result.variance_ratio < 0.8
    assert result.method[0].startswith("Polynomial(degree=3")
    assert names(result) == []
    np.testing.assert_allclose(result.controlled.mean(), result.mean, rtol=1e-12)
    np.testing.assert_allclose(result.plain.mean, f.mean(), rtol=1e-12)
    np.testing.assert_array_equal(result.values[..., 0], f)


def test_noise_falls_back_to_the_plain_mean():
    samples, _ = mild(1, 4, 250, 2)
    noise = np.random.default_rng(2).normal(size=(4, 250))
    result = scv.estimate(samples, noise, scv.Polynomial(2))
    assert names(result) == ["no gain"]
    assert result.method == ("plain",)
    assert result.mean == result.plain.mean
    assert result.variance_ratio == 1
    free = scv.estimate(samples, noise, scv.Polynomial(2), guard=False)
    assert free.method != ("plain",)
    assert free.mean != result.plain.mean


def test_the_guard_judges_every_output_alone():
    samples, f = mild(3, 4, 500, 2)
    noise = np.random.default_rng(4).normal(size=(4, 500))
    result = scv.estimate(samples, {"good": f, "noise": noise, "one": np.ones((4, 500))}, scv.Polynomial(2))
    assert [names(result, k) for k in range(3)] == [[], ["no gain"], ["constant"]]
    assert result.method[0] != "plain"
    assert result.method[1:] == ("plain", "plain")


@pytest.mark.parametrize(("ess", "limit"), [(400, 0.9), (10_000, 0.98), (4, 0.2), (0.1, 0.2)])
def test_a_gain_must_stand_out_of_its_noise(ess, limit):
    assert gain_limit(ess) == pytest.approx(limit)


def test_few_draws_say_so():
    samples, f = mild(5, 2, 20, 2)
    assert "low ess" in names(scv.estimate(samples, f, scv.Polynomial(1)))


def test_more_features_than_draws_say_so():
    x = np.random.default_rng(6).normal(size=(4, 20, 15))
    assert "too many features" in names(scv.estimate(scv.Samples(x, -x), np.sin(x[..., 0]), scv.Polynomial(2)))
    assert "too many features" not in names(scv.estimate(scv.Samples(x, -x), np.sin(x[..., 0]), scv.Kernel(degree=1)))


def test_chains_that_disagree_say_so():
    x = np.random.default_rng(7).normal(size=(4, 300, 2)) + np.array([0, 0, 0, 2.0])[:, None, None]
    found = names(scv.estimate(scv.Samples(x, -x), None, scv.Polynomial(2)))
    assert "chains disagree" in found


def test_a_heavy_tail_says_so():
    """t(1.1): no variance. The scores are right, so nothing else is wrong."""
    nu = 1.1
    x = np.random.default_rng(8).standard_t(nu, size=(4, 1000, 1))
    samples = scv.Samples(x, -(nu + 1) * x / (nu + x**2))
    assert "heavy tail" in names(scv.estimate(samples, None, scv.Polynomial(1)))


class Given(scv.MonteCarlo):
    """A method whose control variate is known: `left` minus the values."""

    left: np.ndarray

    def __new__(cls, left):
        method = super().__new__(cls)
        object.__setattr__(method, "left", left)
        return method

    def __init__(self, left):
        pass

    def cross_fit(self, samples, values, folds, *, seed=0):
        return CrossFit(self.left[..., None] - values, {})


def spiked(size, count):
    """Draws of which `count` carry all but a millionth of the variance: `size` times that of x."""
    x = np.random.default_rng(30).normal(size=(4, 500, 1))
    left = 1e-3 * size * x[..., 0]
    left.reshape(-1)[np.linspace(3, 1990, count).astype(int)] += size * np.sqrt(2000 / count) * (-1) ** np.arange(count)
    return scv.Samples(x, -x), x[..., 0], left


@pytest.mark.parametrize(("count", "rare"), [(1, True), (3, True), (40, False)])
def test_an_error_bar_that_few_draws_carry_says_so(count, rare):
    """The estimate stands, and so does its standard error; the interval is longer by what the few draws leave open."""
    samples, f, left = spiked(1e-3, count)
    result = scv.estimate(samples, f, Given(left))
    assert names(result) == (["rare draws"] if rare else [])
    assert float(result.mean) == pytest.approx(left.mean(), abs=1e-12)
    assert float(result.variance_ratio) == pytest.approx(
        float(result.standard_error / result.plain.standard_error) ** 2, rel=1e-12
    )
    assert float(result.variance_ratio) < 1e-5
    low, high = result.interval(0.95)
    width = float((high - low) / (2 * result.standard_error))
    assert width > 4 if rare else 2 < width < 2.3


def test_a_gain_that_few_draws_vouch_for_must_be_large():
    """Half the standard error, carried by three draws: the interval is not shorter, so the plain mean is reported."""
    for count, kept in ((3, False), (500, True)):
        samples, f, left = spiked(0.5, count)
        result = scv.estimate(samples, f, Given(left))
        assert (result.method[0] != "plain") == kept
        assert names(result) == ([] if kept else ["no gain"])


def test_saved_without_the_draws_that_carry_the_error(tmp_path):
    """Files of the first versions have no `error_ess`; then it is the effective size."""
    samples, f, left = spiked(1e-3, 3)
    result = scv.estimate(samples, f, Given(left), stat=("mean", "sd"))
    result.save(tmp_path / "new.npz")
    new = scv.Estimate.load(tmp_path / "new.npz")
    np.testing.assert_array_equal(new.interval(), result.interval())
    np.testing.assert_array_equal(new.sd.interval(), result.sd.interval())
    with np.load(tmp_path / "new.npz") as file:
        np.savez(tmp_path / "old.npz", **{k: v for k, v in file.items() if "error_ess" not in k})
    old = scv.Estimate.load(tmp_path / "old.npz")
    np.testing.assert_array_equal(old.standard_error, result.standard_error)
    assert np.diff(old.interval()) < np.diff(result.interval())


def test_messages_carry_their_numbers():
    x = np.random.default_rng(9).normal(size=(4, 300, 2)) + np.array([0, 0, 0, 2.0])[:, None, None]
    result = scv.estimate(scv.Samples(x, x), None, scv.Polynomial(2))
    for status in result.status[0]:
        assert any(c.isdigit() for c in status.message)
        assert "{" not in status.message
    assert len(result.warnings()) == len(set(result.warnings()))


# --- wrong scores ------------------------------------------------------------------------------------


def exponential(seed, jacobian):
    """Exponential(1): in constrained coordinates (an edge at 0), or as log x with the Jacobian."""
    x = np.random.default_rng(seed).exponential(size=(4, 500, 1))
    return scv.Samples(np.log(x), 1 - x) if jacobian else scv.Samples(x, -np.ones_like(x))


def wrong_scores():
    samples, covariance = gaussian(10, 4, 500, 3)
    x, s = samples.draws, samples.scores
    missing = np.log(np.random.default_rng(11).exponential(size=(4, 500, 1)))
    return {
        "sign": scv.Samples(x, -s),
        "off by one draw": scv.Samples(x, np.roll(s, 1, axis=1)),
        "another coordinate": scv.Samples(x, s[..., ::-1]),
        "twenty per cent too large": scv.Samples(x, 1.2 * s),
        "another mean": scv.Samples(x, s + 0.3 * np.linalg.inv(covariance).sum(axis=1)),
        "chains and draws swapped": scv.Samples(x, s.reshape(500, 4, 3).swapaxes(0, 1)),
        "zero": scv.Samples(x, 0 * s),
        "no Jacobian, constrained coordinates": exponential(12, jacobian=False),
        "no Jacobian, unconstrained coordinates": scv.Samples(missing, -np.exp(missing)),
    }


@pytest.mark.parametrize("name", wrong_scores())
def test_wrong_scores_raise_the_alarm_and_the_plain_mean_is_reported(name):
    samples = wrong_scores()[name]
    result = scv.estimate(samples, None, scv.Polynomial(2))
    for k in range(samples.dim):
        assert "stein mean" in names(result, k)
    assert set(result.method) == {"plain"}
    np.testing.assert_array_equal(result.mean, result.plain.mean)
    assert "exact" not in names(result)
    assert result.gained().startswith("The plain means are reported")


def test_right_scores_of_the_same_target_raise_none():
    assert "stein mean" not in names(scv.estimate(exponential(13, jacobian=True), None, scv.Polynomial(2)))


@pytest.mark.parametrize("factor", [1.0, 1.05, 1.3, -1.0])
def test_the_quick_stein_check_rings_when_the_whole_one_does(factor):
    """It leaves out effective sizes that cannot matter: of slow chains, of quick ones, with scores a little wrong."""
    rng = np.random.default_rng(0)
    for correlation in (-0.6, 0.0, 0.9):
        for draws in (15, 60, 250, TILE // 2):
            noise = np.sqrt(1 - correlation**2) * rng.normal(size=(3, draws, 2))
            x = scipy.signal.lfilter([1.0], [1.0, -correlation], noise, axis=1)
            samples = scv.Samples(x, -factor * x)
            whole, quick = stein_check(samples), stein_check(samples, beyond=STEIN_LIMIT)
            large = np.abs(whole.z) > STEIN_LIMIT
            np.testing.assert_array_equal(np.abs(quick.z) > STEIN_LIMIT, large)
            np.testing.assert_allclose(quick.z[large], whole.z[large], rtol=1e-10)


def test_a_large_sample_is_standardised_tile_by_tile():
    x = np.random.default_rng(0).normal(size=(3, TILE, 2)) @ np.array([[2.0, 0.0], [1.0, 1e-3]]) + 7
    samples = scv.Samples(x, -x)
    standardise = Standardise.of(samples)
    z, s = standardise(samples)
    np.testing.assert_allclose(np.cov(z.T, ddof=0), np.eye(2), atol=1e-10)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-10)
    tiles = list(standardise.tiles(samples, 7000))
    assert [rows.start for rows, _, _ in tiles] == list(range(0, 3 * TILE, 7000))
    np.testing.assert_allclose(np.concatenate([tile for _, tile, _ in tiles]), z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.concatenate([tile for _, _, tile in tiles]), s, rtol=1e-12, atol=1e-12)


def test_what_overflows_is_named_in_a_large_sample_too():
    x = np.random.default_rng(0).normal(size=(3, TILE, 2))
    scores = -x
    scores[2, 5, 1] = 1e200
    with pytest.raises(scv.InputError, match=r"`scores` holds 1e\+200 at index \(2, 5, 1\)"):
        scv.estimate(scv.Samples(x, scores), None, scv.MonteCarlo())


def test_a_single_far_draw_is_named_and_not_the_scores_it_makes_look_large():
    x = np.random.default_rng(0).normal(size=(4, 100, 2))
    x[0, 3, 0] = 1e35
    with pytest.raises(scv.InputError, match=r"`draws` holds 1e\+35 at index \(0, 3, 0\), which is .* times as far"):
        scv.estimate(scv.Samples(x, -x / (1 + x**2)), None, scv.Polynomial(1))


def test_clean_targets_raise_no_alarm():
    """200 clean runs, 7 z values each: the chance that one is beyond 5 is 200 x 7 x 6e-7 = 8e-4, heavier with the
    noise of the ESS. An alarm at 3 instead of 5 would fail this with certainty."""
    worst = [np.abs(stein_check(bent_mixture(1000 + seed, 4, 250, 3)).z).max() for seed in range(200)]
    assert max(worst) < 5
    assert max(worst) > 2.5


# --- standard deviations -----------------------------------------------------------------------------


def test_sd_of_a_gaussian_is_exact():
    samples, covariance = gaussian(14, 4, 250, 3)
    result = scv.estimate(samples, None, scv.Polynomial(2), stat=("mean", "sd"))
    np.testing.assert_allclose(result.sd.mean, np.sqrt(np.diag(covariance)), rtol=1e-9)
    assert [s.name for s in result.sd.status[0]] == ["exact"]
    np.testing.assert_allclose(result.sd.plain.mean, samples.draws.std(axis=(0, 1)), rtol=1e-10)


@pytest.mark.parametrize("cross_fit", [True, False])
def test_the_plain_sd_is_the_sd_of_the_draws_reported_on(cross_fit):
    samples, f = mild(15, 4, 100, 2)
    result = scv.estimate(samples, f + 1e4, scv.MonteCarlo(), stat=("mean", "sd"), cross_fit=cross_fit)
    kept = f if cross_fit else f[:, 50:]
    np.testing.assert_allclose(result.sd.plain.mean, kept.std(), rtol=1e-9)
    assert result.sd.values.shape[:2] == kept.shape


def test_the_error_of_an_sd_is_that_of_the_delta_method():
    """For independent Gaussian draws the sd has standard error sigma / sqrt(2 n); checked to its noise, 10 %."""
    x = 3 * np.random.default_rng(16).normal(size=(4, 2000, 1))
    result = scv.estimate(scv.Samples(x, -x / 9), None, scv.MonteCarlo(), stat=("mean", "sd"))
    assert result.sd.standard_error[0] == pytest.approx(3 / np.sqrt(2 * 8000), rel=0.1)


def test_sd_intervals_cover():
    """100 runs at 95 %: fewer than 87 covered happens once in 2,000 for honest bars; 75 % pass once in 400."""
    truth_samples = bent_mixture(17, 2_000_000, 2)
    truth, hits, gains = truth_samples.draws[..., 1].std(), 0, []
    for seed in range(100):
        samples = bent_mixture(2000 + seed, 4, 150, 2)
        sd = scv.estimate(samples, samples.draws[..., 1], scv.Polynomial(3), stat=("mean", "sd")).sd
        low, high = sd.interval(0.95)
        hits += bool(low <= truth <= high)
        gains.append(float(sd.variance_ratio))
    assert 87 <= hits <= 100
    assert np.median(gains) < 0.8


def test_sd_of_noise_falls_back():
    samples, _ = mild(18, 4, 250, 2)
    noise = np.random.default_rng(19).normal(size=(4, 250))
    sd = scv.estimate(samples, noise, scv.Polynomial(2), stat=("mean", "sd")).sd
    assert sd.method == ("plain",)
    assert float(sd.mean) == pytest.approx(noise.std(), rel=1e-12)


def test_sd_is_affine():
    samples, f = mild(20, 4, 200, 2)
    one, two = (scv.estimate(samples, v, scv.Polynomial(2), stat=("mean", "sd")).sd for v in (f, 1e5 - 3 * f))
    assert float(two.mean) == pytest.approx(3 * float(one.mean), rel=1e-8)
    assert float(two.standard_error) == pytest.approx(3 * float(one.standard_error), rel=1e-8)


# --- the shape of the result -------------------------------------------------------------------------


def constrain(x):
    return {"mu": x[0], "theta": x * jnp.array([1.0, 2.0, 3.0])}


def test_labels_and_parts():
    x = np.random.default_rng(21).normal(size=(4, 100, 3))
    samples = scv.Samples(x, -x, constrain=constrain)
    result = scv.estimate(samples, method=scv.Polynomial(1), stat=("mean", "sd"))
    assert result.labels == ("mu", "theta[0]", "theta[1]", "theta[2]")
    theta = result["theta"]
    assert theta.mean.shape == (3,)
    assert theta.controlled.shape == (4, 100, 3)
    assert theta.sd.mean.shape == (3,)
    assert result["mu"].mean.shape == ()
    assert result["theta[1]"].labels == ("theta[1]",)
    with pytest.raises(KeyError, match="the outputs are mu, theta"):
        result["tau"]


def test_a_name_that_begins_another():
    x = np.random.default_rng(22).normal(size=(4, 50, 3))
    result = scv.estimate(scv.Samples(x, -x, ["a", "a[0]", "ab"]), None, scv.MonteCarlo())
    assert result["a"].labels == ("a",)
    assert result["ab"].labels == ("ab",)


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_results_are_shaped_like_f(shape):
    x = np.random.default_rng(23).normal(size=(4, 50, 6))
    values = x[..., : int(np.prod(shape))].reshape(4, 50, *shape)
    result = scv.estimate(scv.Samples(x, -x), values, scv.Polynomial(1))
    for array in (result.mean, result.standard_error, result.ess, result.variance_ratio, result.plain.mean):
        assert array.shape == shape
        assert isinstance(array, np.ndarray)
    assert result.interval(0.9).shape == (*shape, 2)
    assert result.controlled.shape == (4, 50, max(1, int(np.prod(shape))))


def test_function_and_array_give_the_same():
    samples, f = mild(24, 4, 100, 2)
    by_array = scv.estimate(samples, f, scv.Polynomial(2))
    by_function = scv.estimate(samples, lambda x: jnp.sin(x[0]) + x[1], scv.Polynomial(2))
    assert float(by_function.mean) == pytest.approx(float(by_array.mean), rel=1e-12)


def test_held_out_uses_the_last_part_only():
    """Independent of what f is on the first part once the fit is given: the plain mean is that of the last."""
    samples, f = mild(25, 4, 200, 2)
    result = scv.estimate(samples, f, scv.Polynomial(2), cross_fit=False, test_fraction=0.25)
    assert result.controlled.shape == (4, 50, 1)
    np.testing.assert_allclose(result.plain.mean, f[:, 150:].mean(), rtol=1e-12)
    by_hand = scv.Polynomial(2).fit(scv.Samples(samples.draws[:, :150], samples.scores[:, :150]), f[:, :150])
    g = by_hand(scv.Samples(samples.draws[:, 150:], samples.scores[:, 150:]))
    np.testing.assert_allclose(result.mean, (f[:, 150:, None] + g).mean(), rtol=1e-12)


def test_cross_fitting_by_hand():
    samples, f = mild(26, 3, 80, 2)
    result = scv.estimate(samples, f, scv.Polynomial(2), guard=False)
    controlled = np.empty((3, 80))
    for c in range(3):
        rest = [k for k in range(3) if k != c]
        fitted = scv.Polynomial(2).fit(scv.Samples(samples.draws[rest], samples.scores[rest]), f[rest])
        controlled[c] = f[c] + fitted(scv.Samples(samples.draws[c], samples.scores[c]))[0, :, 0]
    np.testing.assert_allclose(result.controlled[..., 0], controlled, rtol=1e-12)


def test_the_default_method_and_float64_without_the_global_flag():
    samples, f = mild(27, 4, 40, 2)
    assert scv.estimate(samples, f).mean.dtype == np.float64
    assert not jax.config.jax_enable_x64
    assert jnp.ones(3).dtype == jnp.float32


def test_a_polynomial_where_the_stack_is_not_trusted():
    """A kernel or a network that is far out at one draw in a thousand has an interval that says so, and no gain. The
    best polynomial, which the stack brings along, is then taken instead of the plain mean if it has one."""
    from steincv.families.method import CrossFit, Simpler

    x = np.random.default_rng(0).normal(size=(4, 500, 2))
    f = np.stack([x[..., 0] + 0.2 * x[..., 1] ** 2, np.abs(x[..., 1])], axis=-1)
    far = np.zeros_like(f)
    far[2, 100] = 60.0  # where everything else is solved

    class Stacked(scv.MonteCarlo):
        def cross_fit(self, samples, values, folds, *, seed=0):
            simpler = Simpler(np.stack([-x[..., 0], 3 * x[..., 0]], axis=-1), ("Polynomial(degree=1)", "Polynomial()"))
            return CrossFit(far - values, {}, simpler)

    values = {"a": f[..., 0], "b": f[..., 1]}
    result = scv.estimate(scv.Samples(x, -x), values, Stacked())
    assert result.method == ("Polynomial(degree=1)", "plain")
    np.testing.assert_allclose(result.mean, [0.2 * (x[..., 1] ** 2).mean(), np.abs(x[..., 1]).mean()])
    assert result.variance_ratio[0] < 0.2
    assert [s.name for s in result.status[1]] == ["no gain"]
    assert set(scv.estimate(scv.Samples(x, -x), values, Stacked(), guard=False).method) == {"Stacked()"}
    half = scv.estimate(scv.Samples(x, -x), values, Stacked(), cross_fit=False)
    assert half.method[0] == "Stacked()"  # the far draw is not among those judged


def test_auto_brings_its_best_polynomial_along():
    x = np.random.default_rng(1).normal(size=(2, 300, 2))
    f = np.stack([x[..., 0], x[..., 0] ** 2, np.sin(x[..., 1])], axis=-1)
    samples = scv.Samples(x, -x)
    simpler = scv.Auto().cross_fit(samples, f, make_folds(2, 300)).simpler
    assert simpler.methods[0] in ("Polynomial(degree=1)", "Polynomial()", "Polynomial(degree=3)")
    for k, name in enumerate(simpler.methods):
        degree = {"Polynomial(degree=1)": 1, "Polynomial()": 2, "Polynomial(degree=3)": 3}[name]
        g = scv.Polynomial(degree).cross_fit(samples, f[..., k : k + 1], make_folds(2, 300)).g
        np.testing.assert_allclose(simpler.g[..., k], g[..., 0], atol=1e-8)
    assert scv.Auto().cross_fit(scv.Samples(x[:, :50], -x[:, :50]), f[:, :50], make_folds(2, 50)).simpler is None
