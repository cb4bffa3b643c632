"""Log weights of draws from another distribution, checked."""

from typing import Any

import numpy as np
from jaxtyping import Float

from ..runtime.validation import InputError

# Kish's effective number of draws, below which there is nothing to make an error bar of: as many as a chain must have.
FEWEST = 4.0


def checked_log_weights(given: Any, shape: tuple[int, int]) -> Float[np.ndarray, "chain draw"] | None:
    """Return log weights `(chain, draw)`, or None where all are the same; minus infinity is a weight of zero."""
    try:
        array = np.array(given)
    except ValueError as error:
        raise InputError(f"`log_weights` cannot be read as real numbers: {error}") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"`log_weights` cannot be read as real numbers: they have dtype {array.dtype}.")
    array = array.astype(np.float64)
    if shape[0] == 1 and array.shape == shape[1:]:
        array = array[None]
    if array.shape != shape:
        raise InputError(f"`log_weights` has shape {array.shape}, expected {shape}: one number for every draw.")
    bad = np.isnan(array) | np.isposinf(array)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"`log_weights` holds {int(bad.sum())} entries that are NaN or infinite of {array.size}; the first is "
            f"{array[first]} at index {first}. A draw without weight has minus infinity."
        )
    if np.isneginf(array).all():
        raise InputError(f"`log_weights` is minus infinity at all {array.size} draws: no draw has any weight.")
    if (array == array.flat[0]).all():
        return None
    weight = np.exp(array - array.max())
    if (left := float(weight.sum() ** 2 / (weight**2).sum())) < FEWEST:
        chain, draw = (int(i) for i in np.unravel_index(np.argmax(array), shape))
        raise InputError(
            f"`log_weights` give draw {draw} of chain {chain} {weight.max() / weight.sum():.2%} of all the weight: "
            f"{array.size} draws count as {left:.1f}, too few for an error bar. Use a proposal closer to the density, "
            f"or temperatures between the two."
        )
    return array
