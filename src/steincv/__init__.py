"""Far more accurate expectations from the MCMC draws and gradients you already have."""

from ._estimate import estimate as estimate
from ._result import Estimate as Estimate
from ._samples import Samples as Samples
from ._status import Code as Code, InputError as InputError, Status as Status
from .families._method import Fitted as Fitted, Method as Method
from .families.auto import Auto as Auto
from .families.kernel import Kernel as Kernel
from .families.monte_carlo import MonteCarlo as MonteCarlo
from .families.neural.neural import CNCV as CNCV, NCV as NCV, Neural as Neural
from .families.neural.trials import Potential as Potential, ScalarField as ScalarField, VectorField as VectorField
from .families.polynomial import Polynomial as Polynomial
from .families.stack import Stack as Stack

__version__ = "0.1.0"
