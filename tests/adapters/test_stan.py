"""Stan: models of PyStan, and of BridgeStan through a stand-in with its interface."""

import sys
from types import ModuleType

import numpy as np
import pytest
from checks import check_log_density, check_orbits, check_scores, check_stein, check_table, entries

import steincv as scv

pytestmark = pytest.mark.filterwarnings("ignore")  # of a library's own making

ORDER = ["mu", "tau", "eta", "between", "share", "cut", "factor", "table"]


def values_of(fit):
    """`(chain, draw, ...)` from the data frame that PyStan gives, warm-up left out."""
    frame = fit.to_frame()
    flat = frame.to_numpy().reshape(-1, fit.num_chains, frame.shape[1])[150:]  # 300 steps of warm-up, thinned by 2
    columns = {name: np.swapaxes(flat[..., i], 0, 1) for i, name in enumerate(frame.columns)}
    matrix = [[columns[f"factor.{i}.{j}"] for j in (1, 2)] for i in (1, 2)]
    table = [[columns[f"table.{i}.{j}"] for j in (1, 2, 3)] for i in (1, 2)]
    values = {name: columns[name] for name in ("mu", "tau", "between")}
    for name, n in {"eta": 8, "share": 3, "cut": 3, "theta": 8, "coin": 2}.items():
        values[name] = np.stack([columns[f"{name}.{i + 1}"] for i in range(n)], axis=-1)
    return values | {
        name: np.moveaxis(np.array(m), (0, 1), (-2, -1)) for name, m in (("factor", matrix), ("table", table))
    }


def test_scores_are_those_of_the_density(stan_samples, stan_model):
    check_scores(stan_samples, lambda u: stan_model.log_prob(u.tolist()), draws=2)


def test_stein_means_are_zero(stan_samples):
    check_stein(stan_samples)


def test_the_table_has_the_parameters_block(stan_samples, stan_fit):
    values = values_of(stan_fit)
    assert stan_samples.draws.shape == (4, 250, 23)
    check_table(stan_samples, {k: v for name in ORDER for k, v in entries(name, values[name]).items()})


def test_coordinates_are_called_by_their_parameter(stan_samples):
    names = [name.split("[")[0] for name in stan_samples.names]
    expected = ["mu", "tau", *["eta"] * 8, "between", *["share"] * 2, *["cut"] * 3, "factor", *["table"] * 6]
    assert names == expected
    assert stan_samples.names[10:13] == ("between", "share[0]", "share[1]")


def test_the_other_blocks_are_there_for_f(stan_samples, stan_fit):
    values = values_of(stan_fit)
    result = scv.estimate(stan_samples, ["theta", "coin"], scv.Polynomial(1))
    np.testing.assert_allclose(result["theta"].values, values["theta"], rtol=1e-12)
    assert set(np.unique(result["coin"].values)) == {0.0, 1.0}
    total = scv.estimate(stan_samples, lambda p: p["table"][1, 2] + p["theta"][0], scv.Polynomial(1))
    np.testing.assert_allclose(total.values[..., 0], values["table"][..., 1, 2] + values["theta"][..., 0], rtol=1e-12)


def test_what_is_no_fit_is_refused(stan_fit, stan_model):
    with pytest.raises(scv.InputError, match=r"`model` must come from stan.build, or .*StanModel; got str"):
        scv.from_stan(stan_fit, "model")
    with pytest.raises(scv.InputError, match=r"`fit` must be what model.sample returned, got Model"):
        scv.from_stan(stan_model, stan_model)


# BridgeStan: its models need Stan's sources to compile, so a stand-in with the same methods


