"""Files of an enemy, one way each, and every door that reads files.

    python tests/trust/hostile.py FOLDER       # reads every file in it through every door; prints JSON

What a door says of a file is compared with `WAYS` by test_hostile.py. HDF5 is C code, so the reading is done in a
process of its own, which may take little memory.
"""

import bz2
import contextlib
import io
import json
import lzma
import os
import resource
import struct
import sys
import warnings
import zlib
from pathlib import Path

import h5py
import numpy as np

MEMORY = 1 << 30
PAIR = ("unconstrained_draw", "gradient")
SHAPE = (2, 50, 2)
# Bytes of zeros that a bomb expands to.
BOMB = 1 << 29


# NetCDF ----------------------------------------------------------------------------------------------


def netcdf(path, skip=(), **options):
    """A good file of draws and scores, as h5py writes it, without those that are skipped."""
    file = h5py.File(path, "w", **options)
    x = np.random.default_rng(0).normal(size=SHAPE)
    for name, length in zip(("chain", "draw", "dim"), SHAPE, strict=True):
        file[name] = np.arange(length)
        file[name].make_scale(name)
    for name in set(PAIR) - set(skip):
        attach(file, file.create_dataset(name, data=x))
    return file


def attach(file, dataset):
    for k, name in enumerate(("chain", "draw", "dim")):
        dataset.dims[k].attach_scale(file[name])


def secret(path):
    target = path.parent / "secret"
    if not target.exists():
        with h5py.File(target, "w") as file:
            for name in PAIR:
                file[name] = np.ones(SHAPE)
    return str(target)


def external_link(path):
    with netcdf(path, PAIR[:1]) as file:
        file[PAIR[0]] = h5py.ExternalLink(secret(path), PAIR[0])


def external_group(path):
    with h5py.File(path, "w") as file:
        file["sample_stats"] = h5py.ExternalLink(secret(path), "/")


def soft_link(path):
    with netcdf(path, PAIR[:1]) as file:
        file[PAIR[0]] = h5py.SoftLink("/gradient")


def external_storage(path):
    with netcdf(path, PAIR[:1]) as file:
        attach(file, file.create_dataset(PAIR[0], SHAPE, "f8", external=[(secret(path), 0, 1600)]))


def virtual(path):
    with netcdf(path, PAIR[:1]) as file:
        layout = h5py.VirtualLayout(SHAPE, "f8")
        layout[:] = h5py.VirtualSource(secret(path), PAIR[0], SHAPE)
        attach(file, file.create_virtual_dataset(PAIR[0], layout))


def claimed(path, **options):
    """A shape of terabytes, of which nothing is written."""
    with netcdf(path, PAIR) as file:
        for name in PAIR:
            file.create_dataset(name, (2, 10**12, 2), "f8", **options)
        for name in ("draw",):
            del file[name]


def claimed_chunks(path):
    claimed(path, chunks=(2, 10**7, 2), compression="gzip")


def many_chunks(path):
    with netcdf(path, PAIR) as file:
        for name in PAIR:
            file.create_dataset(name, (2, 10**6, 2), "f8", chunks=(1, 1, 1))


def sparse(path):
    """Eight GiB that nobody wrote: a hole in the file."""
    with netcdf(path, PAIR) as file:
        for name in PAIR:
            plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plan.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            plan.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            space = h5py.h5s.create_simple((2, 1 << 28, 2))
            h5py.h5d.create(file.id, name.encode(), h5py.h5t.IEEE_F64LE, space, plan)


def deflated(size, kind=15):
    """Zeros, compressed in pieces: the whole is never in memory."""
    stream = zlib.compressobj(9, zlib.DEFLATED, kind)
    piece = bytes(1 << 24)
    return b"".join(stream.compress(piece) for _ in range(size >> 24)) + stream.flush()


