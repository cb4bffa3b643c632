"""Tasks side by side: the same answers, and everything as it was afterwards."""

import threading

import numpy as np
import pytest

import steincv as scv
from steincv.runtime import threads as _threads
from steincv.runtime.threads import MUCH_WORK, blas_threads, side_by_side, threads


@pytest.fixture
def several():
    """The user allows two threads; the tests themselves run with one."""
    with _threads._CONTROLLER.limit(limits=2, user_api="blas"):
        assert threads() == 2
        yield


def who():
    return threading.get_ident()


@pytest.mark.usefixtures("several")
def test_a_task_marked_so_keeps_the_thread_of_whoever_asks():
    first, second = side_by_side([who, who], 0.0, here=[False, True])
    assert second == who() != first


@pytest.mark.usefixtures("several")
def test_much_work_is_done_one_after_the_other():
    assert side_by_side([who, who], MUCH_WORK) == [who(), who()]


def test_a_single_thread_is_not_made_two():
    with blas_threads(0):
        assert side_by_side([who, who], 0.0) == [who(), who()]


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("place", [0, 1])
def test_an_error_of_either_is_raised_and_nothing_is_left_behind(place):
    def fails():
        raise scv.InputError("no")

    tasks = [who, who]
    tasks[place] = fails
    with pytest.raises(scv.InputError, match="no"):
        side_by_side(tasks, 0.0, here=[False, True])
    assert threads() == 2


def test_a_kernel_beside_a_network_changes_nothing():
    x = np.random.default_rng(0).normal(size=(4, 80, 2))
    samples, f = scv.Samples(x, -x), np.tanh(2 * x[..., 0] + x[..., 1])
    found = []
    for allowed in (1, 2):
        with _threads._CONTROLLER.limit(limits=allowed, user_api="blas"):
            found.append(scv.estimate(samples, f, scv.Auto()))
    # both were fitted, side by side, though one of them may be dropped after the first fold
    raced = [m["method"] for m in found[0].info["members"]] + [name for name, _ in found[0].info["left_out"]]
    assert {"Kernel", "Neural"} <= {name.split("(")[0] for name in raced}
    np.testing.assert_array_equal(found[0].controlled, found[1].controlled)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("here", [[False, False], [False, True], [True, False]])
def test_the_first_error_is_the_one_that_is_raised(here):
    def fails(word):
        def task():
            raise scv.InputError(word)

        return task

    with pytest.raises(scv.InputError, match="one"):
        side_by_side([fails("one"), fails("two")], 0.0, here=here)


@pytest.mark.usefixtures("several")
def test_the_thread_beside_has_the_settings_of_whoever_asks():
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        side_by_side([lambda: np.ones(1) / np.zeros(1), who], 0.0)


@pytest.mark.usefixtures("several")
def test_blas_threads_are_given_back():
    with blas_threads(0):
        assert threads() == 1
    assert threads() == 2


@pytest.mark.usefixtures("several")
def test_much_work_gets_all_threads_inside_a_block_of_little():
    _threads._allowed.cache_clear()
    try:
        with blas_threads(0):
            with blas_threads(MUCH_WORK):
                assert threads() == 2
            assert threads() == 1
    finally:
        _threads._allowed.cache_clear()


@pytest.mark.usefixtures("several")
def test_blocks_of_two_threads_end_in_any_order():
    """The one that began first and ends first must not leave its own setting behind."""
    first, second = blas_threads(0), blas_threads(0)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads() == 1  # the other one is still at it
    second.__exit__(None, None, None)
    assert threads() == 2
