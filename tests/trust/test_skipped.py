"""Skips equal the committed list: those in the code are the lines of tests/skipped.txt, and others fail."""

import ast
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # as pytest has it

from skips import LIST, ROOT, expected, listed

TESTS = ROOT / "tests"


def pattern(call, name):
    """The reason of a `skip` or `importorskip` call, * for what varies."""
    texts = [k.value for k in call.keywords if k.arg == "reason"]
    argument = texts[0] if texts else call.args[0]
    if isinstance(argument, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "*" for v in argument.values)
    text = argument.value
    return f"could not import '{text}'*" if name == "importorskip" and not texts else text


def skips(tree):
    """Reasons of every way pytest has to leave a test out."""
    for node in ast.walk(tree):
        function = node.func if isinstance(node, ast.Call) else None
        if isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "pytest":
            if function.attr in ("skip", "importorskip"):
                yield pattern(node, function.attr)
            continue
        if isinstance(node, ast.Attribute) and node.attr in ("skipif", "xfail", "skipTest", "expectedFailure"):
            yield f"{node.attr} at line {node.lineno}"
        if isinstance(node, ast.Attribute) and node.attr == "skip" and getattr(node.value, "attr", "") == "mark":
            yield f"mark.skip at line {node.lineno}"


def in_the_code():
    return {
        (path.relative_to(ROOT).as_posix(), reason)
        for path in TESTS.rglob("*.py")
        for reason in skips(ast.parse(path.read_text("utf-8")))
    }


def test_the_list_is_that_of_the_code():
    told = "a skip was added or removed. If that is right: python tests/trust/test_skipped.py writes the list"
    assert in_the_code() == set(listed()), told


def test_the_scan_sees_every_kind():
    code = """
pytest.skip("a")
pytest.skip(f"{x}: gone")
pytest.importorskip("b")
pytest.importorskip("c", reason="d")
@pytest.mark.skipif(True, reason="e")
@pytest.mark.skip
@pytest.mark.xfail
def f(): ...
"""
    every = sorted(skips(ast.parse(code)))
    assert every == [
        "*: gone", "a", "could not import 'b'*", "d", "mark.skip at line 7", "skipif at line 6", "xfail at line 8",
    ]  # fmt: skip
    assert expected(TESTS / "test_docs.py", "sphinx is not installed")
    assert not expected(TESTS / "test_docs.py", "I did not feel like it")
    assert not expected(TESTS / "test_cli.py", "sphinx is not installed")


TOY = """
import pytest
def test_listed(): pytest.skip("no gradient on this machine")
def test_unlisted(): pytest.skip("not today")
def test_fine(): pass
"""


def test_an_unlisted_skip_fails(tmp_path):
    """In a run of its own: one test of three fails, and the message says why. It is the same with -n 2."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tests" / "test_toy.py").write_text(TOY)
    (tmp_path / "tests" / "skipped.txt").write_text("# the list\ntests/test_toy.py: no * on this machine\n")
    (tmp_path / "tests" / "conftest.py").write_text(
        f"import sys\nsys.path.append({str(TESTS)!r})\n"
        "from skips import pytest_make_collect_report, pytest_runtest_makereport\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed, 1 skipped" in done.stdout
    assert "skipped (not today), which tests/skipped.txt does not list" in done.stdout


def test_the_hooks_are_in_place(request):
    """tests/conftest.py imports them; without that the list would be checked against the code alone."""
    import skips

    names = ("pytest_runtest_makereport", "pytest_make_collect_report")
    conftest = next(p for p in request.config.pluginmanager.get_plugins() if _file(p) == TESTS / "conftest.py")
    for name in names:
        assert getattr(conftest, name, None) is getattr(skips, name)


def _file(plugin):
    return Path(getattr(plugin, "__file__", None) or ".")


if __name__ == "__main__":
    head = [line for line in LIST.read_text("utf-8").splitlines() if line.startswith("#")]
    LIST.write_text("\n".join([*head, *sorted(map(": ".join, in_the_code()))]) + "\n", "utf-8")
