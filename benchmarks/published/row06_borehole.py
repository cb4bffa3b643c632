"""Row 6: water through a borehole, eight independent normals, 10 to 150 draws.

    python benchmarks/published/row06_borehole.py

Published (Sun, Barp, Briol, vector-valued control variates, Table 2): mean absolute error of 100 repeats, below. vvCV
also sees as many values of a cheaper model of the same flow; ours does not.
"""

import numpy as np
from common import ABSOLUTE, Data, Line, Planned, error, in_sample, keep, of_repeats, ours, replicate

import steincv as scv

SIZES = (10, 20, 50, 100, 150)
REPEATS, FEWER, FEWEST = 100, 100, 20
SEED = 6
MEAN = np.array([0.1, 100.0, 89335.0, 89.55, 1050.0, 760.0, 1400.0, 10950.0])
VARIANCE = np.array([0.0161812**2, 0.01, 20.0, 1.0, 1.0, 1.0, 10.0, 30.0])
PUBLISHED_TRUTH = 72.8904  # from draws; quadrature() says 72.8786
PUBLISHED = {
    "plain": (6.418, 4.314, 2.629, 1.827, 1.423),
    "control functional": (2.236, 1.960, 1.761, 1.712, 1.671),
    "vvCV": (3.722, 1.290, 1.044, 1.074, 0.854),
}
SOURCE = "Sun, Barp, Briol, vvCV, Table 2"


def flow(x):
    """The flow in cubic metres per year; x (..., 8): r_w, r, T_u, T_l, H_u, H_l, L, K_w."""
    r_w, r, t_u, t_l, h_u, h_l, length, k_w = np.moveaxis(x, -1, 0)
    log = np.log(r / r_w)
    return 2 * np.pi * t_u * (h_u - h_l) / (log * (1 + 2 * length * t_u / (log * r_w**2 * k_w) + t_u / t_l))


def quadrature() -> float:
    """Return the mean of the flow by a product of Gauss rules, 40 points for r_w, which carries the curvature."""
    rules = [np.polynomial.hermite_e.hermegauss(40 if k == 0 else 3) for k in range(8)]
    nodes = np.stack(np.meshgrid(*(n for n, _ in rules), indexing="ij"), axis=-1).reshape(-1, 8)
    weight = np.ones(1)
    for _, w in rules:
        weight = np.outer(weight, w / w.sum()).ravel()
    x = MEAN + nodes * np.sqrt(VARIANCE)
    inside = x[:, 0] > 0  # beyond six standard deviations, where there is no flow
    return float(weight[inside] @ flow(x[inside]))


def data_of(n):
    def data(r):
        x = MEAN + np.random.default_rng([SEED, n, r]).normal(size=(1, n, 8)) * np.sqrt(VARIANCE)
        return Data(x, -(x - MEAN) / VARIANCE, flow(x)[..., None])

    return data


METHODS = {
    "plain": Planned(lambda data, seed: data.values.mean(), REPEATS),
    "Polynomial(1)": Planned(ours(scv.Polynomial(1)), REPEATS),
    "Polynomial(2)": Planned(ours(scv.Polynomial(2)), REPEATS),
    "Polynomial(2), learned": Planned(ours(scv.Polynomial(2), "learned"), REPEATS),
    "Kernel()": Planned(ours(scv.Kernel()), REPEATS),
    "Kernel(), as theirs": Planned(in_sample(scv.Kernel()), REPEATS),
    "CNCV()": Planned(ours(scv.CNCV()), FEWEST),
    "Auto()": Planned(ours(scv.Auto()), FEWER),
}


def main() -> None:
    truth = quadrature()
    print(f"mean by quadrature {truth:.4f}, published {PUBLISHED_TRUTH}")
    lines = []
    for i, n in enumerate(SIZES):
        found = replicate(f"row06-{n}", data_of(n), METHODS)
        best = min(("control functional", "vvCV"), key=lambda name: PUBLISHED[name][i])
        for label, estimates in found.items():
            beside = {"plain": "plain", "Kernel(), as theirs": "control functional"}.get(label, best)
            other = "truth by quadrature; repeats" + ("; vvCV has a second, cheaper f" if beside == "vvCV" else "")
            theirs = of_repeats(PUBLISHED[beside][i], 100, ABSOLUTE)
            lines.append(
                Line(6, "borehole, D = 8", f"flow, n = {n}", label, ABSOLUTE, beside, theirs,
                     error(estimates - truth, ABSOLUTE), len(estimates), "density, f, n, measure; exact draws", other,
                     SOURCE)
            )  # fmt: skip
            common = error(found["plain"][: len(estimates)] - truth, ABSOLUTE).value
            print(f"n = {n}, {label}: {lines[-1].ours.value / common:.2f} of the plain error on the same draws")
    keep(lines, "row06")


if __name__ == "__main__":
    main()
