"""The geometry of a posterior: what scales what, in words, as a table, as a picture and in a file."""

import json

import numpy as np
import pytest

import steincv as scv
from steincv.report.geometry import blocks
from steincv.stein.learned.coordinates import Group, Learned

NAMES = ("mu", "log_tau", *(f"theta[{k}]" for k in range(6)))


def hierarchy(draws=400, width=0.6):
    """Effects theta about mu with standard deviation exp(log_tau), drawn exactly."""
    rng = np.random.default_rng(3)
    mu, h, w = rng.normal(size=(4, draws, 1)), width * rng.normal(size=(4, draws, 1)), rng.normal(size=(4, draws, 6))
    pull = w / np.exp(h)
    by_h = -h / width**2 + (w**2 - 1).sum(axis=-1, keepdims=True)
    scores = np.concatenate([-mu + pull.sum(axis=-1, keepdims=True), by_h, -pull], axis=-1)
    return scv.Samples(np.concatenate([mu, h, mu + np.exp(h) * w], axis=-1), scores, names=NAMES)


@pytest.fixture(scope="module")
def samples():
    return hierarchy()


@pytest.fixture(scope="module")
def found(samples):
    return scv.geometry(samples)


def test_the_scale_is_found_with_its_children(found):
    (group,) = found.groups
    assert group.parent == "log_tau"
    assert group.children == NAMES[2:]
    np.testing.assert_allclose(group.exponents, 1.0, atol=0.05)
    assert group.strength == pytest.approx(6 * 0.6**2, rel=0.2)
    assert found.fisher.learned < 0.1 * found.fisher.affine


def test_the_table_says_so_in_the_names_of_the_parameters(found):
    lines = repr(found).splitlines()
    assert lines[0].split() == ["parameter", "scales", "by", "per", "sd", "strength", "share"]
    assert lines[1].startswith("log_tau    theta[0..5]  exp(1.0 log_tau)")
    assert "log_tau acts as the scale of theta[0..5]: a funnel." in lines
    assert "times less" in lines[-1]
    assert "<td>theta[0..5]</td>" in found._repr_html_()


def test_the_data_frame_has_a_row_per_child(found):
    table = found.summary()
    assert list(table["child"]) == list(NAMES[2:])
    np.testing.assert_allclose(table["log_scale_per_sd"], 0.6, atol=0.1)
    assert (table["share"] <= 1).all()


def test_a_normal_density_has_no_scales():
    x = np.random.default_rng(0).normal(size=(4, 200, 3))
    found = scv.geometry(scv.Samples(x, -x))
    assert found.learned is None
    assert repr(found) == "No parameter acts as a scale of others.\nThe density is normal, to round-off."
    assert found.summary().empty


def test_independent_skew_parameters_are_no_scales():
    """Logarithms of exponential variables: curved, each by itself."""
    x = np.log(np.random.default_rng(0).exponential(size=(4, 300, 4)))
    found = scv.geometry(scv.Samples(x, 1 - np.exp(x)))
    assert "No parameter acts as a scale of others" in found.sentences()[0]
    assert found.learned is not None


def test_too_few_draws_say_so():
    x = np.random.default_rng(0).normal(size=(4, 10, 3))
    found = scv.geometry(scv.Samples(x, -x))
    assert found.sentences()[-1] == "40 draws of 3 parameters are too few to tell: at least 100 are needed."


def test_bad_input_is_named(samples, as_users_have_it):
    with pytest.raises(scv.InputError, match="in memory, got ndarray"):
        scv.geometry(samples.draws)
    constant = np.array(samples.draws)
    constant[..., 2] = 1.0
    with pytest.raises(scv.InputError):
        scv.geometry(scv.Samples(constant, samples.scores))


