"""Fits by other threads, processes and a cluster: the same bits, whatever happens to the workers."""

import multiprocessing
import os
import signal
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

import steincv as scv
from steincv.families.method import Control, Method


@pytest.fixture(scope="module")
def problem():
    x = np.random.default_rng(0).normal(size=(4, 120, 3))
    return scv.Samples(x, -x + 0.1 * np.sin(x)), np.stack([np.tanh(x[..., 0]), x[..., 1] ** 2, np.ones((4, 120))], -1)


STACK = scv.Stack([scv.Polynomial(1), scv.Polynomial(2), scv.Kernel(lengthscale=2.0, penalty=1e-4)])


def same_bits(a, b):
    assert a.mean.tobytes() == b.mean.tobytes()
    assert a.controlled.tobytes() == b.controlled.tobytes()
    assert a.standard_error.tobytes() == b.standard_error.tobytes()


@pytest.mark.parametrize(
    "method",
    [scv.Polynomial(2), STACK, scv.Stack([STACK, scv.Polynomial(3)])],
    ids=["alone", "stack", "nested"],
)
def test_any_number_of_threads_gives_the_same_bits_as_none(problem, method):
    alone = scv.estimate(*problem, method)
    for count in (1, 2, 3):
        with ThreadPoolExecutor(count) as pool:
            result = scv.estimate(*problem, method, executor=pool)
        same_bits(result, alone)
        assert result.info["executor"]["done_here"] == []
        assert result.info["executor"]["sent"] >= 4
    assert "executor" not in alone.info


def test_auto_asks_again_where_a_member_has_solved_an_output(problem):
    """The quadratic is exact for the second output of a Gaussian: later members are fitted without it, as alone."""
    x = problem[0].draws[:, :50]
    samples, f = scv.Samples(x, -x), problem[1][:, :50]
    alone = scv.estimate(samples, f, scv.Auto())
    with ThreadPoolExecutor(2) as pool:
        same_bits(scv.estimate(samples, f, scv.Auto(), executor=pool), alone)


@dataclass(frozen=True)
class Fatal(Method):
    """Fits nothing, and kills the worker that is asked to, unless it is the process that the tests run in."""

    spared: int
    together = False

    def solve(self, problems, seed):
        if os.getpid() != self.spared:
            os.kill(os.getpid(), signal.SIGKILL)
        outputs = problems[0].y.shape[1]
        return [Control(lambda z, s: -z[:, :1] * np.ones(outputs)) for _ in problems]


def test_a_killed_worker_loses_nothing(problem):
    """Beside a member that kills its worker, the pool breaks; all tasks are done all the same."""
    method = scv.Stack([scv.Polynomial(1), Fatal(os.getpid()), scv.Polynomial(2)])
    alone = scv.estimate(*problem, method)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        result = scv.estimate(*problem, method, executor=pool)
    same_bits(result, alone)
    lost = result.info["executor"]["done_here"]
    assert 4 <= len(lost) <= 12
    assert all("BrokenProcessPool" in why for why in lost)


class Forgetful(Executor):
    """Cancels every other task, and does the others when they are asked for."""

    def __init__(self):
        self.count = 0

    def submit(self, function, /, *arguments, **settings):
        self.count += 1
        future = Future()
        if self.count % 2:
            future.set_exception(CancelledError())
        else:
            future.set_result(function(*arguments, **settings))
        return future


def test_a_cancelled_task_is_sent_again(problem):
    result = scv.estimate(*problem, scv.Polynomial(2), executor=Forgetful())
    same_bits(result, scv.estimate(*problem, scv.Polynomial(2)))
    report = result.info["executor"]
    assert report["sent"] + len(report["done_here"]) > 4  # some went twice


def test_a_dask_cluster(problem):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        result = scv.estimate(*problem, STACK, executor=client.get_executor())
        with pytest.raises(scv.InputError, match="get_executor"):
            scv.estimate(*problem, STACK, executor=client)
    same_bits(result, scv.estimate(*problem, STACK))
    assert result.info["executor"] == {"kind": "ClientExecutor", "sent": 12, "done_here": []}


def test_a_failure_of_the_fit_itself_is_raised(problem):
    bad = scv.Samples(np.repeat(problem[0].draws[..., :1], 2, axis=-1), problem[0].scores[..., :2])
    with ThreadPoolExecutor(2) as pool, pytest.raises(scv.InputError, match="linearly dependent"):
        scv.estimate(bad, problem[1], scv.Polynomial(1), executor=pool)


def test_what_is_no_executor_is_refused(problem):
    with pytest.raises(scv.InputError, match=r"must be a concurrent\.futures\.Executor"):
        scv.estimate(*problem, scv.Polynomial(1), executor=4)
