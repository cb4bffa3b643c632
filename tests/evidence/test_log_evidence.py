"""Thermodynamic integration: exact answers, coverage, the van der Pol promise, and input that cannot be used."""

import numpy as np
import pytest

import steincv as scv
from steincv.evidence.bayes_factor import BayesFactor
from steincv.evidence.parts import independent
from steincv.judging.error_bars import average
from steincv_paper.models.regression import Regression
from steincv_paper.models.van_der_pol import EXACT, POSTERIOR_MEAN, van_der_pol

LADDER = scv.temperature_ladder(31)


def regression_rungs(problem, t, shape, seed):
    rng = np.random.default_rng(seed)
    pairs = [problem.draw(float(u), shape, rng) for u in t]
    return [s for s, _ in pairs], [v for _, v in pairs]


@pytest.fixture(scope="module")
def grid():
    """The van der Pol model on a grid of log theta: x, log likelihood, its slope, log prior."""
    model = van_der_pol().posterior
    x = np.linspace(-1.6, 1.6, 2048)
    likelihood, prior = model.evaluate(x[:, None])
    slope, prior_slope = model.gradients(x[:, None])
    return x, likelihood, slope[:, 0], prior, prior_slope[:, 0]


def van_der_pol_rungs(grid, n, rng):
    """Independent draws of every rung, by the inverse of the distribution function on the grid."""
    x, likelihood, slope, prior, prior_slope = grid
    samples, values = [], []
    for t in LADDER:
        mass = np.cumsum(np.exp(prior + t * (likelihood - likelihood.max())))
        draw = np.interp(rng.random(n), mass / mass[-1], x)
        score = np.interp(draw, x, prior_slope) + t * np.interp(draw, x, slope)
        samples.append(scv.Samples(draw[:, None], score[:, None]))
        values.append(np.interp(draw, x, likelihood))
    return samples, values


# Van der Pol -------------------------------------------------------------------------------------------------


def test_the_exact_numbers_of_van_der_pol(grid):
    x, likelihood, _, prior, _ = grid
    mass = np.exp(prior + likelihood - likelihood.max())
    total = np.trapezoid(mass, x)
    assert np.log(total) + likelihood.max() == pytest.approx(10.3559, abs=5e-5)
    assert pytest.approx(10.3559, abs=5e-5) == EXACT
    assert np.log(total) + likelihood.max() + 11 * np.log(0.1 * np.sqrt(2 * np.pi)) == pytest.approx(-4.8642, abs=5e-5)
    assert np.trapezoid(mass * np.exp(x), x) / total == pytest.approx(POSTERIOR_MEAN, abs=1e-6)


@pytest.mark.usefixtures("as_users_have_it")  # many times faster
@pytest.mark.parametrize(("draws", "replications", "factor"), [(20, 2, 10), (80, 1, 20)])
def test_van_der_pol_needs_far_fewer_draws(grid, draws, replications, factor):
    """40 replications give 42 and 112 times smaller rmse (benchmarks/evidence_coverage.py); 10 and 20 are promised."""
    off, plain_off = [], []
    for seed in range(replications):
        samples, values = van_der_pol_rungs(grid, draws, np.random.default_rng(seed))
        result = scv.log_evidence(samples, values, LADDER)
        off.append(float(result.mean) - EXACT)
        plain_off.append(float(result.plain.mean) - EXACT)
    assert np.sqrt(np.mean(np.square(plain_off)) / np.mean(np.square(off))) > factor


def test_what_the_bare_rules_are_off_by(grid):
    """With all but exact expectations: the trapezoid .0115, the second-order rule .0001."""
    samples, values = van_der_pol_rungs(grid, 1000, np.random.default_rng(0))
    result = scv.log_evidence(samples, values, LADDER, scv.Polynomial(6))
    found = {name: value["controlled"] - EXACT for name, value in result.info["values_by_rule"].items()}
    assert found["trapezoid"] == pytest.approx(-0.0115, abs=5e-4)
    assert abs(found["second-order"]) < 5e-4
    assert abs(found["second-order, extrapolated"]) < 4e-4
    bare = scv.log_evidence(samples, values, LADDER, scv.Polynomial(6), extrapolate=False)
    assert float(bare.mean) == pytest.approx(result.info["values_by_rule"]["second-order"]["controlled"], abs=1e-12)
    old = scv.log_evidence(samples, values, LADDER, scv.Polynomial(6), "trapezoid")
    assert float(old.mean) == pytest.approx(result.info["values_by_rule"]["trapezoid"]["controlled"], abs=1e-12)
    assert 0.008 < old.info["discretisation_error"] < 0.015
    assert abs(float(old.mean) - EXACT) < 2 * float(old.standard_error)


