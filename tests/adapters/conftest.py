"""One Stan model for all tests, for compiling it is the slow part; and JAX as it was."""

import contextlib
import fcntl
import io

import jax
import pytest
from eight_schools import EFFECT, ERROR

PRECISION = jax.config.read("jax_enable_x64")


@pytest.fixture(autouse=True)
def _precision():
    """Some libraries set JAX's precision for the whole process. It is as it was again for the tests of others."""
    yield
    jax.config.update("jax_enable_x64", PRECISION)


@pytest.fixture(scope="session")
def nutpie_sample():
    """Runs of nutpie on JAX, which compiles quickly, in double precision: its threads do not see a context of ours."""
    nutpie = pytest.importorskip("nutpie")

    def sample(model, **options):
        jax.config.update("jax_enable_x64", True)
        compiled = nutpie.compile_pymc_model(model, backend="jax", gradient_backend="jax")
        return nutpie.sample(compiled, chains=4, progress_bar=False, **options)

    return sample


# Eight schools, and beside them one parameter of every kind that Stan constrains.
STAN = """
data { int J; vector[J] y; vector[J] sigma; }
parameters {
  real mu;
  real<lower=0> tau;
  vector[J] eta;
  real<lower=-1, upper=tau + 1> between;
  simplex[3] share;
  ordered[3] cut;
  cholesky_factor_corr[2] factor;
  matrix[2, 3] table;
}
transformed parameters { vector[J] theta = mu + tau * eta; }
model {
  mu ~ normal(0, 5);
  tau ~ normal(0, 5);
  eta ~ std_normal();
  y ~ normal(theta, sigma);
  between ~ uniform(-1, tau + 1);
  share ~ dirichlet([2, 3, 4]');
  cut ~ std_normal();
  factor ~ lkj_corr_cholesky(2);
  to_vector(table) ~ std_normal();
}
generated quantities { array[2] int coin; for (i in 1:2) coin[i] = bernoulli_rng(0.5); }
"""


@pytest.fixture(scope="session")
def stan_model(tmp_path_factory):
    stan = pytest.importorskip("stan")
    # of several workers one compiles, and the others find it in PyStan's cache
    lock = tmp_path_factory.getbasetemp().parent / "stan.lock"
    with open(lock, "w") as file, contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        fcntl.flock(file, fcntl.LOCK_EX)
        return stan.build(STAN, data={"J": 8, "y": EFFECT.tolist(), "sigma": ERROR.tolist()}, random_seed=1)


@pytest.fixture(scope="session")
def stan_fit(stan_model):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return stan_model.sample(num_chains=4, num_samples=500, num_warmup=300, num_thin=2, save_warmup=True)


@pytest.fixture(scope="session")
def stan_samples(stan_fit, stan_model):
    import steincv as scv

    return scv.from_stan(stan_fit, stan_model)
