"""The matplotlib functions as a user has them: `scv.plot_*`, on axes of their own or given, for chosen outputs."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

import steincv as scv
from steincv.report import figures
from steincv.report.running import running, typical, window


@pytest.fixture(autouse=True)
def without_pyplot(monkeypatch):
    """Whatever another test has imported: figures are then nobody's, and go when they are let go of."""
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)


@pytest.fixture(scope="module")
def result(gaussian_samples):
    x = gaussian_samples.draws
    noise = np.random.default_rng(3).normal(size=x.shape[:2])
    theta = np.stack([x[..., 0] ** 3 + 0.1 * noise, x[..., 1] + noise], axis=-1)
    return scv.estimate(gaussian_samples, {"theta": theta, "noise": 1e6 * noise}, scv.Polynomial(2))


def names(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


@pytest.mark.parametrize("plot", [scv.plot_forest, scv.plot_gain])
def test_var_names_pick_outputs(result, plot):
    assert names(plot(result)) == ["theta[0]", "theta[1]", "noise"]
    assert names(plot(result, var_names=["noise", "theta"])) == ["noise", "theta[0]", "theta[1]"]
    assert names(plot(result, var_names="theta[1]")) == ["theta[1]"]
    with pytest.raises(scv.InputError, match=r"'thet'.*theta\[0\]"):
        plot(result, var_names=["noise", "thet"])
    with pytest.raises(scv.InputError, match="empty"):
        plot(result, var_names=[])


def test_forest_shows_the_numbers_it_names(result):
    ax = scv.plot_forest(result, var_names=["noise", "theta[0]"])
    unit = result.plain.standard_error[0]
    for lines, average in zip(ax.collections, (result.plain, result), strict=True):
        (left, _), (right, _) = lines.get_segments()[1]  # theta[0] was named second
        assert [left, right] == pytest.approx((average.interval(0.95)[0] - result.mean[0]) / unit)


def test_gain_bars_are_the_reduction(result):
    ax = scv.plot_gain(result)
    lengths = [bar.get_width() + 1 for bar in ax.patches]
    assert lengths == pytest.approx(np.asarray(result.gain))
    (lines,) = ax.collections
    ends = [[left, right] for (left, _), (right, _) in lines.get_segments()]
    np.testing.assert_allclose(ends, result.gain_interval(0.9)[np.array(result.method) != "plain"])
    texts = [text.get_text() for text in ax.texts]
    assert texts[2] == "plain"
    assert texts[0].endswith("×")


def test_trace_picks_one_output(result):
    assert scv.plot_trace(result).get_ylabel() == "theta[0]"
    assert scv.plot_trace(result, "noise").get_ylabel() == "noise"
    assert scv.plot_trace(result, var_names=["theta[1]"]).get_ylabel() == "theta[1]"
    with pytest.raises(scv.InputError, match=r"theta\[0\], theta\[1\]; a trace shows one"):
        scv.plot_trace(result, var_names=["theta"])
    with pytest.raises(scv.InputError, match="none of the outputs"):
        scv.plot_trace(result, "theta")


def test_running_means_end_at_the_estimate(result):
    for part, average in zip(running(result, 0), (result.plain, result), strict=True):
        assert part.draws[-1] == 1000
        assert part.mean[-1] == pytest.approx(average.mean[0])
        assert [part.low[-1], part.high[-1]] == pytest.approx(average.interval(0.95)[0])
        half = len(part.draws) // 2
        shown = result.values if average is result.plain else result.controlled
        assert part.mean[half] == pytest.approx(shown[:, : part.draws[half] // 4, 0].mean())
    low, high = window(*running(result, 0))
    assert low < min(result.plain.mean[0], result.mean[0]) < max(result.plain.mean[0], result.mean[0]) < high


def test_typical_is_the_median_gain(result):
    assert sorted(result.gain).index(result.gain[typical(result)]) == 1


@pytest.mark.parametrize("draws", [4, 5, 11, 12])
def test_few_draws_and_constants_can_be_drawn(draws):
    x = np.random.default_rng(0).normal(size=(4, draws, 1))
    values = {"one": np.ones((4, draws)), "exact": x[..., 0], "large": 1e300 * np.tanh(x[..., 0])}
    made = scv.estimate(scv.Samples(x, -x), values, scv.Polynomial(1), guard=False)
    for label in values:
        ax = scv.plot_trace(made, label)
        assert np.isfinite(ax.get_ylim()).all()
        ax.figure.canvas.draw()
    scv.plot_forest(made).figure.canvas.draw()
    scv.plot_gain(made).figure.canvas.draw()


def test_stein_check_shows_what_is_wrong(gaussian_samples):
    good = scv.plot_stein_check(gaussian_samples)
    assert names(good) == ["mu", "eta[0]", "eta[1]", "worst standardised"]
    assert all(np.abs(line.get_xdata()).max() < 5 for line in good.lines[1:])
    assert not good.texts
    scores = gaussian_samples.scores.copy()
    scores[..., 1] -= 1  # as if a Jacobian had been forgotten
    bad = scv.plot_stein_check(scv.Samples(gaussian_samples.draws, scores, gaussian_samples.names))
    score = bad.lines[1].get_xdata()
    assert abs(score[1]) == 10  # at the edge, with its number
    assert np.abs(score[[0, 2]]).max() < 5
    assert float(bad.texts[0].get_text()) < -20
    assert names(scv.plot_stein_check(gaussian_samples, var_names=["eta"])) == [
        "eta[0]",
        "eta[1]",
        "worst standardised",
    ]
    with pytest.raises(scv.InputError, match="'nu'"):
        scv.plot_stein_check(gaussian_samples, var_names=["nu"])


def test_many_coordinates_show_the_suspicious():
    x = np.random.default_rng(0).normal(size=(2, 400, 60))
    scores = -x
    scores[..., 57] += 1
    ax = scv.plot_stein_check(scv.Samples(x, scores))
    assert names(ax)[0] == "x[57]"
    assert len(names(ax)) == 41
    assert ax.get_ylabel() == "41 of 61"


def test_given_axes_are_used(result, gaussian_samples):
    for plot, shown in [
        (scv.plot_forest, result),
        (scv.plot_gain, result),
        (scv.plot_trace, result),
        (scv.plot_stein_check, gaussian_samples),
    ]:
        ax = Figure().subplots()
        assert plot(shown, ax=ax) is ax


def test_demo_figure_is_made_of_the_public_plots(result, tmp_path, monkeypatch):
    drawn = []
    for name in ("plot_forest", "plot_gain"):
        plot = getattr(figures, name)
        monkeypatch.setattr(figures, name, lambda *a, plot=plot, name=name: (drawn.append(name), plot(*a))[1])
    figures.demo_figure(result, tmp_path / "a.png")
    assert drawn == ["plot_forest", "plot_gain"]


def test_pyplot_owns_the_figure_where_it_is_in_use():
    """In a process of its own: what is imported decides."""
    code = (
        "import sys, numpy as np, steincv as scv\n"
        "assert 'matplotlib' not in sys.modules\n"
        "x = np.random.default_rng(0).normal(size=(2, 50, 1))\n"
        "made = scv.estimate(scv.Samples(x, -x), x[..., 0] ** 3, scv.Polynomial(1))\n"
        "scv.plot_forest(made)\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "import matplotlib; matplotlib.use('agg')\n"
        "import matplotlib.pyplot as plt\n"
        "ax = scv.plot_forest(made)\n"
        "assert plt.gcf() is ax.figure\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
