"""The gain that is quoted: an array with an interval, at most what standard errors say, and defined everywhere."""

import numpy as np
import pytest
import scipy.stats

import steincv as scv
from steincv.families.method import CrossFit, Simpler
from steincv.judging.error_bars import FREEDOM, Average, average, degrees_of_freedom, tail_of_distances
from steincv.judging.verdict import BEYOND, Words, as_apart_as_chains, unseen, widened_ratio


class Given(scv.MonteCarlo):
    """A method whose f + g is known."""

    def __init__(self, left):
        object.__setattr__(self, "left", left)

    def cross_fit(self, samples, values, folds, *, seed=0):
        return CrossFit(self.left - values, {})


def split(rng, share, outputs=1, draws=500):
    """Samples, f = x + y and what is left of it, y, whose variance is this share of that of f."""
    x, y = rng.normal(size=(2, 4, draws, outputs))
    y *= np.sqrt(share / (1 - share))
    return scv.Samples(x[..., :1], -x[..., :1]), x + y, y


@pytest.fixture(scope="module")
def result():
    x = np.random.default_rng(0).normal(size=(4, 500, 2))
    coin = np.random.default_rng(1).normal(size=(4, 500))
    values = {"smooth": np.tanh(x[..., 0]), "exact": x[..., 1], "noise": coin, "one": np.ones((4, 500))}
    return scv.estimate(scv.Samples(x, -x), values, scv.Polynomial(3), stat=("mean", "sd"))


def test_it_is_an_array_of_floats_with_intervals(result):
    gain = result.gain
    assert gain.shape == result.mean.shape
    assert gain.dtype == float
    np.testing.assert_array_equal(np.asarray(gain), [float(g) for g in gain])
    assert isinstance(np.median(gain), float)
    np.testing.assert_array_equal(gain > 1, [True, True, False, False])
    assert type(np.log(gain)) is np.ndarray
    np.testing.assert_array_equal(gain.interval(0.8), result.gain_interval(0.8))
    np.testing.assert_array_equal(gain[:2].interval(), result.gain_interval(0.9)[:2])
    np.testing.assert_array_equal(result["smooth"].gain_interval(), result.gain_interval()[0])
    assert float(result["smooth"].gain) == gain[0]
    assert result.sd.gain.shape == gain.shape
    with pytest.raises(scv.InputError, match=r"strictly between 0 and 1, got 1\.5"):
        gain.interval(1.5)
    with pytest.raises(scv.InputError, match="have no interval"):
        (gain + 0).view(type(gain)).interval()


def test_what_it_is_where_there_is_nothing_to_estimate(result):
    """Infinite where f + g is constant; exactly 1, with no doubt, where the plain mean is reported or f is constant."""
    np.testing.assert_array_equal(result.gain[1:], [np.inf, 1, 1])
    np.testing.assert_array_equal(result.gain_interval()[1:], [[np.inf, np.inf], [1, 1], [1, 1]])


def test_it_is_less_than_standard_errors_say_and_within_its_interval(result):
    assert result.gain[0] < 1 / result.variance_ratio[0]
    low, high = result.gain_interval(0.9)[0]
    lower, higher = result.gain_interval(0.99)[0]
    assert lower < low < result.gain[0] < high < higher


def test_the_typical_run_promises_no_more_than_runs_with_a_far_draw_leave():
    """What is left of f = x grows as exp(.8 x^2) until it is x itself, which it is for every thousandth draw.

    Its mean square is known by quadrature. The few runs of 400 draws that meet such a draw make most of it; standard
    errors of the others promise a multiple. The run in the middle is to promise a fifth to 1.2 times the truth.
    """

    def left(x):
        return np.sign(x) * np.minimum(5.5e-4 * np.exp(0.8 * x**2), np.abs(x))

    grid = np.linspace(-9, 9, 100_001)
    weight = scipy.stats.norm.pdf(grid) * (grid[1] - grid[0])
    true = weight @ grid**2 / (weight @ left(grid) ** 2)
    x = np.random.default_rng(9).normal(size=(4, 100, 300))
    told = unseen(x, left(x), np.std(left(x), axis=(0, 1)) / 20)
    bare = x.var(axis=(0, 1)) / left(x).var(axis=(0, 1))
    assert np.median(bare) > 1.5 * true
    assert 0.2 < np.median(bare / told) / true < 1.2


