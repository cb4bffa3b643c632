"""Steps: the field that takes the jump out of an indicator has mean zero whatever its parameters, and is exact."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from densities import bent_mixture, bent_mixture_score, mixture_density, mixture_score, straight
from scipy.optimize import brentq
from scipy.special import ndtr

import steincv as scv
from steincv.samples.derivatives import Derivatives
from steincv.stein.bending import Bent, Straight
from steincv.stein.rises import find_place, monotone_in
from steincv.stein.steps import (
    Normal,
    Sides,
    along_coordinate,
    along_line,
    along_one,
    fit_step,
    half_line,
)


def test_the_half_line_solves_its_equation():
    t, q = np.linspace(-8, 8, 161)[:, None], np.linspace(-5.03, 5.01, 10)
    h = 1e-5
    slope = (half_line(t + h, q) - half_line(t - h, q)) / (2 * h)
    np.testing.assert_allclose(slope, t * half_line(t, q) + (t <= q) - ndtr(q), atol=1e-7)


def test_the_half_line_stays_finite_far_out():
    t, q = np.linspace(-1e4, 1e4, 2001)[:, None], np.array([-1e3, -40.0, -3.0, 0.0, 3.0, 40.0, 1e3])
    found = half_line(t, q)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (np.abs(t) * found <= 1).all()


@pytest.mark.parametrize("cut", [-20.0, -8.5, 3.0, 7.5, 8.5, 12.0, 20.0])
def test_a_cut_in_a_far_tail_keeps_its_digits(cut):
    """Of a heavy tail there are draws where a normal distribution function is one to rounding."""
    h = np.linspace(-29, 29, 2001)
    law = Normal(h[:, None], np.zeros((1, 1)), np.ones((1, 1)), (-4 * h / (3 + h**2))[:, None])
    g = Sides.of(Straight(0.0, 1.0), h, law)(np.array([cut]))[0][:, 0]
    upper = np.where(h <= cut, -ndtr(-cut), ndtr(cut))
    expected = upper - half_line(h, np.array(cut)) * law.misfit[:, 0]
    np.testing.assert_allclose(g, expected, rtol=1e-9, atol=1e-13)


def test_g_is_what_the_half_line_leaves_and_its_rate_is_its_slope():
    """Near, far out, and beyond where the factors of the half-line are numbers."""
    u = np.append(np.linspace(-4, 4, 41), [-200.0, -35.0, 33.0, 150.0])[:, None]
    law = Normal(u, np.full((1, 1), 0.2), np.full((1, 1), 0.9), -0.8 * u + 0.1 * np.sin(u))
    straight, cuts = Straight(0.0, 2.0), 2 * np.array([-160.0, -36.03, -2.01, 0.03, 1.01, 36.07])
    at = Sides.of(straight, 2 * u[:, 0], law)
    q = (cuts / 2 - 0.2) / 0.9
    expected = ndtr(q) - (u <= cuts / 2) - half_line(law.t, q) * law.misfit
    np.testing.assert_allclose(at(cuts)[0], expected, atol=1e-12)
    assert np.isfinite(at(cuts, rate=True)[1]).all()
    slope = (at(cuts + 1e-5)[0] - at(cuts - 1e-5)[0]) / 2e-5
    np.testing.assert_allclose(at(cuts, rate=True)[1][:41, 2:5], slope[:41, 2:5], atol=1e-8)


@pytest.mark.parametrize("h", [np.exp, np.arctan, lambda x: x])
def test_transforms_know_their_derivatives(h):
    y = h(np.random.default_rng(0).normal(size=2000))
    at, d = np.linspace(y.min(), y.max(), 50), 1e-5 * y.std()
    for transform in (Straight(1.0, 2.0), Bent.of(y)):
        u, slope, curve = transform(at)
        above, below = transform(at + d), transform(at - d)
        np.testing.assert_allclose((above[0] - below[0]) / (2 * d), slope, rtol=1e-6)
        np.testing.assert_allclose((above[1] - below[1]) / (2 * d), curve * slope, atol=1e-5 * np.abs(slope).max())
        assert (np.diff(u) > 0).all()


# --- mean zero, whatever the parameters --------------------------------------------------------------

NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)


def between(low, high):
    """Points and weights of Gauss's rule."""
    middle, half = (low + high) / 2, (high - low) / 2
    return middle + half * NODES, half * WEIGHTS


