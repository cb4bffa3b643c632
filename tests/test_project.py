"""What is written twice about the project agrees: versions, tools, commands and pages."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import steincv as scv

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
YAML = sorted(p for p in (*ROOT.glob(".*.yaml"), *(ROOT / ".github").rglob("*.yml"), ROOT / "CITATION.cff"))
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", YAML, ids=lambda p: str(p.relative_to(ROOT)))
def test_yaml_can_be_read(path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_one_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["version"] == scv.__version__ == str(cited["version"])
    assert PROJECT["authors"] == [{"name": author["name"]} for author in cited["authors"]]


def test_the_workflow_tests_every_python_that_is_promised():
    promised = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"] == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"


def test_the_workflow_runs_commands_that_exist():
    runs = [step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step]
    made = {found[1] for run in runs if (found := re.match(r"make ([a-z-]+)", run))}
    assert {"test", "test-next", "docs"} <= made <= TARGETS
    files = {name for run in runs for name in re.findall(r"\S+\.txt", run)}
    assert files == {"constraints.txt", "constraints-next.txt"}
    assert all((ROOT / name).is_file() for name in files)


def test_the_hooks_are_the_tools_of_make_lint():
    """From .venv, so in the versions of constraints.txt."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["entry"].split()[0] for hook in hooks] == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy"]
    pinned = (ROOT / "constraints.txt").read_text()
    assert all(re.search(rf"^{tool}==", pinned, re.MULTILINE) for tool in ("ruff", "mypy"))


def test_read_the_docs_installs_what_the_documentation_needs():
    config = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())
    assert (ROOT / config["sphinx"]["configuration"]).is_file()
    extras = config["python"]["install"][0]["extra_requirements"]
    needed = {
        re.match(r"[a-z0-9-]+", entry)[0] for extra in extras for entry in PROJECT["optional-dependencies"][extra]
    }
    assert {"sphinx", "myst-parser", "furo", "latex2mathml"} <= needed


def test_files_that_the_documents_name_are_there():
    for page in ("SECURITY.md", "CONTRIBUTING.md", "docs/releasing.md", ".github/pull_request_template.md"):
        for name in re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:md|py|txt|cff|toml))`", (ROOT / page).read_text()):
            there = (ROOT / name).exists() or (ROOT / "src" / "steincv" / name).exists() or "yours" in name
            assert there, f"{page} names {name}"
