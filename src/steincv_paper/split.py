"""Draws to fit on, and draws to judge by."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from steincv.samples.samples import Samples


@dataclass(frozen=True, eq=False)
class Split:
    """Both kinds of draws, chains side by side, with the values of f."""

    train: Samples
    f_train: Float[np.ndarray, "chain train *out"]
    test: Samples
    f_test: Float[np.ndarray, "chain test *out"]

    @classmethod
    def of(cls, samples: Samples, f: np.ndarray, how: str, seed: int, size: int | None = None) -> "Split":
        """Split in halves by `how`, and fit on `size` evenly spaced draws of the first, if given, else on all.

        "random" draws; "time" or "blocks", the earlier and the later half of every chain; or "chains".
        """
        x, s = samples.draws, samples.scores
        if how == "random":
            order = np.random.default_rng(seed).permutation(samples.size)
            x, s, f = (a.reshape(1, samples.size, *a.shape[2:])[:, order] for a in (x, s, f))
        axis = 0 if how == "chains" else 1
        half = x.shape[axis] // 2
        count = half if size is None else max(size // len(x), 1)
        first = np.linspace(0, half - 1, count).round().astype(int)

        def part(which: np.ndarray) -> tuple[Samples, np.ndarray]:
            return Samples(x.take(which, axis), s.take(which, axis), samples.names), f.take(which, axis)

        return cls(*part(first), *part(np.arange(half, x.shape[axis])))
