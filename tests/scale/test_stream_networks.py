"""Networks fitted to draws in a file, and on several devices."""

import os
import subprocess
import sys

import numpy as np
import pytest

import steincv as scv
from steincv.families.method import make_problem
from steincv.samples import source as reading
from steincv.samples.source import Tile as Piece, TileLimits
from steincv.stein.folds import make_folds
from steincv.stream import networks, passes
from steincv.stream.coordinates import FoldMap
from steincv.stream.functions import Functions
from steincv.stream.polynomial import Moments
from steincv.stream.segments import Range, RangeFold, range_folds

zarr = pytest.importorskip("zarr")
CNCV = scv.CNCV(scv.VectorField(width=8, depth=1), steps=200, batch=64, rate=1e-2)


@pytest.fixture
def streamed(tmp_path, monkeypatch):
    """Nine pieces of 400 draws of two chains; windows of 1024 draws from four of them."""
    monkeypatch.setattr(reading, "LIMITS", TileLimits(wanted=1 << 14))
    monkeypatch.setattr(networks, "WINDOW", 1024)
    x = np.random.default_rng(0).normal(size=(2, 3600, 2)) * [1.0, 100.0] + [3.0, 0.0]
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w")
    for name, array in (("draws", x), ("scores", -(x - [3.0, 0.0]) / [1.0, 1e4])):
        group.create_array(name, data=array, chunks=(2, 400, 2))
    return scv.Samples.open(tmp_path / "a.zarr")


def f(v):
    return v[0] + (v[1] / 100) ** 2


def test_networks_from_windows(streamed):
    """f is a polynomial of a Gaussian: a network that has learned anything leaves a small part of its variance."""
    result = scv.estimate(streamed, f, CNCV)
    assert float(result.variance_ratio) < 0.05
    assert abs(float(result.mean) - 4) < 5 * float(result.standard_error)
    assert result.info["folds"][0]["draws"] == 3600


def test_thinned_problems_are_those_in_memory(streamed):
    """While all draws are kept, a fold's problem is what the in-memory fit sees."""
    source = streamed.source
    stream = passes.Stream.of(source, Functions.of(None, source), range_folds(2, 3600), 1)
    sums, _ = stream.first_pass()
    maps = [FoldMap.of(s, stream.provisional, source.names) for s in sums.folds]
    fits = [
        networks._Fold(stream, fold, m, Moments.of(s))
        for fold, m, s in zip(stream.folds, maps, sums.folds, strict=True)
    ]
    whole = source.every(1)
    x, s = whole.draws, whole.scores
    for fold, problem in zip(make_folds(2, 3600), networks._thinned(stream, fits), strict=True):
        memory, _, _ = make_problem(scv.Samples(fold.train.take(x), fold.train.take(s)), fold.train.take(x))
        for name in ("z", "s", "y", "offset"):
            np.testing.assert_allclose(getattr(problem, name), getattr(memory, name), rtol=1e-9, atol=1e-9)
        assert problem.chains == memory.chains


def test_validation_draws_are_not_trained_on():
    kept = networks._training(RangeFold((Range(0, 0, 10), Range(1, 5, 10)), ()), True)
    assert [(r.chain, i) for r in kept for i in range(r.start, r.stop)] == [
        *((0, i) for i in (0, 1, 2, 3, 6, 7, 8, 9)),
        *((1, i) for i in (5, 6, 8, 9)),
    ]
    pieces = [Piece(start, np.zeros((2, 4, 1)), np.zeros((2, 4, 1)), ()) for start in (0, 4)]
    rng = np.random.default_rng(0)
    picked = networks._pick(pieces, kept, 500, rng)
    cells = [(chain, pieces[p].start + i) for p, chain, index in picked for i in index]
    assert len(cells) == 500
    assert set(cells) == {(0, i) for i in (0, 1, 2, 3, 6, 7)} | {(1, 5), (1, 6)}
    assert networks._pick(pieces, [Range(0, 8, 20)], 5, rng) == []


TWO_DEVICES = """
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
from steincv.families.neural.sharding import Draws, full_batch_gradient, train_full_batch
from steincv.families.neural.trials import VectorField
assert jax.device_count() == 2
x = np.random.default_rng(0).normal(size=(301, 3))
trial = VectorField(6, 1)
params = jax.tree.map(lambda a: a.astype(float), trial.init(jax.random.key(0), 3))
found = []
for devices in (jax.devices()[:1], jax.devices()):
    draws = Draws.of(x, -x, np.tanh(x[:, 0]), devices)
    assert len(draws.z.sharding.device_set) == len(devices)
    trained = train_full_batch(trial, params, draws, 1e-3, 150, 1e-2)
    value, gradient = full_batch_gradient(trial, trained.params, trained.center, draws, 1e-3)
    found.append([np.asarray(leaf) for leaf in jax.tree.leaves((trained, value, gradient))])
assert found[0][-1].size and float(np.asarray(trained.losses)[-1]) < 0.2 * float(np.asarray(trained.losses)[0])
for one, two in zip(*found, strict=True):
    np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-9)
print("same")
"""


def test_two_devices_give_the_same_answer():
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", TWO_DEVICES], env=environment, capture_output=True, text=True)
    assert done.stdout == "same\n", done.stderr[-2000:]
