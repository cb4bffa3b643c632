"""Every method on every set of draws, a line of JSON each, so that a run that was stopped goes on where it was.

The lines are kept in the cache, in runs/VERSION.jsonl. Sets are taken in turn over all posteriors: whenever it is
stopped, every posterior has about the same number of them.
"""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from .draws import folder, kept_sets, read_one
from .methods import VARIANTS, Variant
from .models import MAKERS, make

Line = dict[str, Any]


def path_of_runs(version: str) -> Path:
    path = folder() / "runs"
    path.mkdir(exist_ok=True)
    return path / f"{version}.jsonl"


def lines(version: str) -> list[Line]:
    """All finished runs of a version; the last one counts where a run was repeated."""
    path = path_of_runs(version)
    found = [line for text in path.read_text().splitlines() if (line := _read(text))] if path.exists() else []
    return list({_key(line): line for line in found}.values())


def _read(text: str) -> Line | None:
    try:
        return json.loads(text)
    except ValueError:  # the run that wrote it was killed
        return None


def append(version: str, line: Line) -> None:
    """Add a line in one piece, with line breaks on both sides, so that half a line before it spoils nothing."""
    with path_of_runs(version).open("a") as file:
        file.write(f"\n{json.dumps(line)}\n")


def versions() -> list[str]:
    return sorted(path.stem for path in (folder() / "runs").glob("*.jsonl"))


def _key(line: Line) -> tuple[str, str, int]:
    return line["problem"], line["method"], line["set"]


def plan(names: Sequence[str], methods: Sequence[str], sets: int, done: set) -> Iterator[tuple[str, str, int]]:
    """Yield what is still to be run: a set of all posteriors, then the next set."""
    for which in range(sets):
        for name in names:
            if which not in kept_sets(name):
                continue
            yield from (key for method in methods if (key := (name, method, which)) not in done)


def run(library: ModuleType, version: str, names: Sequence[str], methods: Sequence[str], sets: int) -> None:
    """Run what is missing and say how it goes."""
    methods = [label for label in methods if VARIANTS[label].known_to(library)]
    done = {_key(line) for line in lines(version)}
    todo = list(plan(names or list(MAKERS), methods, sets, done))
    print(f"{version}: {len(done)} runs are there, {len(todo)} to go, with {library.__file__}", flush=True)
    for k, (name, method, which) in enumerate(todo):
        line = {"problem": name, "method": method, "set": which} | one(library, VARIANTS[method], name, which)
        append(version, line)
        seconds = f"{line['seconds']:.1f} s ({line['wall']:.1f} on the clock)"
        said = line.get("failed") or f"reported gain {np.median(_reported(line)):.3g}"
        print(f"[{k + 1}/{len(todo)}] {name}, set {which}, {method}: {seconds}, {said}", flush=True)


def one(library: ModuleType, variant: Variant, name: str, which: int) -> Line:
    """Estimate all functionals of one set; an exception is a result too, its message is kept."""
    posterior, drawn = make(name), read_one(name, which)
    model = {"log_density": posterior.logdensity} if variant.model else {}
    clock, used = time.perf_counter(), time.process_time()
    try:
        samples = library.Samples(drawn.draws, drawn.scores, names=posterior.names, **model)
        method = None if variant.method is None else variant.method(library)
        f = _stacked(posterior) if variant.model else drawn.values
        result = library.estimate(samples, f, method, **variant.options)
    except Exception as error:
        found: Line = {"failed": f"{type(error).__name__}: {error}"[:300]}
    else:
        interval = result.interval(0.95)
        found = {
            "mean": result.mean.tolist(),
            "chains": result.controlled.mean(axis=1).tolist(),
            "error": result.standard_error.tolist(),
            "half width": (0.5 * (interval[..., 1] - interval[..., 0])).tolist(),
            "plain error": result.plain.standard_error.tolist(),
            "used": list(result.method),
        }
    return {"seconds": time.process_time() - used, "wall": time.perf_counter() - clock} | found


def _stacked(posterior: Any) -> Any:
    """The functionals as one function to a vector, in the order of their labels."""

    def f(x: jax.Array) -> jax.Array:
        found = posterior.functionals(x)
        return jax.numpy.stack([found[label] for label in posterior.labels])

    return f


def _reported(line: Line) -> np.ndarray:
    return (np.array(line["plain error"]) / np.maximum(line["error"], 1e-300)) ** 2
