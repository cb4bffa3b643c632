"""Draws in files: the same answer as in memory, without holding them."""

import numpy as np
import pytest
import scipy.signal

import steincv as scv
from steincv.families.polynomial import polynomial
from steincv.families.polynomial.hermite import stein_features
from steincv.samples import source as reading
from steincv.samples.source import TileLimits
from steincv.stein.folds import make_folds
from steincv.stream import products, series as kept
from steincv.stream.coordinates import FoldMap
from steincv.stream.moments import outer
from steincv.stream.polynomial import feature_map
from steincv.stream.segments import judged_draws, range_folds, segments
from steincv.stream.series import Blocks, Series, Tails

zarr = pytest.importorskip("zarr")
xarray = pytest.importorskip("xarray")


def mixture(chains, draws, dim, bad=False, seed=0):
    """Draws of two modes and their scores; `bad`: correlated, far off zero, in units from 1e-6 to 1e6."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(chains, draws, dim)) + rng.choice([-1.0, 1.0], size=(chains, draws, 1))
    s = np.tanh(x.sum(-1, keepdims=True)) - x
    if bad:
        scale = 10.0 ** rng.uniform(-6, 6, dim)
        mix = scale[:, None] * (np.triu(rng.normal(size=(dim, dim))) + 3 * np.eye(dim))
        x, s = x @ mix.T + 30 * scale, s @ np.linalg.inv(mix)
    return x, s


def write(path, x, s, **others):
    group = zarr.open_group(str(path), mode="w")
    for name, array in {"draws": x, "scores": s, **others}.items():
        group.create_array(name, data=array, chunks=(1, 400, *array.shape[2:]))
    return path


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Files of some thousand draws are read in many pieces too."""
    monkeypatch.setattr(reading, "LIMITS", TileLimits(wanted=1 << 16))


def same(streamed, memory, tolerance=1e-10):
    size = memory.plain.standard_error
    np.testing.assert_allclose(streamed.mean / size, memory.mean / size, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(streamed.standard_error, memory.standard_error, rtol=tolerance)
    assert (streamed.labels, streamed.shape, streamed.method) == (memory.labels, memory.shape, memory.method)
    assert [[s.code for s in a] for a in streamed.status] == [[s.code for s in a] for a in memory.status]


FUNCTIONS = {"coordinates": None, "function": lambda v: {"a": v[0] * v[1], "b": v[:2]}}


@pytest.mark.parametrize(
    ("chains", "draws", "bad", "f"),
    [
        (4, 1300, False, "coordinates"),
        (4, 700, True, "function"),
        (1, 2900, True, "coordinates"),
        (7, 300, True, "function"),
    ],
)
def test_the_same_as_in_memory(tmp_path, chains, draws, bad, f):
    x, s = mixture(chains, draws, 3, bad)
    f = FUNCTIONS[f]
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, s))
    assert repr(streamed).endswith(f"{chains} chains x {draws} draws x 3 dimensions)")
    for method in (scv.MonteCarlo(), scv.Polynomial(1), scv.Polynomial(2)):
        result, memory = scv.estimate(streamed, f, method), scv.estimate(scv.Samples(x, s), f, method)
        same(result, memory)
        scale = memory.values.std(axis=(0, 1))
        np.testing.assert_allclose(result.controlled / scale, memory.controlled / scale, rtol=1e-10, atol=1e-10)


def test_settings_reach_the_folds(tmp_path):
    x, s = mixture(1, 3000, 2)
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, s))
    settings = {"folds": 3, "gap": 50, "guard": False}
    same(scv.estimate(streamed, **settings), scv.estimate(scv.Samples(x, s), method=scv.Polynomial(2), **settings))


def test_a_gaussian_is_exact(tmp_path):
    x = np.random.default_rng(0).normal(size=(2, 900, 3)) * [1.0, 1e3, 1e-3] + 5
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, -(x - 5) / np.array([1.0, 1e3, 1e-3]) ** 2))
    result = scv.estimate(streamed)
    assert [s[0].name for s in result.status] == ["exact"] * 3
    np.testing.assert_allclose(result.mean, 5, rtol=1e-9)


