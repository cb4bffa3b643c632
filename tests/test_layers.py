"""Rooms import by a short table of allowed edges, and the map shows every room."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = SOURCE / "steincv"
# Each room, and the rooms it may import from.
ALLOWED = {
    "runtime": set(),
    "samples": {"runtime"},
    "stein": {"runtime", "samples"},
    "judging": {"runtime", "samples", "stein"},
    "families": {"runtime", "samples", "stein", "judging"},
    "result": {"runtime", "samples", "judging"},
    "estimating": {"runtime", "samples", "stein", "judging", "families", "result"},
    "distribution": {"runtime", "samples", "stein", "judging", "families", "result", "estimating"},
    "report": {"runtime", "samples", "stein", "judging", "families", "result"},
    "adapters": {"runtime", "samples", "result"},
    "evidence": {"runtime", "samples", "stein", "judging", "families", "result", "estimating", "report"},
    "networks": {"runtime", "samples", "stein", "judging", "families", "result", "estimating", "report"},
    "tables": {"runtime", "samples", "judging", "families", "result", "estimating", "report", "adapters"},
    "demo": set(),
    "cli": {"runtime", "families", "report", "commands"},
    "commands": {"runtime", "samples", "result", "estimating", "distribution", "report", "tables", "demo", "cli"},
    "__main__": {"cli"},
}
# Inside a method, a result may call what shows and saves it, and an estimate ask for quantiles: nothing is imported
# before it is used.
LAZY = {("result", "report"), ("result", "adapters"), ("estimating", "distribution")}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room(module: str) -> str:
    return module.split(".")[0]


def imports(path: Path) -> set[tuple[str, bool]]:
    """Rooms of the package that a file imports, and whether inside a function; `steincv_paper` counts as a room."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    depth = len(path.relative_to(PACKAGE).parts)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            targets = [node.module] if node.module else [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            targets = [node.module or ""]
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            continue
        ours = [t for t in targets if not isinstance(node, ast.Import) and getattr(node, "level", 0) == depth]
        ours += [t.removeprefix("steincv.") for t in targets if t.startswith("steincv.")]
        ours += [t for t in targets if room(t) == "steincv_paper"]
        found |= {(room(target), id(node) in inside) for target in ours}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_rooms_import_by_the_table(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert own in ALLOWED, f"{own} is not in the table of rooms: give it a row"
    for target, lazy in imports(path):
        if target in (own, "__version__") or (lazy and (own, target) in LAZY):
            continue
        if target == "steincv_paper":  # a door that only the command opens
            assert own == "cli", f"{path} must not import the laboratory of the paper"
            continue
        assert target in ALLOWED[own], f"{own} must not import {target}: the table of rooms does not allow it"


def test_the_check_sees_imports():
    """The test has power: it finds the imports that are known to be there."""
    assert ("runtime", False) in imports(PACKAGE / "samples" / "samples.py")
    assert ("samples", False) in imports(PACKAGE / "families" / "method.py")
    assert ("report", True) in imports(PACKAGE / "result.py")


def test_nothing_runs_code_from_data():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile"), path
            if isinstance(node, ast.Import):
                assert not any(alias.name in ("pickle", "subprocess") for alias in node.names), path
