"""Far more accurate expectations from the MCMC draws and gradients you already have."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# The public names and where each is at home. A module is imported when one of its names is first used.
_HOMES = {
    ".adapters": (
        "from_arviz",
        "from_blackjax",
        "from_cmdstan",
        "from_emcee",
        "from_numpyro",
        "from_pymc",
        "from_stan",
    ),
    ".distribution": ("probability",),
    ".estimating": ("estimate",),
    ".evidence.bayes_factor": ("bayes_factor",),
    ".evidence.bridging": ("bridge",),
    ".evidence.ladder": ("temperature_ladder",),
    ".evidence.sensitivity": ("plot_sensitivity", "sensitivity"),
    ".evidence.smc": ("smc_evidence",),
    ".evidence.thermodynamic": ("log_evidence", "model_evidence"),
    ".families.auto": ("Auto",),
    ".families.kernel.kernel": ("Kernel",),
    ".families.method": ("Fitted", "Method"),
    ".families.monte_carlo": ("MonteCarlo",),
    ".families.neural.neural": ("CNCV", "NCV", "Neural"),
    ".families.neural.trials": ("Potential", "ScalarField", "VectorField"),
    ".families.polynomial.polynomial": ("Polynomial",),
    ".families.stack": ("Stack",),
    ".judging.diagnostics": ("Code", "Status"),
    ".networks.predictive": ("Predictive", "predictive"),
    ".report.geometry": ("Geometry", "geometry"),
    ".report.net_gain": ("NetGain", "net_gain"),
    ".report.figures": ("plot_forest", "plot_gain", "plot_geometry", "plot_stein_check", "plot_trace"),
    ".result": ("Estimate",),
    ".runtime.validation": ("InputError",),
    ".samples.samples": ("Samples",),
    ".tables.summary": ("Summary", "summary"),
}
_ROOMS = ("adapters", "evidence", "networks")
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [*_HOME_OF]

if TYPE_CHECKING:  # the same names for type checkers, which do not run `__getattr__`
    from .adapters import (
        from_arviz as from_arviz,
        from_blackjax as from_blackjax,
        from_cmdstan as from_cmdstan,
        from_emcee as from_emcee,
        from_numpyro as from_numpyro,
        from_pymc as from_pymc,
        from_stan as from_stan,
    )
    from .distribution import probability as probability
    from .estimating import estimate as estimate
    from .evidence.bayes_factor import bayes_factor as bayes_factor
    from .evidence.bridging import bridge as bridge
    from .evidence.ladder import temperature_ladder as temperature_ladder
    from .evidence.sensitivity import plot_sensitivity as plot_sensitivity, sensitivity as sensitivity
    from .evidence.smc import smc_evidence as smc_evidence
    from .evidence.thermodynamic import log_evidence as log_evidence, model_evidence as model_evidence
    from .families.auto import Auto as Auto
    from .families.kernel.kernel import Kernel as Kernel
    from .families.method import Fitted as Fitted, Method as Method
    from .families.monte_carlo import MonteCarlo as MonteCarlo
    from .families.neural.neural import CNCV as CNCV, NCV as NCV, Neural as Neural
    from .families.neural.trials import Potential as Potential, ScalarField as ScalarField, VectorField as VectorField
    from .families.polynomial.polynomial import Polynomial as Polynomial
    from .families.stack import Stack as Stack
    from .judging.diagnostics import Code as Code, Status as Status
    from .networks.predictive import Predictive as Predictive, predictive as predictive
    from .report.figures import (
        plot_forest as plot_forest,
        plot_gain as plot_gain,
        plot_geometry as plot_geometry,
        plot_stein_check as plot_stein_check,
        plot_trace as plot_trace,
    )
    from .report.geometry import Geometry as Geometry, geometry as geometry
    from .report.net_gain import NetGain as NetGain, net_gain as net_gain
    from .result import Estimate as Estimate
    from .runtime.validation import InputError as InputError
    from .samples.samples import Samples as Samples
    from .tables.summary import Summary as Summary, summary as summary
else:

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used, and keep it."""
        if name in _ROOMS:
            return import_module(f".{name}", __name__)
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOME_OF[name], __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names, loaded or not, and nothing that is only used to load them."""
    return sorted({*_HOME_OF, *_ROOMS, *(name for name in globals() if name.startswith("__"))})
