"""Row 14: the same seed gives the same bits, over 20 runs. Networks are in test_networks.py, GPUs nowhere."""

import hashlib

import jaxtyping
import numpy as np
import pytest
from densities import bent_mixture

import steincv as scv

METHODS = {"polynomial": (scv.Polynomial(2), 20), "kernel": (scv.Kernel(landmarks=20), 20), "auto": (scv.Auto(), 5)}


@pytest.fixture(autouse=True, scope="module")
def as_users_have_it():
    """Without the types checked at run time, which only the tests have: many times faster."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def digest(method):
    samples = bent_mixture(0, 4, 25, 2)
    f = np.stack([np.sin(samples.draws[..., 0]), samples.draws[..., 1] ** 2], axis=-1)
    result = scv.estimate(samples, f, method, seed=3)
    parts = (result.mean, result.standard_error, result.ess, result.controlled, result.interval())
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


@pytest.mark.parametrize("name", METHODS)
def test_many_runs_are_one(name):
    method, runs = METHODS[name]
    assert len({digest(method) for _ in range(runs)}) == 1
