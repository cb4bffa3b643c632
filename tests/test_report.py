"""Tables and figures: numbers rounded by their errors, labels as text whatever they hold."""

import io
import re
import sys

import numpy as np
import pytest
from rich.console import Console

import steincv as scv
from steincv.judging.diagnostics import stein_check
from steincv.report.charts import escaped
from steincv.report.check import check, check_table, findings
from steincv.report.figures import demo_figure, plot_forest, plot_gain, plot_trace
from steincv.report.meaning import MEANINGS
from steincv.report.page import page
from steincv.report.text import (
    clean,
    html_table,
    plus_minus,
    rich_table,
    short_method,
    stein_table,
    table,
    times,
)

HOSTILE = (
    "[red]bold[/red]",
    "[/]",
    "[link=file:///etc]x[/link]",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "a\nb\rc\td",
    "\u202eright to left",
    "$\\frac{1}{$",
    "{x} %s {0}",
    "l" * 500,
    "",
)


@pytest.fixture(autouse=True)
def without_pyplot(monkeypatch):
    """Whatever another test has imported: figures are then nobody's, and go when they are let go of."""
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)


@pytest.fixture(scope="module")
def hostile(gaussian_samples):
    return scv.estimate(gaussian_samples, dict.fromkeys(HOSTILE, gaussian_samples.draws[..., 0] ** 3))


@pytest.fixture(scope="module")
def result(gaussian_samples):
    x = gaussian_samples.draws
    noise = np.random.default_rng(3).normal(size=x.shape[:2])
    values = {"cubic": x[..., 0] ** 3 + 0.1 * noise, "noise": 1e6 * noise, "exact": x[..., 1]}
    return scv.estimate(gaussian_samples, values, scv.Polynomial(2), stat=("mean", "sd"))


def rendered(renderable, width=200):
    file = io.StringIO()
    Console(file=file, force_terminal=True, width=width, color_system=None).print(renderable)
    return file.getvalue()


@pytest.mark.parametrize(
    ("mean", "error", "shown"),
    [
        (4.347570, 0.051669, "4.348 ± 0.052"),
        (-4.347570, 0.51669, "-4.35 ± 0.52"),
        (5.0, 0.0996, "5.00 ± 0.10"),
        (99.99, 9.96, "100 ± 10"),
        (123456.0, 1234.0, "123500 ± 1200"),
        (0.001, 123.0, "0 ± 120"),
        (1.0, 0.0, "1 ± 0"),
        (0.0, 0.0, "0 ± 0"),
        (1.0, 1e-13, "1 ± 1e-13"),
        (1.23456e-9, 2e-12, "(1.2346 ± 0.0020)e-09"),
        (1e300, 1e299, "(1.00 ± 0.10)e+300"),
        (float("nan"), 1.0, "nan ± 1"),
        (1.0, float("inf"), "1 ± inf"),
    ],
)
def test_numbers_are_rounded_by_their_errors(mean, error, shown):
    assert plus_minus(mean, error) == shown


def test_what_is_not_so_is_not_said(gaussian_samples):
    """The plain mean that was asked for is no failure, and too few draws are no finding."""
    plain = scv.estimate(gaussian_samples, method=scv.MonteCarlo(), stat=("mean", "sd", 0.5))
    for _, part in plain.parts():
        assert all(found == () for found in part.status)
    assert plain.gained() == "The plain means, as asked for: no control variate was fitted."
    assert "help" not in repr(plain)
    few = scv.Samples(gaussian_samples.draws[:, :10], gaussian_samples.scores[:, :10])
    assert scv.geometry(few).sentences() == ["40 draws of 3 parameters are too few to tell: at least 100 are needed."]


def test_a_stein_mean_is_told_once(gaussian_samples):
    wrong = scv.estimate(scv.Samples(gaussian_samples.draws, gaussian_samples.draws), method=scv.Polynomial(2))
    message = next(s.message for s in wrong.status[0] if s.code is scv.Code.STEIN_MEAN)
    assert repr(wrong).count(message[:60]) == 1
    assert wrong.gained() == "The plain means are reported, because the scores do not fit the draws."
    text = page(wrong)
    assert text.count(escaped(MEANINGS[scv.Code.STEIN_MEAN].next_step)) == 1
    assert text.count(escaped(MEANINGS[scv.Code.STEIN_MEAN].title)) == 2  # above, and where it is explained


def test_scores_of_the_potential_are_told_by_their_sign(gaussian_samples):
    x = gaussian_samples.draws
    bad = [text for fine, text in findings(check(scv.Samples(x, x))) if not fine]
    assert "opposite sign" in bad[0]
    assert "give -scores" in bad[0]
    assert "opposite" not in " ".join(text for _, text in findings(check(scv.Samples(x, -2 * x))))


def test_any_number_keeps_two_digits_of_its_error():
    rng = np.random.default_rng(0)
    for mean in rng.normal(size=500) * 10.0 ** rng.integers(-12, 12, 500):
        error = abs(mean) * rng.uniform(0, 1)
        shown = plus_minus(mean, error)
        scale = float(f"1{found[0]}") if (found := re.findall(r"e[+-]\d+$", shown)) else 1.0
        got_mean, got_error = (float(x) * scale for x in re.sub(r"[()]|e[+-]\d+$", "", shown).split(" ± "))
        assert got_error == pytest.approx(error, rel=0.051)
        assert abs(got_mean - mean) <= 0.051 * error