# Conjugate regression -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 8])
def test_quadratics_are_exact_for_a_gaussian_posterior(dim):
    problem = Regression.simulate(dim)
    t = scv.temperature_ladder(40)
    samples, values = regression_rungs(problem, t, (4, 60), 0)
    result = scv.log_evidence(samples, values, t, scv.Polynomial(2))
    assert float(result.mean) == pytest.approx(problem.exact, abs=0.02)
    assert abs(float(result.mean) - problem.exact) < 4 * float(result.standard_error)
    assert float(result.variance_ratio) < 0.01
    assert all("exact" in row["status"] for row in result.info["rungs"])


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize(("dim", "method"), [(2, scv.Polynomial(2)), (3, scv.MonteCarlo())])
def test_error_bars_cover(dim, method):
    """30 replications in small; benchmarks/evidence_coverage.py has 200. A true 95 % fails once in 300, a true 70 %
    passes once in 50."""
    problem = Regression.simulate(dim)
    t = scv.temperature_ladder(10, 3)
    hits, within = [], []
    for seed in range(30):
        samples, values = regression_rungs(problem, t, (4, 40), seed)
        result = scv.log_evidence(samples, values, t, method)
        low, high = result.interval(0.95)
        hits.append(low <= problem.exact <= high)
        within.append(abs(float(result.mean) - problem.exact) < 3 * float(result.standard_error))
    assert np.mean(hits) >= 0.85
    assert np.mean(within) >= 0.95


def test_the_error_bar_would_not_cover_without_the_discretisation():
    """The test above has power: on a coarse ladder the statistical error alone is far too short."""
    problem = Regression.simulate(5, tau=3.0)
    t = scv.temperature_ladder(12)
    samples, values = regression_rungs(problem, t, (4, 100), 0)
    result = scv.log_evidence(samples, values, t, scv.Polynomial(4))
    off = abs(float(result.mean) - problem.exact)
    assert off > 5 * result.info["statistical_error"]
    assert off < 3 * float(result.standard_error)


def test_the_sum_is_the_rule_applied_to_the_rungs():
    problem = Regression.simulate(2)
    t = scv.temperature_ladder(10)
    samples, values = regression_rungs(problem, t, (2, 50), 0)
    result = scv.log_evidence(samples, values, t, scv.MonteCarlo(), "trapezoid")
    means = np.array([v.mean() for v in values])
    assert float(result.mean) == pytest.approx(np.trapezoid(means, t), abs=1e-12)
    assert float(result.mean) == float(result.plain.mean)
    np.testing.assert_allclose(result.controlled.mean(), float(result.mean), rtol=1e-12)
    second = scv.log_evidence(samples, values, t, scv.MonteCarlo(), extrapolate=False)
    variances = np.array([v.var(ddof=1) for v in values])
    gaps = np.diff(t)
    expected = np.trapezoid(means, t) - (gaps**2 / 12 * np.diff(variances)).sum()
    assert float(second.mean) == pytest.approx(expected, rel=1e-3)


def test_same_seed_same_bits_and_it_can_be_saved(tmp_path):
    problem = Regression.simulate(2)
    t = scv.temperature_ladder(6)
    samples, values = regression_rungs(problem, t, (2, 20), 0)
    one, two = (scv.log_evidence(samples, values, t, seed=3) for _ in range(2))
    assert float(one.mean) == float(two.mean)
    assert float(one.standard_error) == float(two.standard_error)
    one.save(tmp_path / "evidence.npz")
    again = scv.Estimate.load(tmp_path / "evidence.npz")
    assert float(again.mean) == float(one.mean)
    assert len(again.info["rungs"]) == 6
    assert "log_evidence" in repr(one)


# Coupled rungs ------------------------------------------------------------------------------------------------


def coupled_rungs(problem, t, shape, seed):
    """All rungs from the same normal numbers: as correlated as can be."""
    pairs = [problem.draw(float(u), shape, np.random.default_rng(seed)) for u in t]
    return [s for s, _ in pairs], [v for _, v in pairs]


