r"""The ladder of temperatures $0 = t_0 < \dots < t_K = 1$ of the power posteriors $p(y|\theta)^t\,p(\theta)$."""

import numpy as np
from jaxtyping import Float

from ..runtime.validation import InputError, whole_number


def temperature_ladder(rungs: int = 30, power: float = 5.0) -> Float[np.ndarray, " rung"]:
    r"""Return $t_i = (i / (\text{rungs} - 1))^{\text{power}}$: dense near 0, where the log likelihood changes fastest.

    >>> temperature_ladder(5, power=2).tolist()
    [0.0, 0.0625, 0.25, 0.5625, 1.0]

    Reference: Friel, Pettitt (2008), JRSS B 70; Calderhead, Girolami (2009), CSDA 53.
    """
    rungs = whole_number("rungs", rungs, 2)
    number = isinstance(power, int | float | np.integer | np.floating) and not isinstance(power, bool)
    if not (number and 0 < power < np.inf):
        raise InputError(f"`power` must be a positive number, got {power!r}.")
    ladder = (np.arange(rungs) / (rungs - 1)) ** float(power)
    if not (np.diff(ladder) > 0).all():
        raise InputError(
            f"`power` = {power} with {rungs} rungs puts two rungs on the same temperature. Use a lower one."
        )
    return ladder


def check_temperatures(temperatures: object) -> Float[np.ndarray, " rung"]:
    """Return the temperatures as an array that increases from 0 to 1, or an `InputError` naming the rung."""
    try:
        ladder = np.array(temperatures, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"`temperatures` must be numbers that increase from 0 to 1, got {temperatures!r}.") from error
    if ladder.ndim != 1 or len(ladder) < 2:
        raise InputError(f"`temperatures` has shape {ladder.shape}, expected at least two numbers, from 0 to 1.")
    if not np.isfinite(ladder).all():
        k = int(np.argmin(np.isfinite(ladder)))
        raise InputError(f"`temperatures` must increase from 0 to 1, but rung {k} is at {ladder[k]}.")
    for k, end in ((0, 0.0), (len(ladder) - 1, 1.0)):
        if ladder[k] != end:
            raise InputError(
                f"`temperatures` must run from 0 (prior) to 1 (posterior), but rung {k} is at {ladder[k]:.6g}."
            )
    if (falls := np.flatnonzero(np.diff(ladder) <= 0)).size:
        k = int(falls[0]) + 1
        raise InputError(
            f"`temperatures` must increase, but rung {k} is at {ladder[k]:.6g} and rung {k - 1} at {ladder[k - 1]:.6g}."
        )
    return ladder


def rung_name(k: int, temperatures: np.ndarray) -> str:
    """Return how messages call a rung: its number and its temperature."""
    return f"rung {k} (t = {temperatures[k]:.3g})"
