r"""The neural family: the paper's NCV and CNCV, and a default that is far better when draws are few."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ...runtime.compile_cache import compile_cache
from ...runtime.validation import InputError, whole_number
from ..method import Control, Method, Problem
from .potential_fit import fit_potentials
from .trials import Custom, Potential, Trial, VectorField

if TYPE_CHECKING:
    pass


class Choices(NamedTuple):
    """What "auto" means: the penalties tried by validation error, and the draws below which the centre is pre-trained.

    The paper (Wan et al. 2019) advises to pre-train it for few draws, or where |mean f| is below sd f.
    """

    penalties: tuple[float, ...] = (0.0, 1e-3, 1e-2)
    few_draws: int = 1000


CHOICES = Choices()


@dataclass(frozen=True)
class Neural(Method):
    r"""$g = \nabla\cdot\Phi + \Phi\cdot s$ with a network $\Phi$, fitted by the paper's constrained objective

    $$ \min_{w,\mu} \frac1n \sum_i \big[(f_i + g_i - \mu)^2 + \lambda g_i^2\big]. $$

    **Arguments:**

    - `trial`: `Potential(...)` (the default), `VectorField(...)`, `ScalarField(...)`, or any Equinox module or function
      from R^dim to R^dim. A potential with one hidden layer of tanh is fitted by Adam and Gauss-Newton with its linear
      part solved exactly, all outputs on one trunk (see `potential_fit.py`); everything else by Adam, one network an
      output, all outputs, folds, penalties and members in one compiled program.
    - `penalty`: $\lambda$; "auto" chooses among a few by validation error.
    - `center`: whether $\mu$ is learned. Without it this is the unconstrained NCV, which overfits few draws.
    - `center_start`: where $\mu$ starts: "mean" of f, "zero", "pretrain" (with a large $\lambda$ until converged, then
      all other weights drawn anew), or "auto", the paper's rule: "pretrain" for few draws or sd f > |mean f|.
    - `steps`, `batch`, `rate`: Adam's steps, minibatch size and learning rate.
    - `decay`: decay/n times the squared weights is added to the objective, as a Gaussian prior on them would.
    - `ensemble`: how many networks are averaged for each output. An average of control variates is one.
    - `early_stop`: keep the best weights on validation draws (the middle fifth of every chain).
    - `solver`: "auto", or "adam" to have a potential trained as every other network.
    - `objective`: what the linear part of a shallow potential makes small: "variance", or for slow chains "spectral",
      the variance of the mean, as in `Polynomial`.
    - `checkpoint`: a file to keep the state of a long fit in; the same call takes it up again. `progress`: a bar.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 150, 2))
    >>> result = scv.estimate(scv.Samples(x, -x), np.tanh(x[..., 0]), scv.Neural())
    >>> bool(result.variance_ratio < 0.1)
    True

    Reference: Wan, Zhong, Xiong, Zhu (2019), Neural Control Variates for Monte Carlo Variance Reduction, ECML PKDD.
    """

    trial: Any = field(default_factory=Potential)
    penalty: float | Literal["auto"] = "auto"
    center: bool = True
    center_start: str = "mean"
    steps: int = 3000
    batch: int = 128
    rate: float = 5e-3
    decay: float = 0.05
    ensemble: int = 2
    early_stop: bool = True
    solver: str = "auto"
    objective: str = "variance"
    checkpoint: str | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.trial, Trial):
            if not callable(self.trial):
                raise InputError(
                    f"The 'trial' parameter of Neural must be a trial function. Got {self.trial!r} instead."
                )
            object.__setattr__(self, "trial", Custom(self.trial))
        for name in ("steps", "batch", "ensemble"):
            whole_number(name, getattr(self, name), 1)
        self._positive("rate", self.rate, 0, strict=True)
        self._positive("decay", self.decay, 0)
        if self.penalty != "auto":
            self._positive("penalty", self.penalty, 0)
        choices = {"center_start": ("mean", "zero", "pretrain", "auto"), "solver": ("auto", "adam")}
        choices["objective"] = ("variance", "spectral")
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"The '{name}' parameter of Neural must be one of {', '.join(map(repr, allowed))}. "
                    f"Got {getattr(self, name)!r} instead."
                )

        if self.objective != "variance" and not self._is_shallow():
            raise InputError(
                f"objective={self.objective!r} is for a network whose last layer is solved for: Neural(Potential()), "
                f'solver="auto" and no checkpoint; or use Polynomial(2, objective={self.objective!r}).'
            )

    @staticmethod
    def _positive(name: str, value: Any, low: float, strict: bool = False) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not np.isfinite(value) or value < low or (strict and value == low):
            bounds = f"{'(' if strict else '['}{low}, inf)"
            raise InputError(f"The '{name}' parameter of Neural must be a number in {bounds}. Got {value!r} instead.")

    @property
    def together(self) -> bool:  # type: ignore[override]
        """Whether folds go into one compiled program. A shallow potential needs none, so each can have a worker."""
        return not self._is_shallow()

    def _is_shallow(self) -> bool:
        trial = self.trial
        shallow = isinstance(trial, Potential) and trial.depth == 1 and trial.activation == "tanh"
        return shallow and self.solver == "auto" and self.center and self.checkpoint is None

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        trial = self.trial
        if self._is_shallow():  # needs no compiler
            settings = {"width": trial.width, "degree": trial.degree, "objective": self.objective}
            return fit_potentials(problems, seed, **settings)
        with compile_cache():
            own = trial.solve(self, problems, seed)
            if own is not None:
                return own
            from .fitting import fit_networks  # brings JAX

            return fit_networks(self, problems, seed)


def NCV(trial: Any = None, **settings: Any) -> Neural:
    r"""The paper's unconstrained objective, mean $(f+g)^2$: no centre, no penalty. Overfits few draws."""
    return _as_published(trial, {"decay": 0.0, **settings}, penalty=0.0, center=False)


def CNCV(trial: Any = None, penalty: float | Literal["auto"] = 1e-3, center: bool = True, **settings: Any) -> Neural:
    r"""The paper's constrained objective, mean $[(f+g-\mu)^2 + \lambda g^2]$, with its 2 x 40 sigmoid network.

    `CNCV(penalty=0)` and `CNCV(center=False)` are the schemes in between; the paper's four are all settings of this.
    The paper does not say how its networks were optimised. Here: Adam with a little weight decay, which matters at
    n = 500 (variance ratio .03 instead of .16 on its synthetic problem). `CNCV(decay=0)` is the bare objective.
    """
    return _as_published(trial, settings, penalty=penalty, center=center)


def _as_published(trial: Any, settings: dict[str, Any], **objective: Any) -> Neural:
    """One network trained to the end, as in the paper: no early stopping, no ensemble."""
    published = {"steps": 10_000, "rate": 5e-3, "ensemble": 1, "early_stop": False}
    return Neural(VectorField() if trial is None else trial, **{**published, **objective, **settings})