def test_draws_that_come_together_count_once():
    """Every draw four times over, and the standard error twice what independent draws would have."""
    rng = np.random.default_rng(10)
    f, left = rng.normal(size=(2, 4, 100, 5))
    left = left**3
    error = left.std(axis=(0, 1)) / 20
    often = [np.repeat(series, 4, axis=1) for series in (f, left)]
    np.testing.assert_allclose(unseen(*often, error), unseen(f, left, error), rtol=0.01)


def test_its_interval_covers_the_true_gain():
    """Of 300 outputs with a true gain of 20: at least 85 %. If it covers 90, that fails once in 250."""
    samples, f, left = split(np.random.default_rng(3), 0.05, outputs=300)
    found = scv.estimate(samples, f, Given(left))
    low, high = found.gain_interval(0.9).T
    assert ((low < 20) & (high > 20)).mean() > 0.85
    assert np.median(high / low) < 3
    assert np.median(found.gain) == pytest.approx(20, rel=0.1)


def test_pairing_shortens_the_interval():
    """A small gain is of two series that are nearly the same: its interval is shorter than that of independent ones."""
    samples, f, left = split(np.random.default_rng(4), 0.7, outputs=20)
    near, far = (np.log(scv.estimate(samples, f, Given(x)).gain_interval(0.9)) for x in (left, left[:, ::-1]))
    assert np.median(np.diff(near)) < 0.8 * np.median(np.diff(far))


def test_tails_take_it_down_and_open_its_interval():
    """Half of what standard errors say and less, where what is left has the tail of t(1.5)."""
    rng = np.random.default_rng(5)
    x, tail = rng.normal(size=(4, 500, 1)), 1e-3 * rng.standard_t(1.5, size=(4, 500, 1))
    found = scv.estimate(scv.Samples(x, -x), x[..., 0] + tail[..., 0], Given(tail))
    assert found.gain < 0.5 / found.variance_ratio
    low, high = found.gain_interval()
    assert high / low > 20


def test_a_saved_result_has_the_same(result, tmp_path):
    result.save(tmp_path / "result.npz")
    again = scv.Estimate.load(tmp_path / "result.npz")
    np.testing.assert_array_equal(again.gain, result.gain)
    np.testing.assert_array_equal(again.gain_interval(), result.gain_interval())


def test_tables_and_sentences_tell_it(result):
    table = result.summary()
    np.testing.assert_array_equal(table["gain"], result.gain)
    np.testing.assert_array_equal(table[["gain_low", "gain_high"]], result.gain_interval())
    one = result["smooth"]
    words = one.gains_told()[0]
    assert one.gained() == f"The same draws now give what {words.amount} as many would{words.between}."
    assert "2 of 3 outputs improved: the least gains 1 times, the most over a million times." in result.gained()


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((123.4, 71.0, 204.0), ("about 120 times", " (71 to 200)")),
        ((1.0, 1.0, 1.0), ("1 times", "")),
        ((54321.0, 1013.0, 3e6), ("more than 1,000 times", "")),
        ((28.0, 0.02, 900.0), ("about 28 times", " (0.02 to 900)")),
        ((np.inf, np.inf, np.inf), ("over a million times", "")),
    ],
)
def test_words(numbers, words):
    assert Words.of(*numbers) == words


# --- degrees of freedom ------------------------------------------------------------------------------


def test_the_tail_decides_where_few_draws_carry_the_error():
    """1.5 / k for few carriers, the kurtosis for many, in between a mean of both; at most 1 + m / 2."""
    one = np.asarray(np.inf)
    assert degrees_of_freedom(one, 2 * 6.0, 0.75) == pytest.approx((12 / 5) ** 0.16 * 2.0**0.84)
    assert degrees_of_freedom(one, 2 * FREEDOM.many, 3.0) == pytest.approx(2 * FREEDOM.many / 5)
    assert degrees_of_freedom(one, 2 * 6.0, np.nan) == pytest.approx(12 / 5)
    assert degrees_of_freedom(one, 2.0, 0.2) == pytest.approx(1.5)
    assert degrees_of_freedom(np.asarray(8.0), 0.2, 1.5) == FREEDOM.least
    few = np.asarray(FREEDOM.scarce)
    assert degrees_of_freedom(few, 2 * 6.0, 0.75) == pytest.approx((12 / 5) ** 0.16 * 1.0**0.84)


