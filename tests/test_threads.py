"""Two tasks side by side: the same answers, and everything as it was afterwards."""

import threading

import numpy as np
import pytest

import steincv as scv
from steincv import _threads
from steincv._threads import MUCH_WORK, blas_threads, both


@pytest.fixture
def several(monkeypatch):
    """As if the user allowed two threads; the tests themselves run with one."""
    monkeypatch.setattr(_threads, "_now", lambda: 2)


def who():
    return threading.get_ident()


@pytest.mark.usefixtures("several")
def test_the_second_task_keeps_the_thread_of_whoever_asks():
    first, second = both(who, who, 0.0)
    assert second == who() != first


@pytest.mark.usefixtures("several")
def test_much_work_is_done_one_after_the_other():
    assert both(who, who, MUCH_WORK) == (who(), who())


def test_a_single_thread_is_not_made_two(monkeypatch):
    monkeypatch.setattr(_threads, "_now", lambda: 1)
    assert both(who, who, 0.0) == (who(), who())


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("place", [0, 1])
def test_an_error_of_either_is_raised_and_nothing_is_left_behind(place):
    def fails():
        raise scv.InputError("no")

    tasks = [who, who]
    tasks[place] = fails
    before = [pool["num_threads"] for pool in _threads._CONTROLLER.info()]
    with pytest.raises(scv.InputError, match="no"):
        both(*tasks, 0.0)
    assert [pool["num_threads"] for pool in _threads._CONTROLLER.info()] == before


def test_a_kernel_beside_a_network_changes_nothing(monkeypatch):
    x = np.random.default_rng(0).normal(size=(4, 80, 2))
    samples, f = scv.Samples(x, -x), np.tanh(2 * x[..., 0] + x[..., 1])
    found = []
    for threads in (1, 2):
        monkeypatch.setattr(_threads, "_now", lambda threads=threads: threads)
        found.append(scv.estimate(samples, f, scv.Auto()))
    assert [m["method"].split("(")[0] for m in found[0].info["members"]][-2:] == ["Kernel", "Neural"]
    np.testing.assert_array_equal(found[0].controlled, found[1].controlled)


def test_blas_threads_are_given_back():
    before = [pool["num_threads"] for pool in _threads._CONTROLLER.info()]
    with blas_threads(0):
        assert all(pool["num_threads"] == 1 for pool in _threads._CONTROLLER.info())
    assert [pool["num_threads"] for pool in _threads._CONTROLLER.info()] == before
