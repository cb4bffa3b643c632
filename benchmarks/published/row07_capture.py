"""Capture-recapture of the European dipper: the evidence as a mean over the prior, D = 12, against published ratios.

A Cormack-Jolly-Seber model, seven years, survival phi_1..6 and recapture p_2..7, all uniform on [0, 1]. The evidence is
the mean of the likelihood over n *prior* draws, in logits: there the score of the prior is 1 - 2 x and Stein's identity
holds. Published, mean squared error of the plain mean over that of the best of several methods: 20.7 at n = 2000 and
22.8 at n = 5000 (Leluc, Portier, Segers 2021, Statistics and Computing 31, Tables 8-9).

Of the likelihood itself this cannot be matched: the likelihood is so narrow that hardly a draw of
thousands reaches it. Nearly every estimate is then 0, and every ratio 1. (One run of the posterior
gives that evidence: `scv.bridge`.) So the mean of the log likelihood over the prior is measured too.

Data: `data/capture.csv`, the capture histories of Lebreton, Burnham, Clobert, Anderson (1992), Ecological Monographs 62
(collected by Marzolin), one bird a row. Truth: importance sampling from a t distribution at the mode, 1,000,000 draws.

    python benchmarks/published/row07_capture.py [repeats]
"""

import csv
import sys
from pathlib import Path

import numpy as np
import scipy.optimize
import scipy.special

import steincv as scv

HERE = Path(__file__).parent
SIZES = (2000, 5000)
PUBLISHED = {2000: 20.7, 5000: 22.8}
REPEATS = 20
METHODS = {"Polynomial(2)": scv.Polynomial(2), "Polynomial(3)": scv.Polynomial(3)}


def counts() -> tuple[np.ndarray, np.ndarray]:
    """Return the different capture histories and how many birds have each."""
    histories = np.loadtxt(HERE / "data" / "capture.csv", delimiter=",")[:, 1:].astype(int)
    return np.unique(histories[histories.any(axis=1)], axis=0, return_counts=True)


def log_likelihood(x: np.ndarray) -> np.ndarray:
    """Return it at rows of survival and recapture probabilities, `(n, 12)`."""
    phi, p = x[:, :6], x[:, 6:]
    unseen = [np.ones(len(x))]  # the chance not to be seen again, after the last year first
    for t in range(5, -1, -1):
        unseen.append(1 - phi[:, t] + phi[:, t] * (1 - p[:, t]) * unseen[-1])
    unseen = unseen[::-1]
    total = np.zeros(len(x))
    for history, birds in zip(*HISTORIES, strict=True):
        seen = np.flatnonzero(history)
        chance = np.log(unseen[seen[-1]])
        for t in range(seen[0], seen[-1]):
            chance = chance + np.log(phi[:, t]) + np.log(p[:, t] if history[t + 1] else 1 - p[:, t])
        total += birds * chance
    return total


HISTORIES = counts()


def truth(draws: int = 1_000_000) -> tuple[float, float]:
    """Return the log evidence and the relative error of the evidence."""

    def log_posterior(z: np.ndarray) -> np.ndarray:
        x = np.clip(scipy.special.expit(z), 1e-12, 1 - 1e-12)
        return log_likelihood(x) + (np.log(x) + np.log1p(-x)).sum(axis=1)

    found = scipy.optimize.minimize(lambda z: -float(log_posterior(z[None])[0]), np.ones(12), method="BFGS")
    factor = np.linalg.cholesky(1.3 * found.hess_inv)
    rng, freedom, parts = np.random.default_rng(0), 6, []
    for _ in range(draws // 50_000):
        e = rng.normal(size=(50_000, 12)) / np.sqrt(rng.chisquare(freedom, size=(50_000, 1)) / freedom)
        log_q = scipy.special.gammaln((freedom + 12) / 2) - scipy.special.gammaln(freedom / 2)
        log_q = log_q - 6 * np.log(freedom * np.pi) - np.log(np.diag(factor)).sum()
        log_q = log_q - (freedom + 12) / 2 * np.log1p((e**2).sum(axis=1) / freedom)
        parts.append(log_posterior(found.x + e @ factor.T) - log_q)
    ratio = np.concatenate(parts)
    weight = np.exp(ratio - ratio.max())
    return float(ratio.max() + np.log(weight.mean())), float(weight.std() / weight.mean() / np.sqrt(len(weight)))


def mean_log_likelihood(draws: int = 400_000) -> float:
    """Return the prior mean of the log likelihood from very many draws, controlled."""
    x = np.random.default_rng(1).uniform(size=(4, draws // 4, 12))
    f = log_likelihood(x.reshape(-1, 12)).reshape(4, -1)
    result = scv.estimate(scv.Samples(scipy.special.logit(x), 1 - 2 * x), f, scv.Polynomial(2))
    print(f"mean log likelihood {float(result.mean):.4f} +- {float(result.standard_error):.1e}", flush=True)
    return float(result.mean)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    exact, error = truth()
    print(f"log evidence {exact:.4f}, relative error {error:.1e}", flush=True)
    middle = mean_log_likelihood()
    rows = []
    for n in SIZES:
        off: dict[tuple[str, str], list[float]] = {}
        for k in range(repeats):
            x = np.random.default_rng([7, n, k]).uniform(size=(4, n // 4, 12))
            log = log_likelihood(x.reshape(-1, 12)).reshape(4, -1)
            samples = scv.Samples(scipy.special.logit(x), 1 - 2 * x)
            for f, values in {"likelihood": np.exp(log - exact) - 1, "log likelihood": log - middle}.items():
                for name, method in METHODS.items():
                    result = scv.estimate(samples, values, method, seed=k)
                    off.setdefault((f, name), []).append(float(result.mean))
                off.setdefault((f, "plain"), []).append(float(result.plain.mean))
        for (f, name), found in off.items():
            plain, square = (float(np.mean(np.square(x))) for x in (off[f, "plain"], found))
            row = {"n": n, "f": f, "method": name, "repeats": repeats, "plain_mse": f"{plain:.3g}"}
            rows.append(row | {"mse": f"{square:.3g}", "ratio": f"{plain / square:.3g}", "published": PUBLISHED[n]})
            print(rows[-1], flush=True)
    with (HERE.parent / "results" / "published_row07_capture.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
