r"""Linear regression with known noise and a Gaussian prior: the evidence is known exactly.

$y = X\beta + \varepsilon$, $\varepsilon \sim N(0, \sigma^2)$, $\beta \sim N(0, \tau^2)$, so
$y \sim N(0, \sigma^2 I + \tau^2 XX^T)$; the power posteriors are Gaussian.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from steincv.evidence.bijections import Real
from steincv.evidence.power_posterior import PowerPosterior
from steincv.runtime.validation import whole_number
from steincv.samples.samples import Samples

from . import Example


@dataclass(frozen=True, eq=False)
class Regression:
    """The data and the two known scales."""

    x: Float[np.ndarray, "datum dim"]
    y: Float[np.ndarray, " datum"]
    sigma: float = 1.0
    tau: float = 1.0

    @classmethod
    def simulate(
        cls, dim: int = 5, data: int = 50, sigma: float = 1.0, tau: float = 1.0, seed: int = 0
    ) -> "Regression":
        dim, data = whole_number("dim", dim, 1), whole_number("data", data, 1)
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(data, dim))
        y = x @ (tau * rng.normal(size=dim)) + sigma * rng.normal(size=data)
        return cls(x, y, sigma, tau)

    @property
    def dim(self) -> int:
        return self.x.shape[1]

    @property
    def exact(self) -> float:
        """Return the log evidence."""
        n = len(self.y)
        covariance = self.sigma**2 * np.eye(n) + self.tau**2 * self.x @ self.x.T
        log_det = np.linalg.slogdet(covariance)[1]
        return float(-0.5 * (n * np.log(2 * np.pi) + log_det + self.y @ np.linalg.solve(covariance, self.y)))

    def log_likelihood(self, beta: Float[np.ndarray, "*draws dim"]) -> Any:
        residual = self.y - beta @ self.x.T
        return -0.5 * len(self.y) * np.log(2 * np.pi * self.sigma**2) - 0.5 * (residual**2).sum(-1) / self.sigma**2

    def draw(self, temperature: float, shape: tuple[int, int], rng: np.random.Generator) -> tuple[Samples, np.ndarray]:
        """Return independent draws `(chain, draw)` of a power posterior with scores, and their log likelihoods."""
        precision = temperature * self.x.T @ self.x / self.sigma**2 + np.eye(self.dim) / self.tau**2
        mean = temperature * np.linalg.solve(precision, self.x.T @ self.y) / self.sigma**2
        factor = np.linalg.cholesky(np.linalg.inv(precision))
        beta = mean + rng.normal(size=(*shape, self.dim)) @ factor.T
        return Samples(beta, -(beta - mean) @ precision), self.log_likelihood(beta)


def regression(dim: int = 5, seed: int = 0) -> Example:
    """Return a regression with 50 data and `dim` coefficients, all scales one."""
    data = Regression.simulate(dim, seed=seed)

    def log_likelihood(p: Any) -> Any:
        residual = data.y - data.x @ p["beta"]
        return -0.5 * len(data.y) * np.log(2 * np.pi * data.sigma**2) - 0.5 * (residual**2).sum() / data.sigma**2

    def log_prior(p: Any) -> Any:
        return -0.5 * (p["beta"] ** 2).sum() / data.tau**2 - 0.5 * data.dim * np.log(2 * np.pi * data.tau**2)

    def draw_prior(key: Any) -> dict[str, Any]:
        return {"beta": data.tau * jax.random.normal(key, (data.dim,))}

    posterior = PowerPosterior(log_likelihood, log_prior, {"beta": Real((data.dim,))}, draw_prior)
    return Example(f"conjugate linear regression, {data.dim} coefficients, {len(data.y)} data", posterior, data.exact)
