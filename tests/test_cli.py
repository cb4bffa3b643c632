"""The command line, as a newcomer meets it."""

import json
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import steincv as scv
from steincv import cli
from steincv.runtime.arrays import refuse_target


@pytest.fixture(scope="module")
def file(tmp_path_factory, gaussian_samples):
    path = tmp_path_factory.mktemp("cli") / "draws.npz"
    x = gaussian_samples.draws
    np.savez(path, draws=x, scores=-x, names=gaussian_samples.names)
    return str(path)


@pytest.fixture
def run(capsys):
    """Runs the command; gives its exit code, stdout and stderr."""

    def run(*arguments):
        try:
            code = cli.main([str(a) for a in arguments])
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_demo(run, tmp_path):
    code, out, err = run("demo", "--out", tmp_path / "a.png")
    assert (code, err) == (0, "")
    for text in (
        "mu",
        "tau",
        "theta[7]",
        "plain ± mcse",
        "controlled ± mcse",
        "10 of 10 outputs improved",
        "Took",
    ):
        assert text in out
    assert str(tmp_path / "a.png") in out.replace("\n", "")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_demo_replaces_nothing_but_its_own_picture(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine.png", "demo.png"):
        (tmp_path / name).write_text("mine")
    code, _, err = run("demo", "--method", "polynomial:1", "--out", "mine.png")
    assert code == 2
    assert "exists already" in err
    assert (tmp_path / "mine.png").read_text() == "mine"
    for arguments in ((), ("--out", "mine.png", "--force")):
        assert run("demo", "--method", "polynomial:1", *arguments)[0] == 0
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("mine.png", "demo.png"))


def test_demo_json(run, tmp_path):
    code, out, err = run("demo", "--json", "--out", tmp_path / "a.png", "--method", "polynomial:1", "--seed", 3)
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert [row["label"] for row in data["outputs"]] == ["mu", "tau", *(f"theta[{j}]" for j in range(8))]
    assert data["outputs"][0]["variance_ratio"] < 0.2
    assert data["figure"] == str(tmp_path / "a.png")


def test_estimate(run, file, tmp_path):
    saved = tmp_path / "a.npz"
    arguments = (
        "estimate",
        file,
        "--function",
        "square = mu**2",
        "--function",
        "exp(eta[0])",
        "--stat",
        "mean,sd",
    )
    code, out, err = run(*arguments, "--method", "polynomial:2", "--save", saved)
    assert (code, err) == (0, "")
    for text in ("square", "exp(eta[0])", "sd(square)", "exact", "Saved:"):
        assert text in out
    back = scv.Estimate.load(saved)
    assert back.labels == ("square", "exp(eta[0])")
    assert back.mean[0] == pytest.approx(1.0, abs=1e-9)
    assert back.mean[1] == pytest.approx(np.exp(0.5), abs=0.1)
    code, out, err = run(*arguments, "--save", saved)
    assert (code, out) == (2, "")
    assert "--force" in err
    assert run(*arguments, "--method", "polynomial:2", "--save", saved, "--force")[0] == 0


def test_what_is_read_is_never_written_to(run, file, tmp_path, monkeypatch):
    """Whatever --force says, and by whatever name: itself, a path with dots, a link, a second name of the file."""
    monkeypatch.chdir(tmp_path)
    draws = tmp_path / "draws.npz"
    draws.write_bytes(Path(file).read_bytes())
    before = draws.read_bytes()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.npz").symlink_to(draws)
    (tmp_path / "hard.npz").hardlink_to(draws)
    for option in ("--report", "--save"):
        for name in ("draws.npz", "folder/../draws.npz", "link.npz", "hard.npz"):
            code, out, err = run("estimate", draws, "--method", "plain", option, name, "--force")
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert "is read and would be lost" in err
        assert run("estimate", "link.npz", "--method", "plain", option, draws, "--force")[0] == 2
    assert draws.read_bytes() == before
    assert (tmp_path / "link.npz").is_symlink()