def deflate_bomb(path):
    with netcdf(path, PAIR) as file:
        for name in PAIR:
            dataset = file.create_dataset(name, SHAPE, "f8", chunks=SHAPE, compression="gzip")
            dataset.id.write_direct_chunk((0, 0, 0), deflated(BOMB))
            attach(file, dataset)


def chunk_of_many_bytes(path):
    """A chunk of a few numbers that is stored in 64 MiB."""
    with netcdf(path, PAIR) as file:
        for name in PAIR:
            dataset = file.create_dataset(name, SHAPE, "f8", chunks=SHAPE, compression="gzip")
            dataset.id.write_direct_chunk((0, 0, 0), os.urandom(64 << 20))
            attach(file, dataset)


def other_filter(path):
    with netcdf(path, PAIR) as file:
        for name in PAIR:
            attach(file, file.create_dataset(name, SHAPE, "f8", chunks=SHAPE, compression="lzf"))


def claim_text(path, at, length=b"\xff\xff\xff\xff"):
    with open(path, "r+b") as raw:
        raw.seek(at)
        raw.write(length)


def long_labels(path):
    """Two letters of text, and 4 GiB of it by its own word."""
    with netcdf(path) as file:
        del file["dim"]
        file.create_dataset("dim", data=["ab", "c"], dtype=h5py.string_dtype())
        at = file["dim"].id.get_offset()
    claim_text(path, at)


def long_lists(path):
    """Numbers in lists of any length, of which one claims 32 GiB."""
    with netcdf(path) as file:
        dataset = file.create_dataset("lists", (1,), h5py.vlen_dtype("f8"))
        dataset[0] = np.ones(3)
        at = dataset.id.get_offset()
    claim_text(path, at)


def endless_heap(path):
    """A heap of texts whose first entry claims a length below zero, so that the next one is before it."""
    with netcdf(path, PAIR) as file:
        del file["dim"]
        file.create_dataset("dim", data=["abcdefgh", "ijklmnop"], dtype=h5py.string_dtype())
        file["dim"].make_scale("dim")
        for name in PAIR:
            attach(file, file.create_dataset(name, data=np.ones(SHAPE)))
    claim_text(path, path.read_bytes().find(b"abcdefgh") - 8, struct.pack("<q", -16))


def long_fill(path):
    """A text that stands for what is missing, of 2 GiB by its own word: good files have the record of a short one."""
    with netcdf(path) as file:
        file.create_dataset("text", (2,), h5py.string_dtype(), fillvalue="abcdefghijk")
    whole = path.read_bytes()
    heap = whole.find(b"GCOL")
    record = struct.pack("<IQ", 11, heap)
    assert whole.count(record) >= 1
    claim_text(path, whole.find(record), b"\xff\xff\xff\x7f")


def compact_text(path):
    with netcdf(path) as file:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_layout(h5py.h5d.COMPACT)
        kind = h5py.h5t.py_create(h5py.string_dtype(), logical=True)
        h5py.h5d.create(file.id, b"text", kind, h5py.h5s.create_simple((2,)), plan)


def compressed_text(path):
    with netcdf(path) as file:
        file.create_dataset("text", data=["a", "b"], dtype=h5py.string_dtype(), chunks=(2,), compression="gzip")


def long_attribute(path):
    with netcdf(path, libver="latest") as file:
        file["gradient"].attrs["scale_factor"] = np.zeros(64 << 17)


def text_attribute(path):
    with netcdf(path) as file:
        file["gradient"].attrs["scale_factor"] = "1.0"


def user_block(path):
    netcdf(path, userblock_size=512).close()


def pipe_for_a_file(path):
    os.mkfifo(path)


def netcdf_3(path):
    path.write_bytes(b"CDF\x01" + bytes(100))


# Zarr ------------------------------------------------------------------------------------------------


