"""steincv opens no socket and starts no process: by every form of import in its source, and by Python's audit."""

import ast
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "steincv"
FORBIDDEN = {
    "socket", "socketserver", "ssl", "selectors", "asyncio", "subprocess", "multiprocessing", "pty", "urllib",
    "http", "ftplib", "smtplib", "poplib", "imaplib", "nntplib", "telnetlib", "xmlrpc", "webbrowser",
    "requests", "httpx", "aiohttp", "urllib3", "pip", "ensurepip", "distributed", "pickle", "cPickle", "dill",
    "cloudpickle", "shelve", "marshal", "runpy",
}  # fmt: skip
# Functions that start a process or run text as code, whatever they are imported from.
STARTERS = {
    "system", "popen", "fork", "forkpty", "execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp",
    "execvpe", "posix_spawn", "posix_spawnp", "spawnl", "spawnle", "spawnlp", "spawnlpe", "spawnv", "spawnve",
    "spawnvp", "spawnvpe", "startfile", "eval", "exec", "compile",
}  # fmt: skip
MADE_UP = "import of a name made at run time"
EXCEPTIONS = {
    ("adapters/stan.py", "asyncio"),  # PyStan 3 answers for gradients only through its own server, in coroutines
    ("adapters/foreign.py", MADE_UP),  # the names stand in tables of the source, whose strings are looked at as well
    ("report/terminal.py", MADE_UP),
}


def offences(text):
    """Yield the forbidden modules that a source imports, and the functions it calls that start something."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _forbidden(alias.name))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in names if _forbidden(name))
            if node.module in ("os", "posix", "builtins"):
                yield from (name for name in names if name.split(".")[-1] in STARTERS)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _forbidden(node.value):
            yield node.value  # what `__import__`, `import_module` and lists of modules to load are given
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in STARTERS
            and _name(node.value) in ("os", "posix", "builtins")
        ):
            yield node.attr
        elif isinstance(node, ast.Call):
            yield from _called(node)


def _called(node):
    name = _name(node.func).split(".")[-1]
    if isinstance(node.func, ast.Name) and name in STARTERS:
        yield name
    if name == "ProcessPoolExecutor":
        yield name
    if name in ("__import__", "import_module") and not (node.args and isinstance(node.args[0], ast.Constant)):
        relative = len(node.args) == 2 and _name(node.args[1]) in ("__name__", "__package__")  # a part of the package
        if name == "__import__" or not relative:
            yield MADE_UP


def _forbidden(name):
    return name.split(".")[0] in FORBIDDEN and all(part.isidentifier() for part in name.split("."))


def _name(node):
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_source_reaches_out(path):
    place = path.relative_to(PACKAGE).as_posix()
    assert [name for name in offences(path.read_text()) if (place, name) not in EXCEPTIONS] == []


@pytest.mark.parametrize(
    "text",
    [
        "import socket",
        "import os, urllib.request as r",
        "from subprocess import run",
        "from urllib import request",
        "from multiprocessing.pool import Pool",
        "def f():\n    import http.client",
        "__import__('socket')",
        "importlib.import_module('subprocess')",
        "from importlib import import_module as load\nload('urllib.request')",
        "MODULES = ('scipy', 'socket')",
        "import_module('so' + 'cket')",
        "__import__(name)",
        "os.system('ls')",
        "from os import posix_spawn",
        "run = os.execv",
        "eval('1')",
        "ProcessPoolExecutor(2)",
        "import pickle",
    ],
)
def test_the_check_sees_every_form(text):
    assert list(offences(text))


@pytest.mark.parametrize(
    "text", ["import os.path", "from .socket import a", "'requests made to it'", "import_module(f'.{a}', __name__)"]
)
def test_the_check_sees_nothing_else(text):
    assert list(offences(text)) == []


RUN = """
    import json, os, sys

    WATCHED = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.",
               "os.startfile", "urllib.", "http.", "ftplib.", "smtplib.", "webbrowser.", "pickle.")
    seen = []

    def audit(event, arguments):
        if event.startswith(WATCHED) and not (event == "subprocess.Popen" and arguments[0] == "fc-list"):
            seen.append((event, repr(arguments)))  # matplotlib asks `fc-list` for the fonts, once per machine

    sys.addaudithook(audit)
    import numpy as np
    import steincv as scv
    from steincv import cli

    sys.stdout = open(os.devnull, "w")
    polynomial = ("--method", "polynomial:2")
    x = np.random.default_rng(0).normal(size=(4, 60, 2))
    np.savez("draws.npz", draws=x, scores=-x)
    done = [
        cli.main(["demo", "--out", "demo.png", *polynomial]),
        cli.main(["estimate", "draws.npz", "--method", "polynomial:1+kernel", "--report", "a.html", "--save", "a.npz"]),
        cli.main(["check", "draws.npz"]),
        cli.main(["evidence", "regression", "--dim", "1", "--draws", "20", "--warmup", "20", "--rungs", "4",
                  "--replicas", "2", "--out", "evidence.png", *polynomial]),
    ]
    scv.estimate(scv.Samples(x, -x), np.tanh(x[..., 0]), scv.NCV(steps=20), stat=("mean", "sd"))
    scv.Estimate.load("a.npz").summary()
    watched = len(seen)
    __import__("socket").socket().close()  # the audit has power: it hears this
    sys.__stdout__.write(json.dumps({"codes": done, "seen": seen[:watched], "heard": len(seen) > watched}))
"""


def test_nothing_is_opened_or_started_in_a_whole_process(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RUN)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["codes"] == [0, 0, 0, 0]
    assert found["seen"] == []
    assert found["heard"]
