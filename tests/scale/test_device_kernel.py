"""The kernel fit as it runs on an accelerator, here on the CPU: the same numbers as the one in NumPy."""

import numpy as np
import pytest

import steincv as scv
from steincv.families.kernel import device as device, kernel as kernel_family
from steincv.families.kernel.control_functional import JITTER, control_functional
from steincv.families.kernel.device import control_functional_on_device, stein_matrix
from steincv.families.kernel.stein_kernels import KERNELS, SteinKernel


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_the_matrix(name, order):
    import jax

    x = np.random.default_rng(0).normal(size=(30, 3))
    s = -x + 0.3 * np.sin(x)
    kernel = SteinKernel(name, 1.7, order)
    with jax.enable_x64(True):
        found = np.asarray(stein_matrix(kernel, jax.numpy.asarray(x), jax.numpy.asarray(s)))
    expected = kernel.gram(x, s)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize("features", [0, 3])
def test_the_fit(features):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    f, P, penalty = np.sin(x[:, :2]), -x[:, :features], 1e-4 / rng.integers(1, 4, size=60)
    kernel = SteinKernel("gaussian", 2.0)
    K0 = kernel.gram(x, -x)
    expected = control_functional(K0, f, P, (penalty + JITTER) * K0.diagonal().mean())
    found = control_functional_on_device(kernel, x, -x, f, P, penalty)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-8)


def test_the_family_uses_it(monkeypatch):
    """Where there is an accelerator and the draws are many; here neither, so both are claimed."""
    x = np.random.default_rng(0).normal(size=(4, 30, 2))
    samples, f = scv.Samples(x, -x), np.tanh(x)
    expected = scv.Kernel(lengthscale=2.0).fit(samples, f)(samples)
    calls = []

    def on_device(*arguments):
        calls.append(len(arguments[1]))
        return control_functional_on_device(*arguments)

    monkeypatch.setattr(kernel_family, "SEARCH", kernel_family.SEARCH._replace(device=10))
    monkeypatch.setattr(device, "accelerator", lambda: True)
    monkeypatch.setattr(device, "control_functional_on_device", on_device)
    found = scv.Kernel(lengthscale=2.0).fit(samples, f)(samples)
    assert calls
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
