"""Plant every bug of seeded.py in a copy of the package, one at a time, and see whether its tests find it.

    python -m tests.mutants            # all of them, a few minutes on one core; writes tests/mutants/killed.csv
    python -m tests.mutants folds sign # those whose name holds one of these words, and their rows of the table

The package itself is never touched. Exit code 1 if a bug survives, or if the tests fail without one.
"""

import csv
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .seeded import BUGS, Bug

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("killed.csv")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.csv")
LIMIT = 300


def copy(folder: Path) -> None:
    """What the tests need, in another place."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=LEFT_OUT)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=LEFT_OUT)
    shutil.copy(ROOT / "pyproject.toml", folder)


def run(folder: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess:
    """pytest on the copy: its src goes before the one that is installed."""
    environment = os.environ | {
        "PYTHONPATH": str(folder / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=line", *tests]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT)


def plant(bug: Bug, folder: Path) -> None:
    file = folder / "src" / "steincv" / bug.file
    text = file.read_text()
    if text.count(bug.old) != 1:
        raise SystemExit(f"{bug.name}: its old text occurs {text.count(bug.old)} times in {bug.file}, expected once.")
    file.write_text(text.replace(bug.old, bug.new))


def judged(bug: Bug, folder: Path) -> dict[str, str]:
    """The row of one bug: killed by which test, or survived."""
    start = time.perf_counter()
    shutil.rmtree(folder / "src")
    shutil.copytree(ROOT / "src", folder / "src", ignore=LEFT_OUT)
    plant(bug, folder)
    try:
        done = run(folder, bug.tests)
    except subprocess.TimeoutExpired:
        return {"bug": bug.name, "file": bug.file, "verdict": "no answer in time", "by": "", "seconds": f"{LIMIT}"}
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    # 1 is a failed test; anything else, such as an error in collection, proves nothing
    verdict = "killed" if done.returncode == 1 and failed else "survived" if done.returncode == 0 else "not run"
    by = failed[0].removeprefix("FAILED ").split(" - ")[0] if failed else done.stdout.strip()[-200:]
    seconds = f"{time.perf_counter() - start:.0f}"
    return {"bug": bug.name, "file": bug.file, "verdict": verdict, "by": by, "seconds": seconds}


def main() -> int:
    words = sys.argv[1:]
    chosen = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        copy(folder)
        where = "import steincv; print(steincv.__file__)"
        found = subprocess.run(
            [sys.executable, "-c", where],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder / "src")},
            capture_output=True,
            text=True,
            check=True,
        )
        if not found.stdout.startswith(str(folder)):
            raise SystemExit(f"the copy is not what is imported: {found.stdout}")
        for tests in sorted({bug.tests for bug in chosen}):
            done = run(folder, tests)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(tests)} fails without any bug:\n{done.stdout[-2000:]}")
        for bug in chosen:
            rows.append(judged(bug, folder))
            print(f"{rows[-1]['verdict']:9} {rows[-1]['seconds']:>4} s  {bug.name}  ({rows[-1]['by']})", flush=True)
            write(rows)
    killed = sum(row["verdict"] == "killed" for row in rows)
    print(f"{killed} of {len(rows)} killed")
    return 0 if killed == len(rows) else 1


def write(rows: list[dict[str, str]]) -> None:
    """These rows in the table, beside those that it has of other bugs."""
    kept = {}
    if TABLE.exists():
        with TABLE.open(newline="") as file:
            kept = {row["bug"]: row for row in csv.DictReader(file)}
    kept |= {row["bug"]: row for row in rows}
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept[bug.name] for bug in BUGS if bug.name in kept)


if __name__ == "__main__":
    sys.exit(main())
