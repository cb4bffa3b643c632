"""What is said of input that cannot be used, and checks that every room needs."""

from numbers import Integral


class InputError(ValueError):
    """What was given cannot be used; the message says which array, where, and how to mend it."""


def whole_number(name: str, value: object, low: int) -> int:
    """`value` as an int of at least `low`, or an `InputError`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise InputError(f"`{name}` must be a whole number of at least {low}, got {value!r}.")
    return int(value)
