"""What the default left out, and what it asked of the model, is said wherever a result is shown."""

from dataclasses import replace

import numpy as np
import pytest

import steincv as scv
from steincv.judging.diagnostics import RACED
from steincv.report.members import methods
from steincv.report.printing import as_json, show
from steincv.report.text import effort
from steincv.samples.log_density import LogDensity

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


def test_members_that_lost_the_race_are_counted():
    raced = [(f"A(b={k})", RACED) for k in range(3)]
    assert effort({"left_out": raced}) == ["Left out: 3 members that added too little on the first fold."]
    assert effort({"left_out": [("B", "too large"), raced[0]]}) == [
        "Left out: B (too large); 1 member that added too little on the first fold."
    ]


def test_orbits_are_counted():
    assert effort({"orbits": ORBITS}) == ["Orbits: 8 states around every draw, 14,000 gradients, steps of 0.43."]
    (line,) = effort({"orbits": ORBITS | {"lost": 0.02}})
    assert line.endswith("; 2.0% of the draws are alone, their orbits left the support.")
    assert effort({"orbits": {"states": 1, "seconds": 45.0}}) == [
        "Orbits: none, because one gradient per draw would take 45 s."
    ]


def test_what_the_sampler_took_and_what_averaging_bought_is_said():
    (line,) = effort({"orbits": ORBITS | {"sampler": 25_000, "averaging": 3.14}})
    assert "14,000 gradients (the sampler took 25,000), steps of 0.43; averaged over them, f alone gains 3.1." in line
    assert effort({"orbits": {"states": 1, "sampler": 120}}) == [
        "Orbits: none, because the sampler took 120 gradients only."
    ]
    (line,) = effort({"orbits": {"states": 1, "why": "no `coin`"}})
    assert line == "Orbits: none, because f is not known at new points: no `coin`"


def test_orbits_take_no_more_gradients_than_the_sampler():
    x = np.random.default_rng(1).normal(size=(4, 100, 12))
    model = {"log_density": LogDensity(lambda v: (-0.5 * (v**2).sum(1), -v))}
    used = {}
    for spent in (None, 3000, 300):
        samples = scv.Samples(x, -x, **model, gradients=spent)
        result = scv.estimate(samples, lambda v: v[0] ** 3, scv.Polynomial(1))
        used[spent] = result.info["orbits"]
    assert used[None]["states"] == 8
    assert used[None]["averaging"] > 1
    assert used[3000]["states"] == 4
    assert 2000 < used[3000]["gradients"] <= 3000
    assert used[300] == {"states": 1, "sampler": 300}


def test_net_gain_weighs_seconds(samples):
    f = np.tanh(samples.draws[..., 0])
    result = replace(scv.estimate(samples, f, scv.Polynomial(2), orbits=0), info={"seconds": 3.0})
    gain = float(result.gain)  # what is shown, no more than 1 / variance_ratio
    assert 1 < gain <= 1 / result.variance_ratio
    for sampling in (9.0, 3e-3):
        found = scv.net_gain(result, sampling)
        assert found.gain == pytest.approx(gain)
        assert found.net == pytest.approx(gain * sampling / (sampling + 3))
        assert found.advice.startswith("Run the sampler longer" if found.net < 1 else "Control variates: 3 s")
        assert found.advice in repr(found.result)
    priced = scv.net_gain(result, 1000.0, gradients=120 * 16)
    assert "Orbits of 8 states would take about 438 s" in priced.advice
    assert "try Auto()" in priced.advice
    of_a_file = replace(result, info={"seconds": 3.0, "streamed": {"draws": 60}})
    assert "Orbits of 8 states would take about 219 s" in scv.net_gain(of_a_file, 1000.0, gradients=120 * 16).advice
    dear = scv.net_gain(result, 10.0, gradients=120)
    assert "Orbits" not in dear.advice
    assert "Auto" not in dear.advice
    with_orbits = replace(result, info={"seconds": 3.0, "orbits": ORBITS | {"seconds": 6.0}})
    assert scv.net_gain(with_orbits, 9.0).net == pytest.approx(gain / 2)


def test_net_gain_says_what_it_needs(samples):
    result = scv.estimate(samples, method=scv.Polynomial(1), orbits=0)
    with pytest.raises(scv.InputError, match="`sampling_seconds` must be a positive number, got 0"):
        scv.net_gain(result, 0)
    with pytest.raises(scv.InputError, match="gradients"):
        scv.net_gain(result, 1.0, gradients=0)


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
