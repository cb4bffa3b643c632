"""From the objects of a sampler's library to `Samples`: one file per library, which is imported when it is needed."""

from .arviz import from_arviz as from_arviz
from .blackjax import from_blackjax as from_blackjax
from .cmdstan import from_cmdstan as from_cmdstan
from .emcee import from_emcee as from_emcee
from .numpyro import from_numpyro as from_numpyro
from .pymc import from_pymc as from_pymc
from .stan import from_stan as from_stan