def test_the_other_commands_write_over_no_input_either(run, tmp_path):
    own = files("steincv") / "data" / "eight_schools.npz"
    before = own.read_bytes()
    state = tmp_path / "state.npz"
    state.write_bytes(b"mine")
    code, _, err = run("demo", "--out", own, "--force")
    assert (code, own.read_bytes()) == (2, before)
    assert "is read and would be lost" in err
    code, _, err = run("evidence", "regression", "--checkpoint", state, "--out", state, "--force")
    assert (code, state.read_bytes()) == (2, b"mine")
    assert "is read and would be lost" in err
    both = run("bench", "--out", tmp_path / "a.png", "--picture", tmp_path / "a.png")
    assert (both[0], "the same file" in both[2]) == (2, True)


def test_nothing_is_written_into_a_folder_that_is_read(tmp_path):
    (tmp_path / "draws.zarr").mkdir()
    with pytest.raises(scv.InputError, match="is read and would be lost"):
        refuse_target(tmp_path / "draws.zarr" / "report.html", force=True, inputs=[tmp_path / "draws.zarr"])
    refuse_target(tmp_path / "draws.zarr.html", force=False, inputs=[tmp_path / "draws.zarr"])


def test_estimate_of_every_parameter(run, file):
    code, out, _ = run("estimate", file)
    assert code == 0
    assert "4 chains x 250 draws x 3 dimensions" in out
    assert "eta[1]" in out


def test_estimate_of_a_probability(run, file):
    code, out, err = run("estimate", file, "--function", "mu > 0", "--json", "--method", "polynomial:2")
    assert (code, err) == (0, "")
    row = json.loads(out)["outputs"][0]
    assert row["label"] == "mu > 0"
    assert row["controlled"]["mean"] == pytest.approx(0.5, abs=0.1)


def test_functions_take_any_name_and_arrays_beside_the_draws(run, tmp_path):
    x = np.random.default_rng(0).normal(size=(2, 100, 3))
    beside = {"log lik": x[..., 0] ** 2, "pred": x[..., :2], "scalar": np.ones(3), "note": np.array("pred")}
    path = tmp_path / "a.npz"
    np.savez(path, draws=x, scores=-x, names=["my mu", "mymu", "a=b"], **beside)
    texts = ["my mu", "mymu", "a=b", "log lik", "pred[1]", "q = log lik", '"my mu" - mymu', 'w = "log lik" + mymu']
    arguments = [part for text in texts for part in ("--function", text)]
    code, out, err = run("estimate", path, "--json", "--method", "plain", *arguments)
    assert (code, err) == (0, "")
    found = {row["label"]: row["plain"]["mean"] for row in json.loads(out)["outputs"]}
    lik = (x[..., 0] ** 2).mean()
    means = [*x.mean(axis=(0, 1)), lik, x[..., 1].mean(), lik, (x[..., 0] - x[..., 1]).mean(), lik + x[..., 1].mean()]
    assert list(found) == [*texts[:5], "q", texts[6], "w"]
    np.testing.assert_allclose(list(found.values()), means, atol=1e-12)
    code, _, err = run("estimate", path, "--function", "scalar")
    assert (code, "no parameter `scalar`" in err) == (2, True)


def test_arrays_beside_the_draws_of_one_chain(run, tmp_path):
    x = np.random.default_rng(0).normal(size=(100, 2))
    np.savez(tmp_path / "a.npz", draws=x, scores=-x, pred=x[:, 0] + 1)
    code, out, _ = run("estimate", tmp_path / "a.npz", "--function", "pred", "--json", "--method", "plain")
    assert code == 0
    assert json.loads(out)["outputs"][0]["plain"]["mean"] == pytest.approx(x[:, 0].mean() + 1)