@pytest.mark.usefixtures("as_users_have_it")
def test_coupled_rungs_are_seen_and_their_error_is_right():
    problem = Regression.simulate(3)
    t = scv.temperature_ladder(8, 3)
    off, errors, apart = [], [], []
    for seed in range(20):
        result = scv.log_evidence(*coupled_rungs(problem, t, (4, 60), seed), t, scv.MonteCarlo())
        assert result.info["coupled"]
        off.append(float(result.mean) - problem.exact)
        errors.append(float(result.standard_error))
        apart.append(result.info["error_if_independent"])
    rmse = np.sqrt(np.mean(np.square(off)))
    assert 0.7 < np.mean(errors) / rmse < 1.4
    assert np.mean(apart) / rmse < 0.6


@pytest.mark.usefixtures("as_users_have_it")
def test_independent_rungs_are_not_taken_for_coupled():
    problem = Regression.simulate(3)
    t = scv.temperature_ladder(8, 3)
    found = [
        scv.log_evidence(*regression_rungs(problem, t, (4, 60), seed), t, scv.MonteCarlo()).info["coupled"]
        for seed in range(10)
    ]
    assert sum(found) <= 1


def test_the_effective_size_is_a_measured_one(tmp_path):
    """Coupled: that of the sum. Independent: the smallest of the rungs, with Welch's degrees of freedom beside it."""
    rng = np.random.default_rng(4)
    t = scv.temperature_ladder(5)
    x = [rng.normal(size=(4, 100, 1)) / np.sqrt(1 + u) for u in t]
    rungs = [scv.Samples(a, -(1 + u) * a) for a, u in zip(x, t, strict=True)], [-np.abs(a[..., 0]) for a in x], t
    together, apart = (scv.log_evidence(*rungs, scv.Polynomial(2), coupled=c) for c in (True, False))
    assert together.ess == average(together.controlled).ess[0]
    assert apart.ess <= 400
    parts = [average(series[..., None])[0] for series in (x[0][..., 0] ** 2, 3 * x[1][..., 0])]
    both = independent([x[0][..., 0] ** 2, 3 * x[1][..., 0]])
    squares, freedom = np.array([(p.standard_error**2, p.degrees_of_freedom) for p in parts]).T
    assert both.ess == min(p.ess for p in parts)
    np.testing.assert_allclose(both.degrees_of_freedom, squares.sum() ** 2 / (squares**2 / freedom).sum())
    assert freedom.min() < both.degrees_of_freedom < freedom.sum()
    apart.save(tmp_path / "a.npz")
    back = scv.Estimate.load(tmp_path / "a.npz")
    np.testing.assert_array_equal(back.interval(), apart.interval())
    assert scv.bayes_factor(apart, back).ess == apart.ess


def test_rungs_of_different_sizes_have_an_answer():
    problem = Regression.simulate(2)
    t = scv.temperature_ladder(12)
    rng = np.random.default_rng(0)
    pairs = [problem.draw(float(u), (2, 30 + 5 * k), rng) for k, u in enumerate(t)]
    samples, values = [s for s, _ in pairs], [v for _, v in pairs]
    result = scv.log_evidence(samples, values, t, scv.Polynomial(2))
    assert abs(float(result.mean) - problem.exact) < 4 * float(result.standard_error)
    with pytest.raises(scv.InputError, match="same chains and draws"):
        scv.log_evidence(samples, values, t, scv.Polynomial(2), coupled=True)


# A rung without a mean ------------------------------------------------------------------------------------------


def heavy_rungs(t, shape, seed):
    """Prior N(0, 1) and log likelihood -exp(6 x): under the prior it has a mean in theory and none in practice."""
    x = np.linspace(-8, 8, 20001)
    likelihood = -np.exp(6 * x)
    exact = np.log(np.trapezoid(np.exp(-0.5 * x**2 + likelihood), x) / np.sqrt(2 * np.pi))
    rng = np.random.default_rng(seed)
    samples, values = [], []
    for u in t:
        mass = np.cumsum(np.exp(-0.5 * x**2 + u * likelihood))
        draw = np.interp(rng.random(shape), mass / mass[-1], x)
        samples.append(scv.Samples(draw[..., None], (-draw - 6 * u * np.exp(6 * draw))[..., None]))
        values.append(-np.exp(6 * draw))
    return samples, values, exact