def test_it_is_kept_in_a_file(samples, found, tmp_path):
    path = tmp_path / "geometry.npz"
    found.save(path)
    back = scv.Geometry.load(path)
    assert repr(back) == repr(found)
    flat = samples.draws.reshape(-1, 8), samples.scores.reshape(-1, 8)
    for a, b in zip(back.learned(*flat), found.learned(*flat), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(scv.InputError, match="exists already"):
        found.save(path)


def test_no_map_is_kept_as_well(tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 100, 2))
    found = scv.geometry(scv.Samples(x, -x))
    found.save(tmp_path / "a.npz")
    back = scv.Geometry.load(tmp_path / "a.npz")
    assert back.learned is None
    assert repr(back) == repr(found)


def changed(path, edit):
    """Rewrite a saved geometry after a change of its arrays."""
    arrays = dict(np.load(path))
    meta = json.loads(arrays.pop("meta").tobytes())
    edit(arrays, meta)
    np.savez(path, meta=np.frombuffer(json.dumps(meta).encode(), np.uint8), **arrays)


def each(ending, change):
    """Change the arrays whose names end so, of which there must be some."""

    def edit(arrays, meta):
        names = [name for name in arrays if name.endswith(ending)]
        assert names
        arrays.update({name: change(arrays[name]) for name in names})

    return edit


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        ("grouped", lambda arrays, meta: meta.update(format="steincv.Estimate")),
        ("grouped", lambda arrays, meta: meta.update(layers=["affine", "pickle"])),
        ("grouped", lambda arrays, meta: meta.update(layers=meta["layers"][1:])),
        ("grouped", lambda arrays, meta: meta["names"].append("more")),
        ("grouped", lambda arrays, meta: meta.update(fisher=[1.0, 0.0])),
        ("grouped", lambda arrays, meta: arrays.update({"0 scale": np.full(8, np.nan)})),
        ("grouped", each("located", lambda a: a + 100)),
        ("grouped", each("parent", lambda a: a - 100)),
        ("grouped", each("precision", np.negative)),
        ("grouped", each("natural", lambda a: a[1:])),
        ("grouped", lambda arrays, meta: arrays.pop("0 mean")),
        ("coupled", each("parents", lambda a: a + 100)),
        ("coupled", each("terms", lambda a: a - 100)),
        ("coupled", each("log_scale", lambda a: a[1:])),
    ],
)
def test_a_file_that_was_changed_is_refused(samples, tmp_path, kind, edit):
    path = tmp_path / "a.npz"
    flat = samples.draws.reshape(-1, 8), samples.scores.reshape(-1, 8)
    learned = Learned.of(*flat, chains=4, kinds=[kind])
    scv.Geometry.of_map(samples.names, learned, learned.fisher, samples.size).save(path)
    assert scv.Geometry.load(path).learned.kind == kind
    changed(path, edit)
    with pytest.raises(scv.InputError, match=r"a\.npz"):
        scv.Geometry.load(path)


def test_the_picture_shows_every_child(found):
    ax = found.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == list(NAMES[2:])
    (marks,) = [line for line in ax.lines if len(line.get_xdata()) == 6]
    np.testing.assert_allclose(marks.get_xdata(), np.exp(0.6), rtol=0.1)
    assert ax.get_legend().texts[0].get_text() == "per sd of log_tau"
    ax.figure.draw_without_rendering()


def test_a_picture_without_scales_says_so():
    x = np.random.default_rng(0).normal(size=(4, 100, 2))
    ax = scv.plot_geometry(scv.geometry(scv.Samples(x, -x)))
    assert ax.texts[0].get_text() == "No parameter acts as a scale of others."


def test_names_may_hold_anything(found):
    odd = scv.Geometry(("<b>", "$x\n"), (Group("<b>", ("$x\n",), (2.0,), 4.0, 0.5),), found.fisher, found.learned, 500)
    assert "\n" not in repr(odd).splitlines()[1]
    assert "<b>" not in odd._repr_html_()
    odd.plot().figure.draw_without_rendering()


def test_neighbours_are_named_together():
    assert blocks(["b[1]", "b[0]", "b[1]"]) == [("b[1]", ["b[1]"]), ("b[0..1]", ["b[0]", "b[1]"])]
    assert [label for label, _ in blocks(["a[0,1]", "a[0,2]", "a", "b[9]"])] == ["a[0,1]", "a[0,2]", "a", "b[9]"]
    assert blocks([]) == []
