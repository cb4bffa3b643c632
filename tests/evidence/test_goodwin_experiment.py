"""`steincv reproduce goodwin`: its cells in small, and its verdicts on tables whose answer is known."""

import dataclasses

import numpy as np
import pandas
import pytest

import steincv as scv
from steincv_paper import claims as _claims, goodwin, goodwin_fits as _goodwin_fits
from steincv_paper.goodwin_figures import against_dimension, ratios
from steincv_paper.goodwin_fits import Draws, Split, evidence_rows, fit, ratio_rows, rung_rows, size_rows

SPECIES = (3, 4, 7, 8)
LOWEST = {
    "linear": 0.9,
    "quadratic": 0.8,
    "control functional": 0.3,
    "CNCV, no decay": 0.1,
    "CNCV()": 0.1,
    "Auto()": 0.1,
}


def table(ratio, few=0.7):
    """Rows as cells make them; `ratio(method, species, rung)`."""
    rows = []
    for species in SPECIES:
        same = {"species": species, "observed": "all", "integrator": "ode", "seed": 0, "coordinates": "log"}
        for method in LOWEST:
            for rung in range(5):
                row = same | {"part": "ratio", "split": "random", "rung": rung, "temperature": rung / 4, "n": 3000}
                value = ratio(method, species, rung)
                rows.append(
                    row | {"method": method, "ratio": value, "ratio_few": value, "ratio_train": value / 2, "stein_z": 1}
                )
                for n, factor in ((100, few), (3000, 1.0)):
                    rows.append(rows[-1] | {"part": "size", "n": n, "ratio": value * factor})
            numbers = {"log_evidence": 10.0 * species, "error": 0.1, "plain": 10.0 * species + 0.5, "plain_error": 1.0}
            more = {"statistical_error": 0.1, "discretisation_error": 0.01}
            rows.append(same | {"part": "evidence", "method": method} | numbers | more)
    return pandas.DataFrame(rows)


def verdicts(frame):
    return {claim.claim: claim.verdict for claim in goodwin.claims(frame, goodwin.FULL)}


def test_verdicts_follow_the_numbers():
    def as_the_paper_says(method, species, rung):
        return 0.9 if method == "control functional" and species >= 7 else LOWEST[method]

    found = verdicts(table(as_the_paper_says))
    assert set(found.values()) == {_claims.HOLDS}
    assert len(found) == 11
    quadratic = verdicts(table(lambda m, g, k: 0.01 if m == "quadratic" else LOWEST[m]))
    assert quadratic["Quadratic control variates hardly reduce the variance"] == _claims.FAILS
    assert quadratic["CNCV has the lowest ratio at every dimension (CNCV())"] == _claims.FAILS
    assert quadratic["... and only then"] == _claims.FAILS
    once = verdicts(table(lambda m, g, k: 0.01 if (m, g, k) == ("quadratic", 3, 2) else as_the_paper_says(m, g, k)))
    assert once["... and at every temperature (CNCV())"] == _claims.PART
    assert once["CNCV has the lowest ratio at every dimension (CNCV())"] == _claims.HOLDS


def test_t_0_does_not_count_and_missing_numbers_are_left_out():
    frame = table(lambda m, g, k: 1e9 if k == 0 else LOWEST[m])
    assert ratios(frame).ratio.max() < 1
    frame = frame.astype(object).where(frame.notna(), "")  # as read back from a file
    frame.loc[(frame.part == "ratio") & (frame.rung == 2), "ratio"] = ""
    assert len(ratios(frame)) == 3 * len(LOWEST) * len(SPECIES)
    assert verdicts(frame)["Linear control variates hardly reduce the variance"] == _claims.HOLDS


def test_figures_have_a_panel_for_everything():
    frame = table(lambda m, g, k: LOWEST[m] / (1 + k))
    found = goodwin.figures(frame, goodwin.FULL)
    assert {name: len(figure.axes) for name, figure in found.items()} == {
        "goodwin_dimension": 1,
        "goodwin_temperature": 6,
        "goodwin_size": 4,
        "goodwin_evidence": 2,
    }
    two = pandas.concat([frame, frame.assign(split="blocks")])
    assert len(against_dimension(two).axes) == 2