class StanModel:
    """tau > 0 with tau ~ Gamma(3, 1), and a matrix b of standard normals; twice tau is a transformed parameter."""

    def __init__(self, threads=False):
        self.threads = threads

    def model_info(self):
        return f"STAN_THREADS={str(self.threads).lower()}"

    def param_names(self, *, include_tp=False, include_gq=False):
        return ["tau", "b.1.1", "b.2.1", "b.1.2", "b.2.2"] + ["twice"] * include_tp

    def param_unc_names(self):
        return ["tau", "b.1.1", "b.2.1", "b.1.2", "b.2.2"]

    def param_unc_num(self):
        return 5

    def param_unconstrain(self, theta):
        if theta[0] <= 0:
            raise RuntimeError("tau is 0, but must be greater than 0")
        return np.array([np.log(theta[0]), *theta[1:]])

    def param_constrain(self, theta_unc, *, include_tp=False, include_gq=False):
        tau = np.exp(theta_unc[0])
        return np.array([tau, *theta_unc[1:], *[2 * tau] * include_tp])

    def log_density(self, u, *, propto, jacobian):
        assert jacobian
        return 3 * u[0] - np.exp(u[0]) - 0.5 * np.sum(u[1:] ** 2)

    def log_density_gradient(self, u, *, propto, jacobian):
        assert propto
        if u[0] > 50:
            raise RuntimeError("tau is infinite")
        return self.log_density(u, propto=propto, jacobian=jacobian), np.array([3 - np.exp(u[0]), *-u[1:]])


StanModel.__module__ = "bridgestan.model"


@pytest.fixture
def bridgestan(monkeypatch):
    module = ModuleType("bridgestan")
    module.StanModel, module.__version__ = StanModel, "2.9.0"
    monkeypatch.setitem(sys.modules, "bridgestan", module)


@pytest.mark.usefixtures("bridgestan")
def test_bridgestan():
    rng = np.random.default_rng(0)
    model = StanModel()
    values = {"b": rng.normal(size=(4, 250, 2, 2)), "tau": rng.gamma(3, size=(4, 250)), "noise": np.zeros((4, 250))}
    samples = scv.from_stan(values, model)
    check_scores(samples, lambda u: model.log_density(u, propto=True, jacobian=True))
    check_stein(samples)
    check_table(samples, entries("tau", values["tau"]) | entries("b", values["b"]))
    for found in (samples, scv.from_stan(values, StanModel(threads=True))):
        check_log_density(found, lambda u: model.log_density(u, propto=True, jacobian=True))
        value, gradient = found.log_density(np.full((2, 5), [[0.0], [60.0]]))
        assert np.isfinite(value).tolist() == [True, False]
        assert value[1] == -np.inf
        assert not gradient[1].any()
    check_orbits(samples)
    check_orbits(scv.from_stan(samples.draws, model), ["twice", "b"])
    few = samples.select(np.arange(4), np.arange(30))
    unknown = scv.estimate(few, ["noise"], scv.Polynomial(1))  # generated: kept at the draws alone
    assert unknown.info["orbits"]["states"] == 1
    assert "noise" in unknown.info["orbits"]["why"]
    assert samples.names == ("tau", "b[0, 0]", "b[1, 0]", "b[0, 1]", "b[1, 1]")
    unconstrained = scv.from_stan(samples.draws, model)
    np.testing.assert_array_equal(unconstrained.scores, samples.scores)
    check_table(unconstrained, entries("tau", values["tau"]) | entries("b", values["b"]))
    np.testing.assert_allclose(
        scv.estimate(unconstrained, "twice", scv.Polynomial(1)).values[..., 0], 2 * values["tau"]
    )
    with pytest.raises(scv.InputError, match="`fit` has no b, and the density depends on all"):
        scv.from_stan({"tau": values["tau"]}, model)
    with pytest.raises(scv.InputError, match="cannot evaluate a draw: tau is 0, but must be greater than 0"):
        scv.from_stan(values | {"tau": 0 * values["tau"]}, model)
    with pytest.raises(scv.InputError, match=r"shape \(4, 250, 3\), expected \(chain, draw, 5\)"):
        scv.from_stan(samples.draws[..., :3], model)


@pytest.mark.usefixtures("bridgestan")
def test_the_stand_in_has_the_methods_of_bridgestan(monkeypatch):
    import inspect

    monkeypatch.delitem(sys.modules, "bridgestan")
    real = pytest.importorskip("bridgestan").StanModel
    for name in (
        "model_info",
        "param_names",
        "param_unc_names",
        "param_unc_num",
        "param_unconstrain",
        "param_constrain",
    ):
        assert callable(getattr(real, name))
    for name in ("log_density_gradient", "param_constrain", "param_names"):
        ours, theirs = (inspect.signature(getattr(c, name)).parameters for c in (StanModel, real))
        assert {p for p in ours if ours[p].kind is inspect.Parameter.KEYWORD_ONLY} <= set(theirs)
