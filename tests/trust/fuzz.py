"""Damaged files through every door that reads one: saved results, `Samples.open`, `from_arviz`, the command line.

    python tests/trust/fuzz.py 2000        # this many of each kind; prints what became of them as JSON

Every file is a good one with some bytes changed, cut off, doubled or filled in. It must be read, or refused by
`InputError` with one line; the process may take a GiB more than it had, and a second for each file. HDF5 is C code, so
this is a process of its own, which a crash would end.
"""

import collections
import contextlib
import io
import json
import resource
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import steincv as scv
from steincv import cli
from steincv.samples.files import read_samples

MEMORY, SECONDS = 1 << 30, 1.0
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


def good_files(folder):
    """One small file of each kind."""
    import xarray

    x = np.random.default_rng(0).normal(size=(2, 12, 2))
    samples = scv.Samples(x, -x, ["mu", "log_tau"])
    np.savez(folder / "draws.npz", draws=x, scores=-x, names=samples.names)
    scv.estimate(samples, None, scv.Polynomial(1), stat=("mean", "sd")).save(folder / "result.npz")
    scv.geometry(funnel()).save(folder / "geometry.npz")
    dims = ("chain", "draw", "unconstrained_parameter")
    data = {"unconstrained_draw": (dims, x), "gradient": (dims, -x)}
    labelled = xarray.Dataset(data, {"unconstrained_parameter": ["mu", "log_tau"]})
    labelled.to_netcdf(folder / "draws.nc", group="sample_stats", engine="h5netcdf")
    packed = {"dtype": "i2", "scale_factor": 1e-3, "compression": "gzip", "shuffle": True, "chunksizes": (1, 6, 2)}
    encoding = dict.fromkeys(data, packed)
    labelled.to_netcdf(folder / "packed.nc", group="sample_stats", engine="h5netcdf", encoding=encoding)
    numbers = labelled.drop_vars("unconstrained_parameter")
    numbers.to_zarr(folder / "two.zarr", zarr_format=2, consolidated=False)
    numbers.to_zarr(folder / "three.zarr", zarr_format=3, consolidated=False)
    labelled_doors = [read_samples, scv.from_arviz, streamed, command]
    return {
        "result": (folder / "result.npz", [scv.Estimate.load]),
        "geometry": (folder / "geometry.npz", [shown_geometry]),
        "npz": (folder / "draws.npz", [read_samples, command]),
        "netcdf": (folder / "draws.nc", labelled_doors),
        "packed netcdf": (folder / "packed.nc", labelled_doors),
        "zarr 2": (folder / "two.zarr", labelled_doors),
        "zarr 3": (folder / "three.zarr", labelled_doors),
    }


def funnel():
    """Draws of two parameters of which one scales the other."""
    h, w = np.random.default_rng(0).normal(size=(2, 4, 60))
    return scv.Samples(np.stack([h, np.exp(h) * w], axis=-1), np.stack([-h + w**2 - 1, -w / np.exp(h)], axis=-1))


def shown_geometry(path):
    """`Geometry.load`, its table and its map."""
    found = scv.Geometry.load(path)
    repr(found)
    if found.learned is not None:
        with np.errstate(all="ignore"):
            found.learned(np.zeros((1, 2)), np.zeros((1, 2)))


def streamed(path):
    """`Samples.open`, and all draws of it."""
    with scv.Samples.open(path) as samples:
        for _ in samples.source.tiles():
            pass


def command(path):
    """The command line: a mistake of the file is one line and the exit code 2."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = cli.main(["estimate", str(path), "--method", "plain"])
    if code:
        raise scv.InputError(said.getvalue().removesuffix("\n"))


def damaged(whole, rng):
    """`whole` with one kind of damage."""
    data = bytearray(whole)
    kind = rng.integers(6)
    at = int(rng.integers(len(data))) if data else 0
    if kind == 0 and data:
        for _ in range(rng.integers(1, 5)):
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    elif kind == 1 and data:
        for _ in range(rng.integers(1, 9)):
            data[rng.integers(len(data))] = INTERESTING[rng.integers(len(INTERESTING))]
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        data[at:at] = data[at : at + int(rng.integers(1, 200))]
    elif kind == 4:
        size = int(rng.integers(1, 9))
        data[at : at + size] = bytes([255]) * size  # a length that is huge
    else:
        digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]  # numbers in JSON and headers
        for _ in range(min(len(digits), int(rng.integers(1, 6)))):
            data[digits[rng.integers(len(digits))]] = 48 + int(rng.integers(10))
    return bytes(data)


def damage(source, target, rng):
    """A copy of a file, or of a folder with one file of it damaged."""
    if source.is_file():
        target.write_bytes(damaged(source.read_bytes(), rng))
        return
    shutil.copytree(source, target)
    files = sorted(path for path in target.rglob("*") if path.is_file())
    chosen = files[rng.integers(len(files))]
    chosen.write_bytes(damaged(chosen.read_bytes(), rng))


def main(count, seed=0):
    warnings.simplefilter("ignore")  # of xarray about what it sees
    noise = []
    sys.unraisablehook = lambda trouble: noise.append(repr(trouble.exc_value))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        kinds = good_files(folder)
        for path, doors in kinds.values():
            for door in doors:
                door(path)  # imports everything before memory is bounded
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        outcome = {}
        for name, (path, doors) in kinds.items():
            rng, found, slowest = np.random.default_rng([seed, len(name)]), collections.Counter(), 0.0
            for i in range(count):
                target = folder / f"{i}{path.suffix}"
                damage(path, target, rng)
                start = time.perf_counter()
                try:
                    doors[i % len(doors)](target)
                    found["read"] += 1
                except scv.InputError as error:
                    found["refused"] += 1
                    if "\n" in str(error) or str(target) not in str(error):
                        raise SystemExit(f"not one line that names the file: {error!r}") from error
                slowest = max(slowest, time.perf_counter() - start)
                shutil.rmtree(target) if target.is_dir() else target.unlink()
            assert slowest < SECONDS, f"{name}: {slowest:.1f} s"
            outcome[name] = dict(found)
    assert not noise, f"printed behind the user's back: {noise[:3]}"
    return outcome


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
