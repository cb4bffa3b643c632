"""Tempering: draws of the right densities, adaptation, swaps, non-finite likelihoods, stopping and going on."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steincv as scv
from steincv.evidence import Positive, PowerPosterior, Real, temper, tempering
from steincv.evidence.moves import Point, new_walkers, swap
from steincv.evidence.warm_up import windows
from steincv.runtime import checkpoint
from steincv_paper.models.regression import Regression, regression

T = scv.temperature_ladder(8, 3)
EXAMPLE = regression(2)
DATA = Regression.simulate(2)
SETTINGS = {"draws": 300, "warmup": 400, "replicas": 4, "thin": 3}


@pytest.fixture(scope="module")
def tempered():
    return temper(EXAMPLE.posterior, T, **SETTINGS)


def moments(t):
    precision = t * DATA.x.T @ DATA.x + np.eye(2)
    return t * np.linalg.solve(precision, DATA.x.T @ DATA.y), np.linalg.inv(precision)


def test_draws_are_those_of_the_power_posteriors(tempered):
    for k, t in enumerate(T):
        mean, covariance = moments(t)
        samples = tempered.samples[k]
        x = samples.draws.reshape(-1, 2)
        # about 600 effective draws
        np.testing.assert_allclose((x.mean(0) - mean) / np.sqrt(np.diag(covariance)), 0, atol=0.25)
        np.testing.assert_allclose(np.cov(x.T) / np.sqrt(np.outer(*[np.diag(covariance)] * 2)),
                                   covariance / np.sqrt(np.outer(*[np.diag(covariance)] * 2)), atol=0.25)  # fmt: skip
        expected = -(x - mean) @ np.linalg.inv(covariance)
        np.testing.assert_allclose(samples.scores.reshape(-1, 2), expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(tempered.log_likelihoods[k], DATA.log_likelihood(samples.draws), rtol=1e-10)


def test_what_is_reported(tempered):
    assert tempered.iterations == 900
    assert (tempered.acceptance[1:] > 0.1).all()
    assert (tempered.acceptance[1:] < 0.5).all()
    assert tempered.acceptance[0] == pytest.approx(1)  # fresh draws of the prior
    assert (tempered.swaps > 0.3).all()
    assert (tempered.swaps <= 1).all()
    assert (tempered.round_trips > 3).all()
    assert (tempered.rhat < 1.1).all()
    assert (tempered.ess > 100).all()
    assert (tempered.rejected == 0).all()
    table = tempered.table()
    assert len(table) == len(T)
    assert "round trips" in repr(tempered)


def test_swap_rates_are_those_of_the_likelihoods(tempered):
    """The mean of min(1, exp(dt (l - l'))) over independent pairs of draws of neighbouring rungs."""
    rng = np.random.default_rng(0)
    for k in range(len(T) - 1):
        low, high = (rng.permutation(tempered.log_likelihoods[j].reshape(-1)) for j in (k, k + 1))
        rate = np.exp(np.minimum(0, (T[k] - T[k + 1]) * (high - low))).mean()
        assert tempered.swaps[k] == pytest.approx(rate, abs=0.08)


def test_a_swap_keeps_every_state_and_counts_round_trips():
    with jax.enable_x64(True):
        x = jnp.arange(10.0).reshape(2, 5, 1)
        point = Point(x, jnp.zeros((2, 5)), x[..., 0], x[..., :0], x[..., :0])
        walkers = new_walkers(2, 5)
        t = jnp.linspace(0, 1, 5)
        for i in range(40):  # equal likelihoods: every swap is accepted, and states travel
            point, walkers, chance = swap(jax.random.key(i), point, walkers, t, i)
            np.testing.assert_allclose(chance, 1)
            np.testing.assert_array_equal(np.sort(point.x[0, :, 0]), np.arange(5))
            np.testing.assert_array_equal(np.asarray(point.x[0, :, 0]), np.asarray(walkers.here[0]))
            np.testing.assert_array_equal(point.prior, point.x[..., 0])
        assert (walkers.trips >= 3).all()  # even and odd pairs in turn: a round trip takes 10 iterations or so


def test_one_call_and_its_error_bar():
    result = scv.model_evidence(EXAMPLE.posterior, T, **SETTINGS)  # of the shapes that are compiled already
    assert abs(float(result.mean) - EXAMPLE.exact) < 4 * float(result.standard_error)
    assert abs(float(result.plain.mean) - EXAMPLE.exact) < 4 * float(result.plain.standard_error)
    assert result.info["coupled"]
    assert result.info["tempering"]["iterations"] == 900


@pytest.mark.parametrize("kernel", ["mala", "nuts"])
def test_gradient_kernels(kernel):
    model = PowerPosterior(lambda p: -1.5 * (p["y"] - 2) ** 2, lambda p: -0.5 * p["y"] ** 2, {"y": Real()})
    found = temper(model, [0, 0.3, 1], kernel=kernel, draws=200, warmup=300, replicas=2)
    for t, samples in zip(found.temperatures, found.samples, strict=True):
        z = (samples.draws - 6 * t / (1 + 3 * t)) * np.sqrt(1 + 3 * t)
        assert abs(z.mean()) < 0.3
        assert z.std() == pytest.approx(1, abs=0.25)
        np.testing.assert_allclose(samples.scores, -z * np.sqrt(1 + 3 * t), atol=1e-9)
    assert (found.acceptance > 0.4).all()
    assert (found.rhat < 1.15).all()


# Likelihoods that are not finite ---------------------------------------------------------------------------------


def test_no_finite_likelihood_is_rejected_and_counted():
    """N(0, 1) prior on log y; beyond y = 2 the likelihood is not a number, then zero, then infinite."""

    def log_likelihood(p):
        y = p["y"]
        nothing = jnp.select([y > 4.0, y > 3.0], [jnp.inf, -jnp.inf], jnp.nan)
        return jnp.where(y > 2.0, nothing, -0.5 * y**2)

    def log_prior(p):
        return -0.5 * jnp.log(p["y"]) ** 2 - jnp.log(p["y"]) - 0.5 * np.log(2 * np.pi)

    model = PowerPosterior(log_likelihood, log_prior, {"y": Positive()})
    found = temper(model, [0, 0.5, 1], draws=100, warmup=100, replicas=2, thin=2)
    for samples, values in zip(found.samples, found.log_likelihoods, strict=True):
        assert np.isfinite(values).all()
        assert (samples.draws <= np.log(2)).all()
    assert (found.rejected > 5).all()


def test_a_model_without_a_place_to_start_is_refused():
    model = PowerPosterior(lambda p: jnp.nan * p["y"], lambda p: -(p["y"] ** 2), {"y": Real()})
    with pytest.raises(scv.InputError, match="rung 0"):
        temper(model, [0, 1], draws=10)


def test_a_likelihood_that_is_a_vector_is_refused():
    model = PowerPosterior(lambda p: -((p["y"] - jnp.arange(3.0)) ** 2), lambda p: -(p["y"] ** 2), {"y": Real()})
    with pytest.raises(scv.InputError, match=r"shape \(3,\) at rung 0"):
        temper(model, [0, 1], draws=10)


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"temperatures": [0, 0.5]}, "rung 1"),
        ({"draws": 0}, "draws"),
        ({"replicas": 1.5}, "replicas"),
        ({"warmup": -1}, "warmup"),
        ({"thin": 0}, "thin"),
        ({"kernel": "hmc"}, "kernel"),
        ({"keep": [3, 2]}, "keep"),
        ({"keep": [0, 50]}, "keep"),
        ({"keep": [0.5]}, "keep"),
        ({"model": lambda x: x}, "PowerPosterior"),
        ({"checkpoint": "no/such/folder/file.npz"}, "folder"),
    ],
)
def test_bad_settings(change, words, monkeypatch):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    settings = {"model": EXAMPLE.posterior, "temperatures": T, "draws": 20, "warmup": 20}
    with pytest.raises(scv.InputError, match=words):
        temper(**settings | change)


