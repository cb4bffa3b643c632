"""Sources of tiles: the same draws from memory and from every kind of file, whatever its chunks."""

import threading

import numpy as np
import pytest

import steincv as scv
from steincv.samples import source as limits
from steincv.samples.files import read_samples
from steincv.samples.source import MemorySource, TileLimits
from steincv.samples.streamed import open_source
from steincv.stein.coordinates import Bilinear, Standardise

h5py = pytest.importorskip("h5py")
xarray = pytest.importorskip("xarray")
zarr = pytest.importorskip("zarr")
numcodecs = pytest.importorskip("numcodecs")

CHAINS, DRAWS, DIM = 3, 250, 2
pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")


@pytest.fixture(scope="module")
def arrays():
    x = np.random.default_rng(0).normal(size=(CHAINS, DRAWS, DIM))
    return {"draws": x, "scores": np.tanh(x) - x, "depth": np.arange(CHAINS * DRAWS).reshape(CHAINS, DRAWS)}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(limits, "LIMITS", TileLimits(wanted=16 * CHAINS * DIM * 70))


def labelled(arrays):
    dims = ("chain", "draw", "unconstrained_parameter")
    data = {"unconstrained_draw": (dims, arrays["draws"]), "gradient": (dims, arrays["scores"])}
    data["depth"] = (("chain", "draw"), arrays["depth"])
    return xarray.Dataset(data, {"unconstrained_parameter": ["mu", "log_tau"]})


def bare_zarr(path, arrays, form, **options):
    group = zarr.open_group(str(path), mode="w", zarr_format=form)
    for name, array in arrays.items():
        chunks = (2, 60, 1)[: array.ndim]
        mine = {"chunks": chunks, **options}
        if "shards" in mine:
            mine["shards"] = (2, 120, 2)[: array.ndim]
        if mine.pop("transposed", False):
            mine["filters"] = [zarr.codecs.TransposeCodec(order=tuple(range(array.ndim))[::-1])]
        created = group.create_array(name, shape=array.shape, dtype=array.dtype, **mine)
        created[...] = array


def bare_hdf5(path, arrays, **options):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **options)


def big_endian(arrays):
    return {name: array.astype(array.dtype.newbyteorder(">")) for name, array in arrays.items()}


def labelled_zarr(path, arrays, form):
    labelled(arrays).chunk(draw=60).to_zarr(path, group="sample_stats", zarr_format=form, consolidated=False)


def labelled_netcdf(path, arrays, **encoding):
    data = labelled(arrays).transpose("draw", ..., "chain")
    chosen = {name: dict(encoding) for name in data.data_vars} if encoding else {}
    if "chunksizes" in encoding:
        chosen["depth"]["chunksizes"] = (60, 2)
    data.to_netcdf(path, group="sample_stats", engine="h5netcdf", encoding=chosen)


GZIP = {"compression": "gzip", "shuffle": True, "fletcher32": True, "chunksizes": (60, 1, 2)}
KINDS = {
    "zarr 2": lambda path, a: bare_zarr(path, a, 2),
    "zarr 2, not compressed, columns first": lambda path, a: bare_zarr(path, a, 2, compressors=None, order="F"),
    "zarr 2, zlib, big-endian": lambda path, a: bare_zarr(path, big_endian(a), 2, compressors=numcodecs.Zlib()),
    "zarr 2, lz4": lambda path, a: bare_zarr(path, a, 2, compressors=numcodecs.LZ4()),
    "zarr 2, bz2": lambda path, a: bare_zarr(path, a, 2, compressors=numcodecs.BZ2()),
    "zarr 2, lzma": lambda path, a: bare_zarr(path, a, 2, compressors=numcodecs.LZMA()),
    "zarr 2, gzip": lambda path, a: bare_zarr(path, a, 2, compressors=numcodecs.GZip()),
    "zarr 2, shuffle": lambda path, a: bare_zarr(path, a, 2, filters=[numcodecs.Shuffle(8)]),
    "zarr 2, checksum": lambda path, a: bare_zarr(path, a, 2, filters=[numcodecs.CRC32()]),
    "zarr 3": lambda path, a: bare_zarr(path, a, 3),
    "zarr 3, shards": lambda path, a: bare_zarr(path, a, 3, shards=True),
    "zarr 3, blosc": lambda path, a: bare_zarr(path, a, 3, compressors=zarr.codecs.BloscCodec()),
    "zarr 3, gzip, transposed": lambda path, a: bare_zarr(
        path, a, 3, compressors=zarr.codecs.GzipCodec(), transposed=True
    ),
    "zarr 3, not compressed": lambda path, a: bare_zarr(path, a, 3, compressors=None),
    "zarr 3, big-endian, checksum": lambda path, a: bare_zarr(
        path, a, 3, compressors=zarr.codecs.Crc32cCodec(), serializer=zarr.codecs.BytesCodec(endian="big")
    ),
    "labelled zarr 2": lambda path, a: labelled_zarr(path, a, 2),
    "labelled zarr 3": lambda path, a: labelled_zarr(path, a, 3),
    "hdf5.h5": bare_hdf5,
    "hdf5, big-endian.h5": lambda path, a: bare_hdf5(path, big_endian(a)),
    "netcdf.nc": labelled_netcdf,
    "netcdf, gzip.nc": lambda path, a: labelled_netcdf(path, a, **GZIP),
}


