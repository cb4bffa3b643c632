"""What is said of input that cannot be used, and checks that every room needs."""

import numpy as np


class InputError(ValueError):
    """What was given cannot be used; the message says which array, where, and how to mend it."""


def whole_number(name: str, value: object, low: int) -> int:
    """`value` as an int of at least `low`, or an `InputError`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise InputError(f"`{name}` must be a whole number of at least {low}, got {value!r}.")
    return int(value)
