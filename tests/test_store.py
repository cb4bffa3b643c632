"""Files: what is saved comes back, and nothing that a file holds can do harm."""

import dataclasses
import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

import steincv as scv
from steincv.report import store as _store
from steincv.report.store import load_estimate, plain_data, save_estimate
from steincv.runtime.arrays import read_arrays, whole_file
from steincv.samples.files import read_samples


@pytest.fixture(scope="module")
def result(gaussian_samples):
    f = {"square": lambda x: x[0] ** 2, "wave": lambda x: np.e * x[1:] ** 3 + x[0], "one": np.ones((4, 250))}
    return scv.estimate(gaussian_samples, f, scv.Polynomial(2), stat=("mean", "sd"))


def npy(array, **header):
    """The bytes of an .npy file, with a header that may lie."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
    if not header:
        return file.getvalue()
    data = file.getvalue()
    length = struct.unpack("<H", data[8:10])[0]
    told = {"descr": "<f8", "fortran_order": False, "shape": (3,)} | header
    text = repr(told).encode().ljust(length - 1) + b"\n"
    return data[:8] + struct.pack("<H", len(text)) + text + data[10 + length :]


def npz(path, method=zipfile.ZIP_STORED, **members):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


def assert_refused(path, says="", names=("draws",)):
    with pytest.raises(scv.InputError) as caught:
        read_arrays(path, names)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


# Results


def assert_same(a, b):
    for field in dataclasses.fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(x, np.ndarray):
            np.testing.assert_array_equal(x, y)
        elif dataclasses.is_dataclass(x) and not isinstance(x, scv.Status):
            assert_same(x, y)
        elif field.name == "info":
            assert y == plain_data(x)
        else:
            assert x == y


def test_round_trip(result, tmp_path):
    result.save(tmp_path / "a.npz")
    back = scv.Estimate.load(tmp_path / "a.npz")
    assert_same(result, back)
    assert {s.code for found in back.status for s in found} >= {scv.Code.CONSTANT, scv.Code.EXACT}
    assert repr(back) == repr(result)
    assert os.listdir(tmp_path) == ["a.npz"]


def test_scalar_output_and_numpy_in_info(gaussian_samples, tmp_path):
    made = scv.estimate(gaussian_samples, lambda x: x[0], scv.MonteCarlo())
    info = {
        "a": np.float32(0.5),
        "b": np.arange(3),
        4: (np.int64(2), {"c": np.bool_(True)}),
        "nan": float("nan"),
    }
    made = dataclasses.replace(made, info=info)
    save_estimate(made, tmp_path / "a.npz")
    back = load_estimate(tmp_path / "a.npz")
    assert back.shape == ()
    assert np.isnan(back.info.pop("nan"))
    assert back.info == {"a": 0.5, "b": [0, 1, 2], "4": [2, {"c": True}]}


def test_labels_of_any_text_come_back(gaussian_samples, tmp_path):
    labels = ["[red]a[/red]", "<script>", "\x1b[31m", "naïve ☃", ""]
    made = scv.estimate(gaussian_samples, dict.fromkeys(labels, gaussian_samples.draws[..., 0]))
    made.save(tmp_path / "a.npz")
    assert scv.Estimate.load(tmp_path / "a.npz").labels == tuple(labels)


def test_existing_file_is_kept_without_force(result, tmp_path):
    path = tmp_path / "a.npz"
    path.write_text("precious")
    with pytest.raises(scv.InputError, match="exists already"):
        result.save(path)
    assert path.read_text() == "precious"
    result.save(path, force=True)
    assert scv.Estimate.load(path).labels == result.labels


def test_a_failed_save_leaves_nothing_behind(result, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        args[0].write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(scv.InputError, match="No space left"):
        result.save(tmp_path / "a.npz")
    assert os.listdir(tmp_path) == []


def test_an_interrupted_save_keeps_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def interrupted():
        with whole_file(path, force=True) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("where", ["missing/a.npz", "."])
def test_places_that_cannot_be_written(result, tmp_path, where):
    with pytest.raises(scv.InputError, match="folder"):
        result.save(tmp_path / where)


def test_a_changed_result_is_refused(result, tmp_path):
    save_estimate(result, tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as stored:
        good = dict(stored)
    text = json.loads(good["meta"].tobytes())
    changes = {
        "format": lambda m: m.update(format="other"),
        "version": lambda m: m.update(version=99),
        "labels": lambda m: m["estimate"]["labels"].pop(),
        "status": lambda m: m["estimate"]["status"][0].append({"code": "NO_SUCH", "message": ""}),
        "shape": lambda m: m["estimate"].update(shape=[2, 2, 2]),
        "gone": lambda m: m["estimate"].pop("method"),
    }
    for name, change in changes.items():
        meta = json.loads(json.dumps(text))
        change(meta)
        path = tmp_path / f"{name}.npz"
        np.savez(path, **(good | {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}))
        with pytest.raises(scv.InputError):
            load_estimate(path)
    for array in (good["values"][:1], good["values"].astype(np.float32), good["values"][0]):
        path = tmp_path / "array.npz"
        np.savez(path, **(good | {"values": array}))
        with pytest.raises(scv.InputError):
            load_estimate(path)


# Hostile files


def test_headers_that_lie(tmp_path):
    path = tmp_path / "a.npz"
    tera = npy(np.zeros(3), shape=(10**12,))
    assert len(tera) <= 160
    assert_refused(npz(path, draws=tera), "claims shape")
    assert_refused(npz(path, draws=npy(np.zeros(3), shape=(2,))), "claims shape")
    assert_refused(npz(path, draws=npy(np.zeros(3), shape=(-1, -3))))
    assert_refused(npz(path, draws=npy(np.zeros(3), shape=(10**30, 10**30))), "claims shape")
    assert_refused(npz(path, draws=npy(np.zeros(3), descr="|O")), "no objects")
    assert_refused(npz(path, draws=npy(np.zeros(3), descr="<U1000000000000")))
    assert_refused(npz(path, draws=npy(np.zeros(3), descr=[("a", "<f8")])), "no objects")
    assert_refused(npz(path, draws=npy(np.zeros(3))[:60]))
    assert_refused(npz(path, draws=b"hello"))
    assert_refused(npz(path, draws=b""))
    assert_refused(npz(path, draws=b"\x93NUMPY\x02\x00" + b"\xff\xff\xff\xff" + b" " * 200), "plain array")


def test_no_pickle_is_ever_loaded(tmp_path):
    class Harm:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "harm"),))

    np.savez(tmp_path / "a.npz", draws=np.array([Harm()], dtype=object), allow_pickle=True)
    assert_refused(tmp_path / "a.npz", "no objects")
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Harm()))
    assert_refused(tmp_path / "b.npz", "not an .npz")
    assert not (tmp_path / "harm").exists()


def test_bombs_are_refused_in_bounded_memory(tmp_path):
    bomb = npz(tmp_path / "bomb.npz", zipfile.ZIP_DEFLATED, draws=npy(np.zeros(12 << 20)))
    assert bomb.stat().st_size < 1 << 20
    # a member that expands to 96 MiB but says in the directory that it is 200 bytes
    liar = tmp_path / "liar.npz"
    data = bytearray(bomb.read_bytes())
    directory = data.rfind(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = struct.pack("<I", 200)
    liar.write_bytes(data)
    # a member that says it holds a terabyte, in a file of a few hundred bytes
    giant = npz(tmp_path / "giant.npz", draws=npy(np.zeros(3)))
    data = bytearray(giant.read_bytes())
    directory = data.rfind(b"PK\x01\x02")
    data[directory + 20 : directory + 28] = struct.pack("<II", 2**32 - 2, 2**32 - 2)
    giant.write_bytes(data)
    lzma = npz(tmp_path / "lzma.npz", zipfile.ZIP_LZMA, draws=npy(np.zeros(1 << 20)))
    tracemalloc.start()
    try:
        assert_refused(bomb, "would expand")
        assert_refused(liar)
        assert_refused(giant, "cut off")
        assert_refused(lzma, "compressed in a way")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 << 20


def test_more_than_memory_is_refused(tmp_path, monkeypatch):
    from steincv.runtime import validation as _memory

    path = npz(tmp_path / "a.npz", draws=npy(np.zeros(1000)))
    monkeypatch.setattr(_memory, "available_memory", lambda: 4000)
    assert_refused(path, "GiB")


def test_names_of_members(tmp_path):
    path = npz(tmp_path / "a.npz", x=npy(np.zeros(3)))
    assert_refused(path, "holds no array `draws`; it has x")
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", npy(np.ones(3)))
    assert_refused(path, "more than one", names=("x",))
    assert_refused(tmp_path / "none.npz", "no such file")
    assert_refused(tmp_path, "folder")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<i4", "u1", "?", "<U3"])
def test_honest_arrays_are_read(tmp_path, dtype, order):
    array = np.asarray(np.arange(24).reshape(2, 3, 4) % 2, dtype=dtype, order=order)
    np.savez_compressed(tmp_path / "a.npz", draws=array)
    np.testing.assert_array_equal(read_arrays(tmp_path / "a.npz", ["draws"])["draws"], array)


@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_files_give_an_input_error_or_the_exact_data(tmp_path, compressed):
    rng = np.random.default_rng(1)
    arrays = {
        "draws": rng.normal(size=(2, 5, 2)),
        "scores": rng.normal(size=(2, 5, 2)),
        "names": np.array(["a", "b"]),
    }
    good = tmp_path / "good.npz"
    (np.savez_compressed if compressed else np.savez)(good, **arrays)
    whole = good.read_bytes()
    damaged = [whole[:cut] for cut in np.linspace(0, len(whole) - 1, 60).astype(int)]
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        damaged.append(bytes(data))
    # the directory at the end is where a reader decides what to believe
    for _ in range(300):
        data = bytearray(whole)
        data[-rng.integers(1, 250)] = rng.integers(256)
        damaged.append(bytes(data))
    path, refused = tmp_path / "bad.npz", 0
    for data in damaged:
        path.write_bytes(data)
        try:
            read = read_arrays(path, list(arrays))
        except scv.InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
            refused += 1
        else:
            for name, array in arrays.items():
                np.testing.assert_array_equal(read[name], array)
        try:
            samples = read_samples(path)
        except scv.InputError:
            pass
        else:
            np.testing.assert_array_equal(samples.draws, arrays["draws"])
    assert refused > len(damaged) / 2


# Draws and scores


def test_npz_samples(tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 20, 2))
    np.savez(tmp_path / "a.npz", draws=x, scores=-x, names=["a", "b"])
    np.savez(tmp_path / "b.npz", draws=x[0], scores=-x[0])
    assert repr(read_samples(tmp_path / "a.npz")) == "Samples(4 chains x 20 draws x 2 dimensions: a, b)"
    assert read_samples(tmp_path / "b.npz").names == ("x[0]", "x[1]")
    np.savez(tmp_path / "c.npz", draws=x, scores=-x[:2])
    with pytest.raises(scv.InputError, match=r"c\.npz: `draws` has shape"):
        read_samples(tmp_path / "c.npz")
    (tmp_path / "d.csv").write_text("1,2")
    with pytest.raises(scv.InputError, match="what kind of file"):
        read_samples(tmp_path / "d.csv")


def labelled(group_dims=("chain", "draw", "unconstrained_parameter"), **change):
    import xarray

    x = np.random.default_rng(0).normal(size=(2, 20, 3))
    data = {"unconstrained_draw": (group_dims, x), "gradient": (group_dims, -x)} | change
    return x, xarray.Dataset(data, {"unconstrained_parameter": ["mu", "log_tau", "eta"]})


def write(dataset, path, group):
    if path.suffix == ".nc":
        dataset.to_netcdf(path, group=group, engine="h5netcdf")
    else:
        dataset.to_zarr(path, group=group, consolidated=False)


@pytest.mark.parametrize("group", ["sample_stats", None])
@pytest.mark.parametrize("name", ["a.nc", "a.zarr"])
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_labelled_samples(tmp_path, name, group):
    x, dataset = labelled()
    write(dataset.transpose("draw", "unconstrained_parameter", "chain"), tmp_path / name, group)
    samples = read_samples(tmp_path / name)
    np.testing.assert_array_equal(samples.draws, x)
    np.testing.assert_array_equal(samples.scores, -x)
    assert samples.names == ("mu", "log_tau", "eta")


@pytest.mark.parametrize("name", ["a.nc", "a.zarr"])
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_labelled_files_without_scores(tmp_path, name):
    _, dataset = labelled()
    write(dataset.drop_vars("gradient"), tmp_path / name, "sample_stats")
    with pytest.raises(scv.InputError, match="store_gradient=True") as caught:
        read_samples(tmp_path / name)
    assert "unconstrained_draw" in str(caught.value)


def test_damaged_netcdf(tmp_path):
    _, dataset = labelled()
    write(dataset, tmp_path / "a.nc", "sample_stats")
    whole = (tmp_path / "a.nc").read_bytes()
    for cut in (0, 10, len(whole) // 2):
        (tmp_path / "b.nc").write_bytes(whole[:cut])
        with pytest.raises(scv.InputError):
            read_samples(tmp_path / "b.nc")


def test_a_zarr_folder_cannot_run_code(tmp_path):
    folder = tmp_path / "a.zarr" / "gradient"
    folder.mkdir(parents=True)
    (tmp_path / "a.zarr" / ".zgroup").write_text('{"zarr_format": 2}')
    array = {"zarr_format": 2, "shape": [1, 4, 1], "chunks": [1, 4, 1], "dtype": "<f8", "order": "C"}
    array |= {"compressor": None, "fill_value": 0, "filters": [{"id": "pickle", "protocol": 5}]}
    (folder / ".zarray").write_text(json.dumps(array))
    with pytest.raises(scv.InputError, match="codec 'pickle'"):
        read_samples(tmp_path / "a.zarr")
    (tmp_path / "empty").mkdir()
    with pytest.raises(scv.InputError, match="not a Zarr store"):
        read_samples(tmp_path / "empty")


@pytest.mark.parametrize("name", ["draw", "unconstrained_draw"])
def test_a_zarr_folder_cannot_ask_for_terabytes(tmp_path, name):
    x, dataset = labelled()
    dataset["draw"] = np.arange(20.0)
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=2, consolidated=False)
    assert read_samples(tmp_path / "a.zarr").draws.shape == x.shape
    file = tmp_path / "a.zarr" / name / ".zarray"
    meta = json.loads(file.read_text())
    meta["shape"] = [10**12 if size == 20 else size for size in meta["shape"]]
    file.write_text(json.dumps(meta))
    with pytest.raises(scv.InputError):
        read_samples(tmp_path / "a.zarr")
    for other in ("unconstrained_draw", "gradient", "draw"):  # all of them, so that they agree
        file = tmp_path / "a.zarr" / other / ".zarray"
        meta = json.loads(file.read_text())
        meta["shape"] = [10**12 if size == 20 else size for size in meta["shape"]]
        file.write_text(json.dumps(meta))
    with pytest.raises(scv.InputError, match="GiB"):
        read_samples(tmp_path / "a.zarr")


def test_missing_extra_is_named(tmp_path, monkeypatch):
    import sys

    (tmp_path / "a.nc").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "h5py", None)
    monkeypatch.delitem(sys.modules, "steincv.samples.netcdf", raising=False)
    with pytest.raises(scv.InputError, match=r"steincv\[files\]"):
        read_samples(tmp_path / "a.nc")


def test_everything_is_in_json_types():
    assert json.dumps(plain_data({"a": {np.float64(1)}, "b": object})) == '{"a": [1.0], "b": "<class \'object\'>"}'
    assert _store.VERSION == 1