def other_parameters(step, rng):
    """The same step with coefficients that have nothing to do with any fit."""
    return replace(step, coefficients=step.coefficients + rng.normal(size=step.coefficients.shape))


def test_mean_zero_by_quadrature_in_one_dimension():
    rng, samples = np.random.default_rng(0), bent_mixture(2, 1, 500, 1)
    x, s = samples.draws[0], samples.scores[0]
    fitted = fit_step(along_coordinate(x, s, 0), x)
    for transform in (fitted.transform, Bent.of(np.sinh(x[:, 0])), Straight(0.3, 0.2)):
        step = replace(other_parameters(fitted, rng), transform=transform)
        for cut in (-1.5, 0.2, 2.0):
            total, size = 0.0, 0.0
            for part in ((-9, cut), (cut, 9)):
                grid, weight = between(*part)
                rise = along_coordinate(grid[:, None], mixture_score(grid[:, None]), 0)
                g = step(rise, grid[:, None], np.array([[cut]]))[:, 0] * weight * mixture_density(grid)
                total, size = total + g.sum(), size + np.abs(g).sum()
            assert abs(total) < 1e-10 * size


def slanted(x, s):
    """The rise of x0 + 0.3 x1^2 + 0.2 x1 along its first coordinate, by hand."""
    gradient = np.stack([np.ones(len(x)), 0.6 * x[:, 1] + 0.2], axis=-1)
    return along_one(x[:, 0] + 0.3 * x[:, 1] ** 2 + 0.2 * x[:, 1], gradient, np.zeros_like(x), s, 0)


def stretched(x, s):
    """The rise of sinh(x0) + 0.2 x1 x0 + 2 x0 along its first coordinate, where x1 > -15."""
    gradient = np.stack([np.cosh(x[:, 0]) + 0.2 * x[:, 1] + 2, 0.2 * x[:, 0]], axis=-1)
    row = np.stack([np.sinh(x[:, 0]), np.full(len(x), 0.2)], axis=-1)
    return along_one(np.sinh(x[:, 0]) + 0.2 * x[:, 1] * x[:, 0] + 2 * x[:, 0], gradient, row, s, 0)


def times(x, s):
    """The rise of x0 x1 along its first coordinate, in units of its slope x1: it is x0."""
    return along_one(x[:, 0], np.eye(2)[[0] * len(x)], np.zeros_like(x), s, 0, fixed=(1,))


def broken(y):
    """Crossings that jump from line to line, as those of an f with jumps do."""
    return np.where(y > 0.3, 1.1 + np.abs(y - 1), -0.4 * y)


def level(y):
    return np.full_like(y, -0.7)


CASES = {
    "coordinate": (lambda x, s: along_coordinate(x, s, 0), lambda y: -0.7, level),
    "a sum": (slanted, lambda y: -0.7 - 0.3 * y**2 - 0.2 * y, level),
    "curved": (stretched, lambda y: brentq(lambda a: np.sinh(a) + 0.2 * y * a + 2 * a + 0.7, -9, 9), level),
    "a product": (times, lambda y: -0.7 / y, lambda y: -0.7 / y),
    "lines": (lambda x, s: along_line(x, s, *np.eye(2)[[0, 0]]), lambda y: float(broken(y)), broken),
}


