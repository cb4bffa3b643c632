"""One call: sample every power posterior of a model and integrate."""

from dataclasses import replace

from ..families.method import Method
from ..result import Estimate
from ..runtime.validation import StrPath
from .moves import RANDOM_WALK
from .power_posterior import PowerPosterior
from .tempering import temper
from .thermodynamic import log_evidence


def model_evidence(
    model: PowerPosterior,
    temperatures: object = None,
    method: Method | None = None,
    rule: str = "second-order",
    *,
    draws: int = 1000,
    replicas: int = 4,
    warmup: int = 2000,
    thin: int | None = None,
    kernel: str = RANDOM_WALK,
    seed: int = 0,
    extrapolate: bool = True,
    checkpoint: StrPath | None = None,
    progress: bool = False,
) -> Estimate:
    """Return the log evidence of a model: `temper`, then `log_evidence` with replicas as chains.

    Swaps correlate the rungs of a replica but not the replicas, so the error bar is that of the sum over rungs.
    `info["tempering"]` has the acceptance and swap rates, round trips, R-hat and effective sizes.

    >>> from steincv_paper.models.regression import regression
    >>> example = regression(dim=2)
    >>> result = model_evidence(example.posterior, draws=100, warmup=500)
    >>> bool(abs(result.mean - example.exact) < 0.05)
    True
    """
    tempered = temper(
        model,
        temperatures,
        draws=draws,
        replicas=replicas,
        warmup=warmup,
        thin=thin,
        kernel=kernel,
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
    )
    result = log_evidence(
        tempered.samples,
        tempered.log_likelihoods,
        tempered.temperatures,
        method,
        rule,
        seed,
        extrapolate=extrapolate,
        coupled=True,
        progress=progress,
    )
    return replace(result, info={**result.info, "tempering": tempered.diagnostics()})
