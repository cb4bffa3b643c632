"""What n draws in D dimensions can carry: which members the default fits, in one place for every verb."""

from dataclasses import replace
from typing import NamedTuple

from ..runtime.validation import available_memory
from .kernel.kernel import Kernel
from .method import Kind, Method
from .neural.neural import Neural
from .polynomial.polynomial import FEATURES_PER_DRAW, Polynomial, feature_count
from .polynomial.single import Single
from .problem import Cost
from .structured.curved import Curved
from .structured.sparse import Sparse


class Limits(NamedTuple):
    """Where members begin and end to pay: chosen on some problems of benchmarks/league.py, not swept over all."""

    # The choice of a member on fewer draws than this is close to a coin flip: beside the simplest member others count
    # there only where they are clearly better (benchmarks/small_n.py).
    few: int = 60
    # On fewer still nothing is tried beside the simplest: a kernel's own folds would have a draw or two.
    fewest: int = 8
    some: int = 200
    # More features than these share of the draws cost more than they bring: few pairs of coordinates matter then.
    quadratic_features_per_draw: float = FEATURES_PER_DRAW
    cubic_features_per_draw: float = 1 / 8
    # The states of an orbit are alike: each counts as so much of a draw for the features that a quadratic may have.
    states: float = 0.5
    # From here on pairs are looked for, and directions: in fewer dimensions polynomials have them all.
    structure_dimensions: int = 12
    # Distances tell less and less in more dimensions than these.
    kernel_dimensions: int = 15
    everywhere_dimensions: int = 15
    # With more draws a kernel sits at landmarks only.
    kernel_draws: int = 1000
    landmarks: int = 500
    # Larger ones were not seen to pay.
    potential_dimensions: int = 1000
    # Below this share of the variance there is nothing left to win, only round-off.
    solved: float = 1e-18
    # Where so many draws count as one, the variance of a mean is another than that of a draw, and is fitted to as well.
    slow: float = 10.0
    # A member that leaves more than so many times what the best one leaves adds nothing but its far draws.
    within: float = 10.0
    # Members that are raced on the first fold go on if without them some output would be left with more than this many
    # times the variance, or all outputs in the geometric mean; at most so many outputs, evenly spaced, are looked at.
    # Of two pairs tried on four posteriors of the league this is the cheaper: .97 to 1.01 of the true gain, for three
    # quarters of the time (docs/league.md has three more, where down to .94 is left).
    needed_by_one: float = 1.3
    needed_by_all: float = 1.06
    raced_outputs: int = 24
    # A member may take this many operations per fit, some fifteen seconds of a core, and this part of the free memory.
    operations: float = 1.5e11
    memory: float = 0.125


LIMITS = Limits()


class Entry(NamedTuple):
    """A method, and which coordinates it is fitted in: of those that are not learned, and of those that are.

    - `both`: where there are learned ones, in the two side by side as well,
    - `apart`: or, if this is false, in nothing but the two side by side.
    """

    method: Method
    usual: Kind = "affine"
    learned: Kind = "learned"
    both: bool = False
    apart: bool = True


class Stage(NamedTuple):
    """Members that are fitted side by side, for outputs that keep more than a share `above` of their variance.

    - `closed`: they are closed forms, whose best is the second choice where the stack is not trusted.
    - `everywhere`: they are fitted in affine and in learned coordinates. Otherwise, for each output, in that kind only
      in which the closed forms left less of it.
    """

    entries: tuple[Entry, ...]
    closed: bool
    everywhere: bool
    above: float = LIMITS.solved
    clearly: bool = False


class Plan(NamedTuple):
    """The stages of the default, cheapest first, and the methods that were left out, each with the reason."""

    stages: tuple[Stage, ...]
    left_out: tuple[tuple[str, str], ...]


