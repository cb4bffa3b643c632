"""A fast slice of benchmarks/coverage_polynomials.py: intervals cover, and the wrong ways to fit are found out.

Seeds are fixed. For other seeds, of 120 replications: a true coverage of 94 % is below 0.86 once in 1,200 for each
function, one of 75 % is above it once in 770. The whole study is in benchmarks/results/coverage_polynomials.csv.
"""

import importlib.util
import pathlib

import numpy as np
import pytest

import steincv as scv

PATH = pathlib.Path(__file__).parents[1] / "benchmarks" / "coverage_polynomials.py"
SPEC = importlib.util.spec_from_file_location("benchmarks_coverage", PATH)
study = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(study)
pytestmark = pytest.mark.usefixtures("as_users_have_it")
TRUTH = study.truths(study.Setting.cubic)
SMOOTH = ("x0", "x1", "sin(x0 + x1)", "1/(1 + exp(x0 - 1))", "x1 > 1")


def replicate(setting, way, replications, method=None):
    """Coverage and rms standard error over rmse of every function."""
    true, means, errors, hits = np.array(list(TRUTH.values())), [], [], []
    for r in range(replications):
        rng = np.random.default_rng([77, r])
        x, s = study.push(study.gaussian_chains(rng, setting), setting.cubic)
        values = np.stack([np.asarray(v, dtype=float) for v in study.functions(x).values()], axis=-1)
        if method is None:
            mean, error, interval, _ = study.run(way, scv.Samples(x, s), values, rng)
        else:
            result = scv.estimate(scv.Samples(x, s), values, method)
            mean, error, interval = result.mean, result.standard_error, result.interval()
        means.append(mean - true)
        errors.append(error)
        hits.append((interval[:, 0] <= true) & (true <= interval[:, 1]))
    ratio = np.sqrt(np.square(errors).mean(axis=0) / np.square(means).mean(axis=0))
    return dict(zip(TRUTH, np.mean(hits, axis=0), strict=True)), dict(zip(TRUTH, ratio, strict=True))


def test_draws_scores_and_truths_of_the_study_belong_together():
    """A million independent draws: means within 5 errors of the truths, Stein means within 5 errors of zero."""
    setting = study.Setting("iid", 4, 250_000, 2, 0.0)
    x, s = study.push(study.gaussian_chains(np.random.default_rng(0), setting), setting.cubic)
    for name, value in study.functions(x).items():
        assert abs(value.mean() - TRUTH[name]) < 5 * value.std() / 1000, name
    for g in (s[..., 0], s[..., 1], 1 + x[..., 0] * s[..., 0], x[..., 1] * s[..., 0], 1 + x[..., 1] * s[..., 1]):
        assert abs(g.mean()) < 5 * g.std() / 1000


@pytest.mark.parametrize("name", ["iid, ESS 500", "AR(0.8), ESS 444"])
def test_intervals_cover(name):
    setting = next(s for s in study.SETTINGS if s.name == name)
    coverage, ratio = replicate(setting, "cross-fit", 120)
    for f in SMOOTH:
        assert coverage[f] >= 0.86, (f, coverage)
        # the rmse of 120 has 6.5 % noise; outside this an error bar is off by more than 20 %
        assert 0.80 <= ratio[f] <= 1.25, (f, ratio)


def test_intervals_of_a_stack_cover():
    """Its few weights have seen the draws they are used on; that must not matter.

    Of 100 replications a true coverage of 94 % is below 0.85 once in 3,300, one of 75 % is above it once in 90.
    """
    setting = study.Setting("iid", 4, 125, 4, 0.0)
    coverage, _ = replicate(setting, "", 100, scv.Stack([scv.Polynomial(1), scv.Polynomial(2), scv.Polynomial(3)]))
    assert min(coverage[f] for f in SMOOTH) >= 0.85, coverage


@pytest.mark.parametrize(
    ("way", "setting", "replications"),
    [
        ("in-sample", study.Setting("iid", 4, 125, 23, 0.0), 100),
        ("random folds", study.Setting("AR(0.8)", 4, 500, 14, 0.8), 100),
    ],
    ids=["in-sample", "random folds"],
)
def test_wrong_ways_are_found_out(way, setting, replications):
    """TRUST row 7: in-sample fits and random folds of correlated chains at features/ESS = 0.6 do not cover.

    The mean over five functions of their coverage is measured as 0.50 and 0.84 (400 replications). At 100 replications
    a single function of 0.84 is at 0.90 or more once in 15, their mean, which varies less, once in about 100.
    """
    assert 0.5 < setting.features / setting.ess < 0.65
    coverage, _ = replicate(setting, way, replications)
    assert np.mean([coverage[f] for f in SMOOTH]) < 0.9, coverage
    honest, _ = replicate(setting, "cross-fit", 25)
    assert np.mean([honest[f] for f in SMOOTH]) > 0.9, honest
