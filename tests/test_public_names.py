"""Public names: loaded when first used, the same for people and for type checkers."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import steincv as scv


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(scv.__file__).read_text())
    seen = [
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level for alias in node.names
    ]
    assert sorted(seen) == sorted(scv.__all__)


def test_every_name_is_there():
    for name in scv.__all__:
        assert getattr(scv, name).__name__ == name
        assert name in dir(scv)
    for room in ("adapters", "evidence", "networks"):
        assert getattr(scv, room).__name__ == f"steincv.{room}"


def test_a_star_takes_them_all():
    names = {}
    exec("from steincv import *", names)
    assert set(scv.__all__) <= set(names)


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'estimat'"):
        _ = scv.estimat


def test_importing_loads_nothing_heavy():
    code = "import sys, steincv; print(*{'numpy', 'scipy', 'jax', 'pandas', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
