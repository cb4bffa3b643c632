"""The runner on a toy experiment, the two experiments' cells against direct computations, and their verdicts."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

import steincv as scv
from steincv import cli
from steincv_paper import (
    claims as _claims,
    constraints,
    paper,
    problem as _problem,
    reproduce,
    runner as _runner,
    synthetic,
)
from steincv_paper.runner import Cell, compute, run
from steincv_paper.workers import Worker

# A toy experiment: this module has everything that one needs ------------------------------------------


@dataclass(frozen=True)
class Settings:
    count: int
    folder: str = ""
    fatal: tuple[int, ...] = ()
    pause: float = 0.0


def cells(settings):
    return [
        Cell(f"toy-{k}", (k, settings.folder if k in settings.fatal else "", settings.pause), cost=float(k))
        for k in range(settings.count)
    ]


def cell(k, folder, pause):
    """Sums whose last bits depend on the number of threads; with a folder, the first tries kill the worker."""
    time.sleep(pause)
    if folder:
        tries = Path(folder)
        left = int(tries.read_text())
        tries.write_text(str(left - 1))
        if left > 0:
            os.kill(os.getpid(), signal.SIGKILL)
    x = np.random.default_rng(k).normal(size=(300, 300))
    value = float(np.linalg.eigvalsh(x @ x.T).sum())
    return [{"seed": k, "value": value, "threads": os.environ["OPENBLAS_NUM_THREADS"], "method": "linear"}]


def figures(table, settings):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot(table.seed, table.value)
    return {"toy": figure}


def claims(table, settings):
    return [_claims.Claim("1", "sums grow", "toy", _claims.spread(table.value), _claims.HOLDS)]


TOY = sys.modules[__name__]


def made_in(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (folder / "cells").iterdir()}


def test_any_number_of_workers_gives_the_same_bytes(tmp_path):
    one, two = (run(TOY, Settings(4), tmp_path / str(n), workers=n) for n in (1, 2))
    assert one.files == ["results.csv", "summary.json", "claims.md", "toy.png", "toy.svg"]
    for name in set(one.files) - {"summary.json"}:
        assert (one.folder / name).read_bytes() == (two.folder / name).read_bytes(), name
    table = pandas.read_csv(one.folder / "results.csv")
    assert table.seed.tolist() == [0, 1, 2, 3]
    assert (table.threads == 1).all()
    summary = json.loads((one.folder / "summary.json").read_text())
    assert summary["seeds"] == [0, 1, 2, 3]
    assert summary["settings"]["count"] == 4
    assert summary["versions"]["steincv"] == scv.__version__
    assert set(summary["seconds"]) == {f"toy-{k}" for k in range(4)}
    assert "| 1 | sums grow | toy |" in (one.folder / "claims.md").read_text()
    assert (one.folder / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (one.folder / "toy.svg").read_bytes()

    # The same again computes nothing; a damaged cell is computed again; another run is refused.
    before = made_in(one.folder)
    (one.folder / "cells" / "toy-2.json").write_text('{"rows": [')
    assert run(TOY, Settings(4), one.folder, workers=1).claims == one.claims
    after = made_in(one.folder)
    assert {name for name in after if after[name] != before[name]} == {"toy-2.json"}
    with pytest.raises(scv.InputError, match=r"another run \(with count = 4, not 3\).*--force"):
        run(TOY, Settings(3), one.folder)
    other = SimpleNamespace(**vars(TOY) | {"__name__": "other"})
    with pytest.raises(scv.InputError, match="of test_experiments, not other"):
        run(other, Settings(4), one.folder)
    (one.folder / "run.json").write_text("[]")
    with pytest.raises(scv.InputError, match="cannot be read"):
        run(TOY, Settings(4), one.folder)


def test_force_replaces_what_was_there(tmp_path, monkeypatch):
    @_runner.contextmanager
    def threads(count):
        with ThreadPoolExecutor(count) as pool:
            yield [Worker(lambda: pool)] * count

    monkeypatch.setattr(_runner, "local_workers", threads)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    run(TOY, Settings(3), tmp_path, workers=1)
    done = run(TOY, Settings(2), tmp_path, workers=1, force=True)
    assert set(made_in(tmp_path)) == {"toy-0.json", "toy-1.json"}
    assert len(pandas.read_csv(done.folder / "results.csv")) == 2


def test_a_worker_that_dies_is_replaced_once(tmp_path):
    tries = tmp_path / "tries"
    settings = Settings(3, str(tries), fatal=(1,))
    tries.write_text("9")
    with pytest.raises(scv.InputError, match=r"`toy-1` died 2 times.*kept"):
        run(TOY, settings, tmp_path / "out", workers=1)
    before = made_in(tmp_path / "out")
    assert set(before) == {"toy-0.json", "toy-2.json"}
    tries.write_text("1")
    run(TOY, settings, tmp_path / "out", workers=2)
    after = made_in(tmp_path / "out")
    assert set(after) == {"toy-0.json", "toy-1.json", "toy-2.json"}
    assert all(after[name] == before[name] for name in before)


def test_a_killed_run_goes_on_and_leaves_no_process(tmp_path):
    program = (
        "import sys, pathlib, test_experiments as toy\n"
        "if __name__ == '__main__': toy.run(toy, toy.Settings(6, pause=0.5), pathlib.Path(sys.argv[1]), workers=2)"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    script = tmp_path / "script.py"
    script.write_text(program)
    started = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "out")],
        env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    while not list((tmp_path / "out").glob("cells/*.json")):
        assert time.monotonic() < until
        assert started.poll() is None
        time.sleep(0.02)
    children = _children(started.pid)
    assert children
    started.kill()
    started.wait()
    before = made_in(tmp_path / "out")
    assert 1 <= len(before) < 6
    assert all(json.loads(content)["rows"] for content, _ in before.values())
    while any(_alive(pid) for pid in children):
        assert time.monotonic() < until, "a worker outlived its run"
        time.sleep(0.05)
    run(TOY, Settings(6, pause=0.5), tmp_path / "out", workers=2)
    after = made_in(tmp_path / "out")
    assert len(after) == 6
    assert all(after[name] == before[name] for name in before)


def _children(parent):
    tasks = Path(f"/proc/{parent}/task/{parent}/children")
    if not tasks.exists():
        pytest.skip("no /proc/PID/task/PID/children here")
    return [int(pid) for pid in tasks.read_text().split()]


def _alive(pid):
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def fails(kind):
    raise {"input": scv.InputError("no draws."), "bug": ZeroDivisionError("oops")}[kind]


@pytest.mark.parametrize(("kind", "raised"), [("input", scv.InputError), ("bug", ZeroDivisionError)])
def test_an_error_names_its_cell(kind, raised):
    with ThreadPoolExecutor(1) as pool, pytest.raises(raised) as caught:
        compute(fails, [Cell("poor", (kind,))], lambda *_: None, [Worker(lambda: pool)], lambda _: None)
    assert "`poor`" in str(caught.value) + " ".join(getattr(caught.value, "__notes__", []))


def test_bad_requests(tmp_path, capsys):
    with pytest.raises(scv.InputError, match="no experiment `syntetic`; did you mean synthetic"):
        reproduce("syntetic")
    with pytest.raises(scv.InputError, match="known are synthetic, constraints"):
        reproduce("../secrets")
    with pytest.raises(scv.InputError, match="`workers`"):
        reproduce("synthetic", out=tmp_path / "a", workers=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(scv.InputError, match="cannot be used as a folder"):
        reproduce("synthetic", out=tmp_path / "file", workers=1)
    for name in ("../up", ".hidden", "a/b", "", "two"):
        bad = SimpleNamespace(**vars(TOY) | {"cells": lambda s, name=name: [Cell(name, ()), Cell("two", ())]})
        with pytest.raises(scv.InputError, match="file name of its own"):
            run(bad, Settings(1), tmp_path / "b")
    assert cli.main(["reproduce", "nothing"]) == 2
    known = "known are synthetic, constraints, goodwin, bnn.\n"
    assert capsys.readouterr().err == f"steincv: there is no experiment `nothing`; {known}"


def test_dask(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(scv.InputError, match="pip install distributed"):
        run(TOY, Settings(1), tmp_path / "a", dask="tcp://127.0.0.1:1")

    class Client:
        def __init__(self, address, timeout):
            if "nobody" in address:
                raise OSError("timed out")
            self.threads = 0 if "empty" in address else 2

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ncores(self):
            return {"a": self.threads}

        def get_executor(self):
            return ThreadPoolExecutor(2)

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    with pytest.raises(scv.InputError, match="no Dask scheduler answers at 'tcp://nobody:1'"):
        run(TOY, Settings(1), tmp_path / "b", dask="tcp://nobody:1")
    with pytest.raises(scv.InputError, match="no workers"):
        run(TOY, Settings(1), tmp_path / "b", dask="tcp://empty:1")
    assert len(pandas.read_csv(run(TOY, Settings(3), tmp_path / "c", dask="tcp://x:1").folder / "results.csv")) == 3


# The experiments --------------------------------------------------------------------------------------


def test_the_problem():
    samples = _problem.mixture(200_000, 4, 3)
    x, step = samples.draws[0, :5], 1e-5

    def log_density(y):
        return np.logaddexp(-0.5 * ((y - 1) ** 2).sum(-1), -0.5 * ((y + 1) ** 2).sum(-1))

    slopes = [(log_density(x + step * e) - log_density(x - step * e)) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(samples.scores[0, :5], np.stack(slopes, -1), atol=1e-8)
    f = _problem.sine(samples, 10.0)
    assert abs(f.mean()) < 4 * f.std() / np.sqrt(f.size)
    assert f.std() == pytest.approx(_problem.sine_deviation(4, 10.0), rel=5e-3)
    parts = _problem.split(samples, (500, 1000))
    np.testing.assert_array_equal(np.concatenate([p.draws[0] for p in parts]), samples.draws[0, :1500])


def test_synthetic_cell():
    [row] = synthetic.cell("linear", 300, 3, [7], [100, 200])
    train, fresh = _problem.mixture(300, 3, 7, 300, 3), _problem.mixture(300, 3, 7, 300, 3, 1)
    g = scv.Polynomial(1).fit(train, _problem.sine(train))(fresh)[0, :, 0]
    f = _problem.sine(fresh)[0]
    assert row["ratio_100"] == pytest.approx(np.var((f + g)[:100]) / np.var(f[:100]), rel=1e-12)
    assert row["ratio_200"] == pytest.approx(np.var((f + g)[100:]) / np.var(f[100:]), rel=1e-12)
    assert (row["replication"], row["seed"], row["n"], row["dim"]) == (7, 7, 300, 3)


def test_constraints_cell():
    arguments = ("schemes", "NCV", "zero", 1e-3, 40, 100, (0.0, 7.0), (3,), (80, 200))
    rows = pandas.DataFrame(constraints.cell(*arguments))
    assert rows.method.tolist() == ["NCV", "NCV", "plain f", "plain f"]
    assert (rows.penalty == 0).all()
    plain = rows[rows.method == "plain f"].set_index("mu0")
    np.testing.assert_allclose(plain[["ratio_train", "ratio_80", "ratio_200"]], 1.0)
    test = _problem.sine(_problem.mixture(280, constraints.DIM, 3, 100, 1), 10.0)[0]
    assert plain.mean_80[7.0] == pytest.approx(7 + test[:80].mean())
    assert plain.error_200[0.0] == pytest.approx(test[80:].std() / np.sqrt(200))
    assert plain.box_median[7.0] == pytest.approx(7 + np.median(test[:80]))
    network = rows[rows.method == "NCV"].set_index("mu0")
    np.testing.assert_allclose(network.centre, 0.0, atol=1e-5)
    assert network.ratio_train[0.0] < 1
    assert network.ratio_train[7.0] != network.ratio_train[0.0]


@pytest.mark.parametrize("settings", [synthetic.FULL, synthetic.QUICK, constraints.FULL, constraints.QUICK])
def test_cells_cover_the_settings(settings):
    module = synthetic if isinstance(settings, synthetic.Settings) else constraints
    made = module.cells(settings)
    _runner._check_names(made)
    assert json.loads(json.dumps([c.arguments for c in made]))
    if module is synthetic:
        fits = [(m, n, dim, r) for c in made for m, n, dim, group, _ in [c.arguments] for r in group]
        places = len(settings.draws) + len(
            set(settings.dims) - {settings.dim} if settings.n in settings.draws else settings.dims
        )
        assert len(fits) == len(set(fits)) == len(synthetic.METHODS) * settings.replications * places
    else:
        schemes = {(a[1], a[2], r) for a in (c.arguments for c in made if c.arguments[0] == "schemes") for r in a[7]}
        assert len(schemes) == (2 + 3 * 3) * settings.replications


def synthetic_table(ratios, settings):
    rng = np.random.default_rng(0)
    places = dict.fromkeys([(n, settings.dim) for n in settings.draws] + [(settings.n, d) for d in settings.dims])
    rows = [
        {"method": m, "n": n, "dim": dim, "replication": r, "seed": r, "ratio_train": 1e-3}
        | {f"ratio_{size}": ratios(m, n, dim) * np.exp(0.01 * rng.normal()) for size in settings.test}
        for n, dim in places
        for m in synthetic.METHODS
        for r in range(settings.replications)
    ]
    return pandas.DataFrame(rows)


def test_verdicts_of_the_synthetic_experiment():
    settings = synthetic.FULL

    def verdicts(ratios):
        return {c.verdict for c in synthetic.claims(synthetic_table(ratios, settings), settings)}

    def classical(m):
        return m in synthetic.CLASSICAL

    assert verdicts(lambda m, n, d: 0.1 if classical(m) else 0.01) == {"holds"}
    assert verdicts(lambda m, n, d: 0.1 if classical(m) else 0.2) == {"does not hold"}
    assert verdicts(lambda m, n, d: 0.1 if classical(m) else 0.0995) == {"does not hold"}, "a hair is no difference"
    mixed = synthetic.claims(
        synthetic_table(lambda m, n, d: 0.1 if classical(m) else 0.01 if n != 500 and d < 100 else 0.2, settings),
        settings,
    )
    assert {c.verdict for c in mixed} == {"holds in part"}
    assert "Not better at n = 500." in mixed[0].why
    assert "Not better at D = 100." in mixed[2].why


BOX = {"q1": -1, "median": 0, "q3": 1, "low": -2, "high": 2, "mean": 0, "min": -3, "max": 3}


def constraints_table(settings, *, centred, bias):
    """A world where centred schemes have one ratio, the others a growing one, and the centre alone some bias."""
    rng = np.random.default_rng(0)

    def row(fit, mu0, method):
        free, plain = method in constraints.UNCENTRED, method == "plain f"
        ratio = 1.0 if plain else 0.05 * np.exp(mu0 / 1.5) if free else centred
        made = fit | {"method": method, "mu0": mu0, "centre": mu0 + 0.01}
        for size in ("train", *settings.test):
            fitted = size == "train" and not plain
            made[f"ratio_{size}"] = ratio * np.exp(0.01 * rng.normal()) * (1e-6 if fitted else 1)
            made[f"mean_{size}"] = 0.0 if fitted and free else mu0 + bias * (method == "centre only")
            made[f"error_{size}"] = 0.3 if plain else 0.01
        return made | {f"box_{name}": mu0 + value for name, value in BOX.items()}

    rows = []
    for c in constraints.cells(settings):
        part, method, start, penalty, steps, n, means, group, _ = c.arguments
        for r in group:
            fit = {"part": part, "start": start, "steps": steps, "n": n, "replication": r, "seed": r}
            fit["penalty"] = constraints.scheme(method, penalty=penalty).penalty
            for name in (method, "plain f") if method == "NCV" else (method,):
                rows += [row(fit, mu0, name) for mu0 in means]
    return pandas.DataFrame(rows)


def test_verdicts_of_the_constraints():
    settings = replace(constraints.QUICK, replications=4)

    def verdicts(**world):
        found = constraints.claims(constraints_table(settings, **world), settings)
        return {c.claim: c.verdict for c in found}

    def about(found, text):
        [verdict] = [v for claim, v in found.items() if text in claim]
        return verdict

    good = verdicts(centred=0.01, bias=0.0)
    assert about(good, "standard deviation of f is about 7.5") == "does not hold"
    assert about(good, "schemes without centre do not reduce") == "holds"
    assert about(good, "always better") == "holds"
    assert about(good, "Regularisation") == "does not hold"
    assert about(good, "outperforms all the others") == "holds in part"
    assert about(good, "introduces bias") == "does not hold"
    assert about(good, "close to mu0") == "holds"
    bad = verdicts(centred=1.2, bias=0.5)
    assert about(bad, "always better") == "holds in part"
    assert about(bad, "introduces bias") == "holds"
    assert about(bad, "Centred but not regularised, NCV reduces") == "does not hold"


def test_figures_and_the_page(tmp_path):
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(
        "a\n<!-- synthetic -->\nstale\n<!-- end synthetic -->\nb\n<!-- constraints -->\n<!-- end constraints -->\nc\n"
    )
    with pytest.raises(scv.InputError, match="holds no results"):
        paper.update(tmp_path, page)
    tables = {
        synthetic: synthetic_table(lambda m, n, d: 0.1, synthetic.QUICK),
        constraints: constraints_table(constraints.QUICK, centred=0.01, bias=0.0),
    }
    for module, table in tables.items():
        folder = tmp_path / "out" / module.__name__.rpartition(".")[2]
        folder.mkdir(parents=True)
        table.to_csv(folder / "results.csv", index=False)
        identity = _runner._identity(module, module.QUICK)
        (folder / "summary.json").write_text(json.dumps(identity | {"seeds": [0, 2], "cpu_seconds": 60.0}))
    assert paper.update(tmp_path / "out", page) == ["synthetic", "constraints"]
    text = page.read_text()
    assert text.startswith("a\n<!-- synthetic -->\n**Not the full run")
    assert text.endswith("<!-- end constraints -->\nc\n")
    assert "stale" not in text
    images = [line.partition("](")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")]
    assert len(images) == 6
    for image in images:
        assert (page.parent / image).read_bytes().startswith(b"\x89PNG")
        assert (page.parent / image).with_suffix(".svg").exists()
    (tmp_path / "docs" / "page" / "constraints" / "results.csv").unlink()
    assert paper.update(tmp_path / "docs" / "page", page) == ["synthetic"]
    assert page.read_text() == text, "the page can be made again from what is beside it"
    assert paper.main([str(tmp_path / "nowhere"), str(page)]) == 2


def test_numbers_are_written_as_they_are():
    written = {0.0123456: ".0123", 1.0: "1", -0.5: "-.5", 2.4e-7: "2.4e-7", 146_000.0: "1.5e5", 0.0: "0", 10.25: "10.2"}
    for value, text in written.items():
        assert _claims.number(value) == text
    assert _claims.spread([1.0, 2.0, 3.0]) == "2 (1.5 to 2.5)"
    assert [_claims.verdict(v) for v in ([True], [True, False], [False])] == ["holds", "holds in part", "does not hold"]
