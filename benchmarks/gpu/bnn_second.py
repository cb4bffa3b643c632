"""A second run of the paper's classifier by parallel tempering, from another seed, and all that 5.3 asks of its draws.

    python benchmarks/gpu/bnn_second.py OUT [--sampling 250] [--until 470] [--workers 11] [--tiny]

Within seconds from its start: no segment of the sampler begins that would end after `--sampling`, and no part of the
judging begins after `--until`. What is done is in OUT at once: state.npz and draws.npz of the sampler, rows.csv with
the rows of `steincv reproduce bnn` and those of networks trained better than the paper says, parts.json with seconds.
`--workers` processes meanwhile sample the regression networks on the CPU, again and again from other seeds.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGIN = time.perf_counter()
FOLDER = Path("/tmp/bnn-regression")  # draws of the regression networks, until they are judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sampling", type=float, default=250)
    parser.add_argument("--until", type=float, default=470)
    parser.add_argument("--workers", type=int, default=11)
    parser.add_argument("--tiny", action="store_true", help="a few draws, to see whether it runs")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.worker is not None and given.worker < 0:
        return judge(given.out, given.until)
    if given.worker is not None:
        return regression(given.worker, given.workers, given.tiny)
    FOLDER.mkdir(exist_ok=True)
    one = {"JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
           "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}  # fmt: skip
    half = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.4"}  # of the accelerator's memory
    os.environ |= half
    command = [sys.executable, __file__, *sys.argv[1:], "--worker"]
    workers = [subprocess.Popen([*command, str(k)], env=os.environ | one) for k in range(given.workers)]
    judging = subprocess.Popen([*command, "-1"])
    try:
        classifier(given)
        while time.perf_counter() - BEGIN < given.until and judging.poll() is None:
            time.sleep(1)
    finally:
        for process in (*workers, judging):
            process.terminate()


def regression(worker: int, workers: int, tiny: bool) -> None:
    """Sample a regression network again and again, the curve and the cars in turn."""
    import numpy as np

    from steincv_paper.bnn_regression import regression_draws

    for turn in range(1 if tiny else 1000):
        name, run = ("curve", "cars")[(worker + turn) % 2], 1 + worker + workers * turn
        begin = time.perf_counter()
        found = regression_draws(name, *((4, 20, 20) if tiny else (16, 400, 400)), 0, run)
        file, seconds = FOLDER / f"{name}-{run}.npz", time.perf_counter() - begin
        np.savez(file.with_suffix(".part.npz"), draws=found.draws, scores=found.scores, seconds=seconds)
        file.with_suffix(".part.npz").rename(file)


def judge(out: Path, until: float) -> None:
    """Judge the regression networks that have been sampled, on the accelerator, in a process of its own."""
    import numpy as np

    from steincv import Samples
    from steincv_paper import bnn_regression

    done: list[str] = []
    while time.perf_counter() - BEGIN < until:
        waiting = {file.stem for file in FOLDER.glob("*[0-9].npz")} - set(done)
        if not waiting:
            time.sleep(1)
            continue
        # of the network that has been judged least
        which = min(waiting, key=lambda stem: (sum(d.split("-")[0] == stem.split("-")[0] for d in done), stem))
        done.append(which)
        name, run = which.split("-")
        with np.load(FOLDER / f"{which}.npz") as arrays:
            drawn, seconds = Samples(arrays["draws"], arrays["scores"]), float(arrays["seconds"])
        begin = time.perf_counter()
        rows = bnn_regression.judged(name, drawn, 0, seconds, times=1)
        write(out / "regression.csv", [{"seed": run, **row} for row in rows])
        print(f"regression {which}: {time.perf_counter() - begin:.1f} s, sampled in {seconds:.0f} s", flush=True)


COLUMNS = ("seed", "part", "data", "method", "split", "image", "seen", "ratio_train", "ratio", "z", "score", "entropy",
           "outside", "error", "helped", "status", "group", "covered", "z_rms", "dim", "draws", "chains",
           "coefficients", "stein_z", "stein_z_median", "stein_share", "score_rms", "score_largest", "score_median",
           "rhat", "rhat_largest", "rhat_share", "ess", "ess_least", "halves_agree", "score_sd", "coin_flips", "source",
           "seconds", "restarts")  # fmt: skip


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add rows to a file that several processes write, each in one piece."""
    import io

    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    if not path.exists():
        writer.writeheader()
    writer.writerows(rows)
    with path.open("a") as file:
        file.write(text.getvalue())


