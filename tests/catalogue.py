"""Every family, one row each. A new family adds a row here and inherits the laws and the bad inputs."""

from dataclasses import dataclass
from typing import Literal

import pytest

import steincv as scv
from steincv.families.polynomial.single import Single
from steincv.families.structured.curved import Curved
from steincv.families.structured.sparse import Sparse


@dataclass(frozen=True)
class Row:
    """A method and what theory promises of it.

    - `precision`: "closed form" is float64 and deterministic algebra; "network" is float32 and trained.
    - `cost`: "dear" rows get fewer draws where a law allows it.
    - `exact_degree`: f + g is constant for a Gaussian density and polynomials f up to this degree; 0 is none.
    - `reductions`: whether it reduces variance at all (the plain mean does not).
    - `trained`: it starts from random weights, so that a rotation of the coordinates is another start.
    - `chain_symmetric`: the order of the chains changes nothing but rounding. Not so where some draws are picked.
    - `axes`: it picks single coordinates or directions, so that a rotation of the coordinates is another problem.
    - `rounding`: what the fit may make of a rounding error: float64's over the smallest penalty "auto" may take.
    """

    name: str
    method: scv.Method
    precision: Literal["closed form", "network"] = "closed form"
    cost: Literal["cheap", "dear"] = "cheap"
    exact_degree: int = 0
    reductions: bool = True
    chain_symmetric: bool = True
    trained: bool = False
    rounding: float = 0.0
    axes: bool = False


CATALOGUE = (
    Row("plain", scv.MonteCarlo(), reductions=False),
    Row("polynomial 1", scv.Polynomial(1), exact_degree=1),
    Row("polynomial 2", scv.Polynomial(2), exact_degree=2),
    Row("polynomial 2, rotations", scv.Polynomial(2, rotations=True), exact_degree=2),
    Row("polynomial in one coordinate", Single(), axes=True),
    Row("polynomial 3", scv.Polynomial(3), cost="dear", exact_degree=3),
    Row("polynomial 2, no penalty", scv.Polynomial(2, penalty=0), exact_degree=2),
    Row("polynomial 2, diffusion", scv.Polynomial(2, objective="diffusion"), exact_degree=2),
    Row("polynomial 2, spectral", scv.Polynomial(2, objective="spectral"), exact_degree=2),
    Row("kernel", scv.Kernel(), cost="dear", rounding=1e-7),
    Row("kernel, matern", scv.Kernel("matern", lengthscale=2.0, penalty=1e-3), cost="dear"),
    Row(
        "kernel, rational quadratic, order 2", scv.Kernel("rational quadratic", 3.0, order=2, penalty=1e-3), cost="dear"
    ),
    Row("kernel, degree 2", scv.Kernel(degree=2), cost="dear", exact_degree=2, rounding=1e-7),
    Row("kernel, landmarks", scv.Kernel(landmarks=40), cost="dear", chain_symmetric=False, rounding=1e-7),
    Row("stack", scv.Stack([scv.Polynomial(1), scv.Polynomial(2)]), cost="dear"),
    Row("sparse", Sparse(), exact_degree=1, chain_symmetric=False, axes=True),
    Row("curved", Curved(), exact_degree=1, chain_symmetric=False, axes=True),
    Row("neural", scv.Neural(), precision="network", cost="dear", chain_symmetric=False, trained=True),
    Row(
        "cncv",
        scv.CNCV(steps=300, batch=32),
        precision="network",
        cost="dear",
        chain_symmetric=False,
        trained=True,
    ),
    # its learned coordinates are those of the model's own parameters, and their fit looks at some draws
    Row("auto", scv.Auto(), precision="network", cost="dear", axes=True, chain_symmetric=False),
)

every_family = pytest.mark.parametrize("row", CATALOGUE, ids=lambda row: row.name)
reducing = pytest.mark.parametrize("row", [r for r in CATALOGUE if r.reductions], ids=lambda row: row.name)
exact = pytest.mark.parametrize("row", [r for r in CATALOGUE if r.exact_degree], ids=lambda row: row.name)
