"""Was it worth it: what a result cost beside its sampling, against the same seconds spent on longer chains."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..result import Estimate
from ..runtime.validation import InputError, whole_number

# Orbits of this many states are what is priced where none were run.
STATES = 8
# Fitting that takes less than this share of the sampling is called cheap.
CHEAP = 0.1
# What an exact answer counts for: there is no number of draws that would do as well.
MOST = 1e12


@dataclass(frozen=True, eq=False)
class NetGain:
    """What control variates bought, per second.

    - `gain`: the gain that the result shows, the median over the outputs that vary.
    - `sampling`, `fitting`, `orbits`: seconds each took.
    - `net`: the seconds that longer chains would take for the same error bar, over those that were spent. Below 1 the
      sampler should have run longer instead.
    - `advice`: one sentence; `result`: the same result, whose table and page show it.
    """

    gain: float
    sampling: float
    fitting: float
    orbits: float
    net: float
    advice: str
    result: Estimate

    def __str__(self) -> str:
        return self.advice


def net_gain(result: Estimate, sampling_seconds: float, gradients: int | None = None) -> NetGain:
    """Compare a result with what the same time would have bought in longer chains.

    **Arguments:**

    - `result`: of `estimate`; it knows how long its fits and orbits took.
    - `sampling_seconds`: how long the sampler took for these draws, warm-up left out: longer chains do not repeat it.
    - `gradients`: how many gradients it took, if that is known: orbits that were not run can be priced then.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 250, 3))
    >>> result = scv.estimate(scv.Samples(x, -x), np.tanh(x[..., 0]), scv.Polynomial(3))
    >>> found = scv.net_gain(result, sampling_seconds=600.0)
    >>> bool(found.net > 5), found.advice[:16]
    (True, 'Control variates')
    """
    if not isinstance(result, Estimate):
        raise InputError(
            f"`result` must be what estimate returned, got {type(result).__name__}. Write net_gain(estimate(samples), "
            f"sampling_seconds)."
        )
    number = isinstance(sampling_seconds, int | float) and not isinstance(sampling_seconds, bool)
    if not (number and 0 < sampling_seconds < math.inf):
        raise InputError(f"`sampling_seconds` must be a positive number, got {sampling_seconds!r}.")
    spent = None if gradients is None else whole_number("gradients", gradients, 1)
    moving = result.plain.standard_error.reshape(-1) > 0
    gains = np.minimum(np.asarray(result.gain).reshape(-1)[moving], MOST)
    gain = float(np.median(gains)) if moving.any() else 1.0
    ran = result.info.get("orbits")
    ran = ran if isinstance(ran, Mapping) and ran.get("states", 1) > 1 else {}
    fitting, orbits = float(result.info.get("seconds", 0.0)), float(ran.get("seconds", 0.0))
    sampling = float(sampling_seconds)
    net = gain * sampling / (sampling + fitting + orbits)
    known = (gain, sampling, fitting, orbits, net)
    cost = f"{fitting:.3g} s of fitting" + (f" and {orbits:.3g} s of orbits" if orbits else "")
    advice = (
        f"Control variates: {cost} beside {sampling:.3g} s of sampling gave what {gain * sampling:.3g} s of sampling "
        f"would, {net:.3g} times as much per second."
    )
    if net < 1:
        advice = (
            f"Run the sampler longer: a gain of {gain:.3g} for {cost} is less than the same seconds bring in longer "
            f"chains, {1 / net:.3g} times as much."
        )
    # what else would cost little: orbits, where their price is known, and a richer method
    chains, draws = result.values.shape[:2]
    streamed = result.info.get("streamed")  # of a file only means of blocks are kept as values
    count = streamed["draws"] if isinstance(streamed, Mapping) else chains * draws
    price = math.inf if ran or spent is None else sampling / spent * (STATES - 1) * count
    if price < sampling:
        advice += f" Orbits of {STATES} states would take about {price:.3g} s, if the model can be asked."
    if fitting < CHEAP * sampling and "members" not in result.info:
        advice += " Fitting is cheap here: try Auto()."
    return NetGain(*known, advice, replace(result, info={**result.info, "net_gain": advice}))
