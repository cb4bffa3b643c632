"""Names, expressions and paths of an enemy, through every output. For files see test_fuzz.py and test_store.py."""

import html.parser
import json
import os
import sys

import numpy as np
import pytest

import steincv as scv
from steincv import cli
from steincv.samples.files import read_samples

HOSTILE = (
    "<script>document.title='x'</script>",
    "\"><img src=x onerror='alert(1)'>",
    "[link=http://example.org]a[/link]",
    "\x1b]0;owned\x07\x1b[2J",
    "../../etc/passwd",
    "a\nb\r\nc\x00",
    "\u202egnp.exe",
    "{0.__class__}%s%n$(touch harm)`touch harm`;touch harm",
)


@pytest.fixture(scope="module")
def enemy(tmp_path_factory):
    """A file whose parameters have these names."""
    x = np.random.default_rng(0).normal(size=(4, 40, len(HOSTILE)))
    file = tmp_path_factory.mktemp("enemy") / "draws.npz"
    np.savez(file, draws=x, scores=-x, names=np.array([n.replace("\x00", "\x01") for n in HOSTILE]))
    return file


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.handlers = set(), []

    def handle_starttag(self, tag, attributes):
        if (tag, dict(attributes).get("rel")) != ("link", "icon"):  # the page's own, a data address
            self.seen.add(tag)
        self.handlers += [name for name, value in attributes if name.startswith("on") or "javascript:" in (value or "")]


def test_hostile_names_through_every_output(enemy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["estimate", str(enemy), "--method", "polynomial:1", "--report", "page.html", "--save", "result.npz"]
    assert cli.main(arguments) == 0
    shown = capsys.readouterr()
    assert cli.main(["check", str(enemy)]) == 0
    checked = capsys.readouterr()
    for text in (shown.out, shown.err, checked.out, checked.err):
        assert not set(text) & set("\x1b\x07\x00\x01\r\u202e")
    assert len(shown.out.splitlines()) < 40  # a newline in a name starts no new line of the table
    page = (tmp_path / "page.html").read_text("utf-8")
    tags = Tags()
    tags.feed(page)
    assert not tags.seen & {"script", "img", "iframe", "object", "embed", "link", "base", "form"}
    assert tags.handlers == []
    assert "default-src 'none'" in page
    assert "\u202e" not in page
    assert cli.main(["estimate", str(enemy), "--method", "plain", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in data["outputs"]] == [n.replace("\x00", "\x01") for n in HOSTILE]
    assert sorted(os.listdir(tmp_path)) == ["page.html", "result.npz"]  # no name became a file
    assert scv.Estimate.load("result.npz").labels[0] == HOSTILE[0]


ESCAPES = (
    "().__class__.__mro__[1].__subclasses__()",
    "mu.__array_interface__",
    "exp.__globals__",
    "__builtins__",
    "getattr(mu, 'tofile')('harm')",
    "mu.tofile('harm')",
    "[].append(open('harm', 'w'))",
    "(lambda: open('harm', 'w'))()",
    "exp(open('harm','w'))",
    "f\"{open('harm','w')}\"",
    "import os",
    "os.system('touch harm')",
    "mu; open('harm','w')",
    "mu if open('harm','w') else mu",
    "exec(\"open('harm','w')\")",
    "compile('1','','eval')",
    "mu[open('harm','w')]",
    "'harm'.__class__",
    "9**9**9**9*mu",
    "mu" + "*mu" * 5000,
)


@pytest.mark.parametrize("text", ESCAPES, ids=range(len(ESCAPES)))
def test_expressions_cannot_escape(text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(2, 10, 1))
    np.savez("draws.npz", draws=x, scores=-x, names=["mu"])
    assert cli.main(["estimate", "draws.npz", "--method", "plain", f"--function={text}"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert os.listdir(tmp_path) == ["draws.npz"]


# What files point to ---------------------------------------------------------------------------------


def link(file, target):
    import h5py

    file["sample_stats"] = h5py.ExternalLink(str(target), "/sample_stats")


def external(file, target):
    group = file.create_group("sample_stats")
    for name in ("unconstrained_draw", "gradient"):
        group.create_dataset(name, (2, 5, 1), "f8", external=[(str(target), 0, 80)])


def virtual(file, target):
    import h5py

    layout = h5py.VirtualLayout((2, 5, 1), "f8")
    layout[:] = h5py.VirtualSource(str(target), "draws", (2, 5, 1))
    file.create_virtual_dataset("unconstrained_draw", layout)


def long_text(file, target):
    """Two letters of text, and 4 GiB of it by its own word."""
    import h5py

    file.create_dataset("names", data=["ab"], dtype=h5py.string_dtype())
    at = file["names"].id.get_offset()
    path = file.filename
    file.close()
    with open(path, "r+b") as raw:
        raw.seek(at)
        raw.write(b"\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (link, "another file"),
        (external, "another file"),
        (virtual, "another file"),
        (long_text, "claim 4294967295 bytes"),
    ],
    ids=["link", "external", "virtual", "long text"],
)
def test_a_netcdf_file_is_not_believed(tmp_path, make, says):
    import h5py

    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(80)) * 2)
    with h5py.File(tmp_path / "a.nc", "w") as file:
        make(file, secret)
    with pytest.raises(scv.InputError, match=says):
        read_samples(tmp_path / "a.nc")


# Where results go ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result():
    x = np.random.default_rng(0).normal(size=(2, 20, 1))
    return scv.estimate(scv.Samples(x, -x), None, scv.MonteCarlo())


WRITERS = {"save": lambda r, path, **o: r.save(path, **o), "report": lambda r, path, **o: r.report(path, **o)}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_links_are_not_followed(result, tmp_path, write):
    """Without force a link is refused, be there something behind it or not; with force the link is replaced."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for behind in (precious, tmp_path / "nothing"):
        link = tmp_path / f"to-{behind.name}"
        link.symlink_to(behind)
        with pytest.raises(scv.InputError, match="exists already"):
            write(result, link)
        assert link.is_symlink()
        write(result, link, force=True)
        assert not link.is_symlink()
        assert link.is_file()
    assert precious.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_dots_mean_what_they_mean_to_the_system(result, tmp_path, write, monkeypatch):
    """`..` is the user's own path: taken as it is, and what exists there is kept as anywhere else."""
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    write(result, "../out")
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]
    with pytest.raises(scv.InputError, match="exists already"):
        write(result, "../out")
    with pytest.raises(scv.InputError, match="folder"):
        write(result, "..")


@pytest.mark.parametrize("option", ["--save", "--report"])
def test_the_command_keeps_what_is_there(enemy, tmp_path, capsys, option):
    """Refused before the fit, and what was there is as it was."""
    there = tmp_path / "there"
    there.write_text("precious")
    assert cli.main(["estimate", str(enemy), "--method", "plain", option, str(there)]) == 2
    assert "--force" in capsys.readouterr().err
    assert there.read_text() == "precious"
    assert cli.main(["estimate", str(enemy), "--method", "plain", option, str(there), "--force"]) == 0
    assert there.read_bytes() != b"precious"


def test_nothing_opens_a_connection_or_starts_a_program(enemy, tmp_path, capsys):
    """Python's own audit: no socket, no process, no import of data, while a file is read, fitted and reported."""
    seen = []
    watching = True

    def audit(event, arguments):
        if watching and event.startswith(
            ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "pickle.")
        ):
            seen.append((event, arguments))

    sys.addaudithook(audit)
    report = str(tmp_path / "a.html")
    assert cli.main(["estimate", str(enemy), "--method", "polynomial:2", "--report", report]) == 0
    watching = False
    assert seen == []
