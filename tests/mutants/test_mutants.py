"""The list of seeded bugs does not rot. That each is killed is shown by `python -m tests.mutants`, in minutes."""

import csv
from pathlib import Path

import pytest
from seeded import BUGS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_bug_can_be_planted(bug):
    text = (ROOT / "src" / "steincv" / bug.file).read_text()
    assert text.count(bug.old) == 1, f"{bug.file} has changed: mend the row `{bug.name}` in tests/mutants/seeded.py"
    planted = text.replace(bug.old, bug.new)
    assert planted != text
    compile(planted, bug.file, "exec")
    for test in bug.tests:
        if test.startswith("tests/"):
            file, _, name = test.partition("::")
            assert name.partition("[")[0] in (ROOT / file).read_text()


def test_all_of_them_were_killed():
    """The committed table is of this list, and nothing in it survived."""
    with (ROOT / "tests" / "mutants" / "killed.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["bug"] for row in rows] == [bug.name for bug in BUGS]
    assert {row["verdict"] for row in rows} == {"killed"}
    assert len(rows) >= 12
