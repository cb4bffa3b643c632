"""Print how large and how plain `src/steincv` is, room by room: `python scripts/house.py [FOLDER]`.

- root modules: Python files directly in the package.
- lines: all lines of all files; longest: those of the longest file.
- numbers: names that a module binds, at its top level, to a number or to a tuple, list, set or dict made of numbers.
- imports inside: import statements inside a function.
- Any: share of the annotated parameters whose type is `Any`, alone or in a union such as `Any | None`.
- modules passed: files of the package in which a function is called during one `estimate`, after a first one that
  imports what there is to import.
"""

import ast
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

PACKAGE = Path(__file__).parents[1] / "src" / "steincv"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class File:
    """What one file counts."""

    name: str
    room: str
    lines: int
    numbers: tuple[str, ...]
    inner_imports: int
    parameters: int
    any_parameters: int


def measure(path: Path, package: Path = PACKAGE) -> File:
    """Count one file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    inner = {id(node) for f in functions for node in ast.walk(f) if isinstance(node, ast.Import | ast.ImportFrom)}
    annotations = [a.annotation for f in functions for a in _arguments(f) if a.annotation is not None]
    place = path.relative_to(package)
    return File(
        name=str(place),
        room=place.parts[0] if len(place.parts) > 1 else "(root)",
        lines=len(text.splitlines()),
        numbers=tuple(_numbers(tree)),
        inner_imports=len(inner),
        parameters=len(annotations),
        any_parameters=sum(_is_any(a) for a in annotations),
    )


def house(package: Path = PACKAGE) -> list[File]:
    """Count every file of a package."""
    return [measure(path, package) for path in sorted(package.rglob("*.py"))]


def any_share(files: list[File]) -> float:
    """Return the share of annotated parameters that are `Any`."""
    return sum(f.any_parameters for f in files) / max(1, sum(f.parameters for f in files))


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.arg]:
    a = function.args
    yield from (*a.posonlyargs, *a.args, *a.kwonlyargs, *(extra for extra in (a.vararg, a.kwarg) if extra))


def _is_any(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_any(node.left) or _is_any(node.right)
    return (isinstance(node, ast.Name) and node.id == "Any") or (isinstance(node, ast.Constant) and node.value == "Any")


def _numbers(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _bound(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _bound(node.target, node.value)


def _bound(target: ast.AST, value: ast.expr) -> Iterator[str]:
    """Yield the names that are bound to numbers; `A, B = 1, 2` binds two."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=False):
            yield from _bound(one, its)
    elif isinstance(target, ast.Name) and _numeric(value):
        yield target.id


def _numeric(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float | complex) and not isinstance(value.value, bool)
    if isinstance(value, ast.UnaryOp):
        return _numeric(value.operand)
    if isinstance(value, ast.BinOp):
        return _numeric(value.left) or _numeric(value.right)
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        return bool(value.elts) and all(_numeric(item) for item in value.elts)
    if isinstance(value, ast.Dict):
        return bool(value.values) and all(_numeric(item) for item in value.values)
    return False


def modules_passed(call: Callable[[], object]) -> set[str]:
    """Return the files of the package that a call passes through, in this thread and in those that it starts."""
    call()
    seen: set[str] = set()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename)

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {str(Path(name).relative_to(PACKAGE)) for name in seen if Path(name).is_relative_to(PACKAGE)}


def walks() -> dict[str, set[str]]:
    """Return the modules that `estimate` passes: with a polynomial, with the default, with a polynomial from a file."""
    import numpy as np
    import zarr

    import steincv as scv

    x = np.random.default_rng(0).normal(size=(4, 150, 3))
    samples, f = scv.Samples(x, -x), np.tanh(x[..., 0])
    with tempfile.TemporaryDirectory() as folder:
        group = zarr.open_group(folder, mode="w")
        for name, array in {"draws": x, "scores": -x}.items():
            group.create_array(name, data=array, chunks=(1, 150, 3))
        opened = scv.Samples.open(folder)
        return {
            "Polynomial(2)": modules_passed(lambda: scv.estimate(samples, f, scv.Polynomial(2))),
            "Auto()": modules_passed(lambda: scv.estimate(samples, f)),
            "Polynomial(2) from a file": modules_passed(lambda: scv.estimate(opened, method=scv.Polynomial(2))),
        }


def main(package: Path = PACKAGE) -> None:
    """Print a row per room and one for all of them."""
    files = house(package)
    rooms = sorted({f.room for f in files})
    print(f"{'room':<12}{'files':>7}{'lines':>8}{'longest':>9}{'numbers':>9}{'imports inside':>16}{'Any':>8}")
    for room in [*rooms, "all"]:
        here = files if room == "all" else [f for f in files if f.room == room]
        print(
            f"{room:<12}{len(here):>7}{sum(f.lines for f in here):>8}{max(f.lines for f in here):>9}"
            f"{sum(len(f.numbers) for f in here):>9}{sum(f.inner_imports for f in here):>16}{any_share(here):>8.1%}"
        )
    longest = max(files, key=lambda f: f.lines)
    print(
        f"root modules: {sum(f.room == '(root)' for f in files)}; longest file: {longest.name}, {longest.lines} lines"
    )

    if package == PACKAGE:
        print("modules passed: " + ", ".join(f"{name} {len(files)}" for name, files in walks().items()))


if __name__ == "__main__":
    main(*(Path(folder) for folder in sys.argv[1:2]))
