"""Data flows one way: a module imports only from layers to its left."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "steincv"
LAYERS = (
    {"_status"},
    {"_samples", "_memory", "_threads", "_compile_cache"},
    {"_arrays"},
    {"_executor"},
    {"_folds", "_stein", "_error_bars"},
    {"_sharding"},
    {"_values", "_diagnostics"},
    {"families"},
    {"_result"},
    {"_estimate"},
    {"_store"},
    {"_expressions", "_files", "report", "demo"},
    {"stream"},
    {"adapters"},
    {"evidence", "networks"},
    {"experiments", "_bench"},
    {"cli"},
    {"__main__"},
)
# Inside a method, a result may call what shows and saves it: nothing is imported before it is used.
LAZY = {("_result", "report"), ("_result", "_store"), ("_result", "adapters"), ("_samples", "stream")}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def layer(module: str) -> int:
    return next((i for i, names in enumerate(LAYERS) if module in names), -1)


def imports(path: Path) -> set[tuple[str, bool]]:
    """Modules of the package that a file imports, the part below `steincv`, and whether inside a function."""
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
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("steincv."):
            targets = [node.module.removeprefix("steincv.")]
        elif isinstance(node, ast.Import):
            targets = [a.name.removeprefix("steincv.") for a in node.names if a.name.startswith("steincv.")]
        else:
            continue
        found |= {(target.split(".")[0], id(node) in inside) for target in targets}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_left(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert layer(own) >= 0, f"{own} has no place in LAYERS: give it one"
    for target, lazy in imports(path):
        if target == own or target == "__version__" or (lazy and (own, target) in LAZY):
            continue
        assert 0 <= layer(target) < layer(own), f"{own} must not import {target}: it is not to the left of it"


def test_the_check_sees_imports():
    """The test has power: it finds the imports that are known to be there."""
    assert ("_status", False) in imports(PACKAGE / "_samples.py")
    assert ("_samples", False) in imports(PACKAGE / "families" / "_method.py")
    assert ("_store", True) in imports(PACKAGE / "_result.py")


def test_nothing_runs_code_from_data():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile"), path
            if isinstance(node, ast.Import) and path.name != "_bench.py":  # it times itself in a fresh process
                assert not any(alias.name in ("pickle", "subprocess") for alias in node.names), path
