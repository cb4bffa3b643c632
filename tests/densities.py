"""Densities with scores and exact draws, for the tests: not one of them Gaussian unless it says so."""

import numpy as np

from steincv import Samples


def mixture_score(x):
    """The score of 0.6 N(-1, 0.8^2) + 0.4 N(1.5, 0.6^2), coordinate by coordinate."""
    a, b = _normal(x, -1, 0.8) * 0.6, _normal(x, 1.5, 0.6) * 0.4
    return (-(x + 1) / 0.64 * a - (x - 1.5) / 0.36 * b) / (a + b)


def mixture_density(x):
    return 0.6 * _normal(x, -1, 0.8) + 0.4 * _normal(x, 1.5, 0.6)


def mixture_draws(rng, shape):
    left = rng.random(shape) < 0.6
    return np.where(left, -1 + 0.8 * rng.normal(size=shape), 1.5 + 0.6 * rng.normal(size=shape))


def _normal(x, mean, sd):
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))


BEND = 0.3


def bent(u):
    """x from u: every odd coordinate is moved by the square of the one before it. The Jacobian is one."""
    x = u.copy()
    x[..., 1::2] += BEND * u[..., : u.shape[-1] // 2 * 2 : 2] ** 2
    return x


def straight(x):
    """The inverse of `bent`."""
    u = x.copy()
    u[..., 1::2] -= BEND * x[..., : x.shape[-1] // 2 * 2 : 2] ** 2
    return u


def bent_mixture_score(x):
    """The score of x = bent(u) with u a mixture: s_x = J^-T s_u."""
    u = straight(x)
    s = mixture_score(u)
    even = slice(0, x.shape[-1] // 2 * 2, 2)
    s[..., even] -= 2 * BEND * u[..., even] * s[..., 1::2]
    return s


def bent_mixture(seed, *shape):
    """Exact draws of a banana with two humps in every direction, as Samples."""
    x = bent(mixture_draws(np.random.default_rng(seed), shape))
    return Samples(x, bent_mixture_score(x))


def gaussian(seed, *shape):
    """Exact draws of a Gaussian with correlations up to 0.9 and scales from 0.1 to 10."""
    rng = np.random.default_rng(seed)
    dim = shape[-1]
    scale = np.logspace(-1, 1, dim)
    covariance = (0.9 ** np.abs(np.subtract.outer(np.arange(dim), np.arange(dim)))) * np.outer(scale, scale)
    x = 3 + rng.normal(size=shape) @ np.linalg.cholesky(covariance).T
    return Samples(x, -(x - 3) @ np.linalg.inv(covariance)), covariance