def test_without_blackjax_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "blackjax", None)
    with pytest.raises(scv.InputError, match=r"pip install 'steincv\[evidence\]'"):
        temper(regression(1).posterior, [0, 1], draws=10)


# Segments, stopping and going on --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("warmup", "draws", "thin"), [(2000, 1000, 10), (0, 5, 1), (7, 3, 2), (50_000, 50_000, 1), (90, 120, 7)]
)
def test_every_iteration_is_run_once_and_in_order(warmup, draws, thin):
    length = -(-draws // tempering.PLAN.segments)
    jobs = tempering._jobs(warmup, draws, thin, length)
    ends = [job.first + job.thin * length for job in jobs]
    assert [job.first for job in jobs] == [0, *ends[:-1]]
    warm = [job for job in jobs if job.adapting]
    assert sum(job.thin * length for job in warm) == pytest.approx(warmup, abs=max(length, 1))
    assert sum(job.last for job in jobs) == (warmup > 0)
    assert [job.draw for job in jobs if not job.adapting] == list(range(0, draws, length))
    assert len(jobs) <= 3 * tempering.PLAN.segments


def test_windows_double():
    assert windows(62, 2) == [2, 4, 8, 16, 32]
    assert sum(windows(100, 20)) == 100
    assert windows(0, 20) == []


def bits(tempered):
    return [
        a.tobytes()
        for s, v in zip(tempered.samples, tempered.log_likelihoods, strict=True)
        for a in (s.draws, s.scores, v)
    ]


def test_same_seed_same_bits(tempered):
    again = temper(EXAMPLE.posterior, T, **SETTINGS)
    assert bits(again) == bits(tempered)
    other = temper(EXAMPLE.posterior, T, **SETTINGS, seed=1)
    assert bits(other) != bits(tempered)


def test_some_of_the_draws_are_kept(tempered):
    keep = np.array([0, 7, 150, 299])
    some = temper(EXAMPLE.posterior, T, **SETTINGS, keep=keep)
    for one, every in zip(some.samples, tempered.samples, strict=True):
        np.testing.assert_array_equal(one.draws, every.draws[:, keep])


@pytest.mark.parametrize("stop", [4, 40])
def test_an_interrupted_run_goes_on_to_the_same_bits(tempered, tmp_path, monkeypatch, stop):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    path = tmp_path / "state.npz"
    keep, count = checkpoint.Checkpoint.keep, 0

    def counted(*arguments):
        nonlocal count
        keep(*arguments)
        if (count := count + 1) == stop:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoint, "keep", counted)
        with pytest.raises(KeyboardInterrupt):
            temper(EXAMPLE.posterior, T, **SETTINGS, checkpoint=path)
    assert path.exists()
    with pytest.raises(scv.InputError, match="belongs to another run"):
        temper(EXAMPLE.posterior, T, **SETTINGS, checkpoint=path, seed=5)
    resumed = temper(EXAMPLE.posterior, T, **SETTINGS, checkpoint=path)
    assert bits(resumed) == bits(tempered)
    np.testing.assert_array_equal(resumed.swaps, tempered.swaps)
    np.testing.assert_array_equal(resumed.round_trips, tempered.round_trips)
    assert not path.exists()