@pytest.mark.parametrize("shape", [(4, 250), (1, 40)])
def test_a_rung_without_a_usable_mean_is_reported_and_bridged(shape):
    t = scv.temperature_ladder(30)
    samples, values, exact = heavy_rungs(t, shape, 0)
    result = scv.log_evidence(samples, values, t, scv.Polynomial(2))
    assert result.info["rungs"][0]["bridged"]
    assert result.info["rungs"][0]["mean"] is None
    assert not result.info["rungs"][-1]["bridged"]
    message = next(s.message for s in result.status[0] if s.code is scv.Code.HEAVY_TAIL)
    assert "rung 0" in message or "rungs 0" in message
    assert "no usable mean" in message
    assert abs(float(result.mean) - exact) < 4 * float(result.standard_error)
    assert float(result.standard_error) < 0.2


def test_healthy_rungs_are_not_bridged():
    problem = Regression.simulate(5)
    t = scv.temperature_ladder(10)
    for seed in range(4):
        result = scv.log_evidence(*regression_rungs(problem, t, (1, 100), seed), t, scv.MonteCarlo())
        assert result.info["bridged"] == []


# Bad input --------------------------------------------------------------------------------------------------------

T3 = [0.0, 0.5, 1.0]


def good():
    samples, values = regression_rungs(Regression.simulate(2), np.array(T3), (2, 20), 0)
    return {"samples_per_rung": samples, "log_likelihoods": values, "temperatures": T3, "method": scv.Polynomial(1)}


def spoiled(k, value):
    values = good()["log_likelihoods"]
    values[k][1, 3] = value
    return values


def one_rung(k, entry):
    samples = good()["samples_per_rung"]
    samples[k] = entry
    return samples


X = np.random.default_rng(0).normal(size=(2, 20, 3))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"temperatures": [0, 0.7, 0.6]}, "rung 2 is at 0.6|run from 0"),
        ({"temperatures": [0, 1.2, 1]}, "rung 2"),
        ({"temperatures": [0, 0.5, 0.9]}, "rung 2 is at 0.9"),
        ({"temperatures": [0, 0.2, 0.5, 1]}, r"3 entries but `temperatures` has 4 rungs: rung 3 \(t = 1\) has none"),
        ({"temperatures": [0, 1]}, "entry 2 belongs to no rung"),
        ({"log_likelihoods": spoiled(1, np.nan)}, r"rung 1 \(t = 0.5\).*non-finite.*\(1, 3\)"),
        ({"log_likelihoods": spoiled(0, -np.inf)}, "rung 0"),
        ({"log_likelihoods": [v[:, :-1] for v in good()["log_likelihoods"]]}, r"rung 0 .*shape \(2, 19\)"),
        ({"log_likelihoods": good()["log_likelihoods"][:2]}, "rung 2"),
        ({"log_likelihoods": [v[..., None] for v in good()["log_likelihoods"]]}, "rung 0"),
        ({"log_likelihoods": 3.0}, "one entry a rung"),
        ({"samples_per_rung": one_rung(1, X)}, "rung 1 .* has a ndarray"),
        ({"samples_per_rung": one_rung(2, scv.Samples(X, -X))}, "rung 2 .* 3 dimensions, those of rung 0 have 2"),
        ({"samples_per_rung": one_rung(1, scv.Samples(X[:1, :, :2], -X[:1, :, :2]))}, "rung 1"),
        ({"rule": "simpson"}, "rule"),
        ({"method": "auto"}, "method"),
        ({"seed": -1}, "seed"),
    ],
)
@pytest.mark.usefixtures("as_users_have_it")
def test_bad_input_names_the_rung(change, words):
    with pytest.raises(scv.InputError, match=words):
        scv.log_evidence(**good() | change)


def test_too_few_draws_name_the_rung():
    samples, values = regression_rungs(Regression.simulate(1), np.array(T3), (1, 6), 0)
    with pytest.raises(scv.InputError, match="rung 0"):
        scv.log_evidence(samples, values, T3)