@pytest.mark.parametrize("most", [10**5, 300], ids=["draws", "blocks"])
def test_wrong_scores_and_constants_are_seen(tmp_path, most, monkeypatch):
    monkeypatch.setattr(kept, "MOST_BLOCKS", most)
    x, s = mixture(2, 2000, 2)
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, 1.5 * s))
    result = scv.estimate(streamed, lambda v: {"a": v[0], "b": 0 * v[0] + 3})
    assert [s.name for s in result.status[0]] == ["stein mean"]
    assert [s.name for s in result.status[1]] == ["constant"]
    assert result.method == ("plain", "plain")


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("moved", [0, 1, -1])
def test_scores_moved_by_a_draw_are_found_in_slow_chains(tmp_path, monkeypatch, moved, size):
    """Means of draws and scores do not tell: each score is nearly that of its neighbour."""
    monkeypatch.setattr(reading, "LIMITS", TileLimits(wanted=1 << 20))
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(4, 4000, 2)) * np.sqrt(1 - 0.98**2)
    noise[:, 0] /= np.sqrt(1 - 0.98**2)
    x = scipy.signal.lfilter([1.0], [1.0, -0.98], noise, axis=1)
    with scv.Samples.open(write(tmp_path / "slow.zarr", x * size, np.roll(-x, moved, axis=1) / size)) as samples:
        result = scv.estimate(samples, method=scv.Polynomial(1))
    found = [str(s) for s in result.status[0] if s.name == "stein mean"]
    assert len(found) == abs(moved)
    assert all("the scores fit the draw" in text for text in found)


def ar1(chains, draws, rho=0.9, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(chains, draws, 2))
    for i in range(1, draws):
        x[:, i] = rho * x[:, i - 1] + np.sqrt(1 - rho**2) * x[:, i]
    return x


@pytest.mark.parametrize("degree", [1, 2])
def test_block_means_give_the_same_error_bars(tmp_path, monkeypatch, degree):
    """Correlated draws in blocks of 21: the same means, and standard errors to what either of them is known to."""
    x = ar1(4, 6000)
    path = write(tmp_path / "a.zarr", x, -x)

    def f(v):
        return {"cubic": v[0] + v[1] ** 3, "even": 1 / (1 + v[0] ** 2)}

    memory = scv.estimate(scv.Samples(x, -x), f, scv.Polynomial(degree))
    monkeypatch.setattr(kept, "MOST_BLOCKS", 290)
    result = scv.estimate(scv.Samples.open(path), f, scv.Polynomial(degree))
    assert result.info["streamed"] == {"draws": 24000, "block": 21, "blocks": 285}
    assert result.values.shape == (4, 285, 2)
    np.testing.assert_allclose(result.mean, memory.mean, rtol=1e-10)
    np.testing.assert_allclose(result.controlled.mean(axis=(0, 1)), result.mean, rtol=1e-12)
    np.testing.assert_allclose(result.standard_error, memory.standard_error, rtol=0.2)
    np.testing.assert_allclose(result.ess, memory.ess, rtol=0.5)
    np.testing.assert_allclose(result.plain.ess, memory.plain.ess, rtol=0.5)
    assert result.method == memory.method


