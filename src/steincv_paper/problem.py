"""The paper's synthetic integral: f = scale sin(pi/D sum x) under 0.5 N(-1, I) + 0.5 N(1, I), whose mean is 0."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from steincv.samples.samples import Samples


def mixture(n: int, dim: int, *seed: int) -> Samples:
    """Return exact, independent draws and their scores."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dim)) + rng.choice([-1.0, 1.0], size=(n, 1))
    return Samples(x, np.tanh(x.sum(-1, keepdims=True)) - x)


def sine(samples: Samples, scale: float = 1.0) -> Float[np.ndarray, "chain draw"]:
    return scale * np.sin(np.pi / samples.dim * samples.draws.sum(-1))


def sine_deviation(dim: int, scale: float = 1.0) -> float:
    r"""Return the exact deviation of f: $\pi/D \sum x$ is $N(\pm\pi, \pi^2/D)$, and $\sin^2 t = (1 - \cos 2t)/2$."""
    return float(scale * np.sqrt((1 - np.exp(-2 * np.pi**2 / dim)) / 2))


def split(samples: Samples, sizes: Sequence[int]) -> list[Samples]:
    """Cut draws into test sets of those sizes, one after the other."""
    ends = np.cumsum(sizes)
    return [samples.select(np.arange(1), np.arange(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
