"""`steincv reproduce bnn`: a cell in small, and its verdicts on tables whose answer is known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest

import steincv as scv
from steincv_paper import bnn, bnn_converged, claims as _claims
from steincv_paper.bnn_draws import Problem
from steincv_paper.bnn_fits import METHODS, Split, default_rows, ratio_rows, sampler_row
from steincv_paper.paper import overview

SCORED = ("plain BNN", *METHODS, "predictive()", "single MLE network")


def table(ratio, default=1.0, entropy=None, regression=0.2):
    """Rows as cells make them; `ratio(method)`, `entropy(method)`."""
    entropy = entropy or (lambda method: 0.6)
    rows = []
    for sampler in ("pSGLD", "HMC"):
        state = {
            "stein_z": 9.0,
            "stein_share": 0.1,
            "score_largest": 30.0,
            "coin_flips": 0.9,
            "draws": 1000,
            "chains": 4,
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
                numbers = {"score": i / 20 + 1e-4, "entropy": entropy(method), "outside": 0}
                rows.append(same | {"part": "score", "method": method} | numbers)
    for data in bnn.TABLES:
        for method in ("linear", "last layer", "Gauss-Newton"):
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
    sure = verdicts(table(lambda m: 1.0, entropy=lambda m: 0.1 if m == "single MLE network" else 0.6), "HMC")
    assert sure["A single MLE network is over-confident where the Bayesian one is not"] == _claims.HOLDS
    assert sure["(ours) g has mean zero on draws it was not fitted on"] == _claims.HOLDS
    rough = verdicts(table(lambda m: 1.0, regression=0.6))
    assert rough["(ours) Where the predictive is smooth, structure pays"] == _claims.FAILS


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
    state = sampler_row(problem, samples, f, 1.0)
    assert state["draws"] == 24
    default = pandas.DataFrame(default_rows(problem, Split.of(samples, f, "chains", 0), 0))
    assert (default.ratio[default.helped == 0] == 1).all()


def test_the_converged_run_goes_on_where_it_was_stopped(tmp_path, problem, monkeypatch):
    """End to end on a tiny problem: the same draws whether it was stopped or not, and all files."""
    monkeypatch.setattr(bnn_converged.Problem, "of", lambda *_: problem)
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
    found = bnn_converged.converged(plan, path.parent)
    whole = bnn_converged.sample(problem, plan, tmp_path / "whole.npz")
    np.testing.assert_array_equal(np.load(path)["draws"], whole["draws"])
    assert whole["draws"].shape == (4, 12, 405)
    assert found["draws"] == 48
    kept = np.load(path.parent / "predictions.npz")
    assert kept["scores"].shape == kept["controls"].shape == (4, 12, len(problem.images))
    table = pandas.read_csv(path.parent / "rows.csv")
    assert {"ratio", "sampler", "default", "score"} == set(table.part)
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
