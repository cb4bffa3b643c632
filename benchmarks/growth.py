"""How time and memory grow with draws, dimensions and functions, for every family.

    python benchmarks/growth.py [seconds, default 480] [part of a family's name: only those, the others as they were]

Writes results/growth.csv and docs/growth.png (log-log, with the exponent fitted to the last three sizes). A line ends
where one cell would take too long. Time is that of `fit` and of evaluating g at all draws, once, after a small one that
compiles; memory is the peak of resident memory above the draws that were there before.
"""

import csv
import ctypes
import gc
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import steincv as scv

ROOT = Path(__file__).parents[1]
CELL = 12.0  # seconds: no cell is begun whose predecessor took a third of this
NETWORK = scv.CNCV(scv.VectorField(40, 1), steps=3000)
FAMILIES = {
    "Polynomial(1)": scv.Polynomial(1),
    "Polynomial(2)": scv.Polynomial(2),
    "Kernel, 100 landmarks": scv.Kernel(lengthscale=4.0, landmarks=100),
    "Kernel, all draws": scv.Kernel(lengthscale=4.0, penalty=1e-4),
    "network, 3000 steps": NETWORK,
    "Polynomial(2), estimate from a file": None,  # draws only
}
DRAWS, DIM, FUNCTIONS = 4000, 5, 1
AXES = {
    "draws": [1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000],
    "dimensions": [2, 5, 10, 30, 100, 300, 1000],
    "functions": [1, 3, 10, 30, 100, 300, 1000],
}


def problem(draws: int, dim: int, functions: int) -> tuple[scv.Samples, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, draws // 4, dim)) + rng.choice([-1.0, 1.0], size=(4, draws // 4, 1))
    f = np.sin(x @ rng.normal(size=(dim, functions)) / np.sqrt(dim))
    return scv.Samples(x, np.tanh(x.sum(-1, keepdims=True)) - x), f


def status(field: str) -> float:
    """MiB, as the kernel counts them."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def write(folder: str, samples: scv.Samples) -> scv.Samples:
    """The same draws in a file."""
    import zarr

    group = zarr.open_group(f"{folder}/draws.zarr", mode="w")
    for name, array in (("draws", samples.draws), ("scores", samples.scores)):
        group.create_array(name, data=array, chunks=(1, min(10_000, array.shape[1]), array.shape[2]))
    return scv.Samples.open(f"{folder}/draws.zarr")


def measure(method: scv.Method | None, samples: scv.Samples, f: np.ndarray) -> tuple[float, float]:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    start = time.perf_counter()
    if method is None:
        scv.estimate(samples, method=scv.Polynomial(2))
    else:
        method.fit(samples, f)(samples)
    return time.perf_counter() - start, status("VmHWM") - before


def main(folder: str) -> None:
    limit = float(sys.argv[1]) if len(sys.argv) > 1 else 480.0
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    begin = time.perf_counter()
    rows = [r for r in table() if only and only not in r["family"]]
    for axis, sizes in AXES.items():
        for name, method in FAMILIES.items():
            if only not in name or (method is None and axis != "draws"):
                continue
            last = 0.0
            for k, size in enumerate(sizes):
                given = {"draws": DRAWS, "dimensions": DIM, "functions": FUNCTIONS} | {axis: size}
                if last > CELL / 3 or time.perf_counter() - begin > limit:
                    break
                samples, f = problem(*given.values())
                if method is None:
                    samples = write(folder, samples)
                try:
                    if k == 0 or name.startswith("network"):  # compiled, or at least imported
                        measure(method, samples, f)
                    last, peak = measure(method, samples, f)
                except scv.InputError as error:
                    print(f"{name}: {error}")
                    break
                rows.append({"axis": axis, "family": name, "size": size, "seconds": last, "peak_mib": peak})
                print(f"{axis:10s} {size:8d} {name:24s} {last:9.4f} s {peak:8.1f} MiB", flush=True)
    with open(ROOT / "benchmarks/results/growth.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    draw(rows)


def table() -> list[dict]:
    """What is in the table already."""
    path = ROOT / "benchmarks/results/growth.csv"
    if not path.exists():
        return []
    with open(path) as file:
        return list(csv.DictReader(file))


def exponent(sizes: list[float], values: list[float]) -> float:
    """The slope of the last three points."""
    return float(np.polyfit(np.log(sizes[-3:]), np.log(values[-3:]), 1)[0])


def draw(rows: list[dict]) -> None:
    from matplotlib.figure import Figure

    colors = dict(zip(FAMILIES, ("#56b4e9", "#0072b2", "#009e73", "#e69f00", "#cc79a7", "#555555"), strict=True))
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    panels = figure.subplots(2, 3, sharex="col", sharey="row")
    for column, axis in enumerate(AXES):
        for row, (what, unit) in enumerate((("seconds", "seconds"), ("peak_mib", "peak memory, MiB"))):
            ax = panels[row][column]
            for name in FAMILIES:
                points = [
                    (float(r["size"]), max(float(r[what]), 1.0 if row else 1e-4))
                    for r in rows
                    if (r["axis"], r["family"]) == (axis, name)
                ]
                if len(points) < 2:
                    continue
                x, y = zip(*points, strict=True)
                label = f"{name}: {exponent(list(x), list(y)):.2f}"
                ax.plot(x, y, "o-", color=colors[name], markersize=3.5, linewidth=1.6, label=label)
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_ylim(*((0.5, 1e6) if row else (1e-3, 2e5)))  # room for the legend
            ax.grid(color="#e4e4e4", linewidth=0.6)
            ax.spines[["top", "right"]].set_visible(False)
            ax.legend(fontsize=7, frameon=False, title="exponent", title_fontsize=7, loc="upper left")
            if column == 0:
                ax.set_ylabel(unit)
            if row:
                ax.set_xlabel(axis)
    figure.suptitle(
        f"Fit and evaluation at {DRAWS} draws in {DIM} dimensions of one function, one of the three varied", fontsize=10
    )
    figure.savefig(ROOT / "docs/growth.png", dpi=92)


if __name__ == "__main__":
    if "--draw" in sys.argv:  # the picture again, from the table
        draw(table())
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(folder)
