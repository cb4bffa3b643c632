"""The page: self-contained, escaped, readable on any screen. Looked at by a real browser where there is one."""

import base64
import dataclasses
import hashlib
import html.parser
import http.server
import json
import re
import shutil
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import steincv as scv
from steincv import cli
from steincv.report.meaning import MEANINGS
from steincv.report.page import KERNEL, NEURAL, POLYNOMIAL, SOFTWARE, bibtex, page

ROOT = Path(__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></title><b>&amp;",
    "\x1b[31mred\x1b[0m",
    "a\nb\rc\td\x00",
    "\u202eright to left\u2066",
    "שלום (עולם)",
    "\ud800 half",
    "w" * 500,
    "",
    "javascript:alert(1)",
    "{{ 7 * 7 }} {label} %s",
)


@pytest.fixture(scope="module")
def result(gaussian_samples):
    x = gaussian_samples.draws
    noise = np.random.default_rng(3).normal(size=x.shape[:2])
    values = {"cubic": x[..., 0] ** 3 + 0.1 * noise, "noise": noise, "exact": x[..., 1], "one": np.ones(noise.shape)}
    values["theta"] = np.sin(x[..., :2])
    return scv.estimate(
        gaussian_samples, values, scv.Stack([scv.Polynomial(1), scv.Polynomial(2)]), stat=("mean", "sd")
    )


@pytest.fixture(scope="module")
def hostile(gaussian_samples):
    names = [f"{i} {label}" if i % 2 else label for i, label in enumerate(HOSTILE[:3])]
    samples = scv.Samples(gaussian_samples.draws, gaussian_samples.scores, names)
    return scv.estimate(samples, dict.fromkeys(HOSTILE, samples.draws[..., 0] ** 3), scv.Polynomial(2))


@pytest.fixture(scope="module")
def alarmed(gaussian_samples):
    x = gaussian_samples.draws.copy()
    x[0, :, 0] += 3
    tail = np.random.default_rng(0).standard_t(1.2, size=x.shape[:2])
    return scv.estimate(scv.Samples(x, -1.5 * x), {"apart": x[..., 0], "tail": tail}, scv.Polynomial(1))


@pytest.fixture(scope="module")
def many(gaussian_samples):
    rng = np.random.default_rng(0)
    x = gaussian_samples.draws @ rng.normal(size=(3, 500))
    noise = 10 ** rng.uniform(-3, 1, 500) * rng.normal(size=x.shape)
    return scv.estimate(gaussian_samples, {"beta": x**3 + noise}, scv.Polynomial(1))


@pytest.fixture(params=["result", "hostile", "alarmed", "many"])
def any_result(request):
    return request.getfixturevalue(request.param)


class Seen(html.parser.HTMLParser):
    """The tags, attributes and text of a page, and that every tag is closed."""

    VOID = frozenset({"meta", "link", "line", "circle", "rect", "path", "polyline", "polygon"})

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = set(), [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += attributes
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "link",
        "body",
        "header",
        "main",
        "footer",
        "section",
        "h1",
        "h2",
        "h3",
    ),
    *("p", "b", "bdi", "span", "div", "code", "pre", "ul", "li", "dl", "dt", "dd", "details", "summary"),
    *("figure", "figcaption", "table", "thead", "tbody", "tr", "th", "td"),
    *("svg", "line", "circle", "rect", "path", "text", "polyline", "polygon"),
}


def test_only_known_tags_and_nothing_to_load(any_result):
    text = page(any_result)
    seen = Seen(text)
    assert seen.tags <= TAGS
    for name, value in seen.attributes:
        assert not name.startswith("on"), "no handlers"
        assert name not in ("src", "srcset", "action", "style", "xlink:href"), name
        if name == "href":
            assert value.startswith("data:")
    assert "@import" not in text
    assert "url(" not in text


