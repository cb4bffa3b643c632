"""`steincv evidence`, the figure and the texts."""

import json

import numpy as np
import pytest

import steincv as scv
from steincv import cli
from steincv_paper.evidence import sentences
from steincv_paper.evidence_figure import plot_evidence
from steincv_paper.models.regression import Regression

FAST = ["--draws", "40", "--warmup", "60", "--rungs", "6", "--replicas", "2", "--method", "polynomial:2"]


def test_table_and_figure(tmp_path, capsys):
    out = tmp_path / "evidence.png"
    assert cli.main(["evidence", "regression", "--dim", "2", *FAST, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    for part in (
        "conjugate linear regression, 2 coefficients",
        "rung",
        "Log evidence:",
        "Exact:",
        "round trips",
        "R-hat",
    ):
        assert part in text
    assert text.count("Polynomial") == 6
    assert out.read_bytes().startswith(b"\x89PNG")


def test_json_is_all_there_is(capsys, monkeypatch):
    monkeypatch.setattr("steincv_paper.evidence.integrate", lambda options, model, method: heavy())
    assert cli.main(["evidence", "regression", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["label"] == "log_evidence"
    assert len(found["info"]["rungs"]) == 8
    assert found["info"]["rungs"][0]["mean"] is None
    assert found["exact"] == pytest.approx(Regression.simulate(5).exact)
    assert set(found["controlled"]) == {"mean", "standard_error", "ess", "interval_95"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pendulum"], "no example model `pendulum`; known are regression, van-der-pol, goodwin"),
        (["regression", "--kernel", "hmc"], "kernel"),
        (["regression", "--rungs", "1"], "rungs"),
        (["regression", "--method", "magic"], "magic"),
        (["goodwin", "--observed", "none"], "observed"),
        (["regression", "--out", "no/such/folder/a.png"], "folder"),
    ],
)
def test_what_cannot_be_run_is_one_line(arguments, words, capsys):
    assert cli.main(["evidence", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def heavy():
    """A result with a rung that had to be bridged."""
    t = scv.temperature_ladder(8)
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(2, 60, 1)) for _ in t]
    values = [-np.exp(6 * a[..., 0]) if k == 0 else -(a[..., 0] ** 2) for k, a in enumerate(x)]
    return scv.log_evidence([scv.Samples(a, -a) for a in x], values, t, scv.Polynomial(2))


def test_figure_of_bridged_and_exact_rungs(tmp_path):
    problem = Regression.simulate(2)
    t = scv.temperature_ladder(8)
    pairs = [problem.draw(float(u), (2, 60), np.random.default_rng(1)) for u in t]
    exact = scv.log_evidence([s for s, _ in pairs], [v for _, v in pairs], t, scv.Polynomial(2))
    for name, result in (("bridged", heavy()), ("exact", exact)):
        figure = plot_evidence(result, tmp_path / f"{name}.png", exact=-70.0)
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        assert len(figure.axes) == 3
        assert all(np.isfinite(float(x)) for x in result.interval())
        assert any("Log evidence" in s for s in sentences(result))


def test_a_figure_needs_rungs():
    x = np.random.default_rng(0).normal(size=(2, 20, 1))
    with pytest.raises(scv.InputError, match="log_evidence"):
        plot_evidence(scv.estimate(scv.Samples(x, -x), method=scv.MonteCarlo()))
