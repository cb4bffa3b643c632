"""Far more accurate expectations from the MCMC draws and gradients you already have."""

from .adapters import (
    from_arviz as from_arviz,
    from_blackjax as from_blackjax,
    from_cmdstan as from_cmdstan,
    from_emcee as from_emcee,
    from_numpyro as from_numpyro,
    from_pymc as from_pymc,
    from_stan as from_stan,
)
from .estimating import estimate as estimate
from .evidence.bayes_factor import bayes_factor as bayes_factor
from .evidence.ladder import temperature_ladder as temperature_ladder
from .evidence.model_evidence import model_evidence as model_evidence
from .evidence.thermodynamic import log_evidence as log_evidence
from .families.auto import Auto as Auto
from .families.kernel.kernel import Kernel as Kernel
from .families.method import Fitted as Fitted, Method as Method
from .families.monte_carlo import MonteCarlo as MonteCarlo
from .families.neural.neural import CNCV as CNCV, NCV as NCV, Neural as Neural
from .families.neural.trials import (
    Potential as Potential,
    ScalarField as ScalarField,
    VectorField as VectorField,
)
from .families.polynomial.polynomial import Polynomial as Polynomial
from .families.stack import Stack as Stack
from .judging.status import Code as Code, Status as Status
from .networks.predictive import Predictive as Predictive, predictive as predictive
from .report.figures import (
    plot_forest as plot_forest,
    plot_gain as plot_gain,
    plot_stein_check as plot_stein_check,
    plot_trace as plot_trace,
)
from .result import Estimate as Estimate
from .runtime.validation import InputError as InputError
from .samples.samples import Samples as Samples

__version__ = "0.1.0"
