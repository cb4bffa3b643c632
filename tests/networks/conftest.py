"""Small networks and exact or made-up draws, shared by the tests."""

import numpy as np
import pytest

from steincv.networks import Regressor
from steincv_paper.classifier import Classifier


@pytest.fixture
def regressor() -> Regressor:
    """Arrays of its own for every test: JAX keeps an array in the precision that it was last used in."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 2))
    return Regressor(x, np.sin(x[:, 0]), noise=0.5, width=3)


@pytest.fixture(scope="session")
def classifier() -> Classifier:
    """Twelve images with a bright upper or lower half."""
    rng = np.random.default_rng(0)
    images = 0.2 * rng.uniform(size=(12, 28, 28))
    labels = np.arange(12) % 2
    images[labels == 1, :14] += 0.7
    images[labels == 0, 14:] += 0.7
    return Classifier(images, labels)
