"""Expressions: right values, clear errors, and no way to run code."""

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings, strategies as st

from steincv import InputError
from steincv.samples.expressions import LIMITS, evaluate

RNG = np.random.default_rng(0)
NAMES = ("mu", "log_tau", "eta[0]", "eta[1]", "cov[1, 2]", "theta.1")
COLUMNS = {name: RNG.normal(size=(2, 5)) for name in NAMES}
MU, TAU, ETA, COV = (COLUMNS[name] for name in ("mu", "log_tau", "eta[0]", "cov[1, 2]"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mu", MU),
        ("exp(log_tau)", np.exp(TAU)),
        ("mu + exp(log_tau)*eta[0]", MU + np.exp(TAU) * ETA),
        (" eta[0] ** 2 ", ETA**2),
        ("2 * cov[1,2] / 4", COV / 2),
        ('"theta.1" - 1', COLUMNS["theta.1"] - 1),
        ("-mu ** 2", -(MU**2)),
        ("mu > 0", (MU > 0).astype(float)),
        ("-1 < mu <= 0.5", ((MU > -1) & (MU <= 0.5)).astype(float)),
        ("maximum(mu, 0) - minimum(mu, 0)", np.abs(MU)),
        ("sqrt(abs(mu)) + tanh(mu)", np.sqrt(np.abs(MU)) + np.tanh(MU)),
        ("logit(expit(mu))", scipy.special.logit(scipy.special.expit(MU))),
        ("sin(mu)**2 + cos(mu)**2", np.ones_like(MU)),
        ("tan(mu) * log(3)", np.tan(MU) * np.log(3)),
    ],
)
def test_values(text, expected):
    np.testing.assert_allclose(evaluate(text, COLUMNS), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("exp(log_tua)", "did you mean log_tau"),
        ("expp(mu)", "did you mean exp"),
        ("eta", "eta[0] to eta[1]"),
        ("eta[7]", "no parameter"),
        ("exp + 1", "it is a function"),
        ("eta[-1]", "whole number"),
        ("eta[mu]", "whole number"),
        ("eta[0:1]", "whole number"),
        ("eta[True]", "whole number"),
        ("exp(mu, mu)", "takes one argument"),
        ("minimum(mu)", "takes two arguments"),
        ("1 + 2", "uses no parameter"),
        ("log(mu)", "not finite at"),
        ("mu / (mu - mu)", "not finite at 10 of 10 draws"),
        ("mu ** 101", "exponent beyond 100"),
        ("mu ** -1000", "exponent beyond 100"),
        ("9 ** 9 ** 9", "exponent beyond 100"),
        ("mu +", "cannot be read"),
        ("", "cannot be read"),
        ("mu = 3", "cannot be read"),
        ("1if mu else 2", ""),
        ("mu @ mu", "not allowed"),
        ("mu // 2", "not allowed"),
        ("mu and mu", "not allowed"),
        ("not mu", "not allowed"),
        ("[mu]", "not allowed"),
        ("{mu: mu}", "not allowed"),
        ("lambda: mu", "not allowed"),
        ("mu if mu else mu", "not allowed"),
        ("(mu := 2)", "not allowed"),
        ("[x for x in mu]", "not allowed"),
        ("f'{mu}'", "not allowed"),
        ("mu.__class__", "not allowed"),
        ("().__class__.__bases__[0].__subclasses__()", "not allowed"),
        ("__import__('os').system('true')", "not allowed"),
        ("__import__('os')", "no parameter `os`"),
        ("exec('1')", "no parameter `1`"),
        ("open(mu)", "no function `open`"),
        ("exp(*mu)", "not allowed"),
        ("exp(x=mu)", "not allowed"),
        ("exp(**mu)", "not allowed"),
        ("exp(mu)(mu)", "not allowed"),
        ("True + mu", "not allowed"),
        ("None", "not allowed"),
        ("1j * mu", "not allowed"),
        ("b'a'", "not allowed"),
        ("...", "not allowed"),
        ("mu < mu in mu", "not allowed"),
        ("~mu", "not allowed"),
        ("mu\x00", ""),
        ("mu; mu", "cannot be read"),
        ("9" * 400 + " * mu", "too large"),
        ("-" * 400 + "mu", ""),
        ("+".join(["mu"] * (LIMITS.levels + 5)), "nested more than"),
        ("mu" + " " * LIMITS.characters, "characters"),
    ],
)
def test_refused(text, says):
    with pytest.raises(InputError) as caught:
        evaluate(text, COLUMNS)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value).replace(text, "")


@pytest.mark.parametrize("depth", [50, 100, 150, 240])
def test_brackets_are_one_name_to_the_parser_or_too_many_for_it(depth):
    try:
        values = evaluate("(" * depth + "mu" + ")" * depth, COLUMNS)
    except InputError:
        return
    np.testing.assert_array_equal(values, MU)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(alphabet="muetalogxp[]()0123456789.+-*/<>=!, '\"\\_:{}@~%&|^;#\n\t", max_size=40))
def test_any_text_is_a_value_or_an_input_error(text):
    try:
        values = evaluate(text, COLUMNS)
    except InputError:
        return
    assert values.shape == (2, 5)
    assert np.isfinite(values).all()
