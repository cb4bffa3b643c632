"""How much more accurate, in truth: errors against known means over independent sets of NUTS chains.

    OPENBLAS_NUM_THREADS=1 python benchmarks/posteriors.py                    # all problems
    OPENBLAS_NUM_THREADS=1 python benchmarks/posteriors.py eight_schools 10   # one of them, fewer replications

Eight schools is item 3 of issue 3, logistic60 (60 dimensions, 4 x 500 draws) item 5. A row of
results/posteriors_PROBLEM.csv is a functional under a method:

- `true`: the plain mean's variance (its squared standard error, averaged) over the method's mean squared error against
  the truth, less the truth's own squared error; with its 90 % interval, from chi square on so many replications. Where
  the truth's share of that is more than half nothing is taken off, and the factor is one that is reached at least.
- `reported`: the same with the squared standard errors that the method reports: what a user is told.
- `over X`: mean squared error of method X over that of this one, and its standard error over paired replications.
"""

import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.stats
from problems import banana, draw, eight_schools, funnel, garch, logistic, lotka_volterra, mixture, truth, values_at
from sampling import _folder
from tables import keep, show

from steincv import Auto, MonteCarlo, Polynomial, Samples, estimate

# problem, draws a chain, replications, and what Auto() is compared with
STUDIES = {
    "eight_schools": (eight_schools, 1000, 20, Polynomial(2)),
    "logistic60": (lambda: logistic(60), 500, 10, Polynomial(1)),
    "garch": (garch, 500, 10, Polynomial(2)),
    "lotka_volterra": (lotka_volterra, 500, 10, Polynomial(2)),
    "logistic20": (logistic, 1000, 10, Polynomial(2)),
    "funnel5": (funnel, 1000, 20, Polynomial(2)),
    "banana4": (banana, 1000, 20, Polynomial(2)),
    "mixture10": (mixture, 1000, 20, Polynomial(2)),
}
METHODS = (MonteCarlo(), Polynomial(1), Polynomial(2), Auto())
CHAINS = 4
LEVEL = 0.90


def replicate(problem, draws, replications):
    """Means and standard errors (method, replication, out), and the median seconds of each method after its first.

    Every replication is kept beside the draws, so that a run that was stopped goes on; remove those files to start
    anew, after a change of the library above all.
    """
    kept = []
    for r, (x, s) in enumerate(draw(problem, 0, CHAINS, draws, replications)):
        path = _folder() / f"posteriors-{problem.name}-r{r}.npy"
        if not path.exists():
            samples, found = Samples(x, s), values_at(problem, x)
            values = {label: found[label] for label in problem.functionals}  # JAX sorts the keys of a dict
            rows = []
            for method in METHODS:
                begin = time.perf_counter()
                result = estimate(samples, values, method, seed=r)
                seconds = time.perf_counter() - begin
                rows.append([result.mean, result.standard_error, np.full(len(values), seconds)])
            np.save(path, rows)
            print(f"{problem.name} {r + 1}/{replications}: {seconds:.1f} s", flush=True)
        kept.append(np.load(path))
    means, errors, seconds = np.moveaxis(np.array(kept), [2, 1], [0, 1])
    return means, errors, np.median(seconds[:, 1:, 0], axis=1)


def study(name, fewer=None):
    make, draws, replications, rival = STUDIES[name]
    replications = fewer or replications
    problem = make()
    known = truth(problem)
    means, errors, seconds = replicate(problem, draws, replications)
    true, own = np.array([known[label] for label in problem.functionals]).T
    squares = (means - true) ** 2
    all_of_it = squares.mean(1)
    mse = np.where(own**2 < 0.5 * all_of_it, all_of_it - own**2, all_of_it)
    plain = (errors[0] ** 2).mean(0)
    other = METHODS.index(rival)
    low, high = scipy.stats.chi2.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2], replications) / replications
    rows = []
    for m, method in enumerate(METHODS):
        paired = squares[m] / squares[m].mean(0) - squares[other] / squares[other].mean(0)
        noise = paired.std(0, ddof=1) / np.sqrt(replications)
        for k, label in enumerate(problem.functionals):
            factor, over = plain[k] / mse[m, k], squares[other, :, k].mean() / squares[m, :, k].mean()
            rows.append(
                {"f": label, "method": str(method), "true": float(factor), "low": float(factor * low),
                 "high": float(factor * high), "reported": float(plain[k] / (errors[m, :, k] ** 2).mean()),
                 f"over {rival}": float(over), "+-": float(over * noise[k]),
                 "truth's share": float(own[k] ** 2 / squares[m, :, k].mean()), "seconds": float(seconds[m])}
            )  # fmt: skip
    show(f"{name}: {replications} replications of {CHAINS} x {draws} draws", rows)
    for method in METHODS[1:]:
        mine = [row for row in rows if row["method"] == str(method)]
        factors, told, over = ([row[key] for row in mine] for key in ("true", "reported", f"over {rival}"))
        print(
            f"{method}: true factor median {np.median(factors):.1f}, worst {min(factors):.1f}; reported median "
            f"{np.median(told):.1f}, worst {min(told):.1f}; over {rival} median {np.median(over):.2f}, "
            f"worst {min(over):.2f}; {mine[0]['seconds']:.1f} s"
        )
    keep(f"posteriors_{name}", rows)


def main():
    if len(sys.argv) > 1:
        study(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
        return
    for name in STUDIES:
        study(name)


if __name__ == "__main__":
    main()
