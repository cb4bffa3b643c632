"""Networks fitted to draws in a file, and on several devices."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import steincv as scv
from steincv.families import method as fitting
from steincv.samples import source as reading
from steincv.samples.source import TileLimits

zarr = pytest.importorskip("zarr")
CNCV = scv.CNCV(scv.VectorField(width=8, depth=1), steps=200, batch=64, rate=1e-2)


@pytest.fixture
def streamed(tmp_path, monkeypatch):
    """Nine tiles of 400 draws of two chains; every third draw is fitted on."""
    monkeypatch.setattr(reading, "LIMITS", TileLimits(wanted=1 << 14))
    monkeypatch.setattr(fitting, "LARGE", fitting.LargeSamples(draws=2400))
    x = np.random.default_rng(0).normal(size=(2, 3600, 2)) * [1.0, 100.0] + [3.0, 0.0]
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w")
    for name, array in (("draws", x), ("scores", -(x - [3.0, 0.0]) / [1.0, 1e4])):
        group.create_array(name, data=array, chunks=(2, 400, 2))
    return scv.Samples.open(tmp_path / "a.zarr")


def f(v):
    return v[0] + (v[1] / 100) ** 2


def test_networks_see_spaced_draws_and_control_all(streamed):
    """f is a polynomial of a Gaussian: a network that has learned anything leaves a small part of its variance."""
    result = scv.estimate(streamed, f, CNCV)
    assert float(result.variance_ratio) < 0.05
    assert abs(float(result.mean) - 4) < 5 * float(result.standard_error)
    assert result.info["streamed"] == {"draws": 7200, "block": 1, "blocks": 3600}


def test_checkpoints_are_not_for_files(streamed, tmp_path):
    with pytest.raises(scv.InputError, match="`checkpoint` is not for draws in a file"):
        scv.estimate(streamed, f, replace(CNCV, checkpoint=str(tmp_path / "kept")))


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
