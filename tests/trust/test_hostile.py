"""A table of hostile files through every door: refused by name, in one line, with little memory."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("h5py")
import hostile


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    hostile.netcdf(folder / "good.nc").close()
    hostile.second(folder / "good.zarr")
    for name, (make, _) in hostile.WAYS.items():
        make(folder / name)
    script = Path(hostile.__file__)
    done = subprocess.run([sys.executable, str(script), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", hostile.WAYS)
def test_refused_by_name_through_every_door(outcome, name):
    for door, said in outcome["found"][name].items():
        assert said is not None, f"{door} takes {name}"
        assert "\n" not in said
        assert name in said
        assert re.search(hostile.WAYS[name][1], said), f"{door}: {said}"


def test_little_memory_is_taken(outcome):
    assert sum(outcome["kib"].values()) < 64 << 10, outcome["kib"]