def plan(n: int, dim: int, outputs: int, slow: bool = False, steps: bool = False, states: int = 1) -> Plan:
    """Return what the default fits to n draws in `dim` dimensions, of chains that may be slow, with orbits of `states`.

    `steps`: to indicators without their jumps, of which there are several per parameter. Members that are fitted output
    by output would be most of the time, and are left to means.
    """
    quadratic, cubic = feature_count(dim, 2), feature_count(dim, 3)
    closed = [Entry(Polynomial(1), both=2 * dim <= n / 4)]
    most = {2: LIMITS.quadratic_features_per_draw, 3: LIMITS.cubic_features_per_draw}
    if n >= LIMITS.few and quadratic <= LIMITS.quadratic_features_per_draw * n:
        closed.append(Entry(Polynomial(2), both=2 * quadratic <= LIMITS.quadratic_features_per_draw * n))
    if slow:
        degrees = [d for d in (3, 2) if n >= LIMITS.few and feature_count(dim, d) <= most[d] * n]
        fits = [Polynomial(d, objective="spectral") for d in (*degrees, 1)]
        best = [fit for fit in fits if not _too_much(fit.cost(n, dim, outputs))][:1]
        closed += [Entry(replace(fit, objective=o)) for fit in best for o in ("diffusion", "spectral")]
    dear = [Entry(Polynomial(3))] if cubic <= LIMITS.cubic_features_per_draw * n else []
    seen = LIMITS.quadratic_features_per_draw * n
    if seen < quadratic <= LIMITS.states * states * seen and not _too_much(
        Polynomial(2).cost(n * states, dim, outputs)
    ):
        dear.append(Entry(Polynomial(2)))
    turning = Polynomial(2, rotations=True)
    if dim > 1 and turning.count(dim) <= LIMITS.cubic_features_per_draw * n:
        dear.append(Entry(turning, both=2 * turning.count(dim) <= LIMITS.quadratic_features_per_draw * n))
    if n >= LIMITS.few and dim <= LIMITS.kernel_dimensions:
        landmarks = LIMITS.landmarks if n > LIMITS.kernel_draws else None
        dear.append(Entry(Kernel("rational quadratic", degree=2 if quadratic <= n / 8 else 1, landmarks=landmarks)))
    if n >= LIMITS.some and dim >= LIMITS.structure_dimensions and not steps:
        dear += [Entry(Sparse(), "scaled", "unmixed"), Entry(Curved())]
    if n >= LIMITS.some and dim <= LIMITS.potential_dimensions:
        dear.append(Entry(Neural(), both=True, apart=False))
    priced = [entry.method for entry in dear]
    # of orbits it takes no more states than there is time for
    if states > 1 and Curved().affordable(n, states, dim, outputs):
        priced = [method for method in priced if not isinstance(method, Curved)]
    left_out = [(str(method), why) for method in priced if (why := _too_much(method.cost(n, dim, outputs)))]
    names = {name for name, _ in left_out}
    kept = tuple(entry for entry in dear if str(entry.method) not in names)
    # in few dimensions a kernel or a network may gain thousands of times more in the coordinates that suit it
    stages = [Stage(tuple(closed), True, True)]
    if LIMITS.fewest <= n < LIMITS.few and dim <= LIMITS.kernel_dimensions:
        tried = Entry(Single(), "scaled", "unmixed"), Entry(Polynomial(2)), Entry(Kernel())
        stages.append(Stage(tried, False, False, clearly=True))
    stages.append(Stage(kept, False, dim <= LIMITS.everywhere_dimensions))
    return Plan(tuple(stage for stage in stages if stage.entries), tuple(left_out))


def _too_much(cost: Cost) -> str:
    """Say why a fit of this cost is left out, if it is."""
    if cost.bytes > LIMITS.memory * available_memory():
        return f"would need {cost.bytes / 2**30:.1f} GiB of memory"
    if cost.operations > LIMITS.operations:
        return f"would take about {cost.operations / 1e10:.0f} s per fold"
    return ""
