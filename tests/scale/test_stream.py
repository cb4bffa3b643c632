"""Draws in files: the same answer as in memory, without holding them."""

import gc
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.signal
from threadpoolctl import threadpool_limits

import steincv as scv
from steincv.families import method as fitting
from steincv.judging import passing as kept
from steincv.judging.passing import Blocks, Room, Series, Tails
from steincv.samples import source as reading
from steincv.samples.source import TileLimits
from steincv.stein.folds import make_folds, stretches

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


@pytest.mark.usefixtures("as_users_have_it")
def test_what_needs_draws_in_memory_says_how_to_read_them(tmp_path):
    x, s = mixture(2, 100, 2)
    with scv.Samples.open(write(tmp_path / "a.zarr", x, s)) as samples:
        for verb in (scv.geometry, scv.plot_stein_check, lambda samples: scv.sensitivity(samples, log_prior=x[..., 0])):
            with pytest.raises(scv.InputError, match=r"needs draws in memory.*samples\.read\(every=10\)"):
                verb(samples)
        with pytest.raises(scv.InputError, match=r"got Streamed\. Write net_gain\(estimate\(samples\)"):
            scv.net_gain(samples, 10.0)
        np.testing.assert_array_equal(samples.read(every=10).scores, s[:, ::10])
        np.testing.assert_array_equal(samples.read().draws, x)
        with pytest.raises(scv.InputError, match="`every` must be a whole number of at least 1"):
            samples.read(every=0)


@pytest.mark.filterwarnings("error")
def test_a_netcdf_file_that_nobody_closes_is_no_trouble(tmp_path):
    x, s = mixture(2, 100, 2)
    axes = ("chain", "draw", "dim")
    xarray.Dataset({"draws": (axes, x), "scores": (axes, s)}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    unraisable = []
    before, sys.unraisablehook = sys.unraisablehook, unraisable.append
    try:
        samples = scv.Samples.open(tmp_path / "a.nc")
        assert samples.size == 200
        del samples
        gc.collect()
    finally:
        sys.unraisablehook = before
    assert unraisable == []


@pytest.fixture
def few_fitted(monkeypatch):
    """Some thousand draws are more than are fitted on, in memory and in a file."""
    monkeypatch.setattr(fitting, "LARGE", fitting.LargeSamples(draws=900))


def blocks(monkeypatch, most):
    monkeypatch.setattr(kept, "ROOM", Room(blocks=most))


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
@pytest.mark.parametrize("fitted", [200_000, 900], ids=["all", "spaced"])
def test_the_same_as_in_memory(tmp_path, monkeypatch, chains, draws, bad, f, fitted):
    monkeypatch.setattr(fitting, "LARGE", fitting.LargeSamples(draws=fitted))
    x, s = mixture(chains, draws, 3, bad)
    f = FUNCTIONS[f]
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, s))
    assert repr(streamed).endswith(f"{chains} chains x {draws} draws x 3 dimensions)")
    for method in (scv.MonteCarlo(), scv.Polynomial(1), scv.Polynomial(2)):
        result, memory = scv.estimate(streamed, f, method), scv.estimate(scv.Samples(x, s), f, method)
        same(result, memory)
        assert ("streamed" in result.info) == (fitted == 900)
        if fitted == 900:  # what orbits are priced by
            assert result.info["streamed"]["draws"] == chains * draws
        scale = memory.values.std(axis=(0, 1))
        np.testing.assert_allclose(result.controlled / scale, memory.controlled / scale, rtol=1e-10, atol=1e-10)


def test_settings_reach_the_folds(tmp_path, monkeypatch):
    x, s = mixture(1, 3000, 2)
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, s))
    settings = {"folds": 3, "gap": 50, "guard": False}
    same(scv.estimate(streamed, **settings), scv.estimate(scv.Samples(x, s), **settings))
    settings |= {"method": scv.Polynomial(2)}
    monkeypatch.setattr(fitting, "LARGE", fitting.LargeSamples(draws=700))
    result = scv.estimate(streamed, **settings)
    same(result, scv.estimate(scv.Samples(x, s), **settings))
    # every fourth draw outside of the test block of 1000 draws and its gaps of 50
    assert [fold["draws"] for fold in result.info["folds"]] == [487, 475, 488]


