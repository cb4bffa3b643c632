"""PyMC: all kinds of variables, traces that kept gradients and traces that did not; and the same data by ArviZ."""

import importlib
import sys

import numpy as np
import pytest
from checks import check_log_density, check_orbits, check_scores, check_stein, check_summary, check_table, entries

import steincv as scv

pytestmark = pytest.mark.filterwarnings("ignore")  # of a library's own making

ORDER = ["tau", "mu", "between", "share", "cut", "theta", "grid"]
SCHOOLS = ["Alpha", "Beta", "Gamma"]


@pytest.fixture(scope="module")
def pm():
    return pytest.importorskip("pymc")


@pytest.fixture(scope="module")
def model(pm):
    """Real, positive, simplex, ordered, an interval whose end is another variable, dims, data and a deterministic."""
    ordered = pm.distributions.transforms.ordered
    with pm.Model(coords={"school": SCHOOLS, "part": ["x", "y", "z"]}) as model:
        y = pm.Data("y", np.array([1.0, 2.0, 3.0]), dims="school")
        tau = pm.HalfNormal("tau", 1.0)
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Uniform("between", -1.0, tau + 1)
        pm.Dirichlet("share", np.array([2.0, 3.0, 4.0]), dims="part")
        pm.Normal("cut", np.array([-1.0, 0.0, 1.0]), 1.0, shape=3, transform=ordered)
        theta = pm.Normal("theta", mu, 1.0, dims="school")
        pm.Normal("grid", 0.0, 1.0, shape=(2, 2))
        pm.Deterministic("total", theta.sum() + tau)
        pm.Normal("observed", theta, 1.0, observed=y, dims="school")
    return model


@pytest.fixture(scope="module")
def trace(model, nutpie_sample):
    """A run that kept everything."""
    return nutpie_sample(model, draws=400, tune=300, seed=1, store_gradient=True, store_unconstrained=True)


def test_an_empty_model_is_not_the_model_of_the_trace(pm, trace):
    with pytest.raises(scv.InputError, match=r"`model` has no free variables, and `data` has .*tau.*not the model of"):
        scv.from_pymc(trace, pm.Model())


def tree_of(trace, **groups):
    """The groups as the kind of data the trace is; None leaves a group out."""
    xarray = pytest.importorskip("xarray")
    names = {"posterior": None, "sample_stats": None} | groups
    chosen = {name: dataset_of(trace, name) if given is None else given for name, given in names.items()}
    chosen = {name: dataset for name, dataset in chosen.items() if dataset is not False}
    if isinstance(trace, xarray.DataTree):
        return xarray.DataTree.from_dict(chosen)
    return pytest.importorskip("arviz").InferenceData(**chosen)


def dataset_of(trace, name):
    xarray = pytest.importorskip("xarray")
    return trace[name].to_dataset() if isinstance(trace, xarray.DataTree) else trace[name]


@pytest.fixture(scope="module")
def plain(trace, model):
    """The same draws as `pm.sample` keeps them by default: constrained, and no gradients."""
    posterior = dataset_of(trace, "posterior")
    values = [v.name for v in model.value_vars if v.name.endswith("__") and v.name in posterior]
    return tree_of(trace, posterior=posterior.drop_vars(values), sample_stats=False)


@pytest.fixture(scope="module")
def samples(plain, model):
    return scv.from_pymc(plain, model)


def means_of(trace, names=ORDER):
    posterior = dataset_of(trace, "posterior")
    labelled = {}
    for name in names:
        array = posterior[name]
        dims = array.dims[2:]
        for label, mean in entries(name, array.values).items():
            for place, school in enumerate(array[dims[0]].values if len(dims) == 1 else ()):
                label = f"{name}[{school}]" if label == f"{name}[{place}]" else label
            labelled[label] = mean
    return labelled


def own_density(model):
    """PyMC's log density as a function of one row of the draws."""
    logp = model.compile_logp(mode="FAST_COMPILE")
    shapes = {v.name: v.type.shape for v in model.value_vars}
    first = model.initial_point()

    def log_density(x):
        point, start = {}, 0
        for name in shapes:
            size = first[name].size
            point[name] = x[start : start + size].reshape(first[name].shape)
            start += size
        return logp(point)

    return log_density


def test_scores_are_those_of_the_model(samples, model):
    check_scores(samples, own_density(model), draws=2)


def test_the_log_density_is_that_of_the_model(samples, trace, model):
    log_density = own_density(model)
    check_log_density(samples, log_density)
    kept = scv.from_pymc(trace, model)
    order = in_order(kept, samples)
    assert order != sorted(order)  # the test has power: nutpie has another order
    check_log_density(kept, lambda x: log_density(x[order]))


