"""Full disks and folders that cannot be written to: one line, exit code 2, nothing half-written, nothing lost."""

import os
import resource
import subprocess
import sys

import numpy as np
import pytest

import steincv as scv
from steincv import cli

# A limit on the size of files is a full disk that a test may have: writing fails in the middle, by the system. Python
# itself would leave half of a compiled module behind, so it must not write any.
FULL = """
import resource, signal, sys
sys.dont_write_bytecode = True
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from steincv import cli
import steincv.report.page, numpy, arviz_stats.base
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    x = np.random.default_rng(0).normal(size=(4, 100, 2))
    path = tmp_path_factory.mktemp("disk") / "draws.npz"
    np.savez(path, draws=x, scores=-x)
    return str(path)


def test_a_full_disk(file, tmp_path):
    """The old file is still there, whole; the new one never was; the message names it."""
    (tmp_path / "old.npz").write_bytes(b"old")
    command = [sys.executable, "-c", FULL, "estimate", file, "--method", "polynomial:1"]
    done = subprocess.run(
        [*command, "--save", str(tmp_path / "old.npz"), "--force"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1
    assert "old.npz: cannot be written: File too large" in done.stderr
    assert os.listdir(tmp_path) == ["old.npz"]
    assert (tmp_path / "old.npz").read_bytes() == b"old"


def test_a_full_disk_at_any_byte(tmp_path, monkeypatch):
    """A result and a page, with the disk full after some bytes: whole or not at all, whatever the number."""
    x = np.random.default_rng(0).normal(size=(2, 20, 1))
    result = scv.estimate(scv.Samples(x, -x), None, scv.MonteCarlo())
    import signal

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    failed = 0
    try:
        for size in (0, 1, 100, 1000, 5000, 10**6):
            for write, name in ((result.save, "a.npz"), (result.report, "a.html")):
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
                try:
                    write(tmp_path / name, force=True)
                except scv.InputError as error:
                    failed += 1
                    assert "cannot be written" in str(error)  # noqa: PT017
                    assert not (tmp_path / name).exists()
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    finally:
        signal.signal(signal.SIGXFSZ, previous)
    assert failed >= 8
    assert scv.Estimate.load(tmp_path / "a.npz").labels == result.labels
    assert sorted(os.listdir(tmp_path)) == ["a.html", "a.npz"]


def test_a_folder_that_cannot_be_written_to(file, tmp_path, capsys):
    """As root, who may write to any folder, one of the system's own that takes no files."""
    if os.geteuid() == 0:
        folder = "/proc/self"
    else:
        folder = str(tmp_path / "locked")
        os.mkdir(folder, 0o500)
    for option, name in (("--save", "a.npz"), ("--report", "a.html")):
        assert cli.main(["estimate", file, "--method", "plain", option, f"{folder}/{name}"]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert f"{folder}/{name}: cannot be written" in captured.err