def second(path, compressor=None, chunk=None, filters=None, **change):
    """Format 2: draws and scores, their chunks given or good."""
    path.mkdir()
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    for name in PAIR:
        meta = {"zarr_format": 2, "shape": list(SHAPE), "chunks": list(SHAPE), "dtype": "<f8", "order": "C"}
        meta |= {"compressor": compressor and {"id": compressor}, "fill_value": 0, "filters": filters} | change
        (path / name).mkdir()
        (path / name / ".zarray").write_text(json.dumps(meta))
        (path / name / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": ["chain", "draw", "dim"]}))
        if compressor is None or chunk is not None:
            (path / name / "0.0.0").write_bytes(np.random.default_rng(0).normal(size=SHAPE) if chunk is None else chunk)


def third(path, codecs, chunk=None, **change):
    """Format 3, the same."""
    path.mkdir()
    (path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    for name in PAIR:
        meta = {"zarr_format": 3, "node_type": "array", "shape": list(SHAPE), "data_type": "float64", "fill_value": 0}
        meta |= {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(SHAPE)}}, "codecs": codecs}
        meta |= {"chunk_key_encoding": {"name": "default"}, "dimension_names": ["chain", "draw", "dim"]} | change
        file = path / name / "c" / "0" / "0" / "0"
        file.parent.mkdir(parents=True)
        (path / name / "zarr.json").write_text(json.dumps(meta))
        file.write_bytes(np.random.default_rng(0).normal(size=SHAPE).tobytes() if chunk is None else chunk)


def stream_bomb(compressor):
    """Zeros in pieces again, of which bz2 and lzma have smaller ones: they are slow."""
    if compressor in ("zlib", "gzip"):
        return deflated(BOMB, 31 if compressor == "gzip" else 15)
    stream = bz2.BZ2Compressor() if compressor == "bz2" else lzma.LZMACompressor()
    piece = bytes(1 << 22)
    return b"".join(stream.compress(piece) for _ in range(16)) + stream.flush()


def blosc_claim(size):
    import numcodecs

    good = numcodecs.Blosc().encode(np.zeros(200))
    return good[:4] + struct.pack("<I", size) + good[8:]


def zstd_claim(size):
    return b"\x28\xb5\x2f\xfd" + bytes([0xE0]) + struct.pack("<Q", size) + b"\x01\x00\x00"


def zstd_bomb():
    """Two frames: the first as long as it should be, the second a bomb."""
    import numcodecs

    return numcodecs.Zstd().encode(np.zeros(200)) + numcodecs.Zstd().encode(np.zeros(1 << 23))


def shard(path):
    """The table of a shard says that a chunk has 4 GiB."""
    inner = {"chunk_shape": list(SHAPE), "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes"}]}
    third(path, [{"name": "sharding_indexed", "configuration": inner}], struct.pack("<QQ", 0, 1 << 32))


def shards_in_shards(path):
    inner = {"chunk_shape": list(SHAPE), "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes"}]}
    outer = inner | {"codecs": [{"name": "sharding_indexed", "configuration": inner}]}
    third(path, [{"name": "sharding_indexed", "configuration": outer}])


def linked_chunk(path):
    second(path)
    chunk = path / PAIR[0] / "0.0.0"
    chunk.unlink()
    chunk.symlink_to(secret(path))


def linked_array(path):
    second(path)
    (path / PAIR[0]).rename(path.parent / "elsewhere")
    (path / PAIR[0]).symlink_to(path.parent / "elsewhere")


def pipe(path):
    second(path)
    (path / PAIR[0] / "0.0.0").unlink()
    os.mkfifo(path / PAIR[0] / "0.0.0")


def long_metadata(path):
    second(path)
    (path / PAIR[0] / ".zattrs").write_text("{" + " " * (64 << 20) + "}")


def deep_metadata(path):
    second(path)
    (path / PAIR[0] / ".zattrs").write_text("[" * 100_000)


def hostile_attribute(path):
    second(path)
    (path / PAIR[0] / ".zattrs").write_text(
        json.dumps({"_ARRAY_DIMENSIONS": ["chain", "draw", "dim"], "scale_factor": [1.0] * 5})
    )