def test_short_texts():
    assert short_method("Polynomial(degree=2, penalty='auto')") == "Polynomial(degree=2)"
    assert short_method("K(a='auto', b=1, c=None)") == "K(b=1)"
    assert short_method("Auto()") == "Auto"
    assert short_method("plain") == "plain"
    assert [times(x) for x in (1.0, 4.134, 31.6, 123.0, np.inf, np.nan)] == [
        "1×",
        "4.1×",
        "32×",
        "120×",
        *["> 1e5×"] * 2,
    ]
    assert clean("a\x1b[0m\n") == "a\\x1b[0m\\n"


def test_table_has_a_line_an_output(result):
    lines = table(result).splitlines()
    assert len(lines) == 1 + 6
    assert lines[0].split() == ["plain", "±", "mcse", "controlled", "±", "mcse", "gain", "method", "status"]
    assert [line.split()[0] for line in lines[1:]] == [
        "cubic",
        "noise",
        "exact",
        "sd(cubic)",
        "sd(noise)",
        "sd(exact)",
    ]
    assert "no gain" in lines[2]
    assert "plain" in lines[2]
    assert "exact" in lines[3].split()[-1]
    assert table(result) in repr(result)


def test_long_tables_are_cut(gaussian_samples):
    made = scv.estimate(gaussian_samples, np.random.default_rng(0).normal(size=(4, 250, 200)), scv.MonteCarlo())
    assert "and 140 more" in table(made)
    assert len(table(made).splitlines()) == 62
    assert "and 140 more" in html_table(made)
    assert len(plot_gain(made).get_yticks()) == 40


def test_hostile_labels_are_text_in_the_terminal(hostile):
    for shown in (table(hostile), rendered(rich_table(hostile), 400)):
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "\u202e" not in shown
        assert "[red]bold[/red]" in shown
        assert "\\x1b[31mred" in shown
        assert "a\\nb\\rc\\td" in shown
    assert len(table(hostile).splitlines()) == 1 + len(HOSTILE)


def test_hostile_labels_are_text_in_html(hostile):
    page = html_table(hostile)
    assert page == hostile._repr_html_()
    assert set(re.findall(r"</?([a-z]+)[^<]*?>", page)) == {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert "&lt;script&gt;" in page
    assert "<img" not in page
    assert "\x1b" not in page


def test_hostile_labels_are_text_in_figures(hostile, tmp_path):
    demo_figure(hostile, tmp_path / "a.png")
    for label in HOSTILE:
        plot_trace(hostile, label).figure.savefig(io.BytesIO())


def test_stein_table_puts_the_worst_first(gaussian_samples):
    wrong = scv.Samples(gaussian_samples.draws, 1.5 * gaussian_samples.scores)
    shown = rendered(stein_table(stein_check(wrong)))
    z = [abs(float(line.split()[-2])) for line in shown.splitlines() if line.endswith("ok ")]
    assert z == sorted(z, reverse=True)
    assert "not by chance" in shown
    assert "not by chance" not in rendered(stein_table(stein_check(gaussian_samples)))


def test_check_of_good_draws(gaussian_samples):
    found = check(gaussian_samples)
    assert all(fine for fine, _ in findings(found))
    assert "eta[1]" in rendered(check_table(found))


def test_check_finds_what_is_wrong(gaussian_samples):
    x = gaussian_samples.draws.copy()
    x[:, 1::2] = x[:, ::2]  # every draw twice
    moved = x.copy()
    moved[0] += 3.0

    def wrong(draws, scores):
        return [not fine for fine, _ in findings(check(scv.Samples(draws, scores)))]

    stein, pairs, few, apart, tails, repeats = range(6)
    assert wrong(x, -1.5 * x)[stein]
    assert wrong(x, -np.roll(x, 1, axis=1))[pairs]
    assert not wrong(x, -x)[pairs]
    assert wrong(x[:, :20], -x[:, :20])[few]
    assert wrong(moved, -moved)[apart]
    assert wrong(np.sinh(3 * x), -x)[tails]
    assert wrong(np.repeat(x[:, :50], 4, axis=1), -np.repeat(x[:, :50], 4, axis=1))[repeats]


def test_figures(result, tmp_path):
    forest, gain, trace = plot_forest(result), plot_gain(result), plot_trace(result, "cubic")
    assert [label.get_text() for label in forest.get_yticklabels()] == list(result.labels)
    assert gain.get_xscale() == "log"
    assert trace.get_ylabel() == "cubic"
    for ax in (forest, gain, trace):
        colours = {patch.get_facecolor() for patch in ax.patches} | {line.get_color() for line in ax.lines}
        assert colours
        assert ax.get_legend() is not None
    # the running means end at the means
    plain, controlled = (line.get_ydata()[-1] for line in trace.lines)
    assert plain == pytest.approx(result.plain.mean[0])
    assert controlled == pytest.approx(result.mean[0])
    demo_figure(result, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    demo_figure(result, tmp_path / "a.png")  # a figure may be drawn again
    with pytest.raises(scv.InputError, match="none of the outputs"):
        plot_trace(result, "other")


def test_figures_draw_on_given_axes(result):
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert plot_forest(result, ax) is ax
    assert plot_gain(result, ax=Figure().subplots()) is not ax


def test_figures_leave_pyplot_alone(result):
    plot_forest(result)
    assert "matplotlib.pyplot" not in sys.modules
