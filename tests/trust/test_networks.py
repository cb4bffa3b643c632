"""A network fit: it learns, 20 runs have the same bits, and so has one that kill -9 ended at a random moment.

One program is compiled for all of them. benchmarks/kill.py kills 100 times, and tempering runs and reproductions too.
"""

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import steincv as scv

METHOD = scv.Neural(scv.VectorField(6, 1), penalty=1e-3, steps=200, batch=32, ensemble=1)


def estimated(checkpoint=None):
    x = np.random.default_rng(0).normal(size=(4, 40, 1))
    method = dataclasses.replace(METHOD, checkpoint=checkpoint)
    return scv.estimate(scv.Samples(x, -x), np.tanh(x[..., 0]), method, seed=3, guard=False)


@pytest.fixture(scope="module")
def once():
    return estimated()


def test_it_learns(once):
    """tanh of a Gaussian: 200 steps take out half of the variance and more; the weights of the start take out none."""
    assert METHOD.early_stop
    assert once.variance_ratio < 0.5


def test_twenty_runs_are_one(once):
    for _ in range(19):
        again = estimated()
        for name in ("mean", "standard_error", "ess", "controlled"):
            np.testing.assert_array_equal(getattr(again, name), getattr(once, name))


def test_killed_and_resumed_is_the_same(once, tmp_path):
    """The killed process has the state of some steps; this one takes it up."""
    state = tmp_path / "state.npz"
    code = f"""
        import os, sys, time
        os.environ["STEINCV_CACHE"] = "0"
        sys.path[:0] = {[p for p in sys.path if p.endswith("trust")]!r}
        from steincv.runtime.checkpoint import Checkpoint
        write = Checkpoint.write
        Checkpoint.write = lambda *arguments: (write(*arguments), time.sleep(0.1))[0]
        import test_networks
        test_networks.estimated({str(state)!r})
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    try:
        until = time.monotonic() + 120
        while not state.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(np.random.default_rng().uniform(0, 0.6))
        assert process.poll() is None, "it was over before it could be killed"
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert state.exists()
    np.testing.assert_array_equal(estimated(str(state)).controlled, once.controlled)
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".part")] == []


def test_a_checkpoint_that_cannot_be_written_says_so(once, tmp_path):
    with pytest.raises(scv.InputError, match=r"the folder .* does not exist"):
        estimated(str(tmp_path / "no" / "state.npz"))