def test_the_policy_allows_this_style_only(result):
    text = page(result)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    style = re.search(r"<style>(.*)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert text.index("Content-Security-Policy") < text.index("<style>")


def test_hostile_labels_are_text(hostile):
    text = page(hostile)
    assert "<script" not in text
    assert "<img" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    for bad in ("\x1b", "\x00", "\u202e", "\u2066", "\ud800"):
        assert bad not in text
    assert "\\u202eright to left" in text
    assert "<bdi>שלום (עולם)</bdi>" in text
    assert text.count("<style>") == text.count("</style>") == 1
    assert "w" * 501 not in text


def test_hostile_info_of_a_result_from_a_file(result):
    from dataclasses import replace

    for members in (
        "members",
        [1, None, {}],
        [{"method": "<script>", "weight": "x"}],
        [{"method": None, "weight": [None] * 6, "variance_ratio": {}, "seconds": "<b>"}],
        [{"method": "a", "weight": [1e308] * 12, "variance_ratio": [float("nan")], "seconds": float("inf")}],
    ):
        text = page(replace(result, info={"members": members, "seconds": "<i>", "folds": 3}))
        assert Seen(text).tags <= TAGS


def test_it_says_what_happened(result):
    text = page(result)
    words = " ".join(Seen(text).text)
    assert result.gained() in words
    assert "cubic: plain" in words  # the forest in words
    for label in result.labels:
        assert label in words
    for name in ("Polynomial(degree=1)", "weight", "seconds", "no gain", "Exact", "@software{steincv,", "sd(cubic)"):
        assert name in words
    member = result.info["members"][1]
    assert f"{np.mean(member['weight']):.0%}" in words
    assert "Chains agree" in words


def test_bars_and_intervals_are_drawn_to_scale(result):
    text = page(result)
    rows = re.findall(
        r'<title>(\S+): [^<]*</title><line class="controlled bar" x1="([\d.]+)%" y1="14" x2="([\d.]+)%"', text
    )
    start, gain = float(rows[0][1]), {name: float(x) for name, _, x in rows}
    factor = dict(zip(result.labels, result.gain, strict=True))
    assert gain["one"] == start
    one, other = "cubic", "theta[1]"
    assert (gain[one] - start) / (gain[other] - start) == pytest.approx(
        np.log(factor[one]) / np.log(factor[other]), rel=0.02
    )
    ends = re.findall(
        r"<title>cubic: plain .*?</title>" + 2 * r'<line class="\w+" x1="([\d.]+)%" y1="\d+" x2="([\d.]+)%" [^>]*>',
        text,
    )
    ((zero, _, left, right),) = ends
    half = np.diff(result.plain.interval(0.95)[0])[0] / 2
    middle = result.plain.mean[0] - result.mean[0]
    assert (float(right) - float(zero)) / (float(left) - float(zero)) == pytest.approx(
        (middle + half) / (middle - half), rel=0.02
    )


def test_alarms_come_first(alarmed):
    text = page(alarmed)
    assert "The plain means are reported, because the scores do not fit the draws." in text
    assert text.index('role="alert"') < text.index('id="gained"')
    for code in (scv.Code.STEIN_MEAN, scv.Code.CHAINS_DISAGREE, scv.Code.HEAVY_TAIL):
        assert text.count(MEANINGS[code].next_step) == 1
    assert "Scores fit the draws" not in text
    assert "How the mean settles" not in text


def test_many_outputs_show_the_ends_and_every_row(many):
    text = page(many)
    assert "476 more between these" in text
    order = np.argsort(-many.gain)
    chart = text[text.index('id="gained"') : text.index('id="table"')]
    for k in order[:12]:
        assert f"{many.labels[k]}:" in chart
    # where several gained nothing at all, any of them will do
    least = np.flatnonzero(many.gain <= many.gain[order[-12]])
    assert sum(f"{many.labels[k]}:" in chart for k in least) == 12
    assert f"{many.labels[order[250]]}: " not in chart.split('id="settling"')[0]
    table = text[text.index('id="table"') : text.index('id="methods"')]
    assert table.count("<tr>") == 501
    assert len(text) < 400_000


def test_every_status_has_a_meaning():
    assert set(MEANINGS) == set(scv.Code)
    for title, meaning, next_step in MEANINGS.values():
        assert title
        assert meaning.endswith(".")
        assert next_step.endswith(".")


def test_citations_agree_with_the_citation_file():
    cff = (ROOT / "CITATION.cff").read_text()
    plain = {
        name: re.sub(r"[{}]", "", entry)
        for name, entry in {"software": SOFTWARE, "polynomial": POLYNOMIAL, "kernel": KERNEL}.items()
    }
    titles = re.findall(r'title: "?(.*?)"?\n', cff)
    for title, entry in zip(
        titles[:1] + [t for t in titles if t.startswith(("Zero", "Control"))], plain.values(), strict=True
    ):
        assert title in entry
    for family in re.findall(r"family-names: ([\w ]+),", cff):
        assert family in POLYNOMIAL + KERNEL + NEURAL
    assert f"version: {scv.__version__}\n" in cff
    made = bibtex(["Stack(members=(Polynomial(degree=1),))"])
    assert f"version = {{{scv.__version__}}}" in made
    assert "wan2019neural" in made
    assert "mira2013zero" in made
    assert "oates2017control" not in made
    assert made.count("{") == made.count("}")


def test_report_writes_a_whole_file_or_none(result, tmp_path):
    path = tmp_path / "report.html"
    result.report(path)
    assert path.read_text("utf-8") == page(result)
    with pytest.raises(scv.InputError, match="exists already"):
        result.report(path)
    result.report(str(path), force=True)
    with pytest.raises(scv.InputError, match="does not exist"):
        result.report(tmp_path / "no" / "report.html")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_one_output_needs_no_median(result):
    text = page(result["cubic"])
    assert re.search(
        r"<h1>The same draws now give what about [\d.,]+ times as many would \([\d.,]+ to [\d.,]+\)\.</h1>", text
    )
    assert "median" not in text[text.index("<h1>") : text.index('id="gained"')].replace("gain, median", "")
    assert "the median one" not in text


def test_a_part_of_a_result_has_a_page(result):
    text = page(result["theta"])
    assert "Weights of every output" not in text  # it does not know which weights are its own
    assert "Weights of every output" in page(result)


def test_command(tmp_path, gaussian_samples, capsys):
    draws, report = tmp_path / "draws.npz", tmp_path / "report.html"
    np.savez(draws, draws=gaussian_samples.draws, scores=gaussian_samples.scores)
    command = ["estimate", str(draws), "--method", "polynomial:2", "--report", str(report)]
    assert cli.main(command) == 0
    assert f"Report: {report}" in capsys.readouterr().out.replace("\n", "")
    assert report.read_text("utf-8").startswith("<!doctype html>")
    assert cli.main(command) == 2
    assert "exists already" in capsys.readouterr().err
    assert cli.main([*command, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"]
    assert cli.main([*command, "--force", "--save", str(report)]) == 2
    assert "the same file" in capsys.readouterr().err


# In a browser ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Serves a folder and notes every path that was asked for."""
    folder, asked = tmp_path_factory.mktemp("served"), []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield folder, asked, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1180])
def test_in_a_browser(any_result, browser, server, width, scheme):
    folder, asked, address = server
    any_result.report(folder / "report.html", force=True)
    asked.clear()
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, is_mobile=width < 400, device_scale_factor=1
    )
    tab = context.new_page()
    trouble, requests = [], []
    tab.on("console", lambda message: trouble.append(message.text))
    tab.on("pageerror", lambda error: trouble.append(str(error)))
    tab.on("dialog", lambda dialog: (trouble.append("dialog"), dialog.dismiss()))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(f"{address}/report.html", wait_until="networkidle")
    assert trouble == []
    assert [url for url in requests if not url.startswith("data:")] == [f"{address}/report.html"]
    assert asked == ["/report.html"]
    look = tab.evaluate(
        """() => {
          const box = e => e.getBoundingClientRect(), all = s => [...document.querySelectorAll(s)];
          const outside = e => box(e).right > innerWidth + 1 && !e.closest('.scroll, pre, .label');
          return {
            wide: document.documentElement.scrollWidth - innerWidth,
            outside: all('main *, header *').filter(outside).map(e => e.outerHTML.slice(0, 80)),
            paper: getComputedStyle(document.body).backgroundColor,
            sections: all('section').map(e => box(e).height),
            bars: all('.gain line.bar').map(e => box(e).width),
            intervals: all('.forest line.plain').map(e => box(e).width),
            small: Math.min(...all('p, td, th, li, text, .label').map(e => parseFloat(getComputedStyle(e).fontSize))),
          }
        }"""
    )
    assert look["wide"] <= 0
    assert look["outside"] == []
    assert look["paper"] == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 25, 31)"}[scheme]
    assert min(look["sections"]) > 40
    assert max(look["intervals"]) > width / 10
    if any(method != "plain" for method in any_result.method):
        assert max(look["bars"]) > width / 10
    assert look["small"] >= 12
    context.close()


def test_a_script_would_be_stopped(result, browser, server):
    """The policy has power: were something to slip through, it would neither run nor load."""
    folder, asked, address = server
    attack = (
        "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\"><style>*{color:red}</style>"
    )
    (folder / "attack.html").write_text(page(result).replace("<h1>", f"{attack}<h1>"), "utf-8")
    asked.clear()
    tab = browser.new_page()
    said = []
    tab.on("console", lambda message: said.append(message.text))
    tab.goto(f"{address}/attack.html", wait_until="networkidle")
    assert tab.title() == "steincv report"
    assert asked == ["/attack.html"]
    assert sum("Content Security Policy" in text for text in said) >= 3
    tab.close()


def test_an_output_of_one_member_alone_is_named():
    x = np.random.default_rng(0).normal(size=(2, 200, 2))
    result = scv.estimate(
        scv.Samples(x, -x, names=["<a>", "b"]), method=scv.Stack([scv.Polynomial(1), scv.Polynomial(3)])
    )
    assert "one method alone" not in page(result)
    alone = dataclasses.replace(result, method=("Polynomial(degree=1)", result.method[1]))
    assert "one method alone is reported for &lt;a&gt; (Polynomial(degree=1))." in re.sub(r"<[^>]*>", "", page(alone))