@pytest.mark.parametrize("fitted", [200_000, 700], ids=["all", "spaced"])
def test_a_gaussian_is_exact(tmp_path, monkeypatch, fitted):
    monkeypatch.setattr(fitting, "LARGE", fitting.LargeSamples(draws=fitted))
    x = np.random.default_rng(0).normal(size=(2, 900, 3)) * [1.0, 1e3, 1e-3] + 5
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, -(x - 5) / np.array([1.0, 1e3, 1e-3]) ** 2))
    result = scv.estimate(streamed)
    assert [s[0].name for s in result.status] == ["exact"] * 3
    np.testing.assert_allclose(result.mean, 5, rtol=1e-9)


@pytest.mark.parametrize("most", [10**5, 300], ids=["draws", "blocks"])
def test_wrong_scores_and_constants_are_seen(tmp_path, most, monkeypatch, few_fitted):
    blocks(monkeypatch, most)
    x, s = mixture(2, 2000, 2)
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, 1.5 * s))
    result = scv.estimate(streamed, lambda v: {"a": v[0], "b": 0 * v[0] + 3})
    assert [s.name for s in result.status[0]] == ["stein mean"]
    assert [s.name for s in result.status[1]] == ["constant"]
    assert result.method == ("plain", "plain")


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("moved", [0, 1, -1])
def test_scores_moved_by_a_draw_are_found_in_slow_chains(tmp_path, monkeypatch, few_fitted, moved, size):
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
def test_block_means_give_the_same_error_bars(tmp_path, monkeypatch, few_fitted, degree):
    """Correlated draws in blocks of 21: the same means, and standard errors to what either of them is known to."""
    x = ar1(4, 6000)
    path = write(tmp_path / "a.zarr", x, -x)

    def f(v):
        return {"cubic": v[0] + v[1] ** 3, "even": 1 / (1 + v[0] ** 2)}

    memory = scv.estimate(scv.Samples(x, -x), f, scv.Polynomial(degree))
    blocks(monkeypatch, 290)
    result = scv.estimate(scv.Samples.open(path), f, scv.Polynomial(degree))
    assert result.info["streamed"] == {"draws": 24000, "block": 21, "blocks": 285}
    assert result.values.shape == (4, 285, 2)
    np.testing.assert_allclose(result.mean, memory.mean, rtol=1e-10)
    np.testing.assert_allclose(result.controlled.mean(axis=(0, 1)), result.mean, rtol=1e-12)
    np.testing.assert_allclose(result.standard_error, memory.standard_error, rtol=0.2)
    np.testing.assert_allclose(result.ess, memory.ess, rtol=0.5)
    np.testing.assert_allclose(result.plain.ess, memory.plain.ess, rtol=0.5)
    assert result.method == memory.method


@pytest.mark.parametrize(("chains", "draws", "gap"), [(1, 22_003, 40), (1, 22_003, 7000), (4, 7001, 0), (7, 4000, 0)])
@pytest.mark.parametrize("most", [10**5, 300], ids=["draws", "blocks"])
def test_a_regression_on_spaced_draws_is_the_one_in_memory(tmp_path, monkeypatch, chains, draws, gap, most):
    """A large sample is fitted on some of its draws, the same ones in memory and from a file, whatever the folds."""
    monkeypatch.setattr(fitting, "LARGE", fitting.LargeSamples(draws=2000))
    x, s = mixture(chains, draws, 2, bad=True)
    settings = {"method": scv.Polynomial(2), "gap": gap, "guard": False}
    for f in (None, lambda v: {"a": v[0] * v[1], "b": v[:2]}):
        memory = scv.estimate(scv.Samples(x, s), f, **settings)
        assert all(400 < fold["draws"] < 3500 for fold in memory.info["folds"])
        blocks(monkeypatch, most)
        result = scv.estimate(scv.Samples.open(write(tmp_path / "a.zarr", x, s)), f, **settings)
        np.testing.assert_allclose(result.mean, memory.mean, rtol=1e-10, atol=1e-10 * memory.plain.standard_error.min())
        np.testing.assert_allclose(result.standard_error, memory.standard_error, rtol=1e-10 if most > draws else 0.2)
        np.testing.assert_allclose(result.ess, memory.ess, rtol=1e-7 if most > draws else 0.5)


