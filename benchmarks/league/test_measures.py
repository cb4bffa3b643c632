"""The league's arithmetic on made-up sets whose gains are known.

python -m pytest benchmarks/league
"""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from league import measures, runs
from league.draws import CHAINS, KEPT, SEGMENT, keep, path_of, reference
from league.methods import VARIANTS
from league.tables import Player, scores, summary

NAME, SETS, OUTPUTS, TRUE_GAIN = "arma11", 10, 6, 16.0


@pytest.fixture
def plain(tmp_path, monkeypatch):
    """Ten sets of independent normal values with mean 3; return the plain means (set, functional)."""
    monkeypatch.setenv("STEINCV_BENCH_CACHE", str(tmp_path))
    measures.plain_means.cache_clear()
    measures.plain_variance.cache_clear()
    rng = np.random.default_rng(0)
    means = []
    for r in range(SETS):
        values = 3 + rng.normal(size=(CHAINS, KEPT * SEGMENT, OUTPUTS))
        later = 3 + rng.normal(size=(CHAINS, 16, OUTPUTS)) / np.sqrt(SEGMENT)
        keep(path_of(NAME, r), values=values, later=later)
        means.append(values.mean(axis=(0, 1)))
    return np.array(means)


def _lines(means, error):
    usual = 1 / np.sqrt(CHAINS * KEPT * SEGMENT)
    same = {"problem": NAME, "method": "auto", "seconds": 1.0, "wall": 1.0}
    arrays = {"error": [error] * OUTPUTS, "half width": [1.96 * error] * OUTPUTS, "plain error": [usual] * OUTPUTS}
    return [same | arrays | {"set": r, "mean": list(row)} for r, row in enumerate(means)]


def test_reference(plain):
    found = reference(NAME)
    assert found.draws == SETS * CHAINS * SEGMENT * (KEPT + 16)
    np.testing.assert_allclose(found.mean, 3, atol=5 / np.sqrt(found.draws))
    np.testing.assert_allclose(found.error, 1 / np.sqrt(found.draws), rtol=0.2)


def test_plain_means_gain_nothing(plain):
    found = measures.score(NAME, _lines(plain, 1 / np.sqrt(CHAINS * KEPT * SEGMENT)))
    np.testing.assert_allclose(found.gain, 1.0, rtol=1e-10)
    assert found.wrong == 0
    assert 0.85 <= found.coverage <= 1.0


def test_known_gain_and_coverage(plain):
    error = 1 / np.sqrt(TRUE_GAIN * CHAINS * KEPT * SEGMENT)
    means = 3 + error * np.random.default_rng(1).normal(size=plain.shape)
    honest = measures.score(NAME, _lines(means, error))
    assert 0.5 * TRUE_GAIN < honest.median < 2 * TRUE_GAIN
    assert 0.5 < np.median(honest.reported_over_true) < 2
    np.testing.assert_allclose(honest.together_over_true, honest.reported_over_true, rtol=0.2)
    assert honest.coverage > 0.85
    boastful = measures.score(NAME, _lines(means, error / 3))
    assert boastful.coverage < 0.7
    assert np.median(boastful.reported_over_true) > 4
    biased = measures.score(NAME, _lines(means + 0.05, error))
    assert biased.wrong == OUTPUTS


def test_coverage_of_sets_that_know_more_and_less():
    rng = np.random.default_rng(3)
    error = np.geomspace(1, 30, SETS)[:, None]
    means = error * rng.normal(size=(SETS, 2000))
    widths = np.broadcast_to(1.96 * error, means.shape)
    bare = np.abs(means - means.mean(0)) <= widths * np.sqrt(1 - 1 / SETS)
    assert bare.mean() < 0.8
    np.testing.assert_allclose(measures.covered(means, widths).mean(axis=1), 0.95, atol=0.02)
    boastful = np.where(np.arange(SETS)[:, None] == SETS - 1, widths / 30, widths)
    found = measures.covered(means, boastful).mean(axis=1)
    assert found[-1] < 0.2  # itself, and those that are held against it
    assert found.mean() < 0.7


def test_few_sets_are_compared_by_their_chains(plain):
    rng = np.random.default_rng(2)
    error = 1 / np.sqrt(TRUE_GAIN * CHAINS * KEPT * SEGMENT)
    chains = 3 + error * np.sqrt(CHAINS) * rng.normal(size=(3, CHAINS, OUTPUTS))
    lines = [line | {"chains": c.tolist()} for line, c in zip(_lines(chains.mean(1), error), chains, strict=True)]
    found = measures.score(NAME, lines)
    assert 0.5 * TRUE_GAIN < found.median < 2 * TRUE_GAIN
    assert np.isnan(found.coverage)


def test_failures_and_too_few(plain):
    assert measures.score(NAME, []) is None
    assert measures.score(NAME, _lines(plain, 0.1)[:3]) is None  # nor do they have the means of their chains
    failed = measures.score(NAME, [{"set": 0, "seconds": 0.1, "failed": "MemoryError: no"}])
    assert failed.failed == "MemoryError: no"
    assert failed.median == 1.0


def test_lines_are_kept_and_found_again(plain):
    player = Player("now", "auto")
    lines = _lines(plain, 0.02)
    runs.append("now", lines[0])
    with runs.path_of_runs("now").open("a") as file:
        file.write('{"problem": "arm')  # killed while it wrote
    for line in lines[1:]:
        runs.append("now", line)
    assert len(runs.lines("now")) == SETS
    done = {(NAME, "auto", r) for r in range(4)}
    assert [key[2] for key in runs.plan([NAME], ["auto"], SETS, done)] == [4, 5, 6, 7, 8, 9]
    scores.cache_clear()
    assert summary([NAME], player)["posteriors"] == 1
    scores.cache_clear()


def test_variants_unknown_to_a_version_are_left_out():
    class Old:
        class Samples:
            def __init__(self, draws, scores, names=None): ...

        @staticmethod
        def estimate(samples, f=None, method=None): ...

    assert VARIANTS["auto"].known_to(Old)
    assert not VARIANTS["auto, learned"].known_to(Old)
    assert not VARIANTS["auto, orbits"].known_to(Old)
