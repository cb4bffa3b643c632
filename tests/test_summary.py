"""The summary table: ArviZ's columns, ours beside them, for a terminal, a notebook, a data frame and the shell."""

import json

import numpy as np
import pytest

import steincv as scv
from steincv.cli import main

QUICK = scv.Polynomial(2)


def samples(seed=0):
    x = np.random.default_rng(seed).normal(size=(4, 200, 2))
    return scv.Samples(x, -x, names=["a", "b[0]"])


def test_every_number_is_that_of_the_estimate():
    table = scv.summary(samples(), method=QUICK, ci_prob=0.8)
    frame = table.frame()
    assert list(frame.index) == ["a", "b[0]"]
    assert list(frame.columns[:5]) == ["mean", "sd", "median", "eti_10%", "eti_90%"]
    result = scv.estimate(samples(), method=QUICK, stat=("mean", "sd", 0.1, 0.5, 0.9))
    for name, part in {"mean": result, "sd": result.sd, "eti_90%": result.quantile(0.9)}.items():
        np.testing.assert_array_equal(frame[f"{name}_cv"], part.mean)
        np.testing.assert_array_equal(frame[f"mcse_{name}"], part.plain.standard_error)
        np.testing.assert_array_equal(frame[f"gain_{name}"], np.asarray(part.gain))
    assert frame.loc["a", "eti_90%_cv"] == pytest.approx(1.2815515655, abs=1e-7)


def test_it_is_shown_everywhere(tmp_path):
    names = {"<b>": 0, "x": 1}
    x = np.random.default_rng(1).normal(size=(4, 100, 2))
    table = scv.summary(scv.Samples(x, -x, names=list(names)), method=QUICK)
    text, page = repr(table), table._repr_html_()
    assert text.count("plain") == text.count("controlled") == 2
    assert "r_hat" in text
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    table.report(tmp_path / "page.html")
    written = (tmp_path / "page.html").read_text("utf-8")
    assert "5%(x)" in written
    assert "95%(&lt;b&gt;)" in written


def test_names_are_chosen_as_in_arviz():
    table = scv.summary(samples(), method=QUICK, var_names=["b"])
    assert list(table.frame().index) == ["b[0]"]
    assert list(scv.summary(samples(), method=QUICK, var_names="a", stat_focus="median").frame().columns[:4]) == [
        "median",
        "mad",
        "eti_5%",
        "eti_95%",
    ]
    for options, words in (
        ({"var_names": ["c"]}, "`var_names` has 'c'"),
        ({"ci_prob": 1.0}, "`ci_prob` must lie"),
    ):
        with pytest.raises(scv.InputError, match=words):
            scv.summary(samples(), method=QUICK, **options)
    with pytest.raises(scv.InputError, match="there is no adapter"):
        scv.summary(3)


def test_a_tilde_leaves_names_out_as_in_arviz():
    def shown(var_names):
        table = scv.summary(samples(), method=QUICK, var_names=var_names)
        assert list(table.result.summary(var_names).index) == list(table.frame().index)
        return list(table.frame().index)

    assert shown("~a") == ["b[0]"]
    assert shown(["~b"]) == ["a"]
    assert shown(["a", "~a"]) == ["b[0]"]  # as in ArviZ: where one name is left out, all others are shown
    with pytest.warns(UserWarning, match=r"leaves out c, which is not there; there are a, b\[0\]"):
        assert list(scv.summary(samples(), method=QUICK, var_names=["~c"]).frame().index) == ["a", "b[0]"]
    x = samples().draws
    assert list(scv.summary(scv.Samples(x, -x, ["~a", "b"]), method=QUICK, var_names="~a").frame().index) == ["~a"]
    with pytest.raises(scv.InputError, match="leaves none of a"):
        shown(["~a", "~b"])
    with pytest.raises(scv.InputError, match="leaves none of a"):
        scv.estimate(samples(), method=QUICK).summary(["~a", "~b"])


def test_what_only_arviz_takes_is_told_what_to_write():
    for name, value, says in (("hdi_prob", 0.94, "ci_prob=0.94"), ("round_to", 2, "frame"), ("kind", "stats", "focus")):
        with pytest.raises(scv.InputError, match=f"`summary` has no `{name}`: .*{says}"):
            scv.summary(samples(), method=QUICK, **{name: value})


def test_from_the_shell(tmp_path, capsys):
    path = tmp_path / "draws.npz"
    drawn = samples()
    np.savez(path, draws=drawn.draws, scores=drawn.scores, names=np.array(drawn.names))
    assert main(["summary", str(path), "--method", "polynomial:2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["outputs"]
    assert [row["label"] for row in rows] == ["a", "b[0]"]
    assert rows[0]["mean"] == pytest.approx(drawn.draws[..., 0].mean())
    assert main(["summary", str(path), "--method", "polynomial:2", "--var-names", "a", "--stat-focus", "median"]) == 0
    shown = capsys.readouterr().out
    assert "controlled" in shown
    assert "b[0]" not in shown