METHODS = {
    "Auto": scv.Auto(),
    "Stack": scv.Stack([scv.Polynomial(1), scv.Kernel(landmarks=20)]),
    "Kernel": scv.Kernel(landmarks=30),
    "Polynomial(3)": scv.Polynomial(3),
    "CNCV": scv.CNCV(scv.VectorField(width=8, depth=1), steps=100, batch=64, rate=1e-2),
    "NCV": scv.NCV(scv.VectorField(width=8, depth=1), steps=100, batch=64, rate=1e-2),
}


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_and_standard_deviations(tmp_path, monkeypatch, few_fitted, name, chains):
    """From a file and in memory the same fit is passed over the same draws; networks round in single precision."""
    x, s = mixture(chains, 4800 // chains, 2)
    path = write(tmp_path / "a.zarr", x, s)

    def f(v):
        return {"a": v[0] * v[1], "b": 1 / (1 + v[0] ** 2)}

    settings = {"method": METHODS[name], "stat": ("mean", "sd"), "guard": False}
    memory, result = scv.estimate(scv.Samples(x, s), f, **settings), scv.estimate(scv.Samples.open(path), f, **settings)
    assert "streamed" in result.info
    tolerance = 1e-3 if name in ("Auto", "NCV", "CNCV") else 1e-10
    same(result, memory, tolerance)
    same(result.sd, memory.sd, tolerance)
    assert not np.allclose(result.variance_ratio, 1, rtol=0.05)
    blocks(monkeypatch, 600)
    again = scv.estimate(scv.Samples.open(path), f, **settings)
    assert again.info["streamed"]["block"] > 1
    for one, other in ((again, result), (again.sd, result.sd)):
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-9)
        np.testing.assert_allclose(one.standard_error, other.standard_error, rtol=0.25)
        np.testing.assert_allclose(one.ess, other.ess, rtol=0.5)


def test_draws_that_are_not_fitted_on_are_judged_by_the_right_fold(few_fitted):
    """In memory, g at each draw is that of a fit on other chains: a fit that had seen it would be another."""
    x, s = mixture(3, 1600, 2)
    values = np.tanh(x.sum(-1))[..., None]
    result = scv.estimate(scv.Samples(x, s), values, scv.Polynomial(2), guard=False)
    step = 4800 // 900
    for chain in range(3):
        others = [k for k in range(3) if k != chain]
        fitted = scv.Polynomial(2).fit(scv.Samples(x[others, ::step], s[others, ::step]), values[others, ::step])
        g = fitted(scv.Samples(x[[chain]], s[[chain]]))
        np.testing.assert_allclose(result.controlled[chain], values[chain] + g[0], atol=1e-10)


def test_an_exact_answer_from_blocks(tmp_path, monkeypatch, few_fitted):
    blocks(monkeypatch, 130)
    x = np.random.default_rng(0).normal(size=(2, 900, 2)) + 7
    settings = {"method": scv.Polynomial(2), "stat": ("mean", "sd")}
    result = scv.estimate(scv.Samples.open(write(tmp_path / "a.zarr", x, 7 - x)), **settings)
    assert [s[0].name for s in (*result.status, *result.sd.status)] == ["exact"] * 4
    np.testing.assert_allclose(result.sd.mean, 1, rtol=1e-7)
    assert result.info["streamed"]["block"] > 1


def test_chains_that_disagree_and_heavy_tails_are_seen_in_blocks(tmp_path, monkeypatch, few_fitted):
    blocks(monkeypatch, 300)
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
        tails.keep(tails.beyond(part))
    np.testing.assert_allclose(tails.index(), tail_index(x), rtol=1e-10)


def test_series_keep_the_mean_whatever_the_pieces():
    x = np.random.default_rng(0).normal(size=(2, 1007, 3)) + 100
    series = Series(Blocks(1007, 10, 100), 2, np.full(3, 99.0))
    for chain in range(2):
        for start in range(0, 1007, 91):
            series.add(series.reduce(chain, start, x[chain, start : start + 91]))
    np.testing.assert_allclose(series.means().mean(axis=(0, 1)), x.mean(axis=(0, 1)), rtol=1e-13)
    np.testing.assert_allclose(series.means()[1, 7], x[1, 70:80].mean(axis=0), rtol=1e-3)
    np.testing.assert_allclose(series.average().mean, x.mean(axis=(0, 1)), rtol=1e-13)
    variance = series.average().standard_error ** 2 * series.average().ess
    np.testing.assert_allclose(variance, x.reshape(-1, 3).var(axis=0, ddof=1), rtol=1e-9)


