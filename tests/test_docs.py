"""The documentation: the site is built strictly, needs no network, and every block of Python in it runs."""

import ast
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

import steincv as scv
from steincv.report.meaning import MEANINGS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
# Blocks that are shown and not run, by page: the whole list.
NO_RUN: dict[str, int] = {"docs/howto/cmdstan.md": 2, "docs/scale.md": 2}
# The README speaks of the reader's own arrays; these stand in for them.
READER = """import numpy as np
draws = np.random.default_rng(0).normal(size=(4, 60, 3))
scores = -draws
"""
FENCE = re.compile(
    r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<info>[^`\n]*)\n(?P<body>.*?)^(?P=indent)(?P=mark) *$", re.M | re.S
)


class Block(NamedTuple):
    language: str
    options: str
    code: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, without their indentation."""
    found = []
    for m in FENCE.finditer(page.read_text("utf-8")):
        language, _, options = m["info"].strip().partition(" ")
        code = "".join(line.removeprefix(m["indent"]) for line in m["body"].splitlines(keepends=True))
        found.append(Block(language, options.strip(), code))
    return found


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runnable(page: Path) -> list[str]:
    return [b.code for b in blocks(page) if b.language == "python" and b.options != "no-run"]


# The code ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=name)
def test_every_block_runs(page, tmp_path):
    """The blocks of a page, in order, as one fresh script in an empty folder."""
    code = (READER if page.name == "README.md" else "") + "\n".join(runnable(page))
    howto = page.parent.name == "howto"
    if howto:
        missing = [library for library in sorted(libraries(code)) if importlib.util.find_spec(library) is None]
        if missing:
            pytest.skip(f"{name(page)}: {', '.join(missing)} is not installed")
    script = tmp_path / "page.py"
    script.write_text(code, "utf-8")
    strict = [] if howto else ["-W", "error"]  # a foreign library's warnings are not ours to mend
    environment = os.environ | {"MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, *strict, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed = [line.split() for line in done.stdout.splitlines()]
    for shown in shown_output(page):
        for line in filter(None, shown.splitlines()):
            head = line.split()[0]
            assert head == "..." or any(head in words[:1] for words in printed), f"{line!r} was not printed"


def libraries(code: str) -> set[str]:
    """The top-level packages that a script imports, and those that `scv.from_x` needs."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def shown_output(page: Path) -> list[str]:
    """Blocks of text that follow a block of Python: what it prints."""
    all_blocks = blocks(page)
    return [
        after.code
        for before, after in itertools.pairwise(all_blocks)
        if after.language == "text" and before.language == "python" and before.options != "no-run"
    ]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_are_of_known_kinds(page):
    """No Python hides under another name, and no block is left open."""
    known = {"python", "text", "shell", "", "stan", "bibtex", "toml"}
    for block in blocks(page):
        if block.language in ("{include}", "{eval-rst}"):
            continue
        assert block.language in known, f"what is {block.language!r}?"
        assert block.options == "" or (block.language, block.options) == ("python", "no-run")
        if block.language in ("", "text", "shell"):
            assert "import steincv" not in block.code
    fences = re.findall(r"^ *(?:```|~~~)", page.read_text("utf-8"), re.M)
    assert len(fences) == 2 * len(blocks(page))


def test_what_is_not_run_is_listed():
    found = {name(p): sum(b.options == "no-run" for b in blocks(p)) for p in PAGES}
    assert {page: count for page, count in found.items() if count} == NO_RUN


def test_the_extraction_sees_blocks(tmp_path):
    page = tmp_path / "a.md"
    page.write_text("```python\na = 1\n```\n- x\n\n  ```python no-run\n  b = 2\n  ```\n~~~text\n```\n~~~\n")
    assert blocks(page) == [
        ("python", "", "a = 1\n"),
        ("python", "no-run", "b = 2\n"),
        ("text", "", "```\n"),
    ]
    assert runnable(page) == ["a = 1\n"]
    assert len(runnable(DOCS / "index.md")) >= 5
    assert libraries("import a.b, c\nfrom d.e import f\nfrom . import g") == {"a", "c", "d"}


# The words --------------------------------------------------------------------------------------------


def test_every_status_is_explained():
    text = " ".join((DOCS / "diagnostics.md").read_text("utf-8").split())
    for code, (_, meaning, next_step) in MEANINGS.items():
        assert f"### `{scv.Status(code, '').name}`: " in text
        assert meaning in text
        assert f"**Next.** {next_step}" in text
    assert set(MEANINGS) == set(scv.Code)


def test_every_public_name_is_in_the_api():
    text = (DOCS / "api.md").read_text("utf-8")
    public = [n for n in dir(scv) if not n.startswith("_") and not isinstance(getattr(scv, n), ModuleType)]
    assert len(public) > 20
    for n in public:
        assert re.search(rf"^\.\. auto\w+:: steincv\.{n}(\(\))?$", text, re.M), f"{n} is not in docs/api.md"


def test_limits_in_the_words_are_those_of_the_code():
    from steincv.judging.diagnostics import LOW_ESS, RHAT_LIMIT, STEIN_LIMIT, TAIL_LIMIT

    text = " ".join((DOCS / "diagnostics.md").read_text("utf-8").split())
    assert f"The limit is {LOW_ESS} effective draws" in text
    assert f"a split R-hat of {RHAT_LIMIT:g}" in text
    assert f"Beyond {STEIN_LIMIT:g}, in the shaded part" in text
    assert f"Above {TAIL_LIMIT:g} the variance is infinite" in text


def test_pictures_are_small():
    for picture in DOCS.glob("*.png"):
        assert picture.stat().st_size < 200_000, picture.name


# The site ---------------------------------------------------------------------------------------------


def build(docs: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", f"{site}-trees"]
    return subprocess.run([*command, str(docs), str(site)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="sphinx is not installed")
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = build(DOCS, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    return folder


class Page(HTMLParser):
    """What a page loads, and where it links to."""

    def __init__(self, path):
        super().__init__()
        self.loads, self.links, self.tags = [], [], set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.add(tag)
        if tag == "a":
            self.links.append(values.get("href", ""))
        elif tag == "link" and values.get("rel") in ("next", "prev", "index", "search", "author"):
            pass  # where to go, not what to load
        else:
            self.loads += [values[key] for key in ("src", "href", "srcset", "data") if values.get(key)]


def test_the_site_is_built_strictly(site):
    whole = [p for p in PAGES if p.is_relative_to(DOCS) and p.name != "claims.md"]  # those are parts of paper.md
    pages = {str(p.relative_to(DOCS).with_suffix(".html")) for p in whole}
    assert pages <= {str(p.relative_to(site)) for p in site.rglob("*.html")}
    menu = Page(site / "index.html").links
    assert pages - {"index.html"} <= set(menu)


def test_a_broken_link_stops_the_build(tmp_path):
    pytest.importorskip("sphinx", reason="sphinx is not installed")
    shutil.copy(DOCS / "conf.py", tmp_path / "conf.py")
    (tmp_path / "index.md").write_text("# A\n\n[nowhere](nowhere.md)\n")
    assert build(tmp_path, tmp_path / "site").returncode != 0


def test_nothing_is_loaded_from_elsewhere(site):
    for path in site.rglob("*.html"):
        page = Page(path)
        assert not [url for url in page.loads if re.match(r"(https?:)?//", url)], path.name
        assert "iframe" not in page.tags
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", path.read_text("utf-8")), path.name


def test_formulas_are_drawn_by_the_browser(site):
    for stem in ("why", "design", "api"):
        page = (site / f"{stem}.html").read_text("utf-8")
        assert "<math" in page
        assert "mathjax.js" not in page.lower()
    assert "$" not in re.sub(
        r"<(pre|code|script|style).*?</\1>", "", (site / "why.html").read_text("utf-8"), flags=re.S
    )


@pytest.mark.parametrize("stem", ["index", "why", "api"])
def test_in_a_browser(site, stem):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no chromium on this machine")
    trouble, requests = [], []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 375, "height": 800})
        tab.on("console", lambda message: trouble.append(message.text))
        tab.on("pageerror", lambda error: trouble.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto((site / f"{stem}.html").as_uri(), wait_until="load")
        wide = tab.evaluate("document.documentElement.scrollWidth - innerWidth")
        broken = tab.evaluate("[...document.images].filter(i => !i.naturalWidth).map(i => i.src)")
        browser.close()
    assert trouble == []
    assert all(url.startswith(("file:", "data:")) for url in requests)
    assert broken == []
    assert wide <= 0
