r"""Power posteriors $p_t(\theta) \propto p(y|\theta)^t\,p(\theta)$ in unconstrained coordinates, with their scores."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..runtime.double import shapes
from ..runtime.rows import over_rows
from ..runtime.validation import InputError
from ..samples.samples import Samples
from .bijections import Bijection, Vector


@dataclass(frozen=True, eq=False)
class PowerPosterior:
    r"""A model: a log likelihood and a log prior, in JAX, of *constrained* parameters.

    In unconstrained coordinates x with $\theta = T(x)$ the density at temperature t is
    $\log p_t(x) = t\,\log p(y|T(x)) + \log p(T(x)) + \log|\det \partial T/\partial x|$ up to a constant. The prior must
    be normalised, and the likelihood as well if the evidence is to be compared between models.

    **Arguments:**

    - `log_likelihood`, `log_prior`: functions of a dict of the parameters, each returning one number.
    - `parameters`: where each parameter lives: `{"theta": Positive(), "w": Simplex(3), "b": Real((2,))}`.
    - `draw_prior`: from a JAX key to a dict of parameters drawn from the prior. With it chains start in the prior, and
      the rung at t = 0 takes fresh prior draws, which carries every other rung along.
    - `vectorised`: both functions take parameters with one more, last, axis of draws, and return one number per draw.
      Worth it for loops over time, where that layout is the fast one.

    >>> import jax.numpy as jnp
    >>> from steincv.evidence import Positive, PowerPosterior
    >>> model = PowerPosterior(
    ...     log_likelihood=lambda p: -0.5 * (1.3 - p["theta"]) ** 2,
    ...     log_prior=lambda p: -p["theta"],
    ...     parameters={"theta": Positive()},
    ... )
    >>> model.names
    ('theta',)
    """

    log_likelihood: Callable[[Any], Any]
    log_prior: Callable[[Any], Any]
    parameters: Mapping[str, Bijection]
    draw_prior: Callable[[Any], Mapping[str, Any]] | None = None
    vectorised: bool = False

    def __post_init__(self) -> None:
        for name in ("log_likelihood", "log_prior"):
            if not callable(getattr(self, name)):
                raise InputError(f"`{name}` must be a function of a dict of the parameters.")
        whole = isinstance(self.parameters, Mapping) and len(self.parameters) > 0
        if not whole or not all(isinstance(b, Bijection) for b in self.parameters.values()):
            raise InputError(
                "`parameters` must be a dict that says where each parameter lives, as in {'tau': Positive()}; "
                f"got {self.parameters!r}."
            )

    @property
    def dim(self) -> int:
        """The number of unconstrained coordinates."""
        return sum(b.size for b in self.parameters.values())

    @property
    def names(self) -> tuple[str, ...]:
        """A label for every unconstrained coordinate: `tau`, `b[0]`, `b[1]`, ..."""
        labels = []
        for name, b in self.parameters.items():
            labels += [name] if b.shape == () else [f"{name}[{i}]" for i in range(b.size)]
        return tuple(labels)

    # In JAX, to be traced ----------------------------------------------------------------------------------

    def constrain(self, x: Vector) -> dict[str, Vector]:
        """Return the parameters at one unconstrained vector."""
        return self._forward(x)[0]

    def unconstrain(self, parameters: Mapping[str, ArrayLike]) -> Array:
        """Return the unconstrained vector of some parameters."""
        return jnp.concatenate([b.inverse(parameters[name]) for name, b in self.parameters.items()])

    def _forward(self, x: Vector) -> tuple[dict[str, Vector], Vector | float]:
        """Return the parameters at one unconstrained vector, and the log determinant of the Jacobian."""
        values: dict[str, Vector] = {}
        total: Vector | float = 0.0
        start = 0
        for name, b in self.parameters.items():
            values[name], log_det = b.forward(x[start : start + b.size])
            total, start = total + log_det, start + b.size
        return values, total

    def parts(self, x: Vector) -> tuple[Array, Array]:
        """Return the log likelihood, and the log prior with the log Jacobian, at rows x `(n, dim)`: each `(n,)`."""

        def of(parameters: dict[str, Vector], log_det: Vector | float) -> tuple[Array, Array]:
            return self.log_likelihood(parameters), self.log_prior(parameters) + log_det

        if self.vectorised:
            return of(*jax.vmap(self._forward, out_axes=-1)(x))
        return jax.vmap(lambda row: of(*self._forward(row)))(x)

    def slopes(self, x: Vector) -> tuple[Array, Array]:
        """Return the gradients of the two `parts` at rows x: each `(n, dim)`. A draw depends on its own row alone."""
        # one after the other: with both at once the long way back through the likelihood is gone twice
        return jax.grad(lambda x: self.parts(x)[0].sum())(x), jax.grad(lambda x: self.parts(x)[1].sum())(x)

    # On the host ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Refuse a model whose functions fail, or return anything but one number."""
        draws = (1,) if self.vectorised else ()
        parameters = {n: jax.ShapeDtypeStruct((*b.shape, *draws), np.float64) for n, b in self.parameters.items()}
        for name in ("log_likelihood", "log_prior"):
            try:
                out = shapes(getattr(self, name), parameters)
            except Exception as error:
                reason = " ".join(str(error).split())[:300]
                raise InputError(f"`{name}` failed at rung 0: {type(error).__name__}: {reason}") from error
            shape = getattr(out, "shape", None)
            if shape != draws:
                found = f"an array of shape {shape}" if shape is not None else f"a {type(out).__name__}"
                wanted = "one number a draw, `(n,)`" if self.vectorised else "one number"
                raise InputError(
                    f"`{name}` returned {found} at rung 0, and would at every other; expected {wanted}: the sum over "
                    f"the data or the parameters."
                )

    def evaluate(self, draws: Float[np.ndarray, "*batch dim"]) -> tuple[np.ndarray, np.ndarray]:
        """Return `parts` at draws of any leading shape, in float64."""
        return self._map("parts", draws)

    def gradients(self, draws: Float[np.ndarray, "*batch dim"]) -> tuple[np.ndarray, np.ndarray]:
        """Return `slopes` at draws of any leading shape, in float64."""
        return self._map("slopes", draws)

    def samples(self, draws: Float[np.ndarray, "chain draw dim"], temperature: float) -> Samples:
        """Return draws of the power posterior at `temperature`, with their scores."""
        of_likelihood, of_prior = self.gradients(draws)
        # at t = 0 the likelihood plays no part, even where its gradient overflows
        scores = of_prior + temperature * of_likelihood if temperature > 0 else of_prior
        return Samples(draws, scores, self.names, self.constrain)

    def _map(self, what: str, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first, second = _compiled(self, what)(draws.reshape(-1, self.dim))
        shape = (*draws.shape[:-1], *first.shape[1:])
        return first.reshape(shape), second.reshape(shape)


@functools.lru_cache(maxsize=32)
def _compiled(model: PowerPosterior, what: str) -> Callable:
    return over_rows(getattr(model, what))
