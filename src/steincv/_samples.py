"""Draws, scores and names, validated once, here and nowhere else."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ._status import InputError

Constrain = Callable[[Any], Mapping[str, Any]]

# Sums and differences of numbers up to this size are still finite in float64.
LARGEST = 1e300


def finite_array(name: str, value: Any) -> np.ndarray:
    """`value` as a finite float64 array, or an `InputError` saying which entry is wrong."""
    try:
        array = np.asarray(value)
    except Exception as error:
        raise InputError(f"`{name}` cannot be read as an array: {error}") from error
    if array.dtype == object or array.dtype.kind not in "fiub":
        raise InputError(
            f"`{name}` has dtype {array.dtype}, expected real numbers. "
            f"Ragged lists, strings and complex values cannot be used."
        )
    if array.size == 0:
        raise InputError(f"`{name}` is empty: it has shape {array.shape}.")
    array = np.array(array, dtype=np.float64, order="C")
    bad = ~(np.abs(array) < LARGEST)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        kind = f"entries of size {LARGEST:.0e} or more" if np.isfinite(array).all() else "non-finite entries"
        raise InputError(
            f"`{name}` holds {int(bad.sum())} {kind} of {array.size}; the first is "
            f"{array[first]} at index {first}. Remove those draws or repair the model that made them."
        )
    return array


@dataclass(frozen=True, eq=False, init=False)
class Samples:
    r"""Draws of a density on R^dim, and its score at each of them.

    `scores[c, i]` is $\nabla \log p$ at `draws[c, i]`, in the same *unconstrained* coordinates. For a
    parameter with bounds that means after the change of variables, with its log Jacobian inside $p$.

    **Arguments:**

    - `draws`: `(chain, draw, dim)`, or `(draw, dim)` for one chain.
    - `scores`: the same shape.
    - `names`: one label a coordinate; `x[0]`, `x[1]`, ... if not given.
    - `constrain`: maps one unconstrained vector to a dict of the parameters as the user knows them.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> Samples(x, -x, names=["a", "b"])
    Samples(4 chains x 100 draws x 2 dimensions: a, b)
    """

    draws: Float[np.ndarray, "chain draw dim"]
    scores: Float[np.ndarray, "chain draw dim"]
    names: tuple[str, ...]
    constrain: Constrain | None

    def __init__(
        self,
        draws: Any,
        scores: Any,
        names: Sequence[str] | None = None,
        constrain: Constrain | None = None,
    ):
        draws, scores = finite_array("draws", draws), finite_array("scores", scores)
        if draws.shape != scores.shape:
            raise InputError(
                f"`draws` has shape {draws.shape} but `scores` has shape {scores.shape}: "
                f"there must be one score for every coordinate of every draw."
            )
        if draws.ndim not in (2, 3):
            hint = " For one parameter write draws[:, None]." if draws.ndim == 1 else ""
            raise InputError(f"`draws` has shape {draws.shape}, expected (chain, draw, dim) or (draw, dim).{hint}")
        if draws.ndim == 2:
            draws, scores = draws[None], scores[None]
        dim = draws.shape[-1]
        if isinstance(names, str):
            raise InputError(f"`names` is the string {names!r}, expected a sequence of {dim} strings.")
        names = tuple(f"x[{i}]" for i in range(dim)) if names is None else names
        if not isinstance(names, Iterable):
            raise InputError(f"`names` is {names!r}, expected a sequence of {dim} strings.")
        names = tuple(names)
        for i, name in enumerate(names):
            if not isinstance(name, str):
                raise InputError(f"`names` must hold strings only; entry {i} is {name!r}.")
        if len(names) != dim or len(set(names)) != dim:
            raise InputError(
                f"`names` must hold {dim} different strings, one a coordinate; "
                f"got {len(names)}, of which {len(set(names))} different."
            )
        if constrain is not None and not callable(constrain):
            raise InputError(f"`constrain` must be a function of one vector, got {type(constrain).__name__}.")
        self._set(draws, scores, names, constrain)

    def _set(self, draws: Any, scores: Any, names: Any, constrain: Any) -> None:
        for field, value in zip(
            ("draws", "scores", "names", "constrain"), (draws, scores, names, constrain), strict=True
        ):
            object.__setattr__(self, field, value)

    @property
    def chains(self) -> int:
        return self.draws.shape[0]

    @property
    def dim(self) -> int:
        return self.draws.shape[2]

    @property
    def size(self) -> int:
        """The number of draws, over all chains."""
        return self.draws.shape[0] * self.draws.shape[1]

    def select(self, chains: np.ndarray, draws: np.ndarray) -> "Samples":
        """The rectangle of those chains and draw indices. Already validated, so not checked again."""
        part = object.__new__(Samples)
        take = np.ix_(chains, draws)
        part._set(self.draws[take], self.scores[take], self.names, self.constrain)
        return part

    def __repr__(self) -> str:
        chains, draws, dim = self.draws.shape
        shown = ", ".join(self.names[:6]) + (", ..." if dim > 6 else "")
        return f"Samples({chains} chains x {draws} draws x {dim} dimensions: {shown})"
