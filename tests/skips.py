"""A test that is skipped is a hole: one whose reason is not in tests/skipped.txt fails instead.

Each line of that file is `FILE: REASON`, the reason as `pytest.skip` gives it, with * for what varies. The hooks act on
single reports, so they work for a part of the tests and for any number of workers.
"""

import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "skipped.txt"


def listed(path=LIST):
    """Pairs of a file and a pattern of reasons."""
    lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    return [tuple(line.split(": ", 1)) for line in lines if line and not line.startswith("#")]


def expected(file, reason, root=ROOT, path=LIST):
    """Whether the list has this reason for this file."""
    place = Path(file).resolve()
    name = place.relative_to(root).as_posix() if place.is_relative_to(root) else str(place)
    return any(name == where and fnmatch.fnmatchcase(reason, pattern) for where, pattern in listed(path))


def _mend(report, config):
    if not report.skipped or hasattr(report, "wasxfail"):
        return report
    file, _, reason = report.longrepr
    reason = reason.removeprefix("Skipped: ")
    root = Path(config.rootpath)
    if not expected(file, reason, root, root / "tests" / "skipped.txt"):
        report.outcome = "failed"
        report.longrepr = f"skipped ({reason}), which tests/skipped.txt does not list for {Path(file).name}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _mend((yield), item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _mend((yield), collector.config)