def test_wrong_scores_raise_an_alarm_that_names_the_rung():
    problem = Regression.simulate(2)
    samples, values = regression_rungs(problem, np.array(T3), (4, 250), 0)
    samples[1] = scv.Samples(samples[1].draws, 2 * samples[1].scores)
    result = scv.log_evidence(samples, values, T3, scv.Polynomial(2))
    alarm = next(s.message for s in result.status[0] if s.code is scv.Code.STEIN_MEAN)
    assert "rung 1 (t = 0.5)" in alarm
    assert result.info["rungs"][1]["method"] == "plain"


def test_a_constant_likelihood_is_its_own_evidence():
    x = np.random.default_rng(0).normal(size=(2, 30, 2))
    t = scv.temperature_ladder(5)
    result = scv.log_evidence([scv.Samples(x, -x)] * 5, [np.full((2, 30), -3.5)] * 5, t)
    assert float(result.mean) == pytest.approx(-3.5, abs=1e-12)
    assert float(result.standard_error) < 1e-12


# Bayes factors ----------------------------------------------------------------------------------------------------


def test_bayes_factor_of_two_regressions():
    problems = [Regression.simulate(3, tau=1.0), Regression.simulate(3, tau=1.0)]
    wrong = Regression(problems[1].x[:, :2], problems[1].y)
    t = scv.temperature_ladder(30)
    results = [
        scv.log_evidence(*regression_rungs(p, t, (4, 50), 0), t, scv.Polynomial(2)) for p in (problems[0], wrong)
    ]
    found = scv.bayes_factor(*results)
    assert found.log == pytest.approx(problems[0].exact - wrong.exact, abs=4 * found.standard_error)
    assert found.standard_error == pytest.approx(np.hypot(*(float(r.standard_error) for r in results)))
    low, high = found.interval()
    assert low < found.log < high
    assert "decisive, for the first model" in repr(found)
    assert "second" in scv.bayes_factor(*results[::-1]).verdict
    assert "undecided" in scv.bayes_factor(results[0], results[0]).verdict


def test_a_bayes_factor_is_printed_with_the_digits_that_its_error_asks_for():
    printed = repr(BayesFactor(0.99998, 0.00014, 100.0, 1e6))
    assert printed.startswith("log Bayes factor 0.99998 ± 0.00014 (95 % interval 0.99971 to 1.00025)")
    assert "1235 ± 200 (95 % interval 843 to 1627)" in repr(BayesFactor(1234.6, 200.0, 100.0, 1e6))
    assert "2 ± 0 (" in repr(BayesFactor(2.0, 0.0, 100.0, 1e6))


@pytest.mark.usefixtures("as_users_have_it")
def test_a_bayes_factor_needs_two_results():
    result = scv.log_evidence(**good())
    for wrong in (3.0, scv.estimate(scv.Samples(X, -X), method=scv.Polynomial(1))):
        with pytest.raises(scv.InputError, match="second"):
            scv.bayes_factor(result, wrong)


def test_a_bridge_is_the_ratio_of_evidences():
    """N(0, 1) and N(0, 1/(1 + gap)): log Z ratio -log(1 + gap) / 2 for l = -x^2 / 2, and no constant matters."""
    from dataclasses import replace

    from steincv.evidence.rung import Bridge

    rng = np.random.default_rng(0)
    gap = 3.0
    lower, upper = (-0.5 * (rng.normal(size=(4, 20_000)) / np.sqrt(p)) ** 2 for p in (1, 1 + gap))
    best = Bridge.between(gap, lower, upper)
    assert 0.2 < best.overlap < 0.5
    for bridge in (best, replace(best, shift=best.shift + 1), replace(best, shift=best.shift - 2)):
        found = bridge.shift + np.log(bridge.lower_side(lower).mean()) - np.log(bridge.upper_side(upper).mean())
        assert found == pytest.approx(-0.5 * np.log(1 + gap), abs=0.02)


def test_a_bridge_over_any_distance():
    from steincv.evidence.rung import Bridge

    rng = np.random.default_rng(0)
    for size in (1e3, 1e19, 1e250, 1e290):
        lower, upper = -size * rng.pareto(0.3, size=(2, 50)), -rng.exponential(size=(2, 50))
        lower[0, :5] = -rng.exponential(size=5)  # some overlap: what is looked for is near 0, the ends are far
        bridge = Bridge.between(0.1, lower, upper)
        assert 0 <= bridge.overlap <= 0.5 + 1e-9
        assert np.isfinite(bridge.shift)