@pytest.mark.parametrize(("chains", "gap"), [(1, 40), (6, 0)])
def test_one_pass_leaves_what_two_do(tmp_path, monkeypatch, chains, gap):
    """With many draws a quadratic's block means come from sums over blocks, without a second look at the draws."""
    monkeypatch.setattr(kept, "MOST_BLOCKS", 130)
    x, s = mixture(chains, 4200 // chains, 3, bad=True)
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, s))
    settings = {"method": scv.Polynomial(2), "gap": gap, "guard": False}
    for f in (None, lambda v: {"a": v[0] * v[1], "b": v[:2]}):
        one = scv.estimate(streamed, f, **settings)
        with monkeypatch.context() as patched:
            patched.setattr(products.BlockProducts, "of", lambda *_: None)
            two = scv.estimate(streamed, f, **settings)
        assert one.info["streamed"] == two.info["streamed"]
        scale = two.values.std(axis=(0, 1))
        np.testing.assert_allclose(one.controlled / scale, two.controlled / scale, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(one.ess, two.ess, rtol=1e-7)
        np.testing.assert_allclose(one.plain.ess, two.plain.ess, rtol=1e-7)
        assert one.status == two.status


@pytest.mark.parametrize(("chains", "draws", "gap"), [(1, 22_003, 40), (1, 22_003, 7000), (4, 7001, 0), (7, 4000, 0)])
@pytest.mark.parametrize("blocks", [10**5, 300], ids=["draws", "blocks"])
def test_a_regression_on_spaced_draws_is_the_one_in_memory(tmp_path, monkeypatch, chains, draws, gap, blocks):
    """A large sample is fitted on some of its draws, the same ones in memory and from a file, whatever the folds."""
    monkeypatch.setattr(polynomial, "MOST_FITTED", 2000)
    monkeypatch.setattr(polynomial, "MOST_A_FEATURE", 10)
    monkeypatch.setattr(polynomial, "MANY_DRAWS", 1000)
    x, s = mixture(chains, draws, 2, bad=True)
    settings = {"method": scv.Polynomial(2), "gap": gap, "guard": False}
    for f in (None, lambda v: {"a": v[0] * v[1], "b": v[:2]}):
        memory = scv.estimate(scv.Samples(x, s), f, **settings)
        assert all(400 < fold["draws"] < 3500 for fold in memory.info["folds"])
        monkeypatch.setattr(kept, "MOST_BLOCKS", blocks)
        result = scv.estimate(scv.Samples.open(write(tmp_path / "a.zarr", x, s)), f, **settings)
        np.testing.assert_allclose(result.mean, memory.mean, rtol=1e-10, atol=1e-10 * memory.plain.standard_error.min())
        np.testing.assert_allclose(result.standard_error, memory.standard_error, rtol=1e-10 if blocks > draws else 0.2)
        np.testing.assert_allclose(result.ess, memory.ess, rtol=1e-7 if blocks > draws else 0.5)


def test_an_exact_answer_in_one_pass(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "MOST_BLOCKS", 130)
    x = np.random.default_rng(0).normal(size=(2, 900, 2)) + 7
    result = scv.estimate(scv.Samples.open(write(tmp_path / "a.zarr", x, 7 - x)), method=scv.Polynomial(2))
    assert [s[0].name for s in result.status] == ["exact"] * 2
    assert result.info["streamed"]["block"] > 1


def test_chains_that_disagree_and_heavy_tails_are_seen_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "MOST_BLOCKS", 300)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 3000, 2))
    f = np.stack([rng.standard_cauchy(size=(4, 3000)), x[..., 0] + np.arange(4)[:, None], x[..., 1]], axis=-1)
    result = scv.estimate(scv.Samples.open(write(tmp_path / "a.zarr", x, -x, f=f)), "f", scv.MonteCarlo())
    names = [{s.name for s in found} - {"no gain", "rare draws", "low ess"} for found in result.status]
    assert names == [{"heavy tail"}, {"chains disagree"}, set()]
    assert result.labels == ("f[0]", "f[1]", "f[2]")


def test_tails_are_those_of_all_draws():
    from steincv.judging.error_bars import tail_index

    x = np.random.default_rng(0).standard_t(3, size=(4, 5000, 2))
    tails = Tails(2, 20_000)
    for part in np.array_split(x.reshape(-1, 2), 77):
        tails.add(part.T)
    np.testing.assert_allclose(tails.index(), tail_index(x), rtol=1e-10)


