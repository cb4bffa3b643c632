"""The ladder, and the rules that integrate along it, against integrals that are known."""

import numpy as np
import pytest

import steincv as scv
from steincv.evidence.ladder import check_temperatures, halved, integral, second_order, trapezoid
from steincv_paper.models.regression import Regression


def exact_moments(problem, t):
    """Mean and variance of the log likelihood of a conjugate regression at every temperature."""
    a = problem.x.T @ problem.x / problem.sigma**2
    mean, variance = [], []
    for u in t:
        covariance = np.linalg.inv(u * a + np.eye(problem.dim) / problem.tau**2)
        center = u * covariance @ problem.x.T @ problem.y / problem.sigma**2
        slope = problem.x.T @ (problem.y - problem.x @ center) / problem.sigma**2
        mean.append(problem.log_likelihood(center) - 0.5 * np.trace(a @ covariance))
        variance.append(slope @ covariance @ slope + 0.5 * np.trace(a @ covariance @ a @ covariance))
    return np.array(mean), np.array(variance)


def test_ladder_is_the_formula():
    t = scv.temperature_ladder(31, 5)
    np.testing.assert_allclose(t, (np.arange(31) / 30) ** 5)
    assert len(scv.temperature_ladder()) == 30


@pytest.mark.parametrize(
    ("rungs", "power", "words"),
    [(1, 5, "rungs"), (True, 5, "rungs"), (30, 0, "power"), (30, np.nan, "power"), (30, 500, "same")],
)
def test_bad_ladders(rungs, power, words):
    with pytest.raises(scv.InputError, match=words):
        scv.temperature_ladder(rungs, power)


@pytest.mark.parametrize(
    ("temperatures", "words"),
    [
        ([0, 0.5, 0.5, 1], "rung 2 is at 0.5 and rung 1 at 0.5"),
        ([0, 0.6, 0.5, 1], "rung 2"),
        ([0.1, 0.5, 1], "rung 0"),
        ([0, 0.5, 0.9], "rung 2"),
        ([0, np.nan, 1], "rung 1"),
        ([0.0], "at least two"),
        ([[0.0, 1.0]], "shape"),
        ("hot", "numbers"),
        (None, "numbers|shape"),
    ],
)
def test_temperatures_that_do_not_increase_from_0_to_1(temperatures, words):
    with pytest.raises(scv.InputError, match=words):
        check_temperatures(temperatures)


def test_rules_are_exact_where_they_should_be():
    """The trapezoid for a linear E, the second-order rule for a cubic one, on any ladder."""
    t = np.sort(np.r_[0, 1, np.random.default_rng(0).random(7)])
    assert trapezoid(t)(3 + 2 * t, 0 * t) == pytest.approx(4)
    assert trapezoid(t)(t**3, 3 * t**2) != pytest.approx(1 / 4, rel=1e-3)
    for rule in (second_order(t), halved(t), integral(t, "second-order").value):
        assert rule(1 + t + t**2 + t**3, 1 + 2 * t + 3 * t**2) == pytest.approx(1 + 1 / 2 + 1 / 3 + 1 / 4, abs=1e-14)


@pytest.mark.parametrize("rungs", [30, 31, 60])
@pytest.mark.parametrize(("dim", "tau"), [(2, 1.0), (10, 3.0)])
def test_the_error_left_is_the_error_reported(rungs, dim, tau):
    problem = Regression.simulate(dim, tau=tau)
    t = scv.temperature_ladder(rungs)
    moments = exact_moments(problem, t)
    bare, better, coarse = (integral(t, *kind) for kind in (("second-order", False), ("second-order",), ("trapezoid",)))
    for rule in (bare, better, coarse):
        error = abs(rule.value(*moments) - problem.exact)
        reported = max(abs(probe(*moments)) for probe in rule.probes)
        assert 0.5 * error < reported < 10 * error
    assert abs(better.value(*moments) - problem.exact) < 0.2 * abs(bare.value(*moments) - problem.exact)


def test_the_error_of_an_uneven_ladder_is_not_extrapolated():
    t = scv.temperature_ladder(31)
    t[5:25] += 0.3 * np.diff(t)[5:25] * (-1) ** np.arange(20)
    problem = Regression.simulate(3)
    moments = exact_moments(problem, t)
    rule = integral(t, "second-order")
    error = abs(rule.value(*moments) - problem.exact)
    assert rule.value(*moments) == second_order(t)(*moments)
    assert error < 2 * max(abs(probe(*moments)) for probe in rule.probes)


@pytest.mark.parametrize("rungs", [2, 3, 4, 5])
def test_short_ladders_know_that_they_are_short(rungs):
    problem = Regression.simulate(2)
    t = scv.temperature_ladder(rungs)
    moments = exact_moments(problem, t)
    for rule in ("second-order", "trapezoid"):
        found = integral(t, rule)
        assert max(abs(p(*moments)) for p in found.probes) > 0.1 * abs(found.value(*moments) - problem.exact)
