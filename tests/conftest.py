"""Shapes and types in signatures are checked at run time in every test."""

import atexit
import os
import shutil
import tempfile

# Compiled programs are shared by the workers of one run, which have this process's environment, and by no other run.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["STEINCV_CACHE"] = tempfile.mkdtemp(prefix="steincv-tests-")
    atexit.register(shutil.rmtree, os.environ["STEINCV_CACHE"], ignore_errors=True)

# Compiling is most of what the tests do, and what they compile runs for moments: a quarter less unoptimised.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

from jaxtyping import install_import_hook

# the tower: an int is good where a float is asked for
install_import_hook("steincv", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: E402, F401

import steincv as scv  # noqa: E402


@pytest.fixture
def as_users_have_it():
    """Without the run-time checks of types, which only the tests have: a study of many small fits is much faster."""
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def gaussian_samples() -> scv.Samples:
    """4 chains x 250 exact draws of a standard normal in 3 dimensions."""
    x = np.random.default_rng(0).normal(size=(4, 250, 3))
    return scv.Samples(x, -x, names=["mu", "eta[0]", "eta[1]"])
