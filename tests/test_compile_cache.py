"""Compiled programs are kept between processes, and JAX's flags are left as they were."""

import os
from pathlib import Path

import jax
import numpy as np
import pytest

import steincv as scv
from steincv.runtime.compile_cache import cache_folder, compile_cache

FLAGS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


def flags():
    return [getattr(jax.config, name) for name in FLAGS]


def fit():
    x = np.random.default_rng(0).normal(size=(4, 50, 1))
    method = scv.Neural(scv.VectorField(4), steps=200, batch=32)
    return method.fit(scv.Samples(x, -x), np.tanh(x[..., 0]))(scv.Samples(x, -x))


def test_a_second_process_finds_the_programs_of_the_first(tmp_path, monkeypatch):
    monkeypatch.setenv("STEINCV_CACHE", str(tmp_path / "kept"))
    before = flags()
    jax.clear_caches()
    first = fit()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").glob("*-cache")}
    assert any("segment" in path.name for path in kept)
    jax.clear_caches()  # what is compiled in memory is gone, as in a new process
    np.testing.assert_array_equal(fit(), first)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").glob("*-cache")} == kept
    assert flags() == before


def test_flags_come_back_after_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("STEINCV_CACHE", str(tmp_path))
    before = flags()
    with pytest.raises(KeyError), compile_cache():
        {}[jax.config.jax_compilation_cache_dir]
    assert flags() == before


def test_blocks_of_two_threads_end_in_any_order(tmp_path, monkeypatch):
    monkeypatch.setenv("STEINCV_CACHE", str(tmp_path))
    before = flags()
    first, second = compile_cache(), compile_cache()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert jax.config.jax_compilation_cache_dir == str(tmp_path)  # the other one is still at it
    second.__exit__(None, None, None)
    assert flags() == before


def test_it_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("STEINCV_CACHE", "0")
    assert cache_folder() is None
    with compile_cache():
        assert jax.config.jax_compilation_cache_dir is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEINCV_CACHE", str(tmp_path / "file" / "below"))
    assert cache_folder() is None


def test_the_users_own_cache_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("STEINCV_CACHE", str(tmp_path / "ours"))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    try:
        with compile_cache():
            assert jax.config.jax_compilation_cache_dir == str(tmp_path / "theirs")
    finally:
        jax.config.update("jax_compilation_cache_dir", None)


def test_the_tests_have_one_of_their_own():
    assert cache_folder() == Path(os.environ["STEINCV_CACHE"])
    assert "steincv-tests-" in os.environ["STEINCV_CACHE"]