def test_distances_have_the_tail_of_their_density():
    """k of t(2) is 1/2; draws that stand apart from all others have none that could be fitted."""
    rng = np.random.default_rng(6)
    assert tail_of_distances(np.abs(rng.standard_t(2, size=(4, 5000, 20)))).mean() == pytest.approx(0.5, abs=0.05)
    apart = np.abs(rng.normal(size=(4, 100, 1)))
    apart[1, 7] = 1e5
    assert tail_of_distances(apart)[0] == np.inf


def test_a_long_tail_of_f_widens_the_interval_of_what_is_left():
    tails = average(np.random.default_rng(7).standard_t(1.2, size=(4, 200, 2)))
    f = Average(tails.mean, tails.standard_error, tails.ess, tails.error_ess, tail=np.array([0.4, -0.2]))
    beside = tails.beside(f)
    assert beside.degrees_of_freedom[0] < tails.degrees_of_freedom[0]
    assert beside.degrees_of_freedom[1] == tails.degrees_of_freedom[1]
    np.testing.assert_array_equal(beside.standard_error, tails.standard_error)


def test_the_guard_compares_intervals_as_they_are():
    """Where both have the same long tail, neither is wider by it."""
    x = average(np.random.default_rng(8).standard_t(1.2, size=(4, 200, 1)))
    half = Average(x.mean, x.standard_error / 2, x.ess, x.error_ess, x.degrees_of_freedom, x.tail)
    np.testing.assert_allclose(widened_ratio(x, half), 0.25)


class Apart(Given):
    """A method whose g is off zero by another constant at every chain, with a simpler one that is not."""

    def __init__(self, left, simpler):
        object.__setattr__(self, "left", left)
        object.__setattr__(self, "simpler", simpler)

    def cross_fit(self, samples, values, folds, *, seed=0):
        return CrossFit(self.left - values, {}, Simpler(self.simpler - values, ("simpler",) * values.shape[-1], []))


def shifted(rng, share, by, outputs):
    """Samples, f, and what is left of it with another constant in every chain."""
    samples, f, left = split(rng, share, outputs)
    return samples, f, left + by * rng.normal(size=(4, 1, outputs))


def test_chains_of_what_is_left_that_are_apart_make_the_error_bar():
    samples, f, left = shifted(np.random.default_rng(9), share=0.02, by=0.02, outputs=400)
    known = average(left)
    inside = np.abs(known.mean) <= known.half_width() * known.standard_error
    found = scv.estimate(samples, f, Given(left))
    low, high = np.moveaxis(found.interval(), -1, 0)
    assert inside.mean() < 0.6  # what effective sizes know of it
    assert ((low <= 0) & (high >= 0)).mean() > 0.8


def test_chains_that_are_not_apart_keep_their_error_bar():
    _, _, left = split(np.random.default_rng(10), share=0.02, outputs=4000)
    for series in (left, left[:1], left[:, :50], left[:2]):
        plain = average(series)
        found, apart = as_apart_as_chains(plain, series)
        few = scipy.stats.binom.ppf(0.9999, apart.size, BEYOND.by_chance)
        assert apart.sum() <= few
        for name, value in vars(found).items():
            np.testing.assert_array_equal(value[~apart], getattr(plain, name)[~apart])


def test_one_block_of_draws_is_not_apart():
    series = np.zeros((1, 4, 3))
    found, apart = as_apart_as_chains(average(series), series)
    assert not apart.any()
    np.testing.assert_array_equal(found.standard_error, 0)


def test_where_chains_are_apart_the_plain_mean_is_reported_not_a_simpler_one():
    samples, f, left = shifted(np.random.default_rng(11), share=0.1, by=0.05, outputs=400)
    apart = as_apart_as_chains(average(left), left)[1]
    simpler = 0.4 * f + 1.0  # off by 1, of a smaller error bar than the plain mean
    chosen = np.array(scv.estimate(samples, f, Apart(left, simpler)).method)[apart]
    assert apart.mean() > 0.4
    assert "simpler" not in chosen
    assert (chosen == "plain").mean() > 0.8
    assert set(scv.estimate(samples, f, Apart(f + 0.01, simpler)).method) == {"simpler"}
