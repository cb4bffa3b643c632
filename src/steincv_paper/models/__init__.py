"""Example models: conjugate linear regression, the van der Pol oscillator, the Goodwin oscillator."""

from dataclasses import dataclass

from steincv.evidence.power_posterior import PowerPosterior


@dataclass(frozen=True, eq=False)
class Example:
    """A model to try: what it is, and its log evidence where that is known."""

    title: str
    posterior: PowerPosterior
    exact: float | None = None
