r"""An interval between two rungs without the mean of the log likelihood at either end.

For any constant C, with $\sigma$ the logistic function,

$$ \int_{t_i}^{t_{i+1}} E_t\,dt = \log\frac{Z_{i+1}}{Z_i}
   = C + \log E_i[\sigma(\Delta l - C)] - \log E_{i+1}[\sigma(C - \Delta l)], $$

means of bounded functions, whatever the tail of l. Best is the C for which the two are equal; they are then the
overlap of the rungs.

Reference: Bennett (1976), J. Comput. Phys. 22; Meng, Wong (1996), Statistica Sinica 6.
"""

from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float


@dataclass(frozen=True)
class Bridge:
    """Over the `gap` between two temperatures, with the constant `shift`; `overlap` is at most one half."""

    gap: float
    shift: float
    overlap: float

    @classmethod
    def between(cls, gap: float, lower: np.ndarray, upper: np.ndarray) -> "Bridge":
        """Find the best shift, from the log likelihoods at the lower and at the upper rung."""
        low, high = gap * lower, gap * upper

        def difference(shift: float) -> float:
            return float(scipy.special.expit(low - shift).mean() - scipy.special.expit(shift - high).mean())

        ends = min(low.min(), high.min()) - 1, max(low.max(), high.max()) + 1
        # plain bisection: the ends can be 1e300 apart, and the function flat almost everywhere between them
        shift = float(scipy.optimize.bisect(difference, *ends, maxiter=3000))
        return cls(gap, shift, float(scipy.special.expit(low - shift).mean()))

    def lower_side(self, values: Float[np.ndarray, "chain draw"]) -> Float[np.ndarray, "chain draw"]:
        return scipy.special.expit(self.gap * values - self.shift)

    def upper_side(self, values: Float[np.ndarray, "chain draw"]) -> Float[np.ndarray, "chain draw"]:
        return scipy.special.expit(self.shift - self.gap * values)