def test_cells_are_one_for_every_variant():
    for settings in (goodwin.FULL, goodwin.QUICK):
        cells = goodwin.cells(settings)
        assert len({cell.name for cell in cells}) == len(settings.species) + len(settings.coded)
        assert all(cell.cost > 0 for cell in cells)


def test_a_split_keeps_training_and_test_apart():
    x = np.arange(80.0).reshape(2, 40, 1)
    samples = scv.Samples(x, -x)
    for how in ("random", "blocks"):
        split = Split.of(samples, x[..., 0], how, 0)
        train, test = (set(s.draws.reshape(-1)) for s in (split.train, split.test))
        assert not train & test
        assert len(train | test) == 80
        np.testing.assert_array_equal(split.test.draws[..., 0], split.f_test)
        assert Split.of(samples, x[..., 0], how, 0, size=10).f_train.size == 10
    blocks = Split.of(samples, x[..., 0], "blocks", 0)
    assert set(blocks.f_train[1]) == set(range(40, 60))


def test_fits_are_judged_on_draws_they_have_not_seen():
    x = np.random.default_rng(0).normal(size=(2, 200, 2))
    samples, values = scv.Samples(x, -x), x[..., 0] ** 2
    splits = [Split.of(samples, values, how, 0) for how in ("random", "blocks")]
    for method in (scv.Polynomial(2), scv.Auto()):
        for (test, train), split in zip(fit(method, splits, 0), splits, strict=True):
            assert test.shape == split.f_test.shape
            assert test.var() < 1e-6
            assert (train is None) == isinstance(method, scv.Auto)


def test_a_cell_in_small(tmp_path, monkeypatch):
    monkeypatch.setattr(_goodwin_fits, "cache_folder", lambda: tmp_path)
    draws = Draws.of(3, "first-two", "euler", 4000, 80, 2, 5, 0)
    assert [p.name for p in tmp_path.iterdir()] == ["goodwin-3-first-two-euler-4000-80-2-5-0.npz"]
    assert draws.tempered.samples[0].draws.shape == (2, 40, 5)
    rows = rung_rows(draws)
    assert len(rows) == 5
    assert rows[-1]["acceptance"] > 0.05
    assert rows[-1]["solver_error"] is None  # there is nothing to hold Euler's method against
    few = {name: goodwin.METHODS[name] for name in ("linear", "quadratic")}
    rows = ratio_rows(draws, few, "log", "random", 20) + ratio_rows(draws, few, "raw", "blocks", 20)
    assert len(rows) == 20
    assert {row["coordinates"] for row in rows} == {"log", "raw"}
    assert all(row["n"] == 40 for row in rows)
    sized = size_rows(draws, few, (20, 40), 20)
    assert [(row["part"], row["rung"], row["n"]) for row in sized] == [("size", 2, 20), ("size", 2, 40)] * 2
    same = next(row for row in rows if (row["method"], row["rung"]) == ("linear", 2))
    assert sized[1]["ratio"] == same["ratio"]  # all 40 draws of that rung
    assert size_rows(draws, few, (), 20) == []
    found = evidence_rows(draws, few)
    assert [row["method"] for row in found] == list(few)
    assert all(np.isfinite([row["log_evidence"], row["error"], row["plain_error"]]).all() for row in found)
    draws.forget()
    assert list(tmp_path.iterdir()) == []


def test_settings_are_those_of_the_paper():
    full = goodwin.FULL
    assert (full.iterations, full.kept, full.rungs, full.species) == (100_000, 6000, 30, (3, 4, 5, 6, 7, 8))
    assert max(full.sizes) == 3000
    assert full.few == 500
    assert dataclasses.asdict(full)["methods"]["CNCV()"] == repr(scv.CNCV())
    assert pytest.approx(1e-3) == goodwin.METHODS["CNCV, no decay"].penalty