def test_draws_of_the_warm_up_are_places_to_fit_on(trace, model):
    for samples in (scv.from_pymc(trace, model), scv.from_arviz(trace)):
        draws, scores = samples.fitting
        assert draws.shape == scores.shape
        assert draws.shape[0] > 1000  # four chains of 300, less what is not finite
        found = scv.from_pymc(trace, model).log_density(draws[-20:])[1]
        np.testing.assert_allclose(scores[-20:], found, rtol=1e-6, atol=1e-8)
    assert scv.from_arviz(tree_of(trace)).fitting is None
    result = scv.estimate(samples, method=scv.Polynomial(1))  # f is not known at the warm-up's draws
    assert result.info["fitting"].startswith("not used: `samples` holds arrays of parameters")


def test_orbits_know_the_variables_by_name(samples, trace, model):
    """Of draws that were unconstrained anew, and of those that nutpie kept, whose coordinates are in another order."""
    check_orbits(samples)
    check_orbits(scv.from_pymc(trace, model), ["total", "share"])


def test_a_model_without_a_jax_form_is_asked_one_by_one(samples, plain, model, monkeypatch):
    monkeypatch.setattr("steincv.adapters.pymc._jaxified", lambda *_: 1 / 0)
    check_orbits(scv.from_pymc(plain, model), ["tau", "total"])


def test_gradients_are_counted(trace, model):
    steps = dataset_of(trace, "sample_stats")["n_steps"].values
    assert scv.from_pymc(trace, model).gradients == scv.from_arviz(trace).gradients == steps.sum() > 0


def test_stein_means_are_zero(samples):
    check_stein(samples)


def test_the_table_has_the_variables_of_the_model(samples, plain):
    result = check_table(samples, means_of(plain))
    assert result.labels[:5] == ("tau", "mu", "between", "share[x]", "share[y]")
    assert result.labels[9:14] == ("theta[Alpha]", "theta[Beta]", "theta[Gamma]", "grid[0, 0]", "grid[0, 1]")


def test_deterministics_are_there_for_f(samples, plain):
    total = dataset_of(plain, "posterior")["total"].values
    for f in ("total", lambda p: p["theta"].sum() + p["tau"]):
        np.testing.assert_allclose(scv.estimate(samples, f, scv.Polynomial(1)).values[..., 0], total, rtol=1e-10)


def in_order(samples, like):
    """Columns of samples in the order of other coordinates: nutpie calls theta[0] theta_0, grid[0, 1] grid_0.1."""
    names = [n.replace("[", "_").replace(", ", ".").removesuffix("]") for n in like.names]
    return [samples.names.index(name) for name in names]


