"""What a fit will cost, before it is begun."""

from typing import NamedTuple


class Cost(NamedTuple):
    """Floating-point operations of one fit with its evaluation at as many draws, and bytes at its peak.

    One core does about 1e10 operations of this kind in a second; within a factor of two on common machines.
    """

    operations: float
    bytes: float
