"""Orbits around draws: unbiased for any density and step, and refused where the model is not that of the draws."""

import jax.numpy as jnp
import numpy as np
import pytest

import steincv as scv
from steincv.samples.log_density import LogDensity
from steincv.stein.coordinates import Standardise
from steincv.stein.orbits import find_step, orbits

STATES = 5


def gaussian(x):
    return -0.5 * (x**2).sum(1), -x


def student(x):
    """Independent t with 5 degrees of freedom."""
    return -3 * np.log1p(x**2 / 5).sum(1), -6 * x / (5 + x**2)


def banana(x):
    """x0 normal with variance 4, x1 normal about x0^2 / 4."""
    a, b = x[:, 0], x[:, 1] - x[:, 0] ** 2 / 4
    return -(a**2) / 8 - b**2 / 2, np.stack([-a / 4 + a / 2 * b, -b], axis=1)


def draws_of(density, rng, n):
    if density is gaussian:
        return rng.normal(size=(n, 2))
    if density is student:
        return rng.standard_t(5, size=(n, 2))
    a = 2 * rng.normal(size=n)
    return np.stack([a, a**2 / 4 + rng.normal(size=n)], axis=1)


# Means of the second coordinate, of its square and of the cosine of the first; the last two by quadrature below.
def functions(x):
    return np.stack([x[..., 1], np.minimum(x[..., 1] ** 2, 9.0), np.cos(x[..., 0])], axis=-1)


def unit_coordinates(dim):
    return Standardise(np.zeros(dim), np.ones(dim), None)


@pytest.mark.parametrize("step", [0.1, 0.7, 1.4])
@pytest.mark.parametrize("density", [gaussian, student, banana])
def test_orbit_means_are_unbiased(density, step):
    """The difference to f at the draws has mean zero: 40,000 independent orbits, nine such z values beyond 4.5 once in
    16,000 runs. Unweighted means fail by tens of standard errors at the large steps."""
    rng = np.random.default_rng(7)
    x = draws_of(density, rng, 40_000)
    found = orbits(x, density(x)[1], LogDensity(density), unit_coordinates(2), STATES, step, rng)
    np.testing.assert_array_equal(found.draws[:, 0], x)
    np.testing.assert_allclose(found.weight.sum(axis=1), 1)
    difference = (found.weight[..., None] * functions(found.draws)).sum(axis=1) - functions(x)
    z = difference.mean(axis=0) / (difference.std(axis=0) / np.sqrt(len(x)))
    assert np.abs(z).max() < 4.5
    if step == 1.4 and density is not student:
        naive = functions(found.draws).mean(axis=1) - functions(x)
        assert np.abs(naive.mean(axis=0) / (naive.std(axis=0) / np.sqrt(len(x)))).max() > 10


def test_scores_of_states_are_those_of_the_density():
    rng = np.random.default_rng(0)
    x = draws_of(banana, rng, 50)
    coordinates = Standardise.of(scv.Samples(x, banana(x)[1]))
    found = orbits(x, banana(x)[1], LogDensity(banana), coordinates, STATES, 0.5, rng)
    flat = found.draws.reshape(-1, 2)
    np.testing.assert_allclose(found.scores.reshape(-1, 2), banana(flat)[1], rtol=1e-12)


def test_an_orbit_that_leaves_the_support_counts_as_its_draw():
    def half(x):
        """Exponential in x0 > 0, in unconstrained disguise: minus infinity beyond the edge."""
        value, gradient = -x[:, 0] - 0.5 * x[:, 1] ** 2, np.stack([-np.ones(len(x)), -x[:, 1]], axis=1)
        return np.where(x[:, 0] > 0, value, -np.inf), gradient

    rng = np.random.default_rng(1)
    x = np.stack([rng.exponential(size=20_000), rng.normal(size=20_000)], axis=1)
    found = orbits(x, half(x)[1], LogDensity(half), unit_coordinates(2), STATES, 0.4, rng)
    assert (found.draws[..., 0] > 0).all()
    lost = found.weight[:, 0] == 1
    assert 0.05 < lost.mean() < 0.9
    difference = (found.weight * found.draws[..., 0]).sum(axis=1) - x[:, 0]
    assert abs(difference.mean()) < 4.5 * difference.std() / np.sqrt(len(x))


