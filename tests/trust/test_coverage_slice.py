"""A fast slice of benchmarks/coverage: intervals cover at ESS 100, on densities that no polynomial solves.

Seeds are fixed. The bands are for other seeds: 300 independent replications of one function each. A true coverage of
94 % falls below 88.5 % once in 6,800; a true 80 % passes once in 22,000, one of 84 % once in 70.
"""

import importlib.util
import sys
from pathlib import Path

import jaxtyping
import numpy as np
import pytest

import steincv as scv

FOLDER = Path(__file__).parents[2] / "benchmarks" / "coverage"


def load(name):
    """A module of the study, under a name that nothing else has."""
    spec = importlib.util.spec_from_file_location(f"coverage_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


targets = load("targets")
sys.modules["targets"] = targets
study = load("study")
del sys.modules["targets"]
FALSE_FAIL = 0.885


@pytest.fixture(autouse=True, scope="module")
def as_users_have_it():
    """Without the types checked at run time, which only the tests have: many times faster."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("name", targets.TARGETS)
@pytest.mark.parametrize("correlation", [0.0, targets.CORRELATION])
def test_draws_scores_and_truths_belong_together(name, correlation):
    """Means within 5 errors of the truths, and Stein means of zero: fails once in 100,000 for each of 12 x 11."""
    target = targets.TARGETS[name]
    x = target.chains(np.random.default_rng(3), 40, 500, correlation)
    s = target.score(x)
    stein = np.concatenate([s, 1 + x * s, x[..., ::-1] * s], axis=-1)
    series = np.concatenate([targets.functions(x)[1] - target.truth(), stein], axis=-1)
    means = series.mean(axis=1)  # of independent chains
    z = means.mean(axis=0) / (means.std(axis=0, ddof=1) / np.sqrt(len(means)))
    assert (np.abs(z) < 6).all(), z  # 5 normal errors are 6 of Student's t on 39 degrees of freedom


@pytest.mark.parametrize("name", targets.TARGETS)
def test_what_is_left_is_known_without_draws(name):
    """At the coarse rule, by which gains are judged, Stein means are zero and means of f those of the fine one."""
    target = targets.TARGETS[name]
    points, weights = target.rule(8)
    s = target.score(points)
    stein = np.concatenate([s, 1 + points * s, points[:, ::-1] * s], axis=-1)
    size = np.sqrt(weights @ stein**2)
    np.testing.assert_allclose(weights @ stein / size, 0, atol=1e-7)
    np.testing.assert_allclose(weights @ targets.functions(points)[1], target.truth(), atol=1e-9)


def hits(results, truths, wrong=1.0):
    """For every function, whether each interval, `wrong` times as long, covers."""
    rows = []
    for result, truth in zip(results, truths, strict=True):
        half = wrong * result._average.half_width() * result.standard_error
        rows.append(np.abs(result.mean - truth) <= half)
    return np.array(rows)


def test_intervals_cover_at_an_effective_size_of_100():
    results, truths = [], []
    for name in ("mixture", "banana", "t(5)"):
        target = targets.TARGETS[name]
        results += study.estimates(target, "Polynomial(2)", study.draw(target, "chains", 100, 100))
        truths += [target.truth()] * 100
    covered = dict(zip(targets.NAMES, hits(results, truths).mean(axis=0), strict=True))
    for f in ("x0", "x1", "sin(x0 + x1)", "step(x1 - 1)"):
        assert covered[f] >= FALSE_FAIL, covered
    assert covered["x0^2"] >= 0.85, covered  # of t(5), no fourth moment of it
    short = hits(results, truths, wrong=0.6).mean(axis=0)
    assert short.min() < FALSE_FAIL  # the test has power: errors that are 40 % too small are found out
    told = [any(s.code is scv.Code.LOW_ESS for s in r.status[0]) for r in results]
    assert np.mean(told) > 0.9  # and the user is told that there are few


def test_many_data_sets_in_one_program_are_as_many_single_ones():
    """What `together` does for the networks of the study, here with a family that needs no compiler."""
    target, method = targets.TARGETS["mixture"], scv.Polynomial(2)
    draws = study.draw(target, "iid", 100, 2)
    samples = [scv.Samples(x, target.score(x)) for x in draws]
    values = [targets.functions(x)[1][..., :1] for x in draws]
    both = study.together(method, samples, values)
    alone = method.cross_fit(samples[1], values[1], study.make_folds(4, 25)).g
    np.testing.assert_allclose(both[1], alone, atol=1e-12 * np.abs(alone).max())
    assert np.abs(alone).max() > 0
