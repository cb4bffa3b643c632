"""Kernel control functionals: an independent oracle, automatic differentiation, exact answers."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steincv.families.kernel.control_functional import NormalEquations, control_functional, factorise
from steincv.families.kernel.kernel import Kernel, _valley
from steincv.families.kernel.stein_kernels import KERNELS, SteinKernel, radial
from steincv.families.polynomial.polynomial import stein_features
from steincv.runtime.validation import InputError
from steincv.samples.samples import Samples

ORACLE = json.loads((pathlib.Path(__file__).parent / "reference" / "zvcv_south.json").read_text())
ORACLE_NAMES = {"gaussian": "gaussian", "rational quadratic": "RQ", "matern": "matern"}
EVERY = pytest.mark.parametrize(("kernel", "order"), [(k, o) for k in KERNELS for o in (1, 2)])


def oracle(name):
    shape = {"draws": (200, 4), "scores": (200, 4), "values": (200, 3)}.get(name, (-1,))
    return np.array(ORACLE[name]).reshape(shape)


def gaussian_samples(seed, *shape):
    x = np.random.default_rng(seed).normal(size=shape)
    return x, Samples(x, -x)


# --- the kernels ---------------------------------------------------------------------------------


@EVERY
def test_stein_kernel_matches_the_oracle(kernel, order):
    x, s = oracle("draws")[:12], oracle("scores")[:12]
    expected = oracle(f"stein_kernel_{ORACLE_NAMES[kernel]}_order_{order}_first_12").reshape(12, 12)
    # The oracle's own Matern carries rounding from its Bessel functions, 3e-10 in matrices with entries up to 12: it
    # differs by as much from automatic differentiation, with which ours agrees to 1e-13 (below).
    tolerance = (1e-10 if kernel == "matern" else 1e-14) * np.abs(expected).max()
    stein = SteinKernel(kernel, 2.0, order)
    np.testing.assert_allclose(stein(x, s, x, s), expected, atol=tolerance, rtol=0)
    np.testing.assert_allclose(stein.gram(x, s), expected, atol=tolerance, rtol=0)


@EVERY
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_means_match_the_oracle(kernel, order, degree):
    x, s, f = oracle("draws"), oracle("scores"), oracle("values")
    name = ("cf" if degree == 0 else f"secf_poly_{degree}") + f"_{ORACLE_NAMES[kernel]}_order_{order}"
    P = stein_features(x, s, degree) if degree else None
    fit = control_functional(SteinKernel(kernel, 2.0, order).gram(x, s), f, P)
    np.testing.assert_allclose(fit.mean, oracle(name), rtol=1e-6)


def base_kernel(kernel, order, lengthscale):
    def k(x, y):
        u = ((x - y) ** 2).sum()
        if kernel == "gaussian":
            return jnp.exp(-u / lengthscale**2)
        if kernel == "rational quadratic":
            return 1 / (1 + u / lengthscale**2)
        t = jnp.sqrt((5 if order == 1 else 9) * u) / lengthscale
        if order == 1:
            return (1 + t + t**2 / 3) * jnp.exp(-t)
        return (1 + t + 3 * t**2 / 7 + 2 * t**3 / 21 + t**4 / 105) * jnp.exp(-t)

    return k


def stein_by_autodiff(k, order, x, s, y, t):
    if order == 1:
        mixed = jnp.trace(jax.jacfwd(jax.grad(k, 0), 1)(x, y))
        return mixed + s @ jax.grad(k, 1)(x, y) + t @ jax.grad(k, 0)(x, y) + s @ t * k(x, y)

    def langevin(h, at, score):
        return jnp.trace(jax.jacfwd(jax.jacrev(h))(at)) + score @ jax.grad(h)(at)

    return langevin(lambda a: langevin(lambda b: k(a, b), y, t), x, s)


@EVERY
def test_stein_kernel_is_the_operator_on_both_sides(kernel, order):
    rng = np.random.default_rng(0)
    x, s, y, t = rng.normal(size=(4, 5, 3))
    with jax.enable_x64(True):
        one = jax.jit(lambda *a: stein_by_autodiff(base_kernel(kernel, order, 1.3), order, *a))
        every = jax.vmap(jax.vmap(one, (None, None, 0, 0)), (0, 0, None, None))
        expected = np.asarray(every(*map(jnp.asarray, (x, s, y, t))))
    np.testing.assert_allclose(SteinKernel(kernel, 1.3, order)(x, s, y, t), expected, atol=1e-12, rtol=1e-12)


@EVERY
def test_coinciding_points_are_the_limit_of_near_ones(kernel, order):
    """Also where automatic differentiation has 0/0: the Matern at r = 0."""
    rng = np.random.default_rng(1)
    x, s, t = rng.normal(size=(3, 1, 3))
    stein = SteinKernel(kernel, 1.3, order)
    at = stein(x, s, x, t)
    assert np.isfinite(at).all()
    errors = [abs(stein(x, s, x + h * np.ones_like(x), t) - at).item() for h in (1e-4, 1e-5, 1e-6)]
    assert errors[1] < 0.2 * errors[0]
    assert errors[2] < 0.2 * errors[1]
    direct = sum(
        radial(kernel, np.zeros((1, 1)), 1.3, order)[k] * c
        for k, c in (((0, s @ t.T), (1, -6.0)) if order == 1 else ((1, -2 * s @ t.T), (2, 60.0)))
    )
    np.testing.assert_allclose(at, direct, rtol=1e-10)


@EVERY
def test_radial_derivatives_are_derivatives(kernel, order):
    u, h = np.array([[0.3, 1.0, 4.0]]), 1e-5
    at, above, below = (radial(kernel, v, 0.8, order) for v in (u, u + h, u - h))
    assert radial(kernel, np.zeros((1, 1)), 0.8, order)[0] == pytest.approx(1.0)
    for k in range(2 * order):
        np.testing.assert_allclose(at[k + 1], (above[k] - below[k]) / (2 * h), rtol=1e-7)


@EVERY
def test_mean_zero_for_any_alpha(kernel, order):
    """Quadrature over a mixture of two Gaussians in one dimension."""
    grid = np.linspace(-12, 12, 24001)[:, None]
    weights = np.exp(-((grid - 1) ** 2) / 2) + np.exp(-((grid + 1.5) ** 2))
    score = (-(grid - 1) * np.exp(-((grid - 1) ** 2) / 2) - 2 * (grid + 1.5) * np.exp(-((grid + 1.5) ** 2))) / weights
    rng = np.random.default_rng(2)
    y, t, alpha = rng.normal(size=(3, 20, 1))
    g = SteinKernel(kernel, 0.7, order).times(grid, score, y, t, alpha)
    # The Matern has a kink in its last derivative, which the rule sees to second order.
    assert abs((weights * g).sum()) < 1e-5 * (weights * abs(g)).sum()


def test_tiles_make_no_difference():
    rng = np.random.default_rng(3)
    x, s = rng.normal(size=(2, 600, 3))
    stein = SteinKernel("gaussian", 2.0, 1)
    whole = stein.gram(x, s)
    np.testing.assert_allclose(whole, whole.T, atol=1e-13)
    np.testing.assert_allclose(stein(x, s, x[::7], s[::7]), whole[:, ::7], atol=1e-12)
    alpha = rng.normal(size=(600, 2))
    np.testing.assert_allclose(stein.times(x, s, x, s, alpha), whole @ alpha, atol=1e-10)


# --- the linear algebra --------------------------------------------------------------------------


def test_a_singular_matrix_gets_jitter_and_keeps_its_other_entries():
    a = np.random.default_rng(4).normal(size=(30, 3))
    matrix = a @ a.T
    L = factorise(matrix.copy(), 0.0)
    lower = np.tril(L)
    np.testing.assert_allclose(lower @ lower.T, matrix, atol=1e-6)


def test_what_cannot_be_factorised_is_refused_with_numbers():
    with pytest.raises(InputError, match="not positive definite even with 1e-01"):
        factorise(np.array([[1.0, 5.0], [5.0, 1.0]]), 0.0)
    with pytest.raises(InputError, match="overflows"):
        factorise(np.array([[np.inf, 0.0], [0.0, 1.0]]), 0.0)


# --- the family ----------------------------------------------------------------------------------


@EVERY
def test_gains_on_fresh_draws(kernel, order):
    x, samples = gaussian_samples(5, 4, 150, 2)
    fresh, fresh_samples = gaussian_samples(6, 1, 1000, 2)

    def f(x):
        return np.sin(x[..., 0]) + x[..., 1] ** 2

    fitted = Kernel(kernel, order=order).fit(samples, f(x))
    assert np.var(f(fresh) + fitted(fresh_samples)[..., 0]) < 0.05 * np.var(f(fresh))


@pytest.mark.parametrize("landmarks", [None, 40])
@pytest.mark.parametrize("degree", [1, 2])
def test_semi_exact_is_exact_for_polynomials(degree, landmarks):
    def f(x):
        linear = x[..., 0] + 2 * x[..., 1] + 3
        return linear if degree == 1 else linear + x[..., 0] * x[..., 2] + x[..., 1] ** 2

    x, samples = gaussian_samples(7, 2, 100, 3)
    fresh, fresh_samples = gaussian_samples(8, 1, 50, 3)
    fitted = Kernel(degree=degree, landmarks=landmarks).fit(samples, f(x))
    truth, tolerance = 3 + (degree == 2), 1e-6 if landmarks else 1e-9
    np.testing.assert_allclose(f(x) + fitted(samples)[..., 0], truth, atol=tolerance)
    np.testing.assert_allclose(f(fresh) + fitted(fresh_samples)[..., 0], truth, atol=tolerance)


@pytest.mark.parametrize("landmarks", [None, 50])
def test_many_outputs_are_as_many_single_ones(landmarks):
    x, samples = gaussian_samples(9, 2, 120, 2)
    values = np.stack([np.sin(x[..., 0]), x[..., 0] * x[..., 1], np.exp(x[..., 1])], axis=-1)
    method = Kernel(lengthscale=2.0, landmarks=landmarks)
    together = method.fit(samples, values)
    alone = [method.fit(samples, values[..., i]) for i in range(3)]
    assert together.info["penalty"] == [a.info["penalty"][0] for a in alone]
    separate = np.concatenate([a(samples) for a in alone], axis=-1)
    np.testing.assert_allclose(together(samples), separate, atol=1e-6)


@pytest.mark.parametrize("landmarks", [None, 200])
def test_a_wave_keeps_its_own_length_scale_beside_smooth_outputs(landmarks):
    def chains(seed, *shape):
        w = np.random.default_rng(seed).normal(size=(*shape, 2))
        a, b = w[..., 0], 0.5 * w[..., 0] ** 2 + 0.5 * w[..., 1]  # a banana
        rest = 4 * (b - 0.5 * a**2)
        samples = Samples(np.stack([a, b], -1), np.stack([-a + rest * a, -rest], -1))
        return samples, np.stack([a, b, a**2, np.sin(a + b)], -1)

    method = Kernel("rational quadratic", degree=2, landmarks=landmarks)
    (samples, f), (fresh, at) = chains(3, 3, 100), chains(4, 1, 2000)
    alone = (at[..., 3:] + method.fit(samples, f[..., 3:])(fresh)).var()
    together = (at + method.fit(samples, f)(fresh))[..., 3].var()
    assert together < 1.5 * alone


@pytest.mark.parametrize("kernel", KERNELS)
def test_repeated_draws_are_weights(kernel):
    """A chain with rejections: finite with no penalty, and with one equal to keeping every copy."""
    rng = np.random.default_rng(10)
    x = rng.normal(size=(60, 2))[np.sort(rng.integers(0, 60, size=200))]
    f = np.sin(x[:, 0]) + x[:, 1]
    samples = Samples(x, -x)
    assert np.isfinite(Kernel(kernel, penalty=0.0).fit(samples, f)(samples)).all()
    assert np.isfinite(Kernel(kernel).fit(samples, f)(samples)).all()
    fitted = Kernel(kernel, lengthscale=1.5, penalty=1e-2).fit(samples, f)
    z, s = fitted.standardise(samples)
    stein = SteinKernel(kernel, 1.5)
    distinct = np.unique(np.hstack([z, s]), axis=0)
    nugget = 1e-2 * stein.gram(distinct[:, :2], distinct[:, 2:]).diagonal().mean()
    K0 = stein.gram(z, s)
    every = control_functional(K0, f[:, None], None, nugget)
    np.testing.assert_allclose(fitted(samples)[0], -(K0 @ every.alpha), atol=1e-6)
    assert fitted.info["distinct_draws"] < 61


def test_copies_of_one_chain_and_very_few_draws():
    x, _ = gaussian_samples(11, 1, 50, 2)
    copies = np.repeat(x, 4, axis=0)
    assert np.isfinite(Kernel().fit(Samples(copies, -copies), copies[..., 0])(Samples(copies, -copies))).all()
    few = x[:, :4]
    assert np.isfinite(Kernel().fit(Samples(few, -few), few[..., 0])(Samples(few, -few))).all()


@pytest.mark.parametrize("method", [Kernel(), Kernel(landmarks=50), Kernel(degree=1)])
def test_shrinks_to_nothing_where_nothing_helps(method):
    """Values that have nothing to do with the draws: no harm on fresh ones."""
    _, samples = gaussian_samples(12, 2, 150, 4)
    noise = np.random.default_rng(13).normal(size=(2, 150, 8))
    _, fresh = gaussian_samples(14, 1, 2000, 4)
    assert np.var(method.fit(samples, noise)(fresh)) < 0.05


def test_constant_values_give_nothing():
    _, samples = gaussian_samples(15, 2, 50, 2)
    assert not Kernel().fit(samples, np.ones((2, 50)))(samples).any()


def test_landmarks_approach_the_whole_kernel():
    x, samples = gaussian_samples(16, 1, 400, 2)
    f = np.sin(x[..., 0]) * x[..., 1]
    whole = Kernel(lengthscale=3.0, penalty=1e-4).fit(samples, f)(samples)
    some = Kernel(lengthscale=3.0, penalty=1e-4, landmarks=150).fit(samples, f)(samples)
    every = Kernel(lengthscale=3.0, penalty=1e-4, landmarks=400).fit(samples, f)(samples)
    np.testing.assert_array_equal(every, whole)
    assert np.abs(some - whole).max() < 0.02


def test_landmarks_on_many_draws():
    x, samples = gaussian_samples(17, 4, 5000, 5)
    f = np.sin(x[..., 0]) + x[..., 1] * x[..., 2]
    method = Kernel(landmarks=100)
    fitted = method.fit(samples, f, seed=3)
    g = fitted(samples)
    assert np.var(f + g[..., 0]) < 0.3 * np.var(f)
    np.testing.assert_array_equal(g, method.fit(samples, f, seed=3)(samples))
    assert fitted.info["landmarks"] == 100


def test_normal_equations_are_those_of_the_folds():
    """The out-of-fold variance from sums is the one from predictions."""
    rng = np.random.default_rng(19)
    psi, f, fold = (
        np.hstack([np.ones((80, 1)), rng.normal(size=(80, 5))]),
        rng.normal(size=(80, 2)),
        np.arange(80) // 20,
    )
    sums = NormalEquations.of(((i, psi[fold == i], f[fold == i]) for i in range(4)), 4, 6, 2)
    ridge = np.r_[0.0, np.full(5, 0.7)]
    controlled = f.copy()
    for i in range(4):
        a, b = psi[fold != i], f[fold != i]
        controlled[fold == i] -= psi[fold == i, 1:] @ np.linalg.solve(a.T @ a + np.diag(ridge), a.T @ b)[1:]
    np.testing.assert_allclose(sums.out_of_fold()(ridge, slice(None)), controlled.var(axis=0), rtol=1e-8)


def test_penalties_are_looked_for_around_each_least_error():
    """Three outputs with valleys in three places: all are found, and what lies well beyond them is not asked for."""
    valleys = np.array([2, 3, 5])
    asked = []

    def error(k, outputs):
        asked.append(k)
        return np.abs(k - valleys[outputs]) + 1.0

    errors = _valley(error, 9, 3)
    np.testing.assert_array_equal(errors.argmin(axis=0), valleys)
    assert sorted(asked) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [np.flatnonzero(np.isfinite(one)).tolist() for one in errors.T] == [
        [0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7],
    ]  # fmt: skip


def test_a_valley_behind_a_small_rise_is_found():
    """As of GARCH in log parameters: thirty times less is left behind a rise by a third."""
    known = np.array([[0.45, 0.14, 0.02, 0.008, 6e-5, 8e-5, 3e-6], [3e-6, 8e-5, 6e-5, 0.008, 0.02, 0.14, 0.45]]).T
    errors = _valley(lambda k, outputs: known[k, outputs], 7, 2)
    np.testing.assert_array_equal(errors.argmin(axis=0), [6, 0])
    alike = np.array([[0.29, 0.1, 0.05, 0.016, 0.0043, 0.0067, 0.0035]]).T
    assert _valley(lambda k, outputs: alike[k, outputs], 7, 1).argmin() == 4


def test_huge_scores_are_refused_not_returned_as_nan():
    x, _ = gaussian_samples(20, 1, 50, 2)
    scores = -x.copy()
    scores[0, 7] = 1e200
    with pytest.raises(InputError, match="overflows"):
        Kernel(lengthscale=1.0, penalty=0.0).fit(Samples(x, scores), x[..., 0])


def test_memory_is_predicted(monkeypatch):
    monkeypatch.setattr("steincv.runtime.validation.available_memory", lambda: 10_000_000)
    _, samples = gaussian_samples(21, 1, 2000, 2)
    with pytest.raises(InputError, match=r"Use Kernel\(landmarks=1000\)"):
        Kernel().fit(samples, np.ones((1, 2000)))


def test_too_many_features_are_refused():
    x, samples = gaussian_samples(22, 1, 30, 7)
    with pytest.raises(InputError, match="35 polynomial features in 7 dimensions"):
        Kernel(degree=2).fit(samples, x[..., 0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kernel": "cubic"}, "The 'kernel' parameter of Kernel must be one of 'gaussian'"),
        ({"lengthscale": 0}, "must be 'auto' or a positive number. Got 0 instead."),
        ({"lengthscale": float("nan")}, "must be 'auto' or a positive number. Got nan instead."),
        ({"degree": -1}, "must be a whole number of at least 0. Got -1 instead."),
        ({"landmarks": 0}, "must be None or a whole number of at least 1. Got 0 instead."),
        ({"order": 3}, "must be 1 or 2. Got 3 instead."),
        ({"penalty": -1.0}, r"must be 'auto' or a number in \[0, inf\). Got -1.0 instead."),
        ({"penalty": True}, r"must be 'auto' or a number in \[0, inf\). Got True instead."),
    ],
)
def test_fields_are_checked(fields, message):
    with pytest.raises(InputError, match=message):
        Kernel(**fields)
