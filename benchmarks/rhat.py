"""How often R-hat exceeds a limit by chance, and on chains that disagree: docs/diagnostics.md has the numbers.

    python benchmarks/rhat.py [repeats, default 40]

Four autoregressive chains with an exact start, 20 outputs, by length and correlation; then one of them shifted.
"""

import sys

import numpy as np

from steincv.judging.error_bars import average, split_rhat

LIMITS = (1.01, 1.02, 1.05, 1.1)
OUTPUTS = 20


def chains(rng: np.random.Generator, length: int, rho: float) -> np.ndarray:
    """Return stationary chains of variance one."""
    x = rng.normal(size=(4, length, OUTPUTS))
    for t in range(1, length):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * x[:, t]
    return x


def shares(found: np.ndarray) -> str:
    """Return the shares of outputs above each limit, and of repeats with any output above it."""
    return " ".join(f"{(found > limit).mean():5.2f} ({(found > limit).any(1).mean():4.2f})" for limit in LIMITS)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    rng = np.random.default_rng(0)
    print("length rho   ESS  above", *LIMITS, "(any of 20)")
    for length in (100, 250, 500, 1000):
        for rho in (0.0, 0.5, 0.8, 0.95):
            series = [chains(rng, length, rho) for _ in range(repeats)]
            ess = np.mean([average(x).ess for x in series])
            print(f"{length:6d} {rho:4.2f} {ess:6.0f} {shares(np.array([split_rhat(x) for x in series]))}", flush=True)
    print("one chain shifted: length rho shift  above", *LIMITS, "; mean off by more than 2 standard errors")
    for length, rho in ((250, 0.0), (500, 0.5), (1000, 0.5)):
        for shift in (0.1, 0.2, 0.3, 0.5, 1.0):
            series = [chains(rng, length, rho) + shift * (np.arange(4) == 0)[:, None, None] for _ in range(repeats)]
            off = np.mean([np.abs(a.mean) > 2 * a.standard_error for a in map(average, series)])
            found = shares(np.array([split_rhat(x) for x in series]))
            print(f"{length:6d} {rho:4.2f} {shift:4.1f} {found} {off:.2f}", flush=True)


if __name__ == "__main__":
    main()