def text_labels(path):
    """Texts, 4 billion by their own word."""
    second(path)
    (path / "dim").mkdir()
    meta = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|O", "order": "C", "fill_value": ""}
    (path / "dim" / ".zarray").write_text(json.dumps(meta | {"compressor": None, "filters": [{"id": "vlen-utf8"}]}))
    (path / "dim" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["dim"]}')
    (path / "dim" / "0").write_bytes(b"\xff\xff\xff\xff" + bytes(20))


def sparse_chunk(path):
    second(path, shape=[2, 1 << 28, 2], chunks=[2, 1 << 28, 2])
    for name in PAIR:
        os.truncate(path / name / "0.0.0", 1 << 33)


def zipped(path):
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(".zgroup", '{"zarr_format": 2}')


GZIP = {"name": "gzip", "configuration": {"level": 9}}
# How each file is made, and what every door says of it.
WAYS = {
    "external-link.nc": (external_link, "`unconstrained_draw` is kept in another file"),
    "external-group.nc": (external_group, "`sample_stats` is kept in another file"),
    "soft-link.nc": (soft_link, "`unconstrained_draw` is a link to another place"),
    "external-storage.nc": (external_storage, "`unconstrained_draw` is kept in another file"),
    "virtual.nc": (virtual, "`unconstrained_draw` is kept in another file"),
    "claimed.nc": (claimed, "claims shape .* GiB"),
    "claimed-chunks.nc": (claimed_chunks, "claims shape .* GiB"),
    "many-chunks.nc": (many_chunks, "claims 4000000 chunks"),
    "sparse.nc": (sparse, "claims shape .* 8 GiB"),
    "deflate-bomb.nc": (deflate_bomb, "would expand beyond the 1604 bytes of its shape"),
    "chunk-of-many-bytes.nc": (chunk_of_many_bytes, "has 67108864 bytes, more than its shape needs"),
    "other-filter.nc": (other_filter, "the filter 'lzf', which is not allowed"),
    "long-labels.nc": (long_labels, "`dim` claim 429496729[67] bytes"),
    "long-lists.nc": (long_lists, "`lists` claim 34359738360 bytes"),
    "endless-heap.nc": (endless_heap, "the texts of `dim` are not where they should be"),
    "long-fill.nc": (long_fill, "`text` is text in chunks|`text` claims 2 texts"),
    "compact-text.nc": (compact_text, "`text` is text in chunks"),
    "compressed-text.nc": (compressed_text, "`text` is text in chunks"),
    "long-attribute.nc": (long_attribute, "`gradient` has attributes of 6711.* bytes"),
    "text-attribute.nc": (text_attribute, "the attribute `scale_factor` of `gradient` is no number"),
    "user-block.nc": (user_block, "begins with 512 bytes"),
    "pipe.nc": (pipe_for_a_file, "is neither a file nor a folder"),
    "netcdf-3.nc": (netcdf_3, "a NetCDF 3 file"),
    "pickle.zarr": (lambda p: second(p, filters=[{"id": "pickle"}]), "the codec 'pickle', which is not allowed"),
    "unknown.zarr": (lambda p: third(p, [{"name": "bytes"}, {"name": "own"}]), "the codec 'own', which is not allowed"),
    "twice.zarr": (lambda p: third(p, [{"name": "bytes"}, GZIP, GZIP]), "compresses twice"),
    "shard.zarr": (shard, "does not hold the 4294967296 bytes it claims"),
    "shards-in-shards.zarr": (shards_in_shards, "'shards within shards', which is not allowed"),
    "linked-chunk.zarr": (linked_chunk, "`unconstrained_draw/0.0.0` is no file of its own"),
    "linked-array.zarr": (linked_array, "`unconstrained_draw` is no file of its own"),
    "pipe.zarr": (pipe, "`unconstrained_draw/0.0.0` is no file of its own"),
    "claimed.zarr": (lambda p: second(p, shape=[2, 10**12, 2]), "claims shape .* GiB"),
    "claimed-chunks.zarr": (lambda p: second(p, chunks=[2, 10**10, 2]), "claims chunks of .* GiB"),
    "many-chunks.zarr": (lambda p: second(p, shape=[2, 10**6, 2], chunks=[1, 1, 1]), "claims 4000000 chunks"),
    "sparse.zarr": (sparse_chunk, "claims shape .* 8 GiB"),
    "zlib-bomb.zarr": (lambda p: second(p, "zlib", stream_bomb("zlib")), "would expand beyond 1664 bytes"),
    "gzip-bomb.zarr": (lambda p: third(p, [{"name": "bytes"}, GZIP], stream_bomb("gzip")), "would expand beyond 1664"),
    "bz2-bomb.zarr": (lambda p: second(p, "bz2", stream_bomb("bz2")), "would expand beyond 1664 bytes"),
    "lzma-bomb.zarr": (lambda p: second(p, "lzma", stream_bomb("lzma")), "would expand beyond 1664 bytes"),
    "blosc-claim.zarr": (lambda p: second(p, "blosc", blosc_claim((1 << 31) - 1)), "claims to expand to 2147483647"),
    "lz4-claim.zarr": (lambda p: second(p, "lz4", b"\xff\xff\xff\x7f" + bytes(20)), "claims to expand to 2147483647"),
    "zstd-claim.zarr": (lambda p: second(p, "zstd", zstd_claim(1 << 40)), "claims to expand to 1099511627776"),
    "zstd-bomb.zarr": (lambda p: second(p, "zstd", zstd_bomb()), "cannot be decompressed"),
    "long-metadata.zarr": (long_metadata, "67108866 bytes of metadata"),
    "deep-metadata.zarr": (deep_metadata, "cannot be read"),
    "hostile-attribute.zarr": (hostile_attribute, "cannot be read"),
    "text-labels.zarr": (text_labels, "does not hold 2 texts"),
    "objects.zarr": (lambda p: second(p, dtype="|O"), "has dtype object, expected real numbers"),
    "records.zarr": (lambda p: second(p, dtype="(1000000000,)f8"), "has dtype .*, expected real numbers"),
    "wide.zarr": (
        lambda p: second(p, filters=[{"id": "astype", "encode_dtype": "<f8", "decode_dtype": "<U9999999"}]),
        "filtered to '<U9999999'",
    ),
    "zipped.zip": (zipped, "what kind of file is this"),
}


# Doors -----------------------------------------------------------------------------------------------


def through_open(path):
    import steincv as scv

    with scv.Samples.open(path) as samples:
        scv.estimate(samples, method=scv.MonteCarlo())


def through_memory(path):
    import steincv as scv

    scv.from_arviz(path)


def through_command(*words):
    def door(path):
        import steincv as scv
        from steincv import cli

        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = cli.main([words[0], str(path), *words[1:]])
        if code:
            raise scv.InputError(said.getvalue().strip())

    return door


DOORS = {
    "Samples.open": through_open,
    "from_arviz": through_memory,
    "steincv estimate": through_command("estimate", "--method", "plain"),
    "steincv check": through_command("check"),
}


def main(folder):
    import steincv as scv

    warnings.simplefilter("ignore")
    for good in (folder / "good.nc", folder / "good.zarr"):
        for door in DOORS.values():
            door(good)  # imports everything before memory is bounded
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found, taken = {}, {}
    for name in WAYS:
        found[name] = {}
        for title, door in DOORS.items():
            try:
                door(folder / name)
                found[name][title] = None
            except scv.InputError as error:
                found[name][title] = str(error)
        now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        taken[name], peak = now - peak, max(now, peak)
    return {"found": found, "kib": taken}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