def same(tile, arrays, rows=slice(None)):
    np.testing.assert_array_equal(tile.draws, arrays["draws"][:, rows])
    np.testing.assert_array_equal(tile.scores, arrays["scores"][:, rows])
    np.testing.assert_array_equal(tile.others[0], arrays["depth"][:, rows])
    assert {a.dtype for a in (tile.draws, tile.scores, *tile.others)} == {np.dtype(float)}


def check(source, arrays):
    assert source.shape == (CHAINS, DRAWS, DIM)
    tiles = list(source.tiles(["depth"]))
    assert len(tiles) > 3
    for tile in tiles:
        same(tile, arrays, slice(tile.start, tile.start + tile.draws.shape[1]))
    assert sum(tile.draws.shape[1] for tile in tiles) == DRAWS
    joined = [
        np.concatenate(parts, axis=1) for parts in zip(*((t.draws, t.scores, *t.others) for t in tiles), strict=True)
    ]
    same(limits.Tile(0, joined[0], joined[1], (joined[2],)), arrays)
    rows = np.array([0, 3, 59, 60, 61, 130, DRAWS - 1])
    same(source.rows(rows, ["depth"]), arrays, rows)
    same(source.every(9, ["depth"]), arrays, slice(None, None, 9))
    same(source.every(1, ["depth"]), arrays)
    for rows in (np.array([3, 3]), np.array([-1]), np.array([DRAWS])):
        with pytest.raises(scv.InputError, match="numbers of draws must increase"):
            source.rows(rows)
    with pytest.raises(scv.InputError, match="holds no array `nothing`; it has depth at every draw"):
        source.rows(np.array([0]), ["nothing"])


@pytest.mark.parametrize("kind", KINDS)
def test_tiles_of_a_file(kind, arrays, tmp_path):
    path = tmp_path / kind.replace(" ", "-")
    KINDS[kind](path, arrays)
    named = ("mu", "log_tau") if "netcdf" in kind or "labelled" in kind else ("x[0]", "x[1]")
    with open_source(path) as source:
        assert source.names == named
        if "zarr" in kind:
            assert source.step % 60 == 0
        check_without_pair(source, arrays)
    if "mu" in named:
        np.testing.assert_array_equal(read_samples(path).scores, arrays["scores"])


def check_without_pair(source, arrays):
    """Draws and scores are columns of their file as well; memory has the others only."""
    assert source.columns["depth"] == ()
    kept = {name: v for name, v in source.variables.items() if name == "depth"}
    check(limits.FileSource(source.where, source.names, source.draws, source.scores, kept), arrays)


def test_tiles_of_memory(arrays):
    samples = scv.Samples(arrays["draws"], arrays["scores"], parameters={"depth": arrays["depth"]})
    check(MemorySource.of(samples), arrays)


@pytest.mark.parametrize("kind", ["dataset", "dask", "tree"])
def test_tiles_of_labelled_data_in_memory(arrays, kind):
    data = labelled(arrays)
    if kind == "dask":
        data = data.chunk(draw=60)
    elif kind == "tree":
        data = xarray.DataTree.from_dict({"sample_stats": data})
    check_without_pair(open_source(data), arrays)


@pytest.mark.parametrize("name", ["a.nc", "a.zarr"])
@pytest.mark.parametrize("form", [2, 3])
def test_packed_variables_are_read_as_their_values(arrays, tmp_path, name, form):
    """Integers of 16 bits with a scale and an offset, a value that means missing, unsigned ones; and float32."""
    data = labelled(arrays)
    packed = {"dtype": "i2", "scale_factor": 2e-4, "add_offset": 0.5, "_FillValue": np.int16(-32768)}
    encoding = {"unconstrained_draw": packed, "gradient": {"dtype": "f4"}, "depth": {"_FillValue": 7}}
    path = tmp_path / name
    if name == "a.nc":
        data.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    else:
        data.to_zarr(path, zarr_format=form, consolidated=False, encoding=encoding)
    with open_source(path) as source:
        tile = source.every(1, ["depth"])
    np.testing.assert_allclose(tile.draws, arrays["draws"], atol=1.01e-4)
    np.testing.assert_array_equal(tile.scores, arrays["scores"].astype(np.float32))
    expected = np.where(arrays["depth"] == 7, np.nan, arrays["depth"])
    np.testing.assert_array_equal(tile.others[0], expected)
    whole = read_samples(path)
    np.testing.assert_array_equal(whole.draws, tile.draws)
    np.testing.assert_array_equal(whole.scores, tile.scores)


