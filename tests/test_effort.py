"""What the default left out, and what it asked of the model, is said wherever a result is shown."""

from dataclasses import replace

import numpy as np
import pytest

import steincv as scv
from steincv.report.effort import effort
from steincv.report.members import methods
from steincv.report.printing import as_json, show

LEFT_OUT = [("Neural()", "would need 25.1 GiB of memory"), ("Sparse(terms=40)", "would take about 90 s per fold")]
ORBITS = {"states": 8, "gradients": 14_000, "step": 0.4321, "lost": 0.0, "effective": 7.2, "seconds": 0.2}


@pytest.fixture(scope="module")
def samples():
    x = np.random.default_rng(0).normal(size=(4, 30, 2))
    return scv.Samples(x, -x, log_density=lambda x: (-0.5 * x @ x, -x))


def test_members_left_out_are_named_with_their_reasons():
    assert effort({"left_out": LEFT_OUT}) == [
        "Left out: Neural (would need 25.1 GiB of memory), Sparse(terms=40) (would take about 90 s per fold)."
    ]
    (line,) = effort({"left_out": [(f"A(b={k})", "too large") for k in range(11)]})
    assert line.endswith("A(b=7) (too large) and 3 more.")


def test_orbits_are_counted():
    assert effort({"orbits": ORBITS}) == ["Orbits: 8 states around every draw, 14,000 gradients, steps of 0.43."]
    (line,) = effort({"orbits": ORBITS | {"lost": 0.02}})
    assert line.endswith("; 2.0% of the draws are alone, their orbits left the support.")
    assert effort({"orbits": {"states": 1, "seconds": 45.0}}) == [
        "Orbits: none, because one gradient per draw would take 45 s."
    ]


def test_an_estimate_with_orbits_says_so(samples):
    result = scv.estimate(samples, method=scv.Polynomial(1), orbits=3)
    (line,) = effort(result.info)
    assert line.startswith("Orbits: 3 states around every draw, ")
    assert line in repr(result).splitlines()


def test_every_view_says_it(samples, capsys):
    result = scv.estimate(samples, method=scv.Polynomial(1), orbits=0)
    assert effort(result.info) == []
    result = replace(result, info={**result.info, "left_out": LEFT_OUT, "fitting": "not used: no function."})
    show(result, 1.0)
    views = [repr(result), result._repr_html_(), methods(result), capsys.readouterr().out]
    views += ["\n".join(as_json(result, samples, 1.0)["effort"])]
    for view in map(" ".join, map(str.split, views)):
        assert "Left out: Neural (would need 25.1 GiB of memory)" in view
        assert "Draws to fit on were not used: no function." in view


@pytest.mark.parametrize(
    "info",
    [
        {"left_out": 3, "orbits": "many", "fitting": 4},
        {"left_out": [1, None, ("a",)], "orbits": {"states": "8", "gradients": None, "step": []}},
        {"orbits": {"states": float("inf"), "gradients": float("nan"), "step": True}},
    ],
)
def test_an_info_from_a_file_may_hold_anything(info):
    assert effort(info) == []


def test_hostile_reasons_are_text(samples):
    result = scv.estimate(samples, method=scv.Polynomial(1), orbits=0)
    result = replace(result, info={"left_out": [("<script>\x1b[2J", "<b>\n")], "fitting": "<i>"})
    assert "<script>" not in methods(result) + result._repr_html_()
    assert "\x1b" not in repr(result)