@pytest.mark.parametrize("name", CASES)
def test_mean_zero_by_quadrature_in_two_dimensions(name):
    """Rows of Gauss's rule, each cut where h jumps; across them the even rule, as accurate as rounding."""
    rise, edge, cut = CASES[name]
    samples = bent_mixture(3, 1, 400, 2)
    x, s = samples.draws[0], samples.scores[0]
    step = other_parameters(fit_step(rise(x, s), x), np.random.default_rng(1))
    rows = np.linspace(-8, 16, 242)  # none of them at zero
    ends = [(float(np.clip(edge(y), -9.0, 9.0)), y) for y in rows]
    parts = [between(*part) for middle, _ in ends for part in ((-9, middle), (middle, 9))]
    grid = np.concatenate([np.stack([p, np.full_like(p, rows[k // 2])], -1) for k, (p, _) in enumerate(parts)])
    density = mixture_density(straight(grid)).prod(axis=-1)
    weight, keep = np.concatenate([w for _, w in parts]) * density, density > 1e-25
    grid, weight = grid[keep], weight[keep]
    g = step(rise(grid, bent_mixture_score(grid)), grid, cut(grid[:, 1:]))[:, 0] * weight
    assert abs(g.sum()) < 1e-10 * np.abs(g).sum()


def values_of(f, x):
    with jax.enable_x64(True):
        return np.array([f(row) for row in x])


def place_of(f, x, s):
    values = values_of(f, x)
    derivatives = Derivatives.of(f, scv.Samples(x, s), x, values[:, None])
    return find_place(0, x, s, values, monotone_in(x, values[:, None])[0], derivatives), derivatives


FUNCTIONS = {
    "a sum": lambda x: x[0] + 0.3 * x[1] ** 2,
    "with a scale": lambda x: (x[0] + 2 * x[2]) * jnp.exp(0.3 * x[1]),
    "products": lambda x: x[0] * x[1] + x[2],
    "curved": lambda x: jnp.sinh(x[0]) + 2 * x[0] + 0.2 * jnp.sin(x[1]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_g_is_the_divergence_of_a_field_plus_the_field_times_the_score(name):
    """As in test_laws.py: at a fixed point g is affine in the score, and its value at score zero is the divergence."""
    f = FUNCTIONS[name]
    samples = bent_mixture(0, 1, 300, 3)
    x, scale = samples.draws[0], samples.draws[0].std(axis=0)
    place, known = place_of(f, x, samples.scores[0])
    step = other_parameters(fit_step(place.rise, x), np.random.default_rng(2))
    values = values_of(f, x)
    cut = np.array([float(np.median(values))])
    at = x[np.abs(values - cut) > 0.1][:20]
    (i,) = place.rise.moved
    assert place.how == "gradient"

    def g(points, score):
        derivatives = replace(known, points=points)
        h, gradient = values_of(f, points), derivatives.gradient(0)
        row = derivatives.turned(0, np.broadcast_to(np.eye(3)[i], points.shape))
        slope = np.ones(len(points))
        if place.slope is not None:
            slope, row = gradient[:, i], 0 * row
        rise = along_one(h / slope, gradient / slope[:, None], row, score, i, place.rise.fixed)
        return step(rise, points, cut / slope[:, None])[:, 0]

    def field(points):
        units = [np.broadcast_to(e, points.shape) for e in np.eye(3)]
        return np.stack([g(points, e) - g(points, 0 * points) for e in units], axis=-1)

    divergence, phi, score = g(at, 0 * at), field(at), np.random.default_rng(3).normal(size=at.shape)
    size = np.abs(divergence).max() + np.abs(phi).max()
    np.testing.assert_allclose(g(at, score) / size, (divergence + (phi * score).sum(-1)) / size, atol=1e-12)
    h = 1e-5 * scale
    by_differences = sum((field(at + e)[:, i] - field(at - e)[:, i]) / (2 * h[i]) for i, e in enumerate(np.diag(h)))
    np.testing.assert_allclose(divergence / size, by_differences / size, atol=1e-6)
