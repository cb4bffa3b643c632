"""What n draws in D dimensions can carry: which members the default fits, in one place for every verb."""

from typing import NamedTuple

from .kernel.kernel import Kernel
from .method import Kind, Method
from .neural.neural import Neural
from .polynomial.hermite import feature_count
from .polynomial.polynomial import Polynomial
from .structured.dual import DualQuadratic
from .structured.sparse import Sparse


class Limits(NamedTuple):
    """Where members begin and end to pay, measured over the problems of benchmarks/league.py."""

    # The choice of a member on fewer draws than this is a coin flip; the smallest sets get the simplest members only.
    few: int = 60
    some: int = 200
    # With more features a quadratic is fitted through its kernel; a cubic needs draws per feature.
    quadratic_features_per_draw: float = 0.5
    cubic_features_per_draw: float = 1 / 8
    # Distances tell less and less in more dimensions than these.
    kernel_dimensions: int = 40
    # With more draws a kernel sits at landmarks only.
    kernel_draws: int = 1000
    landmarks: int = 500
    # From here on few of the pairs of coordinates matter, and are looked for.
    sparse_dimensions: int = 12
    potential_dimensions: int = 120
    # Below this share of the variance there is nothing left to win, only round-off.
    solved: float = 1e-18


LIMITS = Limits()


class Entry(NamedTuple):
    """A method and the kinds of coordinates that it may be fitted in."""

    method: Method
    kinds: tuple[Kind, ...] = ("affine", "learned")


class Stage(NamedTuple):
    """Members that are fitted side by side, for outputs that keep more than the share `above` of their variance.

    `closed`: they cost little, and are fitted in every kind of coordinates there is. Others are fitted, for each
    output, in that kind only that suited it best.
    """

    entries: tuple[Entry, ...]
    closed: bool
    above: float = LIMITS.solved


def stages(n: int, dim: int, outputs: int) -> list[Stage]:
    """Return the stages of the default for n fitting draws in `dim` dimensions, cheapest first."""
    quadratic, cubic = feature_count(dim, 2), feature_count(dim, 3)
    closed = [Entry(Polynomial(1))]
    if n >= LIMITS.few:
        closed.append(Entry(Polynomial(2) if quadratic <= LIMITS.quadratic_features_per_draw * n else DualQuadratic()))
    if cubic <= LIMITS.cubic_features_per_draw * n:
        closed.append(Entry(Polynomial(3)))
    if n >= LIMITS.some and dim >= LIMITS.sparse_dimensions:
        closed.append(Entry(Sparse(), ("scaled",)))
    dear = []
    if n >= LIMITS.few and dim <= LIMITS.kernel_dimensions:
        landmarks = LIMITS.landmarks if n > LIMITS.kernel_draws else None
        dear.append(Entry(Kernel("rational quadratic", degree=2 if quadratic <= n / 8 else 1, landmarks=landmarks)))
    if n >= LIMITS.some and dim <= LIMITS.potential_dimensions:
        dear.append(Entry(Neural()))
    found = [Stage(tuple(closed), closed=True), Stage(tuple(dear), closed=False)]
    return [stage for stage in found if stage.entries]
