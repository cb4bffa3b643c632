"""Model evidence by thermodynamic integration: ladder, tempering, controlled means, Bayes factors."""

from .bayes_factor import BayesFactor as BayesFactor, bayes_factor as bayes_factor
from .bijections import (
    Bijection as Bijection,
    Interval as Interval,
    Positive as Positive,
    Real as Real,
    Simplex as Simplex,
)
from .ladder import temperature_ladder as temperature_ladder
from .power_posterior import PowerPosterior as PowerPosterior
from .tempered import Tempered as Tempered
from .tempering import temper as temper
from .thermodynamic import log_evidence as log_evidence, model_evidence as model_evidence
