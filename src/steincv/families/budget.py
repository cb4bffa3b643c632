"""What n draws in D dimensions can carry: which members the default fits, in one place for every verb."""

from dataclasses import dataclass
from typing import NamedTuple

from .kernel.kernel import Kernel
from .method import Method
from .neural.neural import Neural
from .polynomial.hermite import feature_count
from .polynomial.polynomial import Polynomial


class Limits(NamedTuple):
    """Where members begin and end to pay, measured over the problems of benchmarks/league.py."""

    # The choice of a member on fewer draws than this is a coin flip; the smallest sets get the simplest members only.
    few: int = 60
    some: int = 200
    # A quadratic may have more features than draws, its penalty sees to it; a cubic needs draws per feature.
    quadratic_features_per_draw: float = 3.0
    cubic_features_per_draw: float = 1 / 8
    # Distances tell less and less in more dimensions than these.
    kernel_dimensions: int = 40
    # With more draws a kernel sits at landmarks only.
    kernel_draws: int = 1000
    landmarks: int = 500
    # Below this share of the variance there is nothing left to win, only round-off.
    solved: float = 1e-18


LIMITS = Limits()


@dataclass(frozen=True)
class Stage:
    """Members that are fitted side by side, for outputs that keep more than the share `above` of their variance.

    `closed`: they cost little, and are fitted in every kind of coordinates there is. Others are fitted, for each
    output, in that kind only that suited it best.
    """

    members: tuple[Method, ...]
    closed: bool
    above: float = LIMITS.solved


def stages(n: int, dim: int, outputs: int) -> list[Stage]:
    """Return the stages of the default for n fitting draws in `dim` dimensions, cheapest first."""
    closed: list[Method] = [Polynomial(1)]
    dear: list[Method] = []
    quadratic, cubic = feature_count(dim, 2), feature_count(dim, 3)
    if n >= LIMITS.few and quadratic <= LIMITS.quadratic_features_per_draw * n:
        closed.append(Polynomial(2))
    if cubic <= LIMITS.cubic_features_per_draw * n:
        closed.append(Polynomial(3))
    if n >= LIMITS.few and dim <= LIMITS.kernel_dimensions:
        landmarks = LIMITS.landmarks if n > LIMITS.kernel_draws else None
        dear.append(Kernel("rational quadratic", degree=2 if quadratic <= n / 8 else 1, landmarks=landmarks))
    if n >= LIMITS.some:
        dear.append(Neural())
    return [Stage(tuple(closed), closed=True), *([Stage(tuple(dear), closed=False)] if dear else [])]
