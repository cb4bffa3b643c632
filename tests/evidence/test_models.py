"""The example models: solvers against diffrax, scores against finite differences, options, Stein's identity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steincv as scv
from steincv.judging.diagnostics import stein_check
from steincv_paper.models import van_der_pol as vdp
from steincv_paper.models.goodwin import (
    SIGMA,
    Goodwin,
    field,
    goodwin,
    path,
    raw_coordinates,
    true_parameters,
)
from steincv_paper.models.runge_kutta import solve


def near_truth(species, n, spread, seed=0):
    """Log parameters around those that made the data, `(n, species + 2)`."""
    truth = true_parameters(species)
    center = np.log(np.concatenate([[truth["alpha"]], truth["a"], truth["k"]]))
    return center + spread * np.random.default_rng(seed).normal(size=(n, species + 2))


def as_parameters(x):
    theta = jnp.exp(jnp.asarray(x.T))
    return {"alpha": theta[0], "a": theta[1:3], "k": theta[3:]}


@pytest.mark.parametrize("species", [3, 8])
def test_goodwin_solver_against_diffrax(species):
    """Below 1e-3 sigma, in the posterior and well beyond it (parameters known to some per cent, here 10 %)."""
    diffrax = pytest.importorskip("diffrax")
    with jax.enable_x64(True):
        p = as_parameters(near_truth(species, 6, 0.1))
        ours = path(p)

        def one(alpha, a, k):
            slope = field({"alpha": alpha, "a": a, "k": k})
            return diffrax.diffeqsolve(
                diffrax.ODETerm(lambda t, x, _: slope(x)),
                diffrax.Tsit5(),
                0.0,
                80.0,
                0.01,
                jnp.zeros(species),
                saveat=diffrax.SaveAt(ts=jnp.arange(41.0, 81.0)),
                stepsize_controller=diffrax.PIDController(rtol=1e-10, atol=1e-11),
                max_steps=100_000,
            ).ys

        reference = jax.jit(jax.vmap(one, in_axes=(-1, -1, -1), out_axes=-1))(p["alpha"], p["a"], p["k"])
        assert float(jnp.abs(ours - reference).max()) < 1e-3 * SIGMA
        coarse = path(p, steps=4)
        assert float(jnp.abs(coarse - reference).max()) > 1e-3 * SIGMA  # the test has power


@pytest.mark.parametrize(("species", "observed", "integrator"), [(3, "all", "ode"), (4, "first-two", "euler")])
def test_goodwin_scores_against_finite_differences(species, observed, integrator):
    model = goodwin(species, observed, integrator).posterior
    x = near_truth(species, 3, 0.05)[None]
    t, h = 0.4, 1e-5
    scores = model.samples(x, t).scores

    def density(x):
        likelihood, prior = model.evaluate(x)
        return t * likelihood + prior

    for i, e in enumerate(np.eye(model.dim)):
        slope = (density(x + h * e) - density(x - h * e)) / (2 * h)
        np.testing.assert_allclose(scores[..., i], slope, rtol=2e-4, atol=1e-3)


def test_goodwin_data_are_about_the_truth():
    for observed, columns in (("all", 4), ("first-two", 2)):
        data = Goodwin.simulate(4, observed)
        assert data.data.shape == (40, columns)
        with jax.enable_x64(True):
            exact = np.asarray(path(jax.tree.map(jnp.asarray, true_parameters(4))))[:, :columns]
        assert (data.data - exact).std() == pytest.approx(SIGMA, rel=0.2)
    model = goodwin(4).posterior
    likelihood, _ = model.evaluate(near_truth(4, 1, 0.0))
    assert likelihood[0] == pytest.approx(-80 - 160 * np.log(SIGMA * np.sqrt(2 * np.pi)), abs=40)


def test_euler_is_another_model():
    with jax.enable_x64(True):
        p = jax.tree.map(jnp.asarray, true_parameters(3))
        x = path(p, "euler")
        step = field(p)
        np.testing.assert_allclose(x[1], x[0] + step(x[0]), atol=1e-12)
        assert float(jnp.abs(x - path(p)).max()) > SIGMA


@pytest.mark.parametrize("setting", [{"species": 2}, {"observed": "some"}, {"integrator": "rk4"}])
def test_bad_options(setting):
    with pytest.raises(scv.InputError):
        goodwin(**setting)


def test_raw_coordinates_keep_steins_identity():
    """Under the prior, where everything is known; and with the Jacobian left in it is false."""
    rng = np.random.default_rng(0)
    theta = rng.gamma(2.0, size=(4, 2000, 5))
    logs = scv.Samples(np.log(theta), 2 - theta)  # Gamma(2, 1) with the Jacobian: 2 x - exp(x)
    raw = raw_coordinates(logs)
    np.testing.assert_allclose(raw.draws, theta)
    np.testing.assert_allclose(raw.scores, 1 / theta - 1)
    assert np.abs(stein_check(raw).z).max() < 5
    wrong = scv.Samples(theta, (2 - theta) / theta)
    assert np.abs(stein_check(wrong).z).max() > 10


def test_the_prior_at_t_0_has_no_mean_that_could_be_used():
    """The log likelihood of 8 species goes down to -1e19 and further: it is said, and the answer does not use it."""
    model = goodwin(8)
    with jax.enable_x64(True):
        draw = jax.jit(jax.vmap(lambda key: model.posterior.unconstrain(model.posterior.draw_prior(key))))
        x = np.asarray(draw(jax.random.split(jax.random.key(0), 400)))
    likelihood, _ = model.posterior.evaluate(x)
    from steincv.evidence.rung import no_usable_mean

    assert likelihood.min() < -1e6
    assert no_usable_mean(likelihood.reshape(4, 100)) is not None


def test_van_der_pol_solver():
    with jax.enable_x64(True):
        theta = jnp.exp(jnp.linspace(-0.75, 0.75, 5))

        def slope(x):
            return jnp.stack([x[1], theta * (1 - x[0] ** 2) * x[1] - x[0]])

        start = jnp.stack([0 * theta, 2 + 0 * theta])
        coarse, fine = (solve(slope, start, steps, 0, 10) for steps in (vdp.STEPS, 4 * vdp.STEPS))
        assert float(jnp.abs(coarse - fine).max()) < 1e-4 * vdp.SIGMA
