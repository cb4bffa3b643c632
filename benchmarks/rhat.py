"""How often R-hat exceeds its limit by chance, and on chains that disagree: docs/diagnostics.md has the numbers.

    python benchmarks/rhat.py [outputs, default 2000]

Four autoregressive chains with an exact start, by length and correlation; then one of them shifted. Columns: effective
draws, the median limit where it was asked for, and the shares of outputs above 1.01, above 1.1 and above the limit.
"""

import sys

import numpy as np
import scipy.signal

from steincv.judging.diagnostics import DETAILS, RHAT_LIMIT, limits_of_rhat
from steincv.judging.error_bars import average, split_rhat

CLEAN = ((100, 0.5), (250, 0.5), (250, 0.0), (500, 0.0), (1000, 0.0), (1000, -0.5))
SHIFTED = ((250, 0.5), (250, 0.0), (1000, 0.5), (1000, 0.0))


def chains(rng: np.random.Generator, length: int, rho: float, outputs: int) -> np.ndarray:
    """Return stationary chains of variance one."""
    noise = rng.normal(size=(4, length, outputs))
    noise[:, 1:] *= np.sqrt(1 - rho**2)
    return scipy.signal.lfilter([1.0], [1.0, -rho], noise, axis=1)


def row(x: np.ndarray) -> str:
    """Return what is seen of the chains."""
    rhat = split_rhat(x)
    limits = limits_of_rhat(x, rhat)
    asked = limits[(rhat > DETAILS.rhat) & (rhat <= RHAT_LIMIT)]
    shares = " ".join(f"{(rhat > limit).mean():7.4f}" for limit in (DETAILS.rhat, RHAT_LIMIT, limits))
    return f"{np.median(asked) if len(asked) else DETAILS.rhat:6.3f} {shares}"


def main() -> None:
    outputs = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    rng = np.random.default_rng(0)
    print("length   rho    ESS  limit  > 1.01   > 1.1 > limit")
    for length, rho in CLEAN:
        x = chains(rng, length, rho, outputs)
        print(f"{length:6d} {rho:5.2f} {average(x[..., :20], tails=False).ess.mean():6.0f} {row(x)}", flush=True)
    print("length   rho  shift  limit  > 1.01   > 1.1 > limit")
    for length, rho in SHIFTED:
        for shift in (0.3, 0.5, 1.0):
            x = chains(rng, length, rho, outputs // 10) + shift * (np.arange(4) == 0)[:, None, None]
            print(f"{length:6d} {rho:5.2f} {shift:6.1f} {row(x)}", flush=True)


if __name__ == "__main__":
    main()