def test_the_step_leaves_most_states_their_weight():
    rng = np.random.default_rng(2)
    x = draws_of(banana, rng, 500)
    scores = banana(x)[1]
    step = find_step(x, scores, LogDensity(banana), unit_coordinates(2), 8, seed=0)
    found = orbits(x, scores, LogDensity(banana), unit_coordinates(2), 8, step, rng)
    assert 0.8 * 8 < found.effective.mean() < 0.97 * 8


# --- estimates ---------------------------------------------------------------------------------------


def logistic(seed, dim=12, observations=60):
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(observations, dim))
    y = (rng.random(observations) < 1 / (1 + np.exp(-design @ rng.normal(size=dim) / 2))).astype(float)

    def density(x):
        eta = x @ design.T
        value = (y * eta - np.logaddexp(0, eta)).sum(1) - 0.5 * (x**2).sum(1)
        return value, (y - 1 / (1 + np.exp(-eta))) @ design - x

    return density


def chains_of(density, dim, chains, draws, seed):
    """Hamiltonian Monte Carlo, all chains at once, eight leapfrog steps."""
    rng = np.random.default_rng(seed)
    x, kept = np.zeros((chains, dim)), []
    value, gradient = density(x)
    for _ in range(100 + draws):
        p = rng.normal(size=x.shape)
        q, slope, r = x, gradient, p
        for _ in range(8):
            r = r + 0.1 * slope
            q = q + 0.2 * r
            new, slope = density(q)
            r = r + 0.1 * slope
        accept = np.log(rng.random(chains)) < new - value - 0.5 * ((r**2).sum(1) - (p**2).sum(1))
        x, gradient = (np.where(accept[:, None], a, b) for a, b in ((q, x), (slope, gradient)))
        value = np.where(accept, new, value)
        kept.append((x, gradient))
    kept = kept[100:]
    return tuple(np.stack([k[i] for k in kept], axis=1) for i in range(2))


def means_and_squares(x):
    return np.concatenate([x[:3], x[3:6] ** 2])


@pytest.fixture(scope="module")
def runs():
    density = logistic(0)
    draws, scores = chains_of(density, 12, 4 * 8, 150, seed=1)
    return density, draws.reshape(8, 4, 150, 12), scores.reshape(8, 4, 150, 12)


def test_orbits_gain_far_more_than_the_draws_alone(runs):
    """True variances over eight independent runs: a ratio of two is known to a factor of about 2; ten are asked for in
    the median of six."""
    density, draws, scores = runs
    found = {0: [], 8: []}
    for x, s in zip(draws, scores, strict=True):
        samples = scv.Samples(x, s, log_density=LogDensity(density))
        for states in found:
            found[states].append(scv.estimate(samples, means_and_squares, scv.Polynomial(2), orbits=states).mean)
    gain = np.var(found[0], axis=0) / np.var(found[8], axis=0)
    assert np.median(gain) > 5
    together = np.concatenate([np.array(a) for a in found.values()])
    assert np.abs(np.mean(found[0], axis=0) - np.mean(found[8], axis=0)).max() < 3 * together.std(axis=0).max()


def test_no_orbits_is_the_answer_without_a_model_to_the_bit(runs):
    density, draws, scores = runs
    without = scv.estimate(scv.Samples(draws[0], scores[0]), means_and_squares, scv.Polynomial(2))
    model = scv.Samples(draws[0], scores[0], log_density=LogDensity(density))
    with_model = scv.estimate(model, means_and_squares, scv.Polynomial(2), orbits=0)
    assert without.mean.tobytes() == with_model.mean.tobytes()
    assert without.controlled.tobytes() == with_model.controlled.tobytes()