def test_a_killed_run_goes_on_to_the_same_bits(tempered, tmp_path):
    """kill -9 of a process of its own, at whatever it is doing then."""
    path = tmp_path / "state.npz"
    code = f"""
        import os
        os.environ["STEINCV_CACHE"] = "0"
        import time
        from steincv import temperature_ladder
        from steincv.evidence import temper, tempering
        from steincv.runtime import checkpoint
        from steincv_paper.models.regression import regression
        checkpoint.INTERVAL = 0.0
        segment = tempering._Run.segment
        def slowly(self, state, job):
            time.sleep(0.05)
            return segment(self, state, job)
        tempering._Run.segment = slowly
        temper(regression(2).posterior, temperature_ladder(8, 3), **{SETTINGS!r}, checkpoint={str(path)!r})
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    try:
        deadline = time.monotonic() + 120
        while not path.exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        time.sleep(0.5)
        assert process.poll() is None, "it was over before it could be killed"
    finally:
        os.kill(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.wait()
    assert path.exists()
    assert bits(temper(EXAMPLE.posterior, T, **SETTINGS, checkpoint=path)) == bits(tempered)


def test_a_kept_checkpoint_gives_the_same_draws_at_once(tempered, tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    first = temper(EXAMPLE.posterior, T, **SETTINGS, checkpoint=path, keep_checkpoint=True)
    assert path.exists()
    monkeypatch.setattr(tempering._Run, "segment", None)  # nothing is left to run
    again = temper(EXAMPLE.posterior, T, **SETTINGS, checkpoint=path, keep_checkpoint=True)
    assert bits(again) == bits(first) == bits(tempered)