def test_series_keep_the_mean_whatever_the_pieces():
    x = np.random.default_rng(0).normal(size=(2, 1007, 3)) + 100
    series = Series(Blocks(1007, 10, 100), 2, np.full(3, 99.0))
    for chain in range(2):
        for start in range(0, 1007, 91):
            series.add(series.reduce(chain, start, x[chain, start : start + 91].T))
    np.testing.assert_allclose(series.means().mean(axis=(0, 1)), x.mean(axis=(0, 1)), rtol=1e-13)
    np.testing.assert_allclose(series.means()[1, 7], x[1, 70:80].mean(axis=0), rtol=1e-3)
    np.testing.assert_allclose(series.average().mean, x.mean(axis=(0, 1)), rtol=1e-13)
    variance = series.average().standard_error ** 2 * series.average().ess
    np.testing.assert_allclose(variance, x.reshape(-1, 3).var(axis=0, ddof=1), rtol=1e-9)


@pytest.mark.parametrize(
    ("chains", "draws", "folds", "gap"), [(4, 9, None, 0), (7, 5, 3, 0), (1, 23, 4, 2), (1, 7, 7, 0)]
)
def test_ranges_are_the_folds(chains, draws, folds, gap):
    ranges, plan = range_folds(chains, draws, folds, gap), make_folds(chains, draws, folds, gap)
    for mine, fold in zip(ranges, plan, strict=True):
        for parts, block in ((mine.train, fold.train), (mine.test, fold.test)):
            cells = [(r.chain, i) for r in parts for i in range(r.start, r.stop)]
            assert cells == [(c, i) for c in block.chains for i in block.draws]
        picked = [(c, i) for c, index in judged_draws(mine) for i in index]
        assert picked == [(r.chain, i) for r in mine.train for i in range(r.start, r.stop)]  # few draws: all of them
    parts, fitted = segments(ranges, chains, draws)
    for k, fold in enumerate(plan):
        used = {(p.chain, i) for p in parts if fitted[k, p.group] for i in range(p.start, p.stop)}
        assert used == {(c, i) for c in fold.train.chains for i in fold.train.draws}
        tested = {(p.chain, i) for p in parts if p.test == k for i in range(p.start, p.stop)}
        assert tested == {(c, i) for c in fold.test.chains for i in fold.test.draws}


def test_features_in_any_coordinates_are_combinations_of_products():
    rng = np.random.default_rng(0)
    a = np.tril(rng.normal(size=(3, 3))) + 2 * np.eye(3)
    coordinates = FoldMap(a, np.linalg.inv(a).T, rng.normal(size=3))
    t, s = rng.normal(size=(2, 3, 8))
    z, scores = coordinates(t, s)
    for degree, rows in ((1, np.vstack([np.ones(8), s])), (2, outer(np.empty((16, 8)), t, s))):
        expected = stein_features(z.T, scores.T, degree)
        np.testing.assert_allclose((feature_map(coordinates, degree) @ rows).T, expected, rtol=1e-12, atol=1e-12)


# Files ----------------------------------------------------------------------------------------------------


def labelled(x, s):
    dims = ("chain", "draw", "unconstrained_parameter")
    coords = {"unconstrained_parameter": ["a", "b"]}
    arrays = {"unconstrained_draw": (dims, x), "gradient": (dims, s), "depth": (("chain", "draw"), x[..., 0] ** 2)}
    return xarray.Dataset(arrays, coords)


@pytest.mark.parametrize("kind", ["zarr", "nc", "dataset", "dask"])
def test_labelled_files(tmp_path, kind):
    x, s = mixture(3, 700, 2)
    data = labelled(x, s)
    if kind == "zarr":
        data.chunk(draw=100).to_zarr(tmp_path / "a.zarr", group="sample_stats", consolidated=False, zarr_format=2)
        given = tmp_path / "a.zarr"
    elif kind == "nc":
        data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
        given = tmp_path / "a.nc"
    else:
        given = data.chunk(draw=100) if kind == "dask" else data
    with scv.Samples.open(given) as streamed:
        result = scv.estimate(streamed)
        depth = scv.estimate(streamed, "depth", scv.Polynomial(2))
    same(result, scv.estimate(scv.Samples(x, s, ["a", "b"]), method=scv.Polynomial(2)))
    memory = scv.estimate(scv.Samples(x, s), {"depth": x[..., 0] ** 2}, scv.Polynomial(2))
    np.testing.assert_allclose(depth.mean, memory.mean, rtol=1e-10)


