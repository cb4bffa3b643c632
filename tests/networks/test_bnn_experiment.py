"""`steincv reproduce bnn`: a cell in small, and its verdicts on tables whose answer is known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest

import steincv as scv
from steincv_paper import bnn, bnn_converged, claims as _claims
from steincv_paper.bnn_draws import Problem
from steincv_paper.bnn_figures import REGRESSION
from steincv_paper.bnn_fits import METHODS, Split, default_rows, ratio_rows, sampler_row
from steincv_paper.paper import overview

SCORED = ("plain BNN", *METHODS, "predictive()", "single MLE network")


def table(ratio, default=1.0, entropy=None, regression=0.2, ess=500.0, bias=0.0):
    """Rows as cells make them; `ratio(method)`, `entropy(method)`."""
    entropy = entropy or (lambda method: 0.6)
    rows = []
    for sampler in ("pSGLD", "tempered"):
        state = {
            "stein_z": 9.0,
            "stein_share": 0.1,
            "score_largest": 30.0,
            "coin_flips": 0.9,
            "draws": 1000,
            "chains": 4,
            "rhat_share": 1.0,
            "rhat_largest": 1.01,
            "ess": 900.0,
            "ess_least": ess,
            "halves_agree": 0.97,
            "restarts": 90.0,
            "seconds": 450.0,
        }
        rows.append({"sampler": sampler, "part": "sampler", **state})
        for i in range(20):
            same = {"sampler": sampler, "image": i, "seen": int(i < 10), "seed": 0}
            for split in ("random", "time", "chains") if sampler == "pSGLD" else ("chains",):
                for method in METHODS:
                    numbers = {"ratio": ratio(method), "ratio_train": 0.9, "z": (-1) ** i}
                    rows.append(same | {"part": "ratio", "split": split, "method": method} | numbers)
            status = {"helped": int(default < 1), "status": "no gain", "method": "predictive()"}
            rows.append(same | {"part": "default", "ratio": default} | status)
            for method in SCORED:
                off = bias if sampler == "pSGLD" else 0.0
                numbers = {"score": i / 20 + 1e-4 + off, "error": 0.01, "entropy": entropy(method), "outside": 0}
                rows.append(same | {"part": "score", "method": method} | numbers)
        rows.append({"sampler": sampler, "part": "coverage", "covered": 0.95, "helped": 1.0, "ratio": default})
    for data in bnn.TABLES:
        for method in REGRESSION:
            for i in range(4):
                numbers = {"dim": 61, "image": i, "seen": i % 2, "ratio": regression, "method": method}
                rows.append({"sampler": "NUTS", "part": "regression", "data": data, **numbers})
        rows.append({"sampler": "NUTS", "part": "regression coverage", "data": data, "covered": 0.95})
    return pandas.DataFrame(rows)


def verdicts(frame, run=""):
    return {c.claim: c.verdict for c in bnn.claims(frame, bnn.FULL) if run in c.run}


def test_verdicts_follow_the_numbers():
    harm = verdicts(table(lambda m: 300.0 if m.startswith("CNCV") else 0.97), "pSGLD")
    assert harm["CNCV reduces the variance of the scores of images it was not fitted on"] == _claims.FAILS
    assert harm["CNCV has a lower ratio than linear control variates"] == _claims.FAILS
    assert harm["(ours) Fields from the network's own last layer reduce it"] == _claims.HOLDS
    assert harm["(ours) The default of `predictive` does no harm"] == _claims.HOLDS
    good = verdicts(table(lambda m: 0.5 if m.startswith("CNCV") else 0.97, default=1.2), "pSGLD")
    assert good["CNCV reduces the variance of the scores of images it was not fitted on"] == _claims.HOLDS
    assert good["(ours) The default of `predictive` does no harm"] == _claims.FAILS
    sure = verdicts(table(lambda m: 1.0, entropy=lambda m: 0.1 if m == "single MLE network" else 0.6), "tempered")
    assert sure["A single MLE network is over-confident where the Bayesian one is not"] == _claims.HOLDS
    assert sure["(ours) g has mean zero on draws it was not fitted on"] == _claims.HOLDS
    for regression, verdict in ((0.6, _claims.PART), (0.09, _claims.HOLDS)):  # intervals hold in both
        rough = verdicts(table(lambda m: 1.0, regression=regression))
        assert rough["(ours) Where the predictive is smooth, structure pays"] == verdict


def test_verdicts_on_converged_draws():
    converged, gains = "(ours) The draws have converged, by what is predicted", "(ours) On converged draws the default"
    biased = "(ours) Scores by pSGLD, run as in the paper, are those of the posterior"
    good, poor = (
        {c.claim: c.verdict for c in bnn.claims(frame, bnn.FULL)}
        for frame in (table(lambda m: 0.5, default=0.5), table(lambda m: 0.9, default=0.9, ess=300.0, bias=0.1))
    )
    for claim, expected in ((converged, _claims.PART), (gains, _claims.FAILS), (biased, _claims.FAILS)):
        name = next(c for c in good if c.startswith(claim))
        assert (good[name], poor[name]) == (_claims.HOLDS, expected)


def test_a_quick_run_is_not_held_against_draws_of_another_posterior():
    frame = table(lambda m: 0.5, default=0.5)
    fewer = frame[~((frame.sampler == "pSGLD") & (frame.part == "score") & (frame.image > 0))]
    assert not any("Scores by pSGLD" in c.claim for c in bnn.claims(fewer, bnn.QUICK))


def test_figures_have_a_panel_for_everything():
    frame = table(lambda m: 1.0)
    read_back = frame.astype(object).where(frame.notna(), "")
    found = bnn.figures(read_back, bnn.FULL)
    assert {name: len(figure.axes) for name, figure in found.items()} == {
        "bnn_scores": 2,
        "bnn_entropy": 2,
        "bnn_ratios": 4,
        "bnn_regression": 2,
    }
    assert verdicts(read_back) == verdicts(frame)


def test_cells_do_not_share_a_name():
    for settings in (bnn.FULL, bnn.QUICK):
        cells = bnn.cells(settings)
        assert len({cell.name for cell in cells}) == 4
        assert all(cell.cost > 0 for cell in cells)


def test_a_split_keeps_training_and_test_apart():
    x = np.arange(48.0).reshape(4, 12, 1)
    for how in ("random", "time", "chains"):
        split = Split.of(scv.Samples(x, -x), x, how, 0)
        train, test = set(split.f_train.ravel()), set(split.f_test.ravel())
        assert len(train) == len(test) == 24
        assert not train & test
        np.testing.assert_array_equal(split.train.draws, split.f_train)


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    rng = np.random.default_rng(0)
    images = rng.uniform(size=(60, 28, 28)) * 0.5
    labels = np.repeat([6, 9, 8], 20)
    images[labels == 6, :14] *= 2
    images[labels == 9, 14:] *= 2
    file = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(file, images=images, labels=labels)
    with pytest.raises(scv.InputError, match="are needed"):
        Problem.of(str(file), 80, 3, 3, 0)
    return Problem.of(str(file), 8, 3, 3, 0)


def test_rows_of_a_cell(problem):
    """On draws of the prior: what the fits and the default make of them."""
    theta = np.random.default_rng(1).normal(size=(2, 12, 405))
    samples = scv.Samples(theta, -theta)
    f = problem.values(samples)
    rows, scores = ratio_rows(problem, Split.of(samples, f, "chains", 0), "chains", 10, 0, ("linear", "last layer"))
    ratios = pandas.DataFrame(rows)
    assert len(ratios) == 2 * 6
    assert ratios.groupby("seen").size().tolist() == [6, 6]
    assert np.isfinite(ratios.ratio).all()
    assert scores["last layer"].shape == (6,)
    state = sampler_row(problem, samples, f)
    assert state["draws"] == 24
    default = pandas.DataFrame(default_rows(problem, Split.of(samples, f, "chains", 0), 0))
    assert (default.ratio[default.helped == 0] == 1).all()


def test_the_converged_run_goes_on_where_it_was_stopped(tmp_path, problem, monkeypatch):
    """End to end on a tiny problem: the same draws whether it was stopped or not, and all files."""
    monkeypatch.setattr(Problem, "of", lambda *_: problem)
    plan = bnn_converged.TINY
    path = tmp_path / "stopped" / "state.npz"
    path.parent.mkdir()
    saved = np.savez

    def stop(file, **arrays):
        saved(file, **arrays)
        if int(arrays["done"]) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", stop)
    with pytest.raises(KeyboardInterrupt):
        bnn_converged.sample(problem, plan, path)
    monkeypatch.setattr(np, "savez", saved)
    assert int(np.load(path)["done"]) == 2  # the file that was being written is not there
    bnn_converged.converged(plan, path.parent)
    whole = bnn_converged.sample(problem, plan, tmp_path / "whole.npz")
    np.testing.assert_array_equal(np.load(path)["draws"], whole["draws"])
    assert whole["draws"].shape == (4, 12, 405)
    np.testing.assert_array_equal(np.load(path)["restarts"], whole["restarts"])
    bnn_converged.converged(plan, path.parent, fewer=5)
    rows = bnn.cell("tempered", ("", 8, 3, 3), str(path.parent / "kept.npz"), 5, 0)
    assert {"ratio", "sampler", "default", "score", "coverage"} == {row["part"] for row in rows}
    assert next(row for row in rows if row["part"] == "sampler")["draws"] == 20
    assert bnn.cell("tempered", ("", 8, 3, 3), "", 5, 0) == []  # the kept draws are of other digits
    with pytest.raises(scv.InputError, match="another run"):
        bnn_converged.sample(problem, replace(plan, seed=1), path)


def test_an_even_ladder_refuses_equally_often():
    power = np.array([0.0, 0.5, 1.0])
    np.testing.assert_allclose(bnn_converged.even(power, np.array([0.3, 0.3])), power)
    np.testing.assert_allclose(bnn_converged.even(power, np.array([0.6, 0.2])), [0, 1 / 3, 1])


def test_the_page_opens_with_counts_of_its_own_tables():
    page = (Path(__file__).parents[2] / "docs" / "paper.md").read_text("utf-8")
    counted = overview(page)
    assert counted in page
    judged = sum(line.startswith("| 5.3 ") and "**" in line for line in page.splitlines())
    rows = [line.split("|")[2:-1] for line in counted.splitlines() if line.startswith("| 5.3 ")]
    assert sum(int(row[0].split(":")[1]) for row in rows) == sum(int(n) for row in rows for n in row[1:]) == judged > 0
