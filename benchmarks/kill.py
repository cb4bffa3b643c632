"""kill -9 at random moments of a network fit, a tempering run and a reproduction: does each resume to the same bits?

    python benchmarks/kill.py [MOMENTS [JOB ...]]        # 100 moments of each of: network, tempering, reproduction

A job is started, killed after a random time, and started again, which takes it up where it was, until it ends; then a
new one begins, until it has been killed MOMENTS times. Its answer must be that of a run in peace, byte for byte, and at
no moment may there be a file under a final name that is not whole. Adds to results/kill.csv: 4 runs of 25 moments are
one of 100. About five seconds a moment.
"""

import csv
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

# What each job runs, in the folder it was started in; `slow` makes the moments between two checkpoints longer.
START = "import os; os.environ['STEINCV_CACHE'] = 'cache'; import numpy as np, steincv as scv, time; slow = {slow}\n"
JOBS = {
    "network": """
from steincv.runtime import checkpoint
write = checkpoint.Checkpoint.write
checkpoint.Checkpoint.write = lambda *a: (time.sleep(slow), write(*a))[1]
x = np.random.default_rng(0).normal(size=(2, 100, 2))
samples = scv.Samples(x, -x)
print("ready", flush=True)
method = scv.Neural(scv.VectorField(8, 1), steps=400, batch=32, ensemble=1, penalty=1e-3, checkpoint="state.npz")
result = scv.estimate(samples, np.sin(x.sum(-1)), method)
result.info.clear()  # it has the seconds
result.save("result.npz", force=True)
""",
    "tempering": """
from steincv.evidence import temper
from steincv.runtime import checkpoint
from steincv_paper.models.regression import regression
checkpoint.INTERVAL = 0.0
keep = checkpoint.Checkpoint.keep
checkpoint.Checkpoint.keep = lambda *a: (time.sleep(slow), keep(*a))[1]
print("ready", flush=True)
settings = dict(draws=20, warmup=40, replicas=2, kernel="mala", checkpoint="state.npz")
tempered = temper(regression(2).posterior, scv.temperature_ladder(4, 3), **settings)
from steincv.runtime.arrays import whole_file
with whole_file("result.npz", force=True) as file:
    np.savez(file, *[s.draws for s in tempered.samples])
""",
    "reproduction": """
import pathlib, sys
sys.path.insert(0, ".")
pathlib.Path("toy.py").write_text(TOY)
import toy
from steincv_paper.runner import run
if __name__ == "__main__":
    print("ready", flush=True)
    run(toy, toy.Settings(8, slow), pathlib.Path("out"), workers=1)
""",
}
# An experiment as `steincv reproduce` runs them, with cells of a tenth of a second.
TOY = """
import time
from dataclasses import dataclass
from steincv_paper.claims import HOLDS, Claim
from steincv_paper.runner import Cell

@dataclass(frozen=True)
class Settings:
    count: int
    pause: float

def cells(settings):
    return [Cell(f"toy-{k}", (k, settings.pause)) for k in range(settings.count)]

def cell(k, pause):
    import numpy as np, steincv as scv
    time.sleep(pause)
    x = np.random.default_rng(k).normal(size=(2, 60, 2))
    result = scv.estimate(scv.Samples(x, -x), np.sin(x[..., 0]), scv.Polynomial(2))
    return [{"seed": k, "mean": float(result.mean), "error": float(result.standard_error)}]

def figures(table, settings):
    return {}

def claims(table, settings):
    return [Claim("1", "it ends", "toy", "yes", HOLDS)]
"""
OUT = pathlib.Path(__file__).parent / "results" / "kill.csv"


def start(job, folder, slow):
    code = START.format(slow=slow) + f"TOY = {TOY!r}\n" + JOBS[job]
    environment = os.environ | {"PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def whole(folder):
    """Every file under a final name can be read to its end."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith(".") and "cache" not in path.relative_to(folder).parts:
            if path.suffix == ".npz":
                with zipfile.ZipFile(path) as archive:
                    assert archive.testzip() is None, path
            elif path.suffix == ".json":
                json.loads(path.read_text())


def answer(folder):
    """The digest of what the job made; of the arrays in an .npz, whose bytes have no dates in them."""
    result = folder / "out" / "results.csv" if (folder / "out").exists() else folder / "result.npz"
    return hashlib.sha256(result.read_bytes()).hexdigest()


def in_peace(job, folder, slow=0.0):
    """Runs the job to its end; its digest, and the seconds after it was ready."""
    process = start(job, folder, slow)
    process.stdout.readline()
    begin = time.monotonic()
    assert process.wait() == 0, f"{job} failed"
    return answer(folder), time.monotonic() - begin


def clear(folder):
    for path in folder.iterdir():
        if path.name != "cache":  # of compiled programs, which a first run fills for all
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def kill(job, moments, seed=0, slow=0.05):
    """The row of one job."""
    rng = random.Random(seed)
    killed = ended = resumed = 0
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        in_peace(job, folder)
        clear(folder)
        expected, seconds = in_peace(job, folder, slow)
        clear(folder)
        while killed < moments or not ended:
            process = start(job, folder, slow)
            process.stdout.readline()
            try:
                code = process.wait(None if killed >= moments else rng.uniform(0, seconds))
                assert code == 0, f"{job} failed"
                assert answer(folder) == expected, f"{job}: other bits after {killed} kills"
                ended += 1
                clear(folder)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                process.stdout.close()
                killed += 1
                whole(folder)
                resumed += any(folder.glob("state.npz")) or any(folder.glob("out/cells/*.json"))
    return {"job": job, "killed": killed, "with a state to resume": resumed, "ended with the same bits": ended}


def main():
    from tables import keep, show

    moments = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    rows = {}
    if OUT.exists():
        with OUT.open(newline="") as file:
            rows = {r["job"]: {k: v if k == "job" else int(v) for k, v in r.items()} for r in csv.DictReader(file)}
    for job in sys.argv[2:] or JOBS:
        before = rows.get(job, {})
        now = kill(job, moments, seed=before.get("killed", 0))
        rows[job] = {k: v if k == "job" else v + before.get(k, 0) for k, v in now.items()}
        print(now, flush=True)
        keep("kill", list(rows.values()))
    show("kill -9, all runs so far", list(rows.values()))


if __name__ == "__main__":
    main()
