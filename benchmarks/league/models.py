"""All posteriors of the league by name, in the order of their dimension.

posterior = make("pilots")
posterior.logdensity(x), posterior.functionals(x)       # float64 inside jax.enable_x64(True)
"""

from collections.abc import Callable

from . import hierarchical, items, series, simulated, small
from .posterior import Posterior

MAKERS: dict[str, Callable[[], Posterior]] = {
    "garch_dem2gbp": small.garch_returns,  # 3 parameters
    "arma11": small.arma11,  # 4
    "dugongs": small.dugongs,  # 4
    "hmm_example": small.hidden_markov,  # 4
    "kidscore_interaction_c": small.kidscore,  # 5
    "blr": small.blr,  # 6
    "wells_dae_inter": small.wells,  # 7
    "logmesquite": small.logmesquite,  # 8
    "eight_schools_noncentred": small.eight_schools,  # 10
    "hospitals": hierarchical.hospitals,  # 14
    "pilots": hierarchical.pilots,  # 18
    "logistic20": lambda: simulated.logistic(20),
    "random_effects_centred": lambda: simulated.random_effects(True),  # 26
    "random_effects_noncentred": lambda: simulated.random_effects(False),  # 26
    "seeds_centred": lambda: hierarchical.seeds(True),  # 26
    "seeds_noncentred": lambda: hierarchical.seeds(False),  # 26
    "poisson_centred": simulated.poisson,  # 45
    "logistic61": lambda: simulated.logistic(61),
    "dogs_nonhierarchical": hierarchical.dogs,  # 65
    "rats": hierarchical.rats,  # 65
    "accel_gp": series.accel_gp,  # 66
    "accel_splines": series.accel_splines,  # 82
    "election88_full": hierarchical.election88,  # 90
    "counties_centred": lambda: simulated.counties(True),  # 90
    "counties_noncentred": lambda: simulated.counties(False),  # 90
    "logistic120": lambda: simulated.logistic(120),
    "rasch": simulated.rasch,  # 144
    "GLMM1_centred": lambda: hierarchical.glmm1(True),  # 237
    "GLMM1_noncentred": lambda: hierarchical.glmm1(False),  # 237
    "logistic300": lambda: simulated.logistic(300),
    "grsm_latent_reg_irt": items.rating_scale,  # 408
    "hier_2pl": items.two_parameter,  # 669
    "hierarchical_gp": series.votes,  # 933
    "lsat": items.lsat,  # 1006
}


def make(name: str) -> Posterior:
    """The posterior of that name."""
    if name not in MAKERS:
        raise ValueError(f"No posterior is called {name!r}. There are: {', '.join(MAKERS)}.")
    return MAKERS[name]()