def test_pieces_are_whole_chunks_in_any_order_of_axes(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LIMITS", TileLimits(wanted=1 << 13))
    x, s = mixture(3, 700, 2)
    data = labelled(x, s).transpose("draw", ..., "chain").chunk(draw=90)
    data.to_zarr(tmp_path / "a.zarr", consolidated=False, zarr_format=2)
    one = labelled(x, s).isel(chain=0).chunk(draw=80)
    one.to_zarr(tmp_path / "b.zarr", consolidated=False, zarr_format=2)
    for name, chunk, chains in (("a", 90, 3), ("b", 80, 1)):
        with scv.Samples.open(tmp_path / f"{name}.zarr") as streamed:
            assert streamed.source.draws.chunks[streamed.source.draws.dims.index("draw")] == chunk
            assert streamed.source.step % chunk == 0
            pieces = list(streamed.source.tiles())
            np.testing.assert_array_equal(np.concatenate([p.draws for p in pieces], axis=1), x[:chains])
            monkeypatch.setattr(reading, "LIMITS", TileLimits(wanted=1 << 13, most=100))
            with pytest.raises(scv.InputError, match="Write it with chunks of about"):
                scv.estimate(streamed)
            monkeypatch.setattr(reading, "LIMITS", TileLimits(wanted=1 << 13))


def test_few_draws_are_read_whole(tmp_path):
    x, s = mixture(2, 12, 4)
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, s))
    same(scv.estimate(streamed, method=scv.Polynomial(2)), scv.estimate(scv.Samples(x, s), method=scv.Polynomial(2)))


def test_the_same_bits_again(tmp_path):
    x, s = mixture(4, 900, 3)
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, s))
    assert scv.estimate(streamed).controlled.tobytes() == scv.estimate(streamed).controlled.tobytes()


def test_bad_input_is_refused(tmp_path):
    x, s = mixture(2, 900, 2)
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, s))
    for settings, message in [
        ({"method": scv.Polynomial(3)}, r"Polynomial\(degree=3\) cannot be fitted to draws in a file. What can: Monte"),
        ({"method": scv.Auto()}, "cannot be fitted to draws in a file"),
        ({"f": x}, "`f` is a ndarray"),
        ({"f": "nothing"}, "holds no array `nothing`; it has "),
        ({"stat": ("mean", "sd")}, "`stat` is not for draws in a file"),
        ({"cross_fit": False}, "`cross_fit` is not"),
        ({"folds": 3}, "`folds` is 3 but there are 2 chains"),
        ({"f": lambda v: v[0] / 0}, "`f`.* not finite|non-finite"),
    ]:
        with pytest.raises(scv.InputError, match=message):
            scv.estimate(streamed, **settings)
    empty = tmp_path / "empty"
    empty.mkdir()
    for given, message in [
        (tmp_path / "b.zarr", "no such file"),
        (empty, "not a Zarr store"),
        (labelled(x, s).drop_vars("gradient"), "holds no `unconstrained_draw` and `gradient`"),
    ]:
        with pytest.raises(scv.InputError, match=message):
            scv.Samples.open(given)
    x, s = mixture(2, 6000, 2)
    x[1, 777, 1] = np.nan  # between the draws that provisional coordinates come from
    s[0, 4000, 0] = np.inf
    with pytest.raises(
        scv.InputError, match=r"the draws hold nan at chain 1, draw 777|the scores hold inf at chain 0, dra"
    ):
        scv.estimate(scv.Samples.open(write(tmp_path / "c.zarr", x, s)))
