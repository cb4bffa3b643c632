"""A small run of fuzz.py: 40 damaged files of each kind, in bounded memory. Thousands are run by hand."""

import json
import subprocess
import sys
from pathlib import Path


def test_damaged_files_are_read_or_refused_in_bounded_memory():
    script = Path(__file__).with_name("fuzz.py")
    done = subprocess.run([sys.executable, str(script), "40"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert set(outcome) == {"result", "geometry", "npz", "netcdf", "packed netcdf", "zarr 2", "zarr 3"}
    for found in outcome.values():
        assert sum(found.values()) == 40
        assert found["refused"] >= 5  # the damage is felt
