"""Libraries that are missing, old or broken; and none of them is imported before it is asked for."""

import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import steincv as scv
from steincv.adapters.foreign import LIBRARIES

ADAPTERS = {
    "numpyro": lambda: scv.from_numpyro(object()),
    "blackjax": lambda: scv.from_blackjax(object()),
    "pymc": lambda: scv.from_pymc(object(), object()),
    "arviz": lambda: scv.from_arviz(object()),
    "stan": lambda: scv.from_stan(object(), object()),
    "bridgestan": lambda: scv.from_stan(object(), type("StanModel", (), {"__module__": "bridgestan.model"})()),
    "cmdstan": lambda: scv.from_cmdstan(object()),
    "emcee": lambda: scv.from_emcee(object(), object()),
    "to arviz": lambda: estimate().to_arviz(),
}
every_adapter = pytest.mark.parametrize("adapter", ADAPTERS)


def estimate():
    x = np.random.default_rng(0).normal(size=(2, 20, 1))
    return scv.estimate(scv.Samples(x, -x), method=scv.MonteCarlo())


def extra_of(adapter):
    return adapter.removeprefix("to ")


def complaint(adapter):
    with pytest.raises(scv.InputError) as caught:
        ADAPTERS[adapter]()
    assert isinstance(caught.value, ImportError)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(f"Run: pip install 'steincv[{extra_of(adapter)}]'")
    return text


def pretend(monkeypatch, module, replacement):
    """As if the library were this; its parts are gone with it."""
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, replacement)


@every_adapter
def test_missing(adapter, monkeypatch):
    module, title, _ = LIBRARIES[extra_of(adapter)]
    pretend(monkeypatch, module, None)
    assert complaint(adapter).startswith(f"{title} is not installed. ")


@every_adapter
@pytest.mark.parametrize("version", ["0.0.9", "0.1rc1"])
def test_old(adapter, version, monkeypatch):
    module, title, oldest = LIBRARIES[extra_of(adapter)]
    library = ModuleType(module)
    library.__version__ = version
    pretend(monkeypatch, module, library)
    assert complaint(adapter).startswith(f"{title} {version} is too old, {oldest} or newer is needed. ")


@every_adapter
def test_half_installed(adapter, monkeypatch):
    """The package is there, and nothing in it: not even a version, or not what is imported from it."""
    module, title, _ = LIBRARIES[extra_of(adapter)]
    pretend(monkeypatch, module, ModuleType(module))
    assert complaint(adapter).startswith(f"{title} is only half installed (")


@every_adapter
def test_broken(adapter, monkeypatch, tmp_path):
    """What a library raises when it is imported, as after an update of something it needs."""
    module, title, _ = LIBRARIES[extra_of(adapter)]
    pretend(monkeypatch, module, None)
    monkeypatch.delitem(sys.modules, module)
    (tmp_path / f"{module}.py").write_text("raise AttributeError('module numpy has\\nno attribute float_')")
    monkeypatch.syspath_prepend(tmp_path)
    assert complaint(adapter).startswith(f"{title} is only half installed (module numpy has no attribute float_). ")


def test_a_newer_version_is_not_older(monkeypatch):
    from steincv.adapters.foreign import foreign

    for version in ("3.1.4", "3.1.10", "3.10.0rc2", "4"):
        library = ModuleType("emcee")
        library.__version__ = version
        monkeypatch.setitem(sys.modules, "emcee", library)
        assert foreign("emcee") is library


def test_the_extras_install_what_is_asked_for():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    packages = {"stan": "pystan", "cmdstan": "cmdstanpy"}
    for extra, (_, _, oldest) in LIBRARIES.items():
        assert any(entry.startswith(f"{packages.get(extra, extra)}>={oldest}") for entry in extras[extra]), extra
    assert set(LIBRARIES) | {"nutpie"} <= set(extras["all"][0].removeprefix("steincv[").removesuffix("]").split(","))


def test_importing_steincv_imports_none_of_them():
    modules = sorted({module for module, _, _ in LIBRARIES.values()} | {"nutpie", "pytensor", "xarray", "zarr"})
    code = f"import sys, steincv; print([m for m in {modules} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
