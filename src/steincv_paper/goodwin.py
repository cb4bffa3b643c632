"""The paper's figure 4: thermodynamic integration for the evidence of the Goodwin oscillator, 3 to 8 species.

    steincv reproduce goodwin [--quick]

f is the log likelihood under each power posterior of a ladder of 30. Parallel tempering, 100,000 iterations, 6000
states drawn at random from the last 50,000 of two replicas, 3000 to fit on and 3000 others to judge by. Which are which
is drawn at random, as in the paper; "blocks" are the first and the second half of the kept states in time instead, so
that no test draw has a near-copy among those that were fitted.

Public versions of the problem differ, so the variants are named: what is observed (all species, or the first two), how
the equations are solved (ode, or Euler's method with steps of 1), and the coordinates of the control variates (log
parameters, or raw ones).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from steincv.families.auto import Auto
from steincv.families.kernel.kernel import Kernel
from steincv.families.neural.neural import CNCV
from steincv.families.polynomial.polynomial import Polynomial

from .claims import Claim
from .goodwin_fits import Draws, evidence_rows, ratio_rows, rung_rows, size_rows
from .runner import Cell

if TYPE_CHECKING:
    import pandas

METHODS = {
    "linear": Polynomial(1),
    "quadratic": Polynomial(2),
    "control functional": Kernel(),
    "CNCV, no decay": CNCV(decay=0.0),  # the paper's objective and nothing else
    "CNCV()": CNCV(),
    "Auto()": Auto(),
}
MAIN, AS_CODED = ("all", "ode"), ("first-two", "euler")
# In raw coordinates the paper's four are enough; in blocks the ones that differ most.
OTHER_COORDINATES = ("linear", "quadratic", "control functional", "CNCV, no decay")


@dataclass(frozen=True)
class Settings:
    """`species` with the text's options, `coded` with those of a co-author's code, `sized` for training sizes."""

    species: tuple[int, ...]
    coded: tuple[int, ...]
    sized: tuple[int, ...]
    iterations: int = 100_000
    kept: int = 6000
    replicas: int = 2
    rungs: int = 30
    sizes: tuple[int, ...] = (100, 200, 500, 1000, 2000, 3000)
    few: int = 500
    seed: int = 0
    methods: dict[str, str] = field(default_factory=lambda: {name: repr(m) for name, m in METHODS.items()})


FULL = Settings((3, 4, 5, 6, 7, 8), coded=(3, 8), sized=(3, 8))
QUICK = Settings((3, 5), coded=(3,), sized=(3,), iterations=10_000, kept=1000, rungs=16, sizes=(100, 500), few=200)


def cells(settings: Settings) -> list[Cell]:
    """List one cell per number of species and variant: they share nothing but the code."""
    made = []
    for (observed, integrator), group in ((MAIN, settings.species), (AS_CODED, settings.coded)):
        for species in group:
            sizes = settings.sizes if species in settings.sized and integrator == "ode" else ()
            protocol = (settings.iterations, settings.kept, settings.replicas, settings.rungs, settings.seed)
            arguments = (species, observed, integrator, protocol, sizes, settings.few)
            work = settings.iterations * settings.rungs / 3e6
            cost = work * (150 + 30 * species * (integrator == "ode")) + settings.kept / 30 * (1 + 0.5 * len(sizes))
            made.append(Cell(f"{observed}-{integrator}-g={species}", arguments, cost))
    return made


def cell(
    species: int, observed: str, integrator: str, protocol: Sequence[int], sizes: Sequence[int], few: int
) -> list[dict[str, Any]]:
    draws = Draws.of(species, observed, integrator, *protocol)
    main = (observed, integrator) == MAIN
    rows = rung_rows(draws)
    rows += ratio_rows(draws, METHODS, "log", "random", few)
    rows += ratio_rows(draws, {name: METHODS[name] for name in OTHER_COORDINATES}, "log", "blocks", few)
    if main:
        rows += ratio_rows(draws, {name: METHODS[name] for name in OTHER_COORDINATES}, "raw", "random", few)
    rows += size_rows(draws, METHODS, sizes, few)
    rows += evidence_rows(draws, {name: METHODS[name] for name in ("linear", "quadratic", "Auto()")})
    same = {"species": species, "dim": species + 2, "observed": observed, "integrator": integrator, "seed": draws.seed}
    draws.forget()
    return [{**same, **row} for row in rows]


def figures(table: "pandas.DataFrame", settings: Settings) -> dict[str, Any]:
    from .goodwin_figures import against_dimension, against_size, against_temperature, evidence

    return {
        "goodwin_dimension": against_dimension(table),
        "goodwin_temperature": against_temperature(table),
        "goodwin_size": against_size(table),
        "goodwin_evidence": evidence(table),
    }


def claims(table: "pandas.DataFrame", settings: Settings) -> list[Claim]:
    from .goodwin_claims import in_section_5_2

    return list(in_section_5_2(table, settings))
