"""The shallow potential: closed forms against differences, its law, its memory, and that it needs no compiler."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import steincv as scv
from steincv.families.method import Problem, make_problem
from steincv.families.neural.descent import Schedule, _Steps, train
from steincv.families.neural.directions import MOST, Few, mixing
from steincv.families.neural.heads import solve_heads
from steincv.families.neural.potential_fit import fit_potentials
from steincv.families.neural.refinement import Draws, _Refinement, choose, refine
from steincv.families.neural.units import Units, derivatives, features
from steincv.runtime import threads as _threads


def some_units(seed, count, dim):
    rng = np.random.default_rng(seed)
    return Units(rng.normal(size=(count, dim)), rng.normal(size=count))


def some_problem(n, dim, outputs, seed=0):
    """Draws of a Gaussian, and outputs that are waves along random directions."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, dim))
    y = np.tanh(2 * z @ rng.normal(size=(dim, outputs)) / np.sqrt(dim))
    y = (y - y.mean(axis=0)) / y.std(axis=0)
    return Problem(z, -z, y, np.zeros(outputs), 4)


def test_features_are_the_stein_operator_of_the_units():
    """Laplacian and gradient of tanh(w.z + b) by central differences."""
    units, rng, step = some_units(0, 4, 3), np.random.default_rng(1), 1e-4
    z, s = rng.normal(size=(2, 6, 3))

    def value(z):
        return np.tanh(z @ units.w.T + units.b)

    expected = np.zeros((6, 4))
    for i in range(3):
        move = step * np.eye(3)[i]
        up, here, down = value(z + move), value(z), value(z - move)
        expected += (up - 2 * here + down) / step**2 + (up - down) / (2 * step) * s[:, i, None]
    np.testing.assert_allclose(features(units, z, s), expected, atol=1e-5)


def test_derivatives_of_the_features():
    units, rng, step = some_units(0, 4, 3), np.random.default_rng(1), 1e-6
    z, s = rng.normal(size=(2, 6, 3))
    found = derivatives(units, z, s)
    for i in range(4):
        move = np.zeros((4, 4))
        move[:, i] = step
        up, down = (features(Units(units.w + k * move[:, :3], units.b + k * move[:, 3]), z, s) for k in (1, -1))
        np.testing.assert_allclose(found[:, :, i], (up - down) / (2 * step), atol=1e-7)


def test_gradient_of_a_step_of_adam():
    """In float32, so against differences of a loss that is computed in float64."""
    rng, units = np.random.default_rng(0), some_units(0, 5, 3)
    z, s = rng.normal(size=(2, 16, 3)).astype(np.float32)
    y = rng.normal(size=(16, 2)).astype(np.float32)
    penalty = 0.01
    steps = _Steps(units, 2, 16, Schedule(1, 16, 0.1, penalty))
    steps.flat[:] = rng.normal(size=len(steps.flat))
    steps.gradient(z, s, y)

    def loss(flat):
        w, b, heads, center = np.split(flat, np.cumsum([15, 5, 10]))
        g = features(Units(w.reshape(5, 3), b), z.astype(float), s.astype(float)) @ heads.reshape(5, 2) + center
        return ((g - y) ** 2).mean() + penalty * ((w**2).sum() + (heads**2).sum() / 2)

    flat = steps.flat.astype(float)
    moves = 1e-6 * np.eye(len(flat))
    expected = [(loss(flat + m) - loss(flat - m)) / 2e-6 for m in moves]
    np.testing.assert_allclose(steps.slope, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_gauss_newton_has_the_gradient_of_its_cost_and_lowers_it():
    problem = some_problem(300, 3, 2)
    units, ridge = some_units(3, 4, 3), np.full(3, 1e-3)
    draws = Draws(problem.z, problem.s, problem.s, problem.y)
    fit = _Refinement(draws, ridge)
    _, gradient = fit.system(units, fit.solve(units, 1e-3), 1e-3)
    flat, step = np.concatenate([units.w, units.b[:, None]], axis=1).reshape(-1), 1e-5

    def cost(flat):
        both = flat.reshape(4, 4)
        return fit.solve(Units(both[:, :3], both[:, 3]), 1e-3).cost

    moves = step * np.eye(16)
    expected = [(cost(flat + m) - cost(flat - m)) / (4 * step) for m in moves]  # of half the cost
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)
    refined = refine(units, draws, draws, ridge, (1e-3, 1e-4), 5)
    assert fit.solve(refined, 1e-4).cost < 0.5 * fit.solve(units, 1e-4).cost