def test_probabilities(run, file):
    cuts = ("--above", "mu=0", "--above", "mu=1.5", "--above", "eta[0]=0")
    code, out, err = run("estimate", file, "--json", "--method", "polynomial:2", *cuts)
    assert (code, err) == (0, "")
    rows = json.loads(out)["outputs"]
    assert [row["label"] for row in rows] == ["P(mu > 0)", "P(mu > 1.5)", "P(eta[0] > 0)"]
    assert [row["controlled"]["mean"] for row in rows] == pytest.approx([0.5, 0.0668, 0.5], abs=0.01)
    code, out, _ = run("estimate", file, "--method", "plain", "--function", "q = mu**2", "--below", "q=1")
    assert (code, "P(q <= 1)" in out) == (0, True)


def test_strict_checks_exit_with_1(run, file, tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 500, 2))
    np.savez(tmp_path / "a.npz", draws=x, scores=x)
    for more in ((), ("--json",)):
        assert run("check", tmp_path / "a.npz", *more)[0] == 0
        assert run("check", tmp_path / "a.npz", "--strict", *more)[0] == 1
        assert run("check", file, "--strict", *more)[0] == 0
    for command in ((), ("check",), ("estimate",)):
        assert "xit code" in run(*command, "--help")[1]


def test_json_is_strict_and_alone_on_stdout(run, file):
    code, out, err = run("estimate", file, "--json", "--stat", "mean,sd", "--function", "mu", "--method", "plain")
    assert (code, err) == (0, "")

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    data = json.loads(out, parse_constant=refuse)
    assert data["sd"][0]["label"] == "mu"
    assert data["sd"][0]["controlled"]["mean"] == pytest.approx(1.0, abs=0.2)
    assert data["outputs"][0]["controlled"] == data["outputs"][0]["plain"]
    assert set(data["outputs"][0]["plain"]) == {"mean", "standard_error", "ess", "interval_95"}


def test_same_seed_same_answer(run, file):
    rows = [json.loads(run("estimate", file, "--json", "--seed", 1)[1])["outputs"] for _ in range(2)]
    assert rows[0] == rows[1]


def test_check(run, file):
    code, out, err = run("check", file)
    assert (code, err) == (0, "")
    for text in ("Scores fit the draws", "Chains agree", "R-hat", "ESS", "tail k", "repeats", "eta[0]"):
        assert text in out
    data = json.loads(run("check", file, "--json")[1])
    assert data["ok"] is True
    assert {row["name"] for row in data["coordinates"]} == {"mu", "eta[0]", "eta[1]"}
    z = [abs(row["z"]) for row in data["stein_means"]]
    assert z == sorted(z, reverse=True)


def test_check_of_wrong_scores(run, tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 500, 2))
    np.savez(tmp_path / "a.npz", draws=x, scores=x)
    code, out, _ = run("check", tmp_path / "a.npz")
    assert code == 0
    assert "Scores do not fit the draws" in out
    assert "Next:" in out
    assert json.loads(run("check", tmp_path / "a.npz", "--json")[1])["ok"] is False
    code, out, _ = run("estimate", tmp_path / "a.npz")
    assert code == 0
    assert "The plain means are reported" in out


