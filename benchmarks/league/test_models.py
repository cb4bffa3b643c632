"""Every gradient of the league against finite differences, every functional finite and named.

python -m pytest benchmarks/league
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from league.models import MAKERS, make

STEP, TOLERANCE = 1e-3, 1e-6  # the stencil of four points errs by STEP^4 and by rounding over STEP


@pytest.mark.parametrize("name", MAKERS)
def test_gradient(name):
    posterior = make(name)
    rng = np.random.default_rng(0)
    centre = np.zeros(posterior.dim) if posterior.start is None else posterior.start
    with jax.enable_x64(True):
        value, gradient = jax.jit(posterior.logdensity), jax.jit(jax.grad(posterior.logdensity))
        for _ in range(2):
            x = centre + rng.uniform(-0.5, 0.5, size=posterior.dim)
            exact = np.asarray(gradient(x))
            assert exact.dtype == np.float64
            assert np.all(np.isfinite(exact))
            axes = np.eye(posterior.dim)[rng.permutation(posterior.dim)[:30]]
            random = rng.normal(size=(5, posterior.dim)) / np.sqrt(posterior.dim)
            for direction in np.concatenate([axes, random]):
                at = [float(value(x + k * STEP * direction)) for k in (-2, -1, 1, 2)]
                slope = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * STEP)
                scale = 1.0 + np.abs(exact * direction).sum() + 1e-5 * abs(at[0])
                assert abs(slope - exact @ direction) < TOLERANCE * scale, (direction.nonzero(), slope)


@pytest.mark.parametrize("name", MAKERS)
def test_functionals(name):
    posterior = make(name)
    assert posterior.name == name
    assert len(set(posterior.names)) == posterior.dim
    assert 10 <= len(posterior.labels) <= 16
    x = np.zeros(posterior.dim) if posterior.start is None else posterior.start
    with jax.enable_x64(True):
        found = posterior.functionals(jnp.asarray(x))
        assert all(value.shape == () and np.isfinite(value) for value in found.values())


@pytest.mark.parametrize("name", ["seeds_centred", "GLMM1_noncentred"])
def test_two_versions_are_one_posterior(name):
    """log p(x) + log |det dx/dz| = log p(z) up to one constant, x being z in the other coordinates; the same values."""
    mine = make(name)
    other_name, mapped = mine.source
    other = make(other_name)
    rng = np.random.default_rng(1)
    differences = []
    with jax.enable_x64(True):
        for _ in range(3):
            z = jnp.asarray((0.0 if other.start is None else other.start) + 0.3 * rng.normal(size=other.dim))
            jacobian = np.linalg.slogdet(np.asarray(jax.jacobian(mapped)(z)))[1]
            x = mapped(z)
            differences.append(float(mine.logdensity(x) + jacobian - other.logdensity(z)))
            for label, value in mine.functionals(x).items():
                np.testing.assert_allclose(value, other.functionals(z)[label], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(differences, differences[0], rtol=1e-10, atol=1e-7)