def test_the_chosen_units_are_those_that_explain():
    rng = np.random.default_rng(0)
    psi = rng.normal(size=(400, 30))
    psi[:, 7] = psi[:, 3]  # a copy adds nothing
    y = psi[:, [3, 11, 20]] @ np.array([[3.0], [2.0], [1.0]])
    assert set(choose(psi, y, 3)) in ({3, 11, 20}, {7, 11, 20})
    assert len(set(choose(psi, y, 30))) == 30


def test_heads_choose_their_penalty_or_the_polynomial_alone():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(2000, 8))
    y = np.stack([columns @ np.arange(8.0), columns[:, 0]], axis=1)
    held = np.arange(2000) % 5 == 0
    heads = solve_heads(columns, y, held, np.full(2, 1e-9), np.array([10.0, 0.0]))
    np.testing.assert_allclose(heads.coefficients[:, 0], np.arange(8.0), atol=1e-3)
    np.testing.assert_allclose(heads.coefficients[:, 1], np.eye(8)[0], atol=1e-6)
    assert (heads.coefficients[2:, 1] == 0).all()  # nothing beats a polynomial without error
    assert np.isinf(heads.penalty[1])


@pytest.mark.parametrize("parameters", range(3))
def test_mean_zero_by_quadrature_for_any_units(parameters):
    """On a bimodal density, for units that nobody trained."""
    units = some_units(parameters, 6, 1)
    x = np.linspace(-12, 12, 40001)[:, None]
    p = np.exp(-0.5 * (x[:, 0] - 1) ** 2) + np.exp(-0.5 * (x[:, 0] + 1) ** 2)
    psi = features(units, x, -x + np.tanh(x))
    assert (np.abs(psi).max(axis=0) > 0.05).all()
    assert np.abs(p @ psi / p.sum()).max() < 1e-10
    far = features(units, 1e3 * np.sign(x) + x, -1e3 * np.sign(x))
    assert np.abs(far).max() < 1e-9  # tame where there are no draws


def test_training_finds_a_direction():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(1000, 8))
    target = features(Units(np.eye(8)[:1] * 1.5, np.array([0.3])), z, -z)
    target = (target - target.mean()) / target.std()
    start = some_units(1, 12, 8)
    units = train(start, z, -z, target, Schedule(400, 128, 2e-2, 2e-3), rng)

    def left(units):
        psi = features(units, z, -z)
        return np.var(target - psi @ np.linalg.lstsq(psi, target, rcond=None)[0])

    assert left(units) < 0.05 * left(start)


def test_extreme_scores_do_no_harm():
    problem = some_problem(400, 2, 1)
    s = problem.s.copy()
    s[7] = 1e25
    control = fit_potentials([Problem(problem.z, s, problem.y, problem.offset, 4)], 0)[0]
    assert np.isfinite(control.evaluate(problem.z, s)).all()


def test_few_directions_of_many_dimensions():
    problem = some_problem(600, MOST.dimensions + 50, 2)
    few = Few.of(problem)
    kept = len(few.directions)
    assert 10 < kept <= MOST.kept
    np.testing.assert_allclose(few.directions @ few.directions.T, np.eye(kept), atol=1e-10)
    # Stein features in the few directions are those of units in all of them
    units = some_units(0, 5, kept)
    whole = Units(units.w @ few.directions, units.b)
    np.testing.assert_allclose(
        features(units, *few(problem.z, problem.s)), features(whole, problem.z, problem.s), rtol=1e-8, atol=1e-10
    )
    assert Few.of(some_problem(100, 5, 1)).directions is None


def test_many_outputs_are_mixed_to_few():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 500))
    mixed = y @ mixing(y)
    assert mixed.shape == (300, MOST.mixtures)
    assert (mixed**2).mean() == pytest.approx(1)
    left = y - mixed @ np.linalg.lstsq(mixed, y, rcond=None)[0]
    assert np.abs(left).max() < 1e-8
    np.testing.assert_array_equal(mixing(y[:, :5]), np.eye(5))