def test_kept_gradients_are_the_computed_ones(trace, model, samples):
    for kept in (scv.from_pymc(trace, model), scv.from_arviz(trace)):
        order = in_order(kept, samples)
        np.testing.assert_allclose(kept.draws[..., order], samples.draws, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(kept.scores[..., order], samples.scores, rtol=1e-6, atol=1e-8)
    assert scv.from_pymc(trace, model).parameters.shown == tuple(ORDER)
    assert set(scv.from_arviz(trace).parameters.shown) == set(ORDER)


def test_unconstrained_values_kept_apart(trace, model, samples):
    """As PyMC 6 keeps them with include_transformed=True and store_gradient=True."""
    posterior, stats = dataset_of(trace, "posterior"), dataset_of(trace, "sample_stats")
    kept = scv.from_pymc(trace, model)
    values = posterior.drop_vars(list(posterior.data_vars))
    for value in (v.name for v in model.value_vars if v.name.endswith("__")):
        columns = [i for i, name in enumerate(kept.names) if name == value or name.startswith(f"{value}_")]
        array = kept.draws[..., columns]
        dims = ("chain", "draw", f"{value}_dim_0")
        values[value] = (dims, array) if f"{value}_0" in kept.names else (dims[:2], array[..., 0])
    apart = tree_of(
        trace,
        posterior=posterior.drop_vars(list(values.data_vars), errors="ignore"),
        sample_stats=stats.drop_vars("unconstrained_draw"),
        unconstrained_posterior=values,
    )
    for found in (scv.from_arviz(apart), scv.from_pymc(apart, model)):
        np.testing.assert_array_equal(found.draws, kept.draws)
        np.testing.assert_array_equal(found.scores, kept.scores)
    without = tree_of(trace, sample_stats=False, unconstrained_posterior=values)
    np.testing.assert_allclose(scv.from_pymc(without, model).scores, samples.scores, rtol=1e-6, atol=1e-8)
    nothing = posterior.drop_vars(list(values.data_vars), errors="ignore")
    gradients_only = tree_of(trace, posterior=nothing, sample_stats=stats.drop_vars("unconstrained_draw"))
    np.testing.assert_array_equal(scv.from_pymc(gradients_only, model).scores, samples.scores)


def test_double_precision_whatever_the_flag_of_jax(plain, model, samples):
    import jax

    jax.config.update("jax_enable_x64", False)
    np.testing.assert_array_equal(scv.from_pymc(plain, model).scores, samples.scores)


def test_files(trace, model, tmp_path):
    xarray = pytest.importorskip("xarray")
    by_memory = scv.from_arviz(trace)
    tree = xarray.DataTree.from_dict({name: dataset_of(trace, name) for name in ("posterior", "sample_stats")})
    tree = tree.map_over_datasets(lambda d: d.drop_vars([n for n, a in d.variables.items() if a.dtype == bool]))
    numbers = {name: tree[name].to_dataset() for name in ("posterior", "sample_stats")}
    stats = numbers["sample_stats"]
    numbers["sample_stats"] = stats[[n for n, a in stats.data_vars.items() if a.dtype != object]]
    tree = xarray.DataTree.from_dict(numbers)
    tree.to_netcdf(tmp_path / "trace.nc", engine="h5netcdf")
    tree.to_zarr(tmp_path / "trace.zarr", consolidated=False)
    for path in (tmp_path / "trace.nc", str(tmp_path / "trace.zarr")):
        samples = scv.from_arviz(path)
        np.testing.assert_array_equal(samples.draws, by_memory.draws)
        np.testing.assert_array_equal(samples.scores, by_memory.scores)
        assert samples.names == by_memory.names
        result = scv.estimate(samples, method=scv.Polynomial(1))
        assert result.labels == scv.estimate(by_memory, method=scv.Polynomial(1)).labels
        assert "theta[Alpha]" in result.labels


def test_the_precision_of_jax_is_left_alone(pm, monkeypatch):
    """PyTensor sets it for the whole process when its JAX backend is imported."""
    import jax

    from steincv.adapters.pymc import _jaxified

    jax.config.update("jax_enable_x64", False)
    for name in [name for name in sys.modules if name.startswith("pytensor.link.jax.dispatch")]:
        monkeypatch.delitem(sys.modules, name)
    x = pytest.importorskip("pytensor.tensor").vector("x")
    assert float(_jaxified([x], [x.sum()])(np.ones(3))[0]) == 3
    assert not jax.config.read("jax_enable_x64")
    importlib.reload(sys.modules["pytensor.link.jax.dispatch.basic"])
    assert jax.config.read("jax_enable_x64")  # the test has power


def test_without_jax(plain, model, samples, monkeypatch):
    """Operations that JAX does not have: PyTensor's own compiler evaluates the model."""
    from steincv.adapters import pymc as adapter

    def refuse(inputs, outputs):
        raise NotImplementedError("no JAX conversion")

    pytensor = pytest.importorskip("pytensor")
    monkeypatch.setattr(adapter, "_jaxified", refuse)
    few = tree_of(plain, posterior=dataset_of(plain, "posterior").isel(draw=slice(0, 10)), sample_stats=False)
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        slow = scv.from_pymc(few, model)
        check_log_density(slow, own_density(model))
    np.testing.assert_allclose(slow.draws, samples.draws[:, :10], rtol=1e-10)
    np.testing.assert_allclose(slow.scores, samples.scores[:, :10], rtol=1e-9, atol=1e-10)


def test_what_cannot_be_used(pm, plain, model):
    with pm.Model() as mixture:
        which = pm.Bernoulli("which", 0.3)
        count = pm.Poisson("count", 3.0)
        pm.Normal("x", which + count)
    with pytest.raises(scv.InputError, match="discrete variables, which, count, which have no score"):
        scv.from_pymc(plain, mixture)
    with pytest.raises(scv.InputError, match=r"`model` is missing: from_pymc\(data, model\)"):
        scv.from_pymc(plain)
    with pytest.raises(scv.InputError, match=r"`model` must be a pymc.Model, got str"):
        scv.from_pymc(plain, "model")
    with pytest.raises(scv.InputError, match="`data` must be InferenceData, a DataTree or a path, got list"):
        scv.from_pymc([], model)
    with model:
        missing = tree_of(plain, posterior=dataset_of(plain, "posterior").drop_vars("mu"), sample_stats=False)
        with pytest.raises(scv.InputError, match="`data` has no draws of mu, and the density depends on all"):
            scv.from_pymc(missing)
    with pytest.raises(scv.InputError, match=r"holds no `unconstrained_draw` and `gradient` .* store_gradient=True"):
        scv.from_arviz(plain)


def test_a_trace_of_pymc_itself(pm):
    """`pm.sample` as it comes, on a model that compiles quickly."""
    with pm.Model() as model:
        pm.Gamma("rate", 3.0, 1.0)
        options = {"nuts_sampler": "pymc", "compile_kwargs": {"mode": "JAX"}, "progressbar": False, "cores": 1}
        trace = pm.sample(150, tune=200, chains=2, random_seed=1, **options)
    samples = scv.from_pymc(trace, model)
    assert samples.draws.shape == (2, 150, 1)
    check_stein(samples)
    u = samples.draws
    np.testing.assert_allclose(samples.scores, 3 - np.exp(u), rtol=1e-10)
    check_table(samples, means_of(trace, ["rate"]))


def test_the_summary_is_arviz_s(trace, plain, model):
    """In the order of the data, as ArviZ has it."""
    az = pytest.importorskip("arviz")
    quick = scv.Polynomial(1)
    kept = [name for name in dataset_of(trace, "posterior").data_vars if name in ORDER]
    for given in ((trace,), (plain, model)):
        check_summary(lambda f, given=given: scv.summary(*given, stat_focus=f, method=quick), az, trace, kept)
