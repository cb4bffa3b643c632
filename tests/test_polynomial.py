"""Polynomial control variates: the operator by automatic differentiation, least squares and ridge by brute force."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from densities import bent_mixture

import steincv as scv
from steincv.families.polynomial.polynomial import degrees, feature_count, quadratic_form, rotations, stein_features
from steincv.families.polynomial.ridge import GROWTHS, PENALTIES, ridge
from steincv.runtime.validation import InputError


def multi_indices(dim, degree):
    """In the order of `stein_features`: by degree, then by last coordinate raised, as the recurrence makes them."""
    level, every = [(0,) * dim], []
    for _ in range(degree):
        level = [(*p[:i], p[i] + 1, *p[i + 1 :]) for i in range(dim) for p in level if not any(p[i + 1 :])]
        every += level
    return every


def hermite(n, z):
    """The probabilists' polynomial, from its explicit sum: not by recurrence."""
    terms = range(n // 2 + 1)
    return sum(
        (-1) ** m * math.factorial(n) / (math.factorial(m) * math.factorial(n - 2 * m) * 2**m) * z ** (n - 2 * m)
        for m in terms
    )


@pytest.mark.parametrize(("dim", "degree"), [(1, 6), (2, 4), (3, 3), (5, 2)])
def test_features_are_the_operator_on_the_hermite_basis(dim, degree):
    """Phi = grad Q by automatic differentiation in float64, g = div Phi + Phi . s: relative 1e-12."""
    rng = np.random.default_rng(0)
    z, s = rng.normal(size=(2, 30, dim))
    ours = stein_features(z, s, degree)
    indices = multi_indices(dim, degree)
    assert ours.shape == (30, len(indices))
    assert len(indices) == feature_count(dim, degree) == math.comb(dim + degree, degree) - 1
    np.testing.assert_array_equal(degrees(dim, degree), [sum(a) for a in indices])

    def basis(z):
        norm = [sum(a) * math.sqrt(math.prod(map(math.factorial, a))) for a in indices]
        values = [math.prod((hermite(n, z[i]) for i, n in enumerate(a)), start=1.0) for a in indices]
        return jnp.stack([v / c for v, c in zip(values, norm, strict=True)])

    with jax.enable_x64(True):
        trial = jax.jacfwd(basis)
        divergence = jax.jit(jax.vmap(lambda z: jnp.einsum("aii->a", jax.jacfwd(trial)(z))))(z)
        expected = np.asarray(divergence) + np.einsum("nai,ni->na", jax.jit(jax.vmap(trial))(z), s)
    np.testing.assert_allclose(ours, expected, atol=1e-12 * np.abs(expected).max(), rtol=1e-12)


def test_features_are_orthonormal_under_a_standard_gaussian():
    """By exact Gauss-Hermite quadrature: E[g_a g_b] = 1 if a = b, else 0; and E[g_a] = 0."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    z = np.array(list(itertools.product(nodes, nodes)))
    w = np.array([a * b for a, b in itertools.product(weights, weights)])
    x = stein_features(z, -z, 4)
    w = w / w.sum()
    np.testing.assert_allclose(x.T @ (w[:, None] * x), np.eye(x.shape[1]), atol=1e-12)
    np.testing.assert_allclose(w @ x, 0, atol=1e-12)


def test_tiles_make_no_difference(monkeypatch):
    z, s = np.random.default_rng(1).normal(size=(2, 500, 4))
    whole = stein_features(z, s, 3)
    monkeypatch.setattr("steincv.families.polynomial.polynomial.CACHED", 1)
    np.testing.assert_array_equal(stein_features(z, s, 3), whole)


def test_no_penalty_is_least_squares():
    samples = bent_mixture(2, 2, 100, 3)
    f = np.sin(samples.draws[..., 0])
    fitted = scv.Polynomial(2, penalty=0).fit(samples, f)
    z, s = fitted.standardise(samples)
    design = np.hstack([np.ones((200, 1)), stein_features(z, s, 2)])
    coefficients = np.linalg.lstsq(design, f.ravel(), rcond=None)[0]
    np.testing.assert_allclose(fitted(samples).ravel(), -design[:, 1:] @ coefficients[1:], atol=1e-9)


@pytest.mark.parametrize(("n", "features"), [(60, 9), (30, 50), (40, 40)])
@pytest.mark.parametrize("penalty", [1e-3, 0.1, 10.0])
def test_ridge_solves_its_problem_and_leaves_one_out_exactly(n, features, penalty):
    """In the primal (fewer features) and the dual form (more), against brute force."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(n, features)), rng.normal(size=(n, 2))
    fit = ridge(x, y, np.ones(features, dtype=int), penalty)

    def solve(x, y, n):
        center, mean = x.mean(axis=0), y.mean(axis=0)
        gram = (x - center).T @ (x - center) + n * penalty * np.eye(features)
        beta = np.linalg.solve(gram, (x - center).T @ (y - mean))
        return beta, lambda new: mean + (new - center) @ beta

    np.testing.assert_allclose(fit.coefficients, solve(x, y, n)[0], rtol=1e-7, atol=1e-9)
    left_out = np.empty_like(y)
    for i in range(n):
        rest = np.arange(n) != i
        left_out[i] = y[i] - solve(x[rest], y[rest], n)[1](x[i])
    np.testing.assert_allclose(fit.leave_one_out, (left_out**2).mean(axis=0), rtol=1e-6)


def test_auto_takes_the_least_leave_one_out_error():
    """Never more than the best of the whole grid, for every output by itself."""
    samples = bent_mixture(4, 2, 40, 4)
    values = np.stack([np.sin(samples.draws[..., 0]), np.random.default_rng(5).normal(size=(2, 40))], axis=-1)
    z, s = scv.Polynomial(3).fit(samples, values).standardise(samples)
    x, degree = stein_features(z, s, 3), degrees(4, 3)
    y = values.reshape(80, 2)
    auto = ridge(x, y, degree, "auto")
    root = [x * growth ** (-0.5 * (degree - 1)) for growth in GROWTHS]
    grid = [ridge(r, y, degree, p).leave_one_out for r in root for p in PENALTIES]
    np.testing.assert_allclose(auto.leave_one_out, np.min(grid, axis=0), rtol=1e-6)


def test_the_penalty_grows_with_noise():
    samples = bent_mixture(6, 4, 50, 3)
    noise = np.random.default_rng(7).normal(size=(4, 50))
    fit = scv.Polynomial(2).fit(samples, np.stack([samples.scores[..., 0], noise], axis=-1))
    signal_penalty, noise_penalty = fit.info["penalty"]
    assert signal_penalty < 1e-3 < noise_penalty


def test_more_features_than_draws():
    samples = bent_mixture(8, 4, 20, 20)
    f = samples.draws[..., 0] + 0.1 * np.random.default_rng(9).normal(size=(4, 20))
    fitted = scv.Polynomial(2).fit(samples, f)
    fresh = bent_mixture(10, 1, 5000, 20)
    assert np.var(fresh.draws[..., 0] + fitted(fresh)[..., 0]) < 0.95 * np.var(fresh.draws[..., 0])
    assert fitted.info["features"] == 230


@pytest.mark.parametrize("dim", [6, 7, 8, 12])
def test_the_penalty_is_not_fooled_by_interpolation(dim):
    """27, 35, 44 and 90 features of 36 draws: a fit through every draw leaves no residual and says nothing.

    Noise must not be fitted: on fresh draws g adds less than half the variance of f.
    """
    noise = np.random.default_rng(13).normal(size=(1, 36, 5))
    x = np.random.default_rng(14).normal(size=(1, 36, dim))
    fitted = scv.Polynomial(2).fit(scv.Samples(x, -x), noise)
    fresh = np.random.default_rng(15).normal(size=(1, 5000, dim))
    assert np.median(fitted(scv.Samples(fresh, -fresh)).var(axis=(0, 1))) < 0.5


def test_many_outputs_are_as_many_single_ones():
    samples = bent_mixture(11, 4, 60, 3)
    values = np.stack(
        [np.sin(samples.draws[..., 0]), samples.draws[..., 1] ** 3, np.tanh(samples.draws[..., 2])], axis=-1
    )
    together = scv.Polynomial(2).fit(samples, values)(samples)
    alone = [scv.Polynomial(2).fit(samples, values[..., k])(samples) for k in range(3)]
    np.testing.assert_allclose(together, np.concatenate(alone, axis=-1), rtol=1e-9, atol=1e-11)


def test_memory_is_predicted(monkeypatch):
    monkeypatch.setattr("steincv.runtime.validation.available_memory", lambda: 10_000_000)
    samples = bent_mixture(12, 1, 2000, 10)
    with pytest.raises(scv.InputError, match=r"has 285 features and needs about .* GiB .* Use degree=2 or fewer draws"):
        scv.Polynomial(3).fit(samples, samples.draws[..., 0])


@pytest.mark.parametrize("dim", [1, 4, 17])
def test_quadratics_without_a_table_are_the_same_combinations(dim):
    rng = np.random.default_rng(0)
    z, s = rng.normal(size=(2, 3001, dim))
    coefficients = rng.normal(size=(feature_count(dim, 2), 3))
    expected = stein_features(z, s, 2) @ coefficients
    np.testing.assert_allclose(quadratic_form(coefficients, dim)(z, s), expected, rtol=1e-11, atol=1e-11)


def test_rotations_make_any_linear_field():
    """g of Phi = A z for a matrix A without symmetry is a combination of the features, and has their bilinear form."""
    rng = np.random.default_rng(7)
    z, s = rng.normal(size=(2, 50, 3))
    matrix = rng.normal(size=(3, 3))
    g = np.trace(matrix) + np.einsum("ni,ij,nj->n", s, matrix, z)
    table = scv.Polynomial(2, rotations=True)._table(z, s, 1)
    coefficients, *_ = np.linalg.lstsq(table, g, rcond=None)
    np.testing.assert_allclose(table @ coefficients, g, atol=1e-10)
    gradients, *_ = np.linalg.lstsq(table[:, :9], g, rcond=None)
    assert np.abs(table[:, :9] @ gradients - g).max() > 0.1
    np.testing.assert_allclose(quadratic_form(coefficients[:, None], 3)(z, s)[:, 0], g, atol=1e-10)


def test_rotations_are_nothing_on_a_gaussian_and_exact_where_a_banana_bends():
    """With x1 = w + x0^2 / 2 the scores say x0 = -s0 - x0 s1: the field (1, x0) is linear, and no gradient."""
    z = np.random.default_rng(8).normal(size=(4, 500, 2))
    assert np.abs(rotations(z[0], -z[0])).max() < 1e-12
    x = np.stack([z[..., 0], z[..., 1] + 0.5 * z[..., 0] ** 2], axis=-1)
    banana = scv.Samples(x, np.stack([-x[..., 0] + x[..., 0] * z[..., 1], -z[..., 1]], axis=-1))
    plain, turning = (
        scv.estimate(banana, x[..., 0], scv.Polynomial(2, rotations=turns)).variance_ratio for turns in (False, True)
    )
    assert plain > 0.2
    assert turning < 1e-12


def test_rotations_are_no_diffusion():
    with pytest.raises(InputError, match="leave `rotations` out"):
        scv.Polynomial(objective="diffusion", rotations=True)