@pytest.mark.parametrize(("n", "dim"), [(4000, 1000), (1500, 144), (20_000, 12)])
def test_memory_is_bounded(n, dim):
    problem = some_problem(n, dim, 3)
    tracemalloc.start()
    fit_potentials([problem], 0)[0].evaluate(problem.z, problem.s)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300 * 2**20


def test_same_bits_for_any_number_of_threads_and_any_company():
    problems = [some_problem(400, 3, 5, seed) for seed in range(3)]
    found = []
    for allowed in (1, 2):
        with _threads._CONTROLLER.limit(limits=allowed, user_api="blas"):
            _threads._allowed.cache_clear()
            try:
                controls = fit_potentials(problems, 0)
            finally:
                _threads._allowed.cache_clear()
        found.append([c.evaluate(p.z, p.s) for c, p in zip(controls, problems, strict=True)])
    np.testing.assert_array_equal(found[0], found[1])
    alone = fit_potentials(problems[1:2], 0)[0].evaluate(problems[1].z, problems[1].s)
    np.testing.assert_array_equal(alone, found[0][1])


def test_no_compiler_is_needed():
    program = """
import sys, numpy as np, steincv as scv
x = np.random.default_rng(0).normal(size=(4, 100, 2))
result = scv.estimate(scv.Samples(x, -x), np.tanh(2 * x[..., 0]), scv.Neural())
assert result.variance_ratio < 0.1, result.variance_ratio
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_width_that_is_asked_for_is_used():
    x = np.random.default_rng(0).normal(size=(4, 100, 2))
    samples = scv.Samples(x, -x)
    fitted = scv.Neural(scv.Potential(width=7)).fit(samples, np.tanh(x[..., 0]))
    assert fitted.info["units"] == 14  # and a refined copy of each
    problem, _, _ = make_problem(samples, np.tanh(x[..., :1]))
    assert fit_potentials([problem], 0, degree=0)[0].info["features"] == 0


def seen_twice(x, outputs=3):
    """A two-dimensional mixture in its own coordinates and in z = sinh(x), side by side, and its density."""
    mode = np.array([0.8, -0.5])
    near, far = np.exp(-((x - mode) ** 2).sum(-1) / 2), np.exp(-((x + mode) ** 2).sum(-1) / 2)
    density = (near + far) / (4 * np.pi)
    score = -x + mode * ((near - far) / (near + far))[:, None]
    # x = T(z): the score in z is T'(z) s + (log T'(z))'
    z, slope = np.sinh(x), 1 / np.cosh(x)
    seen = np.hstack([x, z]), np.hstack([score, slope * score - np.sinh(x) * slope**2])
    y = np.stack([np.sin((k + 1) * x[:, 0] + x[:, 1]) for k in range(outputs)], axis=-1)
    return *seen, y, density


@pytest.mark.parametrize("outputs", [1, 5])
def test_units_in_two_systems_of_coordinates_have_mean_zero(outputs):
    """By quadrature: neither units nor polynomials nor rotations multiply what stands in different coordinates."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(800, 2)) + np.array([0.8, -0.5]) * rng.choice([-1, 1], size=(800, 1))
    z, s, y, _ = seen_twice(draws, outputs)
    y = (y - y.mean(axis=0)) / y.std(axis=0)
    (control,) = fit_potentials([Problem(z, s, y, np.zeros(outputs), 4, parts=2)], 0)
    assert control.info["directions"] == 4
    assert (y + control.evaluate(z, s)).var(axis=0).max() < 0.05
    grid = np.linspace(-9, 9, 361)
    z, s, _, density = seen_twice(np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2))
    g = control.evaluate(z, s)
    np.testing.assert_allclose((density @ g) * (grid[1] - grid[0]) ** 2, 0, atol=1e-8)


def test_a_problem_in_two_systems_of_coordinates_is_two_problems():
    problem = some_problem(40, 6, 2)
    problem = Problem(problem.z, problem.s, problem.y, problem.offset, 4, 2, np.full(40, 0.5), parts=2)
    first, second = problem.views()
    assert (first.parts, second.parts) == (1, 1)
    np.testing.assert_array_equal(np.hstack([first.z, second.z]), problem.z)
    np.testing.assert_array_equal(np.hstack([first.s, second.s]), problem.s)
    assert problem.at_draws().parts == 2