def test_the_same_seed_gives_the_same_bits_and_plain_means_do_not_change(runs):
    density, draws, scores = runs
    samples = scv.Samples(draws[0], scores[0], log_density=LogDensity(density))
    first, again = (scv.estimate(samples, means_and_squares, scv.Polynomial(2), orbits=4, seed=3) for _ in range(2))
    assert first.controlled.tobytes() == again.controlled.tobytes()
    np.testing.assert_array_equal(
        first.plain.mean, scv.estimate(samples, means_and_squares, scv.MonteCarlo()).plain.mean
    )
    assert first.info["orbits"]["states"] == 4
    assert first.info["orbits"]["gradients"] >= 600 * 3


def test_standard_deviations_work_with_orbits(runs):
    density, draws, scores = runs
    samples = scv.Samples(draws[0], scores[0], log_density=LogDensity(density))
    result = scv.estimate(samples, lambda x: x[:3], scv.Polynomial(2), stat=("mean", "sd"), orbits=8)
    truth = draws.reshape(-1, 12)[:, :3].std(axis=0)
    np.testing.assert_allclose(result.sd.mean, truth, rtol=0.1)
    assert (result.sd.variance_ratio < 0.2).all()


def test_a_function_that_jax_differentiates_is_a_model():
    import jax.numpy as jnp

    x = np.random.default_rng(0).normal(size=(4, 60, 3))
    samples = scv.Samples(x, -x - 0.4 * x**3, log_density=lambda v: -0.5 * jnp.sum(v**2) - 0.1 * jnp.sum(v**4))
    value, gradient = samples.log_density(x.reshape(-1, 3))
    np.testing.assert_allclose(gradient, (-x - 0.4 * x**3).reshape(-1, 3), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(value, (-0.5 * x**2 - 0.1 * x**4).sum(-1).ravel(), rtol=1e-10)


def test_a_function_of_one_vector_with_its_gradient_is_a_model():
    x = np.random.default_rng(0).normal(size=(4, 60, 3))
    samples = scv.Samples(x, -x, log_density=lambda v: (-0.5 * v @ v, -v))
    result = scv.estimate(samples, lambda v: v[0] ** 2, scv.Polynomial(2), orbits=3)
    assert float(result.mean) == pytest.approx(1, abs=1e-8)


def wrong_gradient(x):
    return gaussian(x)[0], -1.1 * x


def wrong_energy(x):
    return 3 * gaussian(x)[0], -x


def energy_off_by_a_tenth(x):
    return 1.1 * gaussian(x)[0], -x


def other_density(x):
    return gaussian(x + 0.5)


@pytest.mark.parametrize(
    ("density", "says"),
    [
        (wrong_gradient, "differs from `scores`"),
        (other_density, "differs from `scores`"),
        (wrong_energy, "same function"),
        (energy_off_by_a_tenth, "same function"),
    ],
)
def test_a_model_that_is_not_that_of_the_draws_is_refused(density, says):
    x = np.random.default_rng(0).normal(size=(4, 60, 2))
    samples = scv.Samples(x, -x, log_density=LogDensity(density))
    with pytest.raises(scv.InputError, match=says):
        scv.estimate(samples, lambda v: v[0], scv.Polynomial(1), orbits=4)


def test_a_support_edge_is_said():
    """An exponential in x0 > 0, cut off where it is largest: the Stein alarm rings, lost orbits are counted."""

    def half(x):
        value, gradient = -x[:, 0] - 0.5 * x[:, 1] ** 2, np.stack([-np.ones(len(x)), -x[:, 1]], axis=1)
        return np.where(x[:, 0] > 0, value, -np.inf), gradient

    rng = np.random.default_rng(1)
    x = np.stack([rng.exponential(size=(4, 200)), rng.normal(size=(4, 200))], axis=-1)
    scores = half(x.reshape(-1, 2))[1].reshape(x.shape)
    samples = scv.Samples(x, scores, log_density=LogDensity(half))
    result = scv.estimate(samples, lambda v: v[0], scv.Polynomial(1), orbits=4)
    assert result.info["orbits"]["lost"] > 0.05
    assert "of the draws are alone, their orbits left the support" in repr(result)
    assert "stein mean" in [status.name for status in result.status[0]]


def test_orbits_say_what_they_need():
    x = np.random.default_rng(0).normal(size=(4, 60, 2))
    with pytest.raises(scv.InputError, match="log_density"):
        scv.estimate(scv.Samples(x, -x), lambda v: v[0], orbits=4)
    model = scv.Samples(x, -x, log_density=LogDensity(gaussian))
    with pytest.raises(scv.InputError, match="as a function, not as an array"):
        scv.estimate(model, x[..., 0], orbits=4)
    with pytest.raises(scv.InputError, match="`orbits`"):
        scv.estimate(model, lambda v: v[0], orbits=-1)
    with pytest.raises(scv.InputError, match="number"):
        scv.Samples(x, -x, log_density=lambda v: v)
    with pytest.raises(scv.InputError, match="must be a function"):
        scv.Samples(x, -x, log_density=3)


# --- draws that are only fitted on -------------------------------------------------------------------


def test_draws_that_are_only_fitted_on_help_and_are_not_averaged_over(runs):
    _, draws, scores = runs
    few = draws[0, :, :40], scores[0, :, :40]  # 120 to fit the 90 features of a quadratic on
    samples = scv.Samples(*few)
    more = scv.Samples(*few, fitting=(draws[1:4].reshape(12, 150, 12), scores[1:4].reshape(12, 150, 12)))
    alone, helped = (scv.estimate(s, means_and_squares, scv.Polynomial(2), orbits=0) for s in (samples, more))
    np.testing.assert_array_equal(alone.plain.mean, helped.plain.mean)
    assert np.median(helped.variance_ratio / alone.variance_ratio) < 0.5


def test_fitting_draws_are_checked(runs):
    _, draws, scores = runs
    with pytest.raises(scv.InputError, match="`fitting`"):
        scv.Samples(draws[0], scores[0], fitting=(draws[0][..., :3], scores[0][..., :3]))
    with pytest.raises(scv.InputError, match="pair"):
        scv.Samples(draws[0], scores[0], fitting=draws[0])
    more = scv.Samples(draws[0], scores[0], fitting=(draws[1], scores[1]))
    with pytest.raises(scv.InputError, match="as a function"):
        scv.estimate(more, draws[0][..., 0], scv.Polynomial(1))


# --- penalties ---------------------------------------------------------------------------------------


def test_penalties_are_judged_by_leaving_out_whole_orbits():
    """The closed form against fits that have not seen the orbit, one by one."""
    from steincv.families.polynomial.ridge import PENALTIES, ridge

    rng = np.random.default_rng(3)
    count, states, features = 30, 4, 6
    weight = rng.dirichlet(np.ones(states), size=count)
    center = rng.normal(size=(count, 1, features))
    x = (center + 0.1 * rng.normal(size=(count, states, features))).reshape(-1, features)
    y = x @ rng.normal(size=(features, 1)) + np.repeat(rng.normal(size=count), states)[:, None]
    found = ridge(x, y, np.ones(features, int), "auto", orbits=weight)

    def left_out(penalty):
        errors = []
        for k in range(count):
            kept = np.arange(count) != k
            rows = np.repeat(kept, states)
            w = weight[kept].reshape(-1, 1)
            # the penalty is per orbit of all of them
            design = np.hstack([np.ones((rows.sum(), 1)), x[rows]])
            gram = design.T @ (w * design) + penalty * count * np.diag(np.r_[0.0, np.ones(features)])
            beta = np.linalg.solve(gram, design.T @ (w * y[rows]))
            residual = y[~rows, 0] - np.hstack([np.ones((states, 1)), x[~rows]]) @ beta[:, 0]
            errors.append((weight[k] @ residual) ** 2)
        return np.mean(errors)

    errors = [left_out(penalty) for penalty in PENALTIES]
    assert found.penalty[0] == PENALTIES[int(np.argmin(errors))]
    assert found.leave_one_out[0] == pytest.approx(min(errors), rel=1e-6)


def test_factors_choose_as_decompositions_do(monkeypatch):
    """Many features: the same coefficients and errors as the spectrum gives for the penalty that was chosen."""
    from steincv.families.polynomial.ridge import GROWTHS, Sizes, ridge

    rng = np.random.default_rng(4)
    weight = rng.dirichlet(np.ones(3), size=40)
    x = rng.normal(size=(120, 8))
    y = x @ rng.normal(size=(8, 2)) + rng.normal(size=(120, 2))
    degree = np.repeat([1, 2], 4)
    usual = ridge(x, y, degree, "auto", orbits=weight)
    monkeypatch.setattr("steincv.families.polynomial.ridge.SIZES", Sizes(factorised=5))
    found = ridge(x, y, degree, "auto", orbits=weight)
    assert (found.growth == GROWTHS[1]).all()
    assert (found.leave_one_out <= 1.1 * usual.leave_one_out).all()
    flat = weight.reshape(-1, 1)
    design, left = (np.sqrt(flat) * (a - (flat * a).sum(axis=0) / 40) for a in (x, y))
    for out, penalty in enumerate(found.penalty):
        gram = design.T @ design + 40 * penalty * np.diag(10.0 ** (degree - 1))
        expected = np.linalg.solve(gram, design.T @ left[:, out])
        np.testing.assert_allclose(found.coefficients[:, out], expected, rtol=1e-9, atol=1e-12)
    monkeypatch.undo()
    fixed = ridge(x, y, np.ones(8, int), 0.1, orbits=weight)
    monkeypatch.setattr("steincv.families.polynomial.ridge.SIZES", Sizes(factorised=5))
    again = ridge(x, y, np.ones(8, int), 0.1, orbits=weight)
    np.testing.assert_allclose(again.coefficients, fixed.coefficients, rtol=1e-9)
    np.testing.assert_allclose(again.leave_one_out, fixed.leave_one_out, rtol=1e-9)


def test_parameters_at_the_draws_and_a_function_elsewhere():
    """As adapters hand them over: f by names, as a function of the parameters, or none, is known at all states."""
    import jax.numpy as jnp

    x = np.random.default_rng(0).normal(size=(4, 80, 3))
    parameters = {"scale": np.exp(x[..., 0]), "rest": x[..., 1:]}
    samples = scv.Samples(
        x,
        -x,
        constrain=lambda v: {"scale": jnp.exp(v[0]), "rest": v[1:]},
        parameters=parameters,
        log_density=LogDensity(gaussian),
    )
    by_name = scv.estimate(samples, ["rest", "scale"], scv.Polynomial(2), orbits=4)
    assert by_name.labels == ("rest[0]", "rest[1]", "scale")
    everything = scv.estimate(samples, None, scv.Polynomial(2), orbits=4)
    assert everything.labels == ("scale", "rest[0]", "rest[1]")
    np.testing.assert_allclose(everything.mean[[1, 2, 0]], by_name.mean, rtol=1e-8, atol=1e-10)
    assert float(everything.mean[0]) == pytest.approx(np.exp(0.5), rel=0.02)
    by_function = scv.estimate(samples, lambda p: p["scale"], scv.Polynomial(2), orbits=4)
    np.testing.assert_allclose(by_function.mean, everything.mean[0], rtol=1e-8)


def test_an_orbit_at_which_f_is_not_finite_counts_as_its_draw():
    """f is infinite just beyond the farthest draw, where some orbits go: it is estimated, exactly for a Gaussian."""
    x = np.random.default_rng(5).normal(size=(4, 100, 2))
    edge = np.abs(x[..., 0]).max() * (1 + 1e-9)
    samples = scv.Samples(x, -x, log_density=lambda v: -0.5 * jnp.sum(v**2))
    result = scv.estimate(
        samples, lambda v: jnp.where(jnp.abs(v[0]) > edge, jnp.inf, v[0] ** 2), scv.Polynomial(2), orbits=8
    )
    assert result.info["orbits"]["lost"] > 0
    assert abs(result.mean - 1) < 1e-9


def test_the_default_asks_a_cheap_model_in_few_dimensions():
    x = np.random.default_rng(6).normal(size=(4, 200, 2))
    samples = scv.Samples(x, -x, log_density=lambda v: -0.5 * jnp.sum(v**2))
    assert scv.estimate(samples, lambda v: jnp.cos(v[0]), scv.Polynomial(1)).info["orbits"]["states"] == 8
