"""`steincv bench --check`: what is slower is named, what the machine does is not."""

import json
import pathlib

from steincv_paper.bench import LAST_RUN, SLOWER, Row, read_run, regressions

ROOT = pathlib.Path(__file__).parents[1]


def test_a_row_that_takes_more_calibrations_than_it_did_is_named_and_no_other():
    def row(name: str, relative: float | None) -> Row:
        return Row(name, 1.0, 1.0, 1.0, None, "ms", relative)

    rows = [
        row("same", 2.0),
        row("slow", 1.1 * SLOWER),
        row("noisy", 0.9 * SLOWER),
        row("ratio", None),
        row("new", 9.0),
    ]
    earlier = {"same": 2.0, "slow": 1.0, "noisy": 1.0, "gone": 1.0}
    assert regressions(rows, earlier) == [f"slower: slow, {1.1 * SLOWER:.2f} times what it was"]


def test_the_committed_run_can_be_read_and_holds_its_calibration():
    found = read_run(str(ROOT / LAST_RUN))
    assert found["calibration"] == 1.0
    stored = json.loads((ROOT / LAST_RUN).read_bytes())["rows"]
    assert set(found) == {row["name"] for row in stored if row["unit"] == "ms"}
