"""Row 8: Bayesian linear regression with 13 covariates, noise and prior sd 50, f = the sum of squared coefficients.

    python benchmarks/published/row08_linear.py

Published (Leluc, Portier, Segers, Zhuman, adaptive importance sampling with control variates): exact with degree 2;
NUTS has rmse 10.8 with 5,000 draws and 5.0 with 50,000. Their table of house prices is not included here: columns are
simulated with its means and standard deviations, so that the posterior has the same scales. The posterior is normal,
and its draws are made exactly.
"""

import numpy as np
from common import RMSE, Data, Line, Planned, error, exactly, keep, ours, replicate

import steincv as scv

SIZES = (500, 5000)
CHAINS = 4
REPEATS, FEWER, FEWEST = 40, 10, 3
SEED = 8
NOISE = PRIOR = 50.0
MEANS = np.array([3.6, 11.4, 11.1, 0.07, 0.555, 6.28, 68.6, 3.8, 9.5, 408.0, 18.5, 357.0, 12.7])
SDS = np.array([8.6, 23.3, 6.9, 0.25, 0.116, 0.70, 28.1, 2.1, 8.7, 168.0, 2.2, 91.0, 7.1])
OUTCOME = (22.5, 9.2)
ROWS = 506
EXACT, NUTS = "degree 2", "NUTS, 5,000 draws"
PUBLISHED = {EXACT: 0.0, NUTS: 10.8}
SOURCE = "Leluc et al., AIS with control variates"

rng = np.random.default_rng(SEED)
x = MEANS + SDS * rng.normal(size=(ROWS, 13))
y = OUTCOME[0] + OUTCOME[1] * rng.normal(size=ROWS)
precision = x.T @ x / NOISE**2 + np.eye(13) / PRIOR**2
covariance = np.linalg.inv(precision)
center = covariance @ x.T @ y / NOISE**2
factor = np.linalg.cholesky(covariance)
TRUTH = float(center @ center + np.trace(covariance))


def data_of(n):
    def data(r):
        z = np.random.default_rng([SEED, n, r]).normal(size=(CHAINS, n // CHAINS, 13))
        draws = center + z @ factor.T
        return Data(draws, -(draws - center) @ precision, (draws**2).sum(-1, keepdims=True))

    return data


METHODS = {
    "plain": Planned(lambda data, seed: data.values.mean(), REPEATS),
    "Polynomial(1)": Planned(ours(scv.Polynomial(1)), REPEATS),
    "Polynomial(2)": Planned(ours(scv.Polynomial(2)), REPEATS),
    "Polynomial(2), learned": Planned(ours(scv.Polynomial(2), "learned"), FEWER),
    "Kernel()": Planned(ours(scv.Kernel()), FEWER),
    "CNCV()": Planned(ours(scv.CNCV()), FEWEST),
    "Auto()": Planned(ours(scv.Auto()), FEWER),
}


def main() -> None:
    print(f"the mean is {TRUTH:.2f}")
    lines = []
    for n in SIZES:
        planned = METHODS if n < 1000 else {k: v for k, v in METHODS.items() if k not in ("CNCV()", "Kernel()")}
        for label, estimates in replicate(f"row08-{n}", data_of(n), planned).items():
            beside = NUTS if label == "plain" else EXACT
            lines.append(
                Line(8, "linear regression, D = 13", f"sum of theta^2, n = {n}", label, RMSE, beside,
                     exactly(PUBLISHED[beside]), error(estimates - TRUTH, RMSE), len(estimates),
                     "model, prior, noise, f", "data simulated like theirs; exact draws, not NUTS; n; repeats", SOURCE)
            )  # fmt: skip
    keep(lines, "row08")


if __name__ == "__main__":
    main()