@pytest.mark.parametrize(
    ("chains", "draws", "folds", "gap"), [(4, 9, None, 0), (7, 5, 3, 0), (1, 23, 4, 2), (1, 7, 7, 0)]
)
def test_stretches_are_the_folds(chains, draws, folds, gap):
    plan, parts = make_folds(chains, draws, folds, gap), stretches(chains, draws, folds)
    for k, fold in enumerate(plan):
        tested = [(p.chain, i) for p in parts if p.fold == k for i in range(p.start, p.stop)]
        assert tested == [(c, i) for c in fold.test.chains for i in fold.test.draws]
    for k, fold in enumerate(make_folds(chains, draws, folds, gap, step=2)):
        for mine, whole in ((fold.train, plan[k].train), (fold.test, plan[k].test)):
            assert mine.chains.tolist() == whole.chains.tolist()
            assert (2 * mine.draws).tolist() == [i for i in whole.draws if i % 2 == 0]


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
        result = scv.estimate(streamed, method=scv.Polynomial(2))
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


@pytest.mark.parametrize("draws", [12, 600])
def test_few_draws_are_read_whole(tmp_path, draws):
    """As many as are fitted on at once give the bits of the same draws in memory, whatever the method."""
    x, s = mixture(2, draws, 4)
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, s))
    for method in (scv.Polynomial(2), scv.Kernel(), scv.Auto()):
        result, memory = (scv.estimate(given, method=method) for given in (streamed, scv.Samples(x, s)))
        assert result.controlled.tobytes() == memory.controlled.tobytes()
        same(result, memory)


def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch):
    """Eight times as many draws, 13 MB with their scores, take hardly more memory."""
    monkeypatch.setattr(fitting, "LARGE", fitting.LargeSamples(draws=2000))
    monkeypatch.setattr(kept, "ROOM", Room(entries=2**14, blocks=500, tail=2**12))
    peaks = []
    for draws in (10_000, 80_000):
        x, s = mixture(2, draws, 5)
        streamed = scv.Samples.open(write(tmp_path / f"{draws}.zarr", x, s))
        del x, s
        scv.estimate(streamed, method=scv.Polynomial(2))  # everything is imported
        tracemalloc.start()
        scv.estimate(streamed, method=scv.Polynomial(2))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
    assert peaks[1] < 5e6


def test_the_same_bits_again_and_with_any_threads(tmp_path, few_fitted):
    x, s = mixture(4, 900, 3)
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, s))
    first = scv.estimate(streamed, method=scv.Polynomial(2))
    for threads in (1, 2):
        with threadpool_limits(threads):
            again = scv.estimate(streamed, method=scv.Polynomial(2))
        assert again.controlled.tobytes() == first.controlled.tobytes()


@pytest.mark.parametrize("fitted", [200_000, 500], ids=["all", "spaced"])
def test_bad_input_is_refused(tmp_path, monkeypatch, fitted):
    monkeypatch.setattr(fitting, "LARGE", fitting.LargeSamples(draws=fitted))
    x, s = mixture(2, 900, 2)
    streamed = scv.Samples.open(write(tmp_path / "a.zarr", x, s))
    for settings, message in [
        ({"f": x}, "`f` is a ndarray"),
        ({"f": "nothing"}, "holds no array `nothing`; it has "),
        ({"stat": "sd"}, "`stat` must be"),
        ({"cross_fit": False}, "`cross_fit` is not"),
        ({"executor": ThreadPoolExecutor(1)}, "`executor` is not for draws in a file"),
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
    x[1, 777, 1] = np.nan  # between the draws that are fitted on
    s[0, 4000, 0] = np.inf
    with pytest.raises(
        scv.InputError, match=r"the draws hold nan at chain 1, draw 777|the scores hold inf at chain 0, dra"
    ):
        scv.estimate(scv.Samples.open(write(tmp_path / "c.zarr", x, s)))