def test_methods():
    assert cli.parse_method("auto") == scv.Auto()
    assert cli.parse_method("plain") == scv.MonteCarlo()
    assert cli.parse_method("polynomial:3") == scv.Polynomial(3)
    assert cli.parse_method("polynomial:1 + plain") == scv.Stack([scv.Polynomial(1), scv.MonteCarlo()])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("estimate", "nowhere.npz"), "no such file"),
        (("check", "nowhere.npz"), "no such file"),
        (("estimate", "FILE", "--function", "exp(mv)"), "did you mean mu"),
        (("estimate", "FILE", "--function", "__import__('os').system('true')"), "not allowed"),
        (("estimate", "FILE", "--function", "mu", "--function", "mu = mu + 1"), "two functions are called"),
        (("estimate", "FILE", "--function", "log(mu)"), "not finite"),
        (("estimate", "FILE", "--method", "polinomial"), "did you mean polynomial"),
        (("estimate", "FILE", "--method", "polynomial:two"), "polynomial:2"),
        (("estimate", "FILE", "--method", "polynomial:0"), "degree"),
        (("estimate", "FILE", "--method", "polynomial:-1"), "polynomial:2"),
        (("estimate", "FILE", "--method", "auto:1"), "write auto"),
        (("estimate", "FILE", "--method", ""), "known are"),
        (("estimate", "FILE", "--stat", "median"), "invalid choice"),
        (("estimate", "FILE", "--above", "mu"), "is not NAME=NUMBER, as in --above mu=0"),
        (("estimate", "FILE", "--below", "mu=a"), "is not NAME=NUMBER, as in --below mu=0"),
        (("estimate", "FILE", "--above", "nu=1"), "`above` names 'nu'; the outputs are mu"),
        (("estimate", "FILE", "--above", "mu=1", "--below", "mu=0"), "give one threshold"),
        (("estimate", "FILE", "--above", "mu=1", "--stat", "mean,sd"), "have no --stat mean,sd"),
        (("estimate", "FILE", "--folds", "9"), "4 chains"),
        (("estimate", "FILE", "--folds", "x"), "invalid int"),
        (("estimate", "FILE", "--save", "/nowhere/a.npz"), "does not exist"),
        (("estimate", "FILE", "--colour"), "unrecognized arguments"),
        (("estimate",), "required: file"),
        (("estimat", "FILE"), "invalid choice"),
        (("demo", "--out", "/nowhere/a.png"), "does not exist"),
        (("demo", "--method", "magic"), "no method"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, file, arguments, says):
    code, out, err = run(*(file if a == "FILE" else a for a in arguments))
    assert code == 2
    assert out == ""
    assert err.startswith("steincv: ")
    assert err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npz", b"hello"),
        ("a.npz", b""),
        ("a.nc", b"hello"),
        ("a.txt", b"hello"),
        ("a\nb\x1b[31m.npz", b"hello"),
    ],
)
def test_bad_files_are_one_line_and_exit_code_2(run, tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    for command in ("estimate", "check"):
        code, out, err = run(command, path)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "\x1b" not in err


def test_hostile_names_are_text(run, tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 100, 3))
    names = ["[red]a[/red]", "\x1b[31mb\x1b]0;t\x07", "[/]<b>"]
    np.savez(tmp_path / "a.npz", draws=x, scores=-x, names=names)
    for arguments in (("estimate",), ("check",), ("estimate", "--function", "nothere")):
        _, out, err = run(arguments[0], tmp_path / "a.npz", *arguments[1:])
        assert "\x1b" not in out + err
        assert "\x07" not in out + err
        assert "[red]a[/red]" in out + err
    assert json.loads(run("estimate", tmp_path / "a.npz", "--json")[1])["outputs"][1]["label"] == names[1]


def test_help_and_version(run):
    for arguments in ((), ("--help",), ("estimate", "--help"), ("demo", "--help"), ("check", "--help")):
        code, out, err = run(*arguments)
        assert (code, err) == (0, "")
        assert "usage: steincv" in out
    assert run("--version")[1] == f"steincv {scv.__version__}\n"


def test_a_fresh_process_is_quick_to_help_and_survives_a_closed_pipe(file):
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "steincv", "--help"], capture_output=True, text=True, check=True)
    assert time.perf_counter() - start < 5
    assert "demo" in done.stdout
    loaded = "{'jax', 'pandas', 'numpy'} & set(sys.modules)"
    code = f"import sys, steincv.cli; steincv.cli._parser(); sys.exit(bool({loaded}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    command = f"{sys.executable} -m steincv check {file} --json | head -n 1"
    piped = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (piped.stdout, piped.stderr) == ("{\n", "")
