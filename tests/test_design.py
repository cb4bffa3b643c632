"""The map shows the house: every folder is in DESIGN.md, and whatever it names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
TEXT = (ROOT / "DESIGN.md").read_text("utf-8")
# What a line of the map is: the folder in a table's first cell, or, of the other package, with its full name.
ROOM = re.compile(r"^\| `([\w/]+)/` \| (.+) \|$", re.MULTILINE)


def folders(package: str) -> list[str]:
    """Folders of a package that hold files, by their path below it."""
    root = SOURCE / package
    kept = {path.parent for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    return sorted(str(folder.relative_to(root)) for folder in kept - {root})


def test_every_folder_has_one_line():
    rooms = [room for room, _ in ROOM.findall(TEXT)]
    assert sorted(rooms) == folders("steincv")
    for folder in folders("steincv_paper"):
        assert f"`steincv_paper/{folder}/`" in TEXT


def test_the_lines_are_short():
    for room, line in ROOM.findall(TEXT):
        assert 20 <= len(line) <= 220, f"the line of {room} has {len(line)} characters"


NAME = re.compile(r"`((?:[\w-]+/)*[\w-]+(?:\.(?:py|md)|/))`")


@pytest.mark.parametrize("name", sorted(set(NAME.findall(ROOM.sub("", TEXT)))))
def test_whatever_is_named_is_there(name):
    assert any((root / name).exists() for root in (SOURCE / "steincv", SOURCE, ROOT))


@pytest.mark.parametrize(("room", "line"), ROOM.findall(TEXT))
def test_files_named_in_the_line_of_a_room_are_in_it(room, line):
    for name in NAME.findall(line):
        assert (SOURCE / "steincv" / room / name).exists() or (SOURCE / "steincv" / name).exists(), name


def test_every_module_at_the_root_is_named():
    for path in (SOURCE / "steincv").glob("*.py"):
        assert path.name == "__main__.py" or f"`{path.name}`" in TEXT, path.name


def test_the_check_has_power():
    assert {"samples/gate", "stein/learned", "families/kernel"} <= set(folders("steincv"))
    assert "models" in folders("steincv_paper")
    assert len(ROOM.findall("| `a/b/` | something |\n| `a` | none |")) == 1