def classifier(given: argparse.Namespace) -> None:
    import jax
    import numpy as np

    from steincv.families.neural.neural import Neural
    from steincv.networks import last_layer
    from steincv.networks.network_field import NetworkField
    from steincv.networks.predictive import predictions
    from steincv_paper import bnn_fits
    from steincv_paper.amortised import Amortised, unseen
    from steincv_paper.bnn_converged import TINY, Plan, converged
    from steincv_paper.bnn_draws import Problem, converged as read
    from steincv_paper.embedding import ImageEmbedding

    print(jax.devices()[0].device_kind, "jax", jax.__version__, flush=True)
    out, rows, parts = given.out, given.out / "rows.csv", {"device": jax.devices()[0].device_kind}
    settings = {"run": 1, "warmup": 9, "segments": 25}
    plan = Plan(**settings) if not given.tiny else Plan(**{**vars(TINY), "run": 1})
    converged(plan, out, given.sampling - (time.perf_counter() - BEGIN))

    def part(name: str, work: Callable[[], list[dict[str, Any]]]) -> None:
        begin = time.perf_counter()
        if begin - BEGIN > given.until:
            return print(f"{name}: no time left", flush=True)
        try:
            found = work()
        except Exception as error:  # one part must not take the others with it
            return print(f"{name}: {type(error).__name__}: {error}", flush=True)
        write(rows, found)
        parts[name] = time.perf_counter() - begin
        (out / "parts.json").write_text(json.dumps(parts, indent=1))
        each = [row["ratio"] for row in found if "ratio" in row and not row.get("seen", 0)]
        said = f"; ratio {np.mean(each):.3f}" if each else ""
        print(f"{name}: {parts[name]:.1f} s, at {time.perf_counter() - BEGIN:.0f} s{said}", flush=True)

    problem = Problem.of(plan.data, plan.training, plan.seen, plan.unseen, plan.seed)
    there = read(problem, str(out / "draws.npz"))
    assert there is not None
    samples, said = there
    f = predictions(samples, problem.model.predict, problem.images)
    split = bnn_fits.Split.of(samples, f, "chains", 0)
    steps, long = (20, 40) if given.tiny else (4000, 40_000)
    controlled: dict[str, np.ndarray] = {}

    def ratios(name: str) -> list[dict[str, Any]]:
        found, scores = bnn_fits.ratio_rows(problem, split, "chains", steps, 0, (name,))
        controlled.update(scores)
        return found

    def trained(name: str, shape: str, **more: Any) -> list[dict[str, Any]]:
        """Train ten times as long on larger batches; images and draws that are not trained on decide when to stop."""
        seen, images = problem.seen, problem.images
        trial = Amortised(images[:seen], shape=shape, embed=ImageEmbedding(), contexts=32, judged=max(1, seen // 5))
        method = Neural(trial, steps=long, batch=256, **more)
        fitted = method.fit(split.train, split.f_train[..., :seen], seed=0)
        other = unseen(fitted, images[seen:], split.f_train[..., seen:])
        return judged(name, lambda s: np.concatenate([fitted(s), other(s)], axis=-1))

    def judged(name: str, g: Callable) -> list[dict[str, Any]]:
        sets = ((split.train, split.f_train), (split.test, split.f_test))
        train, test = (bnn_fits.ratio(v + g(s), v) for s, v in sets)
        return [
            {"part": "trained", "split": "chains", "method": name, "image": i, "seen": int(i < problem.seen),
             "ratio_train": float(train[i]), "ratio": float(test[i])}
            for i in range(len(test))
        ]  # fmt: skip

    def finer() -> list[dict[str, Any]]:
        """More directions of the last layer and powers of the likelihood than the default has."""
        usual, last_layer.GRID = last_layer.GRID, last_layer.Grid(tuple(10.0**k for k in np.arange(-3, 1.6, 0.5)),
                                                                  (0.0, 0.1, 0.3, 0.6))  # fmt: skip
        try:
            other = Problem.of(plan.data, plan.training, plan.seen, plan.unseen, plan.seed)  # compiled anew
            field = NetworkField(other.model, other.images)
            return judged("last layer, finer grid", field.fit(split.train, split.f_train))
        finally:
            last_layer.GRID = usual

    part("sampler", lambda: [bnn_fits.sampler_row(problem, samples, f) | said])
    part("last layer", lambda: ratios("last layer"))
    part("linear", lambda: ratios("linear"))
    part("CNCV, no decay", lambda: ratios("CNCV, no decay"))
    part("scores", lambda: bnn_fits.score_rows(problem, samples, f, controlled, 0))
    part("default", lambda: bnn_fits.default_rows(problem, split, 0))
    part("coverage", lambda: bnn_fits.tempered_coverage(problem, samples, f))
    part("low rank", lambda: ratios("low rank"))
    part("last layer, finer grid", finer)
    for name, shape, more in (
        ("CNCV, trained", "scalar", {"rate": 1e-3, "decay": 1.0, "penalty": 1e-3}),
        ("low rank, trained", "potential", {"rate": 1e-3, "decay": 1.0, "penalty": 1e-2}),
        ("CNCV, trained, stronger decay", "scalar", {"rate": 3e-4, "decay": 100.0, "penalty": 1e-2}),
        ("field of rank 147, trained", "field", {"rate": 3e-4, "decay": 100.0, "penalty": 1e-2}),
    ):
        part(name, lambda a=(name, shape), b=more: trained(*a, **b))


if __name__ == "__main__":
    main()
