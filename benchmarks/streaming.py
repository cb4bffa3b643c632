"""Draws in a file larger than memory: time against reading the file twice, and peak memory.

    python benchmarks/streaming.py [draws, default 1e6] [--keep]

Writes a Zarr file of a mixture in 20 dimensions (4 chains; 320 bytes a draw, 6.4 GB for 2e7), reads it twice without
doing anything, estimates all means with Polynomial(2), and prints both times, their ratio and the peak of resident
memory above what the process had before. Processor seconds say more than seconds where others use the machine: divided
by the number of free cores they bound the time. Up to 1e6 draws the answer is compared with the one in memory.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import steincv as scv
from steincv_paper.bench import machine

CHAINS, DIM, CHUNK = 4, 20, 20_000
COMPARED = 1_000_000


def write(path: Path, draws: int) -> None:
    """Draw after draw of 0.5 N(-1, I) + 0.5 N(1, I) and its score, never more than a chunk in memory."""
    import zarr

    each = draws // CHAINS
    group = zarr.open_group(str(path), mode="w")
    arrays = [
        group.create_array(name, shape=(CHAINS, each, DIM), chunks=(1, min(CHUNK, each), DIM), dtype="f8")
        for name in ("draws", "scores")
    ]
    rng = np.random.default_rng(0)
    for start in range(0, each, CHUNK):
        stop = min(start + CHUNK, each)
        for chain in range(CHAINS):
            x = rng.normal(size=(stop - start, DIM)) + rng.choice([-1.0, 1.0], size=(stop - start, 1))
            arrays[0][chain, start:stop] = x
            arrays[1][chain, start:stop] = np.tanh(x.sum(-1, keepdims=True)) - x


def peak() -> float:
    """MiB of resident memory at its highest since the last `reset`."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def reset() -> float:
    """Forget the peak; the memory in use now."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak()


def main() -> None:
    numbers = [a for a in sys.argv[1:] if not a.startswith("-")]
    draws = int(float(numbers[0])) if numbers else 1_000_000
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("STEINCV_BENCH_CACHE")))
    try:
        begin = time.perf_counter()
        write(folder / "draws.zarr", draws)
        print(f"{machine()}\nwritten in {time.perf_counter() - begin:.0f} s", flush=True)
        small = np.random.default_rng(0).normal(size=(4, 100, 2))
        scv.estimate(scv.Samples(small, -small), method=scv.Polynomial(2))  # everything is imported
        samples = scv.Samples.open(folder / "draws.zarr")
        before = reset()
        begin, cpu = time.perf_counter(), time.process_time()
        for _ in range(2):
            for _piece in samples.source.tiles():
                pass
        reading, reading_cpu = time.perf_counter() - begin, time.process_time() - cpu
        only_reading = peak() - before
        reset()
        begin, cpu = time.perf_counter(), time.process_time()
        result = scv.estimate(samples, method=scv.Polynomial(2))
        seconds, seconds_cpu = time.perf_counter() - begin, time.process_time() - cpu
        row = {
            "draws": draws,
            "dim": DIM,
            "reading_twice_s": round(reading, 2),
            "estimate_s": round(seconds, 2),
            "ratio": round(seconds / reading, 2),
            "reading_twice_cpu_s": round(reading_cpu, 2),
            "estimate_cpu_s": round(seconds_cpu, 2),
            "peak_mib": round(peak() - before),
            "peak_mib_of_reading": round(only_reading),
            "median_variance_ratio": float(np.median(result.variance_ratio)),
        }
        if draws <= COMPARED:
            source = samples.source
            tile = source.every(1)
            whole = scv.Samples(tile.draws, tile.scores, source.names)
            begin = time.perf_counter()
            memory = scv.estimate(whole, method=scv.Polynomial(2))
            row["in_memory_s"] = round(time.perf_counter() - begin, 2)
            row["largest_difference_in_standard_errors"] = float(
                np.max(np.abs(result.mean - memory.mean) / memory.standard_error)
            )
            row["standard_errors_over_those_in_memory"] = (result.standard_error / memory.standard_error).tolist()[:5]
        print(json.dumps(row, indent=1))
    finally:
        if "--keep" in sys.argv:
            print(folder)
        else:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
