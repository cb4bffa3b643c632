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
            assert exact.dtype == np.float64 and np.all(np.isfinite(exact))
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
    assert posterior.name == name and len(set(posterior.names)) == posterior.dim
    assert 10 <= len(posterior.labels) <= 16
    x = np.zeros(posterior.dim) if posterior.start is None else posterior.start
    with jax.enable_x64(True):
        found = posterior.functionals(jnp.asarray(x))
        assert all(value.shape == () and np.isfinite(value) for value in found.values())


@pytest.mark.parametrize("name", ["random_effects", "counties"])
def test_two_versions_are_one_posterior(name):
    """log p(centred) + log |d centred / d noncentred| = log p(noncentred) up to one constant."""
    centred, other = make(f"{name}_centred"), make(f"{name}_noncentred")
    effects = np.array([label.startswith("b[") for label in other.names])
    rng = np.random.default_rng(1)
    differences = []
    with jax.enable_x64(True):
        for _ in range(3):
            z = 0.5 * rng.normal(size=other.dim)
            log_tau = z[other.names.index("log_tau")]
            origin = {label: float(v) for label, v in other.functionals(jnp.asarray(np.where(effects, 0.0, z))).items()}
            values = {label: float(v) for label, v in other.functionals(jnp.asarray(z)).items()}
            label, k = ("b[0]", 0) if name == "random_effects" else ("b[40]", 40)
            at = other.names.index(f"b[{k}]")
            np.testing.assert_allclose(values[label] - origin[label], np.exp(log_tau) * z[at])
            means = _means(name, z, other)
            x = np.where(effects, 0.0, z)
            x[effects] = means + np.exp(log_tau) * z[effects]
            jacobian = effects.sum() * log_tau
            differences.append(float(centred.logdensity(x)) + jacobian - float(other.logdensity(z)))
    np.testing.assert_allclose(differences, differences[0], rtol=1e-10, atol=1e-10)


def _means(name, z, posterior):
    """The effects' means, from the same seeds as the model's data."""
    if name == "random_effects":
        return z[posterior.names.index("mu")]
    rng = np.random.default_rng(103)
    rng.geometric(0.2, size=85)
    return z[0] + z[1] * rng.normal(size=85)