def test_unsigned_bytes_in_a_signed_type(tmp_path):
    stored = np.arange(-100, 100, dtype="i1").reshape(1, 100, 2)
    data = xarray.Dataset({"draws": (("chain", "draw", "dim"), stored), "scores": (("chain", "draw", "dim"), -stored)})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with h5py.File(tmp_path / "a.nc", "a") as file:
        file["draws"].attrs["_Unsigned"] = "true"
    with open_source(tmp_path / "a.nc") as source:
        np.testing.assert_array_equal(source.every(1).draws, stored.view("u1"))


@pytest.mark.parametrize("kind", ["zarr 3", "netcdf, gzip.nc"])
def test_what_is_not_finite_is_named_by_its_place(kind, arrays, tmp_path):
    wrong = {name: array.copy() for name, array in arrays.items()}
    wrong["scores"][2, 201, 1] = np.nan
    path = tmp_path / kind.replace(" ", "-")
    KINDS[kind](path, wrong)
    with open_source(path) as source:
        with pytest.raises(scv.InputError, match="the scores hold nan at chain 2, draw 201"):
            list(source.tiles())
        assert len(source.rows(np.array([3, 70])).draws[0]) == 2  # those tiles are good


def test_the_thread_that_reads_ahead_ends(arrays, tmp_path):
    bare_zarr(tmp_path / "a", arrays, 3)

    def readers():
        return [t for t in threading.enumerate() if t.name.startswith("steincv reader")]

    with open_source(tmp_path / "a") as source:
        tiles = source.tiles()
        next(tiles)
        tiles.close()
        assert readers() == []
        for _ in source.tiles():
            break
        list(source.tiles())
        assert readers() == []


def test_what_is_missing_is_filled(tmp_path):
    """Chunks that were never written hold the fill value, in Zarr and in HDF5."""
    group = zarr.open_group(str(tmp_path / "a"), mode="w")
    for name in ("draws", "scores"):
        group.create_array(name, shape=(1, 20, 1), chunks=(1, 5, 1), dtype="f8", fill_value=2.5)[:, :5] = 1.0
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("draws", "scores"):
            file.create_dataset(name, (1, 20, 1), "f8", chunks=(1, 5, 1), fillvalue=2.5, compression="gzip")[:, :5] = (
                1.0
            )
    for path in (tmp_path / "a", tmp_path / "a.h5"):
        with open_source(path) as source:
            found = source.every(1).draws.ravel()
        np.testing.assert_array_equal(found, [1.0] * 5 + [2.5] * 15)


def test_a_column_must_have_a_value_at_every_draw(arrays, tmp_path):
    bare_zarr(tmp_path / "a", {**arrays, "short": arrays["depth"][:, :9]}, 3)
    with (
        open_source(tmp_path / "a") as source,
        pytest.raises(scv.InputError, match=r"`short` has shape \(3, 9\), expected one value at every draw"),
    ):
        source.every(1, ["short"])


def test_columns_have_shapes(tmp_path):
    x = np.zeros((2, 9, 3))
    dims = ("chain", "draw", "school")
    data = xarray.Dataset({"draws": (dims, x), "scores": (dims, x), "y": (dims, x + 1)}, {"school": ["a", "b", "c"]})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    data.to_zarr(tmp_path / "a.zarr", zarr_format=2, consolidated=False)
    bare_zarr(tmp_path / "bare.zarr", {name: data[name].values for name in data.data_vars}, 3)
    for given in (tmp_path / "a.nc", tmp_path / "a.zarr", data):
        with open_source(given) as source:
            assert source.names == ("a", "b", "c")
            assert source.columns["y"] == (3,)
    with open_source(tmp_path / "bare.zarr") as source:
        assert source.columns["y"] == (3,)
    assert MemorySource.of(scv.Samples(x, x, parameters={"y": x})).columns == {"y": (3,)}


@pytest.mark.parametrize("draws", [3, 400])
def test_stein_sums_are_those_of_the_columns(draws):
    """Three draws of four coordinates are scaled one by one, 400 are whitened."""
    x, s = np.random.default_rng(5).normal(size=(2, 2, draws, 4)) * [1e-6, 1.0, 3.0, 1e6]
    samples = scv.Samples(x, s)
    standardise, starts = Standardise.of(samples), np.array([0, 1, 2 * draws // 3])
    z, scores = standardise(samples)
    columns = np.column_stack([scores, z * scores + 1, (z * scores + 1).sum(axis=1)])
    chain = scv.Samples(x.reshape(1, -1, 4), s.reshape(1, -1, 4))
    products = standardise.products(chain, starts)
    np.testing.assert_allclose(standardise.stein_sums(products), np.add.reduceat(columns, starts), rtol=1e-9)
    # and of any function of this kind, in the coordinates of other draws
    own = Standardise.of(scv.Samples(x[:, ::-2], s[:, ::-2]))
    form = Bilinear(np.random.default_rng(6).normal(size=(2, 5, 5)))
    found = form.seen_from(standardise, own).sums(products)
    np.testing.assert_allclose(found, np.add.reduceat(form(*own(chain)), starts), rtol=1e-9, atol=1e-9)
