r"""Trial functions: networks that know their value and their *exact* divergence.

The divergence by one backward pass a coordinate is what makes neural control variates slow. For the networks here it
has a closed form, or is carried forward beside the value; only a user's own function pays for forward mode.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...runtime.validation import InputError, whole_number
from ..method import Control, Problem

if TYPE_CHECKING:
    import jax

    from .neural import Neural

ACTIVATIONS = ("sigmoid", "sin", "softplus", "tanh")


class Trial(abc.ABC):
    r"""A parametrised vector field $\Phi$ on R^dim for one output."""

    @abc.abstractmethod
    def init(self, key: "jax.Array", dim: int) -> Any:
        """Random weights."""

    @abc.abstractmethod
    def field(self, params: Any, z: "jax.Array") -> "tuple[jax.Array, jax.Array]":
        r"""$\Phi$ at draws `(n, dim)`, `(n, dim)` or `(n, 1)` if all coordinates are equal, and $\nabla\cdot\Phi$."""

    def solve(self, method: "Neural", problems: Sequence[Problem], seed: int) -> list[Control] | None:
        """Fit every problem in a way of its own, or return None to be trained by `Neural`."""
        return None


def check_network(name: str, width: int, depth: int, activation: str) -> None:
    whole_number("width", width, 1)
    whole_number("depth", depth, 1)
    if activation not in ACTIVATIONS:
        raise InputError(
            f"The 'activation' parameter of {name} must be one of {', '.join(ACTIVATIONS)}. Got {activation!r} instead."
        )


@dataclass(frozen=True)
class VectorField(Trial):
    r"""$\Phi$: R^dim -> R^dim, a fully connected network; the paper's trial function (2 x 40, sigmoid).

    Its divergence has a closed form with one and two hidden layers, without a loop over coordinates. Deeper networks
    use exact forward mode.
    """

    width: int = 40
    depth: int = 2
    activation: str = "sigmoid"

    def __post_init__(self) -> None:
        check_network("VectorField", self.width, self.depth, self.activation)

    def init(self, key: "jax.Array", dim: int) -> Any:
        return _fields().dense(key, [dim, *[self.width] * self.depth, dim])

    def field(self, params: Any, z: "jax.Array") -> "tuple[jax.Array, jax.Array]":
        return _fields().vector_field(params, self.activation, z)


@dataclass(frozen=True)
class ScalarField(Trial):
    r"""One $\phi$ shared by all coordinates, $\Phi = (\phi, \ldots, \phi)$: the paper's choice for Bayesian networks.

    $g = \sum_i \partial_i\phi + \phi \sum_i s_i$. With `context` further inputs, $\phi(z, x)$: those are what the test
    functions are indexed by, and no derivative is taken by them.
    """

    width: int = 40
    depth: int = 1
    activation: str = "sigmoid"
    context: int = 0

    def __post_init__(self) -> None:
        check_network("ScalarField", self.width, self.depth, self.activation)
        whole_number("context", self.context, 0)

    def init(self, key: "jax.Array", dim: int) -> Any:
        return _fields().dense(key, [dim + self.context, *[self.width] * self.depth, 1])

    def field(self, params: Any, z: "jax.Array", context: "jax.Array | None" = None) -> "tuple[jax.Array, jax.Array]":
        return _fields().scalar_field(params, self.activation, z, context)


@dataclass(frozen=True)
class Potential(Trial):
    r"""$\Phi = \nabla Q$ with $Q$ a network plus a polynomial of degree `degree`: the shape the best $\Phi$ has.

    The Laplacian is closed form with one hidden layer and carried forward with more. `Neural` fits one hidden layer of
    tanh by `potential_fit.py`, which is far better and faster than Adam alone. `width=None` chooses it by the number of
    outputs, `degree=None` by the number of draws; beside a quadratic that is chosen so there are rotations, fields that
    are no gradients (`Polynomial`).
    """

    width: int | None = None
    depth: int = 1
    activation: str = "tanh"
    degree: int | None = None

    def __post_init__(self) -> None:
        check_network("Potential", 1 if self.width is None else self.width, self.depth, self.activation)
        if self.degree not in (None, 0, 1, 2):
            raise InputError(
                f"The 'degree' parameter of Potential must be None, 0, 1 or 2. Got {self.degree!r} instead."
            )

    def init(self, key: "jax.Array", dim: int) -> Any:
        return _fields().init_potential(key, [dim, *[40 if self.width is None else self.width] * self.depth, 1])

    def field(self, params: Any, z: "jax.Array") -> "tuple[jax.Array, jax.Array]":
        return _fields().potential(params, self.activation, 2 if self.degree is None else self.degree, z)


@dataclass(frozen=True)
class Custom(Trial):
    """Any Equinox module or function R^dim -> R^dim; its divergence by exact forward mode.

    The arrays of a module are its weights, and where the fit starts. A function without arrays is scaled by one
    fitted number. `hutchinson`: an unbiased one-probe estimate of the divergence *during training only*.
    """

    function: Any
    hutchinson: bool = False

    def init(self, key: "jax.Array", dim: int) -> Any:
        return _fields().init_custom(self.function, dim)

    def field(self, params: Any, z: "jax.Array") -> "tuple[jax.Array, jax.Array]":
        return _fields().forward_mode(_fields().custom(self.function, params), z)

    def estimate(self, params: Any, z: "jax.Array", key: "jax.Array") -> "tuple[jax.Array, jax.Array]":
        """Return the field and Hutchinson's estimate of its divergence, with one random sign vector per draw."""
        return _fields().one_probe(_fields().custom(self.function, params), z, key)


def _fields() -> ModuleType:
    """Return the formulas of the networks, imported when a network is first used: JAX takes a second."""
    from . import fields

    return fields
