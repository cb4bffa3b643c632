"""CmdStan's files and BridgeStan's interface for every kind of constraint, with the transforms and gradients of Stan.

Neither can be compiled without Stan's sources, so PyStan's model answers for them: what is tested is that the adapters
put names, columns, signs and Jacobians where they belong.
"""

import sys
from types import ModuleType

import numpy as np
import pytest
from checks import check_scores, check_stein, check_table, entries
from test_cmdstan import END, HEADER, SAMPLER

import steincv as scv

pytestmark = pytest.mark.filterwarnings("ignore")  # of a library's own making

KINDS = ["mu", "tau", "eta", "between", "share", "cut", "factor", "table"]  # simplex, ordered, correlation
EVERY = 8


@pytest.fixture(scope="module")
def flat(stan_samples, stan_model):
    """Unconstrained draws and scores, and the constrained columns with Stan's names, column by column."""
    values = stan_samples.parameters.arrays
    names = [name for name in stan_model.constrained_param_names if name.split(".")[0] in KINDS]
    columns = []
    for name in names:
        base, *index = name.split(".")
        columns.append(values[base][(slice(None), slice(None), *(int(i) - 1 for i in index))])
    part = slice(None, None, EVERY)
    kinds = {name: values[name][:, part] for name in KINDS}
    return stan_samples.draws[:, part], stan_samples.scores[:, part], names, np.stack(columns, -1)[:, part], kinds


def unconstrained_names(samples):
    """`share[1]` is `share.2` to Stan."""
    return [name.replace("]", "").replace("[", ".").replace(", ", ".") for name in samples.names]


def counted_from_one(name):
    base, *index = name.split(".")
    return ".".join([base, *(str(int(i) + 1) for i in index)])


def test_cmdstan(flat, stan_samples, stan_model, tmp_path):
    draws, scores, names, columns, kinds = flat
    coordinates = [counted_from_one(name) for name in unconstrained_names(stan_samples)]
    files = []
    for chain in range(len(draws)):
        count = draws.shape[1]
        header = HEADER.replace("thin = 2", "thin = 1").format(
            samples=count, save="false", id=chain, output="out.csv", diagnostic="diagnostic.csv"
        )
        sampler = np.zeros((count, 7))
        sampler[:, 0] = np.arange(count) + 100 * chain  # a density by which the two files know each other
        g = [*coordinates, *(f"p_{n}" for n in coordinates), *(f"g_{n}" for n in coordinates)]
        tables = {
            f"diagnostic_{chain}.csv": (g, [sampler, draws[chain], 0 * draws[chain], -scores[chain]]),
            f"out_{chain}.csv": (names, [sampler, columns[chain]]),
        }
        for file, (head, parts) in tables.items():
            rows = "".join(",".join(f"{x:.17g}" for x in row) + "\n" for row in np.column_stack(parts))
            (tmp_path / file).write_text(f"{header}{SAMPLER},{','.join(head)}\n{rows}{END}")
        files.append(tmp_path / f"diagnostic_{chain}.csv")
    samples = scv.from_cmdstan(files)
    check_scores(samples, lambda u: stan_model.log_prob(u.tolist()), draws=1)
    check_stein(samples)
    check_table(samples, {k: v for name in KINDS for k, v in entries(name, kinds[name]).items()})


@pytest.fixture
def bridgestan(stan_model, stan_samples, flat, monkeypatch):
    """A model with BridgeStan's methods, answered by PyStan's."""
    names = flat[2]
    shapes = {name: array.shape[2:] for name, array in flat[4].items()}

    class StanModel:
        def param_names(self, *, include_tp=False, include_gq=False):
            return names

        def param_unc_names(self):
            return [counted_from_one(name) for name in unconstrained_names(stan_samples)]

        def param_unc_num(self):
            return stan_samples.dim

        def param_unconstrain(self, theta):
            values, at = {}, 0
            for name, shape in shapes.items():
                size = int(np.prod(shape))
                values[name] = np.reshape(theta[at : at + size], shape, order="F").tolist()
                at += size
            return np.array(stan_model.unconstrain_pars(values))

        def param_constrain(self, theta_unc, *, include_tp=False, include_gq=False):
            return np.array(stan_model.constrain_pars(theta_unc.tolist(), include_tparams=False, include_gqs=False))

        def log_density_gradient(self, u, *, propto, jacobian):
            assert propto
            assert jacobian
            return float(stan_model.log_prob(u.tolist())), np.array(stan_model.grad_log_prob(u.tolist()))

    StanModel.__module__ = "bridgestan.model"
    module = ModuleType("bridgestan")
    module.StanModel, module.__version__ = StanModel, "2.9.0"
    monkeypatch.setitem(sys.modules, "bridgestan", module)
    return StanModel()


def test_bridgestan(bridgestan, flat, stan_samples, stan_model):
    draws, scores, _, _, kinds = flat
    few = {name: array[:, ::4] for name, array in kinds.items()}
    samples = scv.from_stan(few, bridgestan)
    np.testing.assert_allclose(samples.draws, draws[:, ::4], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(samples.scores, scores[:, ::4], rtol=1e-5, atol=1e-6)
    assert samples.names == stan_samples.names
    check_scores(samples, lambda u: stan_model.log_prob(u.tolist()), draws=1)
    check_table(samples, {k: v for name in KINDS for k, v in entries(name, few[name]).items()}, orbits=0)
    back = scv.from_stan(samples.draws, bridgestan)
    check_table(back, {k: v for name in KINDS for k, v in entries(name, few[name]).items()}, orbits=0)
