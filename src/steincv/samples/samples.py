"""Draws, scores and names, validated once, here and nowhere else."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from ..runtime.validation import InputError, whole_number
from .given import column_labels, plain_array, with_draws_first
from .log_density import LogDensity

if TYPE_CHECKING:
    from .streamed import Openable, Streamed

Constrain = Callable[[Any], Mapping[str, Any]]

# Sums and differences of numbers up to this size are still finite in float64.
LARGEST = 1e300
# Kish's effective number of draws, below which there is nothing to make an error bar of: as many as a chain must have.
FEWEST = 4.0


def finite_array(name: str, value: object, *, copy: bool = True) -> np.ndarray:
    """`value` as a finite float64 array, or an `InputError` saying which entry is wrong. `copy`: of its own memory."""
    try:
        array = value if type(value) is np.ndarray else plain_array(name, value)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"`{name}` cannot be read as an array: {error}") from error
    if array.dtype == object or array.dtype.kind not in "fiub":
        raise InputError(
            f"`{name}` has dtype {array.dtype}, expected real numbers. "
            f"Ragged lists, strings and complex values cannot be used."
        )
    if array.size == 0:
        raise InputError(f"`{name}` is empty: it has shape {array.shape}.")
    array = (np.array if copy else np.asarray)(array, dtype=np.float64, order="C")
    if not (array.min() > -LARGEST and array.max() < LARGEST):  # so is nothing that holds a NaN
        bad = ~(np.abs(array) < LARGEST)
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        kind = f"entries of size {LARGEST:.0e} or more" if np.isfinite(array).all() else "non-finite entries"
        raise InputError(
            f"`{name}` holds {int(bad.sum())} {kind} of {array.size}; the first is "
            f"{array[first]} at index {first}. Remove those draws or repair the model that made them."
        )
    return array


Frozen = TypeVar("Frozen", "Parameters", "Samples")


def _fill(made: Frozen, **known: object) -> Frozen:
    """Set the fields of an object that cannot be changed afterwards: those not named become None."""
    for name in made.__dataclass_fields__:
        object.__setattr__(made, name, known.get(name))
    return made


@dataclass(frozen=True, eq=False, init=False)
class Parameters:
    """The parameters as the user knows them, at every draw: what `constrain` would return, already computed.

    - `arrays`: `(chain, draw, ...)` for every name.
    - `shown`: what a table lists where there is no f, in its order. The others, deterministic ones, are there for f.
    - `coords`: the labels along every axis after chain and draw, for those names that have them.
    """

    arrays: Mapping[str, np.ndarray]
    shown: tuple[str, ...]
    coords: Mapping[str, tuple[tuple[str, ...], ...]]
    _rows: tuple[np.ndarray, np.ndarray] | None

    def __init__(
        self,
        arrays: Mapping[str, Any],
        shown: Iterable[str] | None = None,
        coords: Mapping[str, Sequence[Iterable[Any]]] | None = None,
    ):
        read = {str(name): _numbers(str(name), array) for name, array in arrays.items()}
        wanted = tuple(read if shown is None else shown)
        absent = [name for name in wanted if name not in read]
        if absent:
            raise InputError(f"there are no values of {', '.join(absent)} at every draw.")
        listed = tuple(name for name in wanted if read[name].size)
        if not listed:
            raise InputError("`parameters` is empty: it names nothing to estimate.")
        labels = {name: tuple(tuple(map(str, axis)) for axis in axes) for name, axes in (coords or {}).items()}
        for name, axes in labels.items():
            if tuple(map(len, axes)) != read[name].shape[2:]:
                raise InputError(
                    f"the labels of `{name}` count {tuple(map(len, axes))}, its axes have {read[name].shape[2:]}."
                )
        # where labels repeat, positions tell entries apart
        told_apart = {k: v for k, v in labels.items() if all(len(set(a)) == len(a) for a in v)}
        _fill(self, arrays=read, shown=listed, coords=told_apart)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise InputError(f"there is no parameter `{name}`; there are {', '.join(self.arrays)}.")
        return self.arrays[name] if self._rows is None else self.arrays[name][self._rows]

    def select(self, chains: np.ndarray, draws: np.ndarray) -> "Parameters":
        """The same rectangle as of the samples; nothing is copied until it is asked for."""
        if self._rows is not None:
            chains, draws = self._rows[0].ravel()[chains], self._rows[1].ravel()[draws]
        return _fill(object.__new__(Parameters), **vars(self) | {"_rows": np.ix_(chains, draws)})


def _numbers(name: str, value: object) -> np.ndarray:
    """Real numbers, floats in float64. They need not be finite: f may have no use for them."""
    array = plain_array(name, value)
    if array.dtype.kind not in "fiub":
        raise InputError(f"the parameter `{name}` has dtype {array.dtype}, expected real numbers.")
    return array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array


def default_names(dim: int) -> tuple[str, ...]:
    """Return what coordinates are called that nobody named."""
    return tuple(f"x[{i}]" for i in range(dim))


@dataclass(frozen=True, eq=False, init=False)
class Samples:
    r"""Draws of a density on R^dim, and its score at each of them.

    `scores[c, i]` is $\nabla \log p$ at `draws[c, i]`, in the same *unconstrained* coordinates. For a
    parameter with bounds that means after the change of variables, with its log Jacobian inside $p$.

    **Arguments:**

    - `draws`: `(chain, draw, dim)`, or `(draw, dim)` for one chain. Axes of xarray called chain and draw may stand in
      any order.
    - `scores`: the same shape.
    - `names`: one label a coordinate; if not given the columns of a data frame, or `x[0]`, `x[1]`, ...
    - `constrain`: maps one unconstrained vector to a dict of the parameters as the user knows them.
    - `parameters`: what `constrain` would return at the draws: a dict of arrays `(chain, draw, ...)`. With both, the
      arrays are used at the draws, and the function at other points.
    - `log_density`: the model, where it can still be asked: a function of one unconstrained vector that JAX can
      differentiate, or that returns the log density and its gradient. `estimate` then looks around every draw.
    - `fitting`: a pair of draws and scores `(n, dim)` or `(chain, draw, dim)` to fit on as well, such as those of the
      warm-up; they are never averaged over.
    - `log_weights`: `(chain, draw)`, of draws from another distribution, as importance sampling and sequential Monte
      Carlo have them, up to a constant. Chains are then independent batches, and means are weighted.
    - `gradients`: how many gradients the sampler took for these draws. `orbits="auto"` takes no more than that.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> Samples(x, -x, names=["a", "b"])
    Samples(4 chains x 100 draws x 2 dimensions: a, b)
    """

    draws: Float[np.ndarray, "chain draw dim"]
    scores: Float[np.ndarray, "chain draw dim"]
    names: tuple[str, ...]
    constrain: Constrain | None
    parameters: Parameters | None
    log_density: LogDensity | None
    fitting: tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, "n dim"]] | None
    log_weights: Float[np.ndarray, "chain draw"] | None
    gradients: int | None

    def __init__(
        self,
        draws: object,
        scores: object,
        names: Sequence[str] | None = None,
        constrain: Constrain | None = None,
        parameters: Mapping[str, Any] | Parameters | None = None,
        log_density: object = None,
        fitting: object = None,
        log_weights: object = None,
        gradients: int | None = None,
    ):
        labels = None
        if not (type(draws) is type(scores) is np.ndarray):
            labels = column_labels(draws, scores)
            draws, scores = with_draws_first("draws", draws), with_draws_first("scores", scores)
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
        names = (labels or default_names(dim)) if names is None else names
        if isinstance(names, str) or not isinstance(names, Iterable):
            kind = "the string " if isinstance(names, str) else ""
            raise InputError(f"`names` is {kind}{names!r}, expected a sequence of {dim} strings.")
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
        if parameters is not None:
            parameters = parameters if isinstance(parameters, Parameters) else Parameters(parameters)
            for name, array in parameters.arrays.items():
                if array.shape[:2] != draws.shape[:2]:
                    raise InputError(
                        f"the parameter `{name}` has shape {array.shape}, expected {draws.shape[:2]} and more axes: "
                        f"one value at every draw."
                    )
        model = None if log_density is None else LogDensity.of(log_density, draws[0, 0])
        more = None if fitting is None else _fitting(fitting, dim)
        spent = None if gradients is None else whole_number("gradients", gradients, 0)
        weights = None if log_weights is None else _log_weights(log_weights, draws.shape[:2])
        if weights is not None and more is not None:
            raise InputError("`fitting` is not for draws with `log_weights`: it has none. Leave one of them out.")
        _fill(
            self,
            draws=draws,
            scores=scores,
            names=names,
            constrain=constrain,
            parameters=parameters,
            log_density=model,
            fitting=more,
            log_weights=weights,
            gradients=spent,
        )

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

    @staticmethod
    def open(path: "Openable") -> "Streamed":
        """Draws and scores that stay in their file, for `steincv.estimate`: more than memory holds.

        `path` is a Zarr folder or a NetCDF file with `unconstrained_draw` and `gradient` (nutpie's names, in the group
        `sample_stats` or at the root) or `draws` and `scores`, with dimensions chain, draw and one more; or an xarray
        dataset that is open already. `read(every=10)` of the result has every tenth draw in memory, for all else.
        """
        from .streamed import Streamed, open_source  # which needs this module

        return Streamed(open_source(path))

    @classmethod
    def trusted(
        cls, draws: np.ndarray, scores: np.ndarray, names: tuple[str, ...], log_weights: np.ndarray | None = None
    ) -> "Samples":
        """Of arrays `(chain, draw, dim)` that come from checked samples: they are not checked again, nor copied."""
        return _fill(object.__new__(cls), draws=draws, scores=scores, names=names, log_weights=log_weights)

    @classmethod
    def at(cls, points: np.ndarray, like: "Samples") -> "Samples":
        """Return points `(chain, draw, dim)` of the same model to evaluate functions at.

        They have no scores, and f need not be finite there.
        """
        return _fill(object.__new__(cls), draws=points, scores=points, names=like.names, constrain=like.constrain)

    @property
    def anywhere(self) -> bool:
        """Whether these are points without scores, from `Samples.at`."""
        return self.scores is self.draws

    def select(self, chains: np.ndarray, draws: np.ndarray) -> "Samples":
        """The rectangle of those chains and draw indices. Already validated, so not checked again."""
        take = np.ix_(chains, draws)
        part = {
            "draws": self.draws[take],
            "scores": self.scores[take],
            "parameters": None if self.parameters is None else self.parameters.select(chains, draws),
            "log_weights": None if self.log_weights is None else self.log_weights[take],
        }
        return _fill(object.__new__(Samples), **vars(self) | part)

    def __repr__(self) -> str:
        chains, draws, dim = self.draws.shape
        shown = ", ".join(self.names[:6]) + (", ..." if dim > 6 else "")
        return f"Samples({chains} chains x {draws} draws x {dim} dimensions: {shown})"


def _fitting(given: object, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Check draws and scores that are only fitted on, and return them as `(n, dim)`."""
    if not (isinstance(given, tuple | list) and len(given) == 2):
        raise InputError("`fitting` must be a pair of draws and scores.")
    draws, scores = finite_array("fitting draws", given[0]), finite_array("fitting scores", given[1])
    if draws.shape != scores.shape or draws.ndim not in (2, 3) or draws.shape[-1] != dim:
        raise InputError(
            f"`fitting` has draws of shape {draws.shape} and scores of shape {scores.shape}; expected both (n, {dim}) "
            f"or (chain, draw, {dim})."
        )
    return draws.reshape(-1, dim), scores.reshape(-1, dim)


def _log_weights(given: object, shape: tuple[int, int]) -> Float[np.ndarray, "chain draw"] | None:
    """Return log weights `(chain, draw)`, or None where all are the same; minus infinity is a weight of zero."""
    try:
        array = np.array(plain_array("log_weights", given))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"`log_weights` cannot be read as real numbers: {error}") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"`log_weights` cannot be read as real numbers: they have dtype {array.dtype}.")
    array = array.astype(np.float64)
    if shape[0] == 1 and array.shape == shape[1:]:
        array = array[None]
    if array.shape != shape:
        raise InputError(f"`log_weights` has shape {array.shape}, expected {shape}: one number for every draw.")
    bad = np.isnan(array) | np.isposinf(array)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"`log_weights` holds {int(bad.sum())} entries that are NaN or infinite of {array.size}; the first is "
            f"{array[first]} at index {first}. A draw without weight has minus infinity."
        )
    if np.isneginf(array).all():
        raise InputError(f"`log_weights` is minus infinity at all {array.size} draws: no draw has any weight.")
    if (array == array.flat[0]).all():
        return None
    weight = np.exp(array - array.max())
    if (left := float(weight.sum() ** 2 / (weight**2).sum())) < FEWEST:
        chain, draw = (int(i) for i in np.unravel_index(np.argmax(array), shape))
        raise InputError(
            f"`log_weights` give draw {draw} of chain {chain} {weight.max() / weight.sum():.2%} of all the weight: "
            f"{array.size} draws count as {left:.1f}, too few for an error bar. Use a proposal closer to the density, "
            f"or temperatures between the two."
        )
    return array


# Series moved and scaled into [-1, 1], so that no square of them over- or underflows -----------------


class UnitRange(NamedTuple):
    """A series as `center + spread * unit`, with `unit` in [-1, 1]."""

    unit: np.ndarray
    center: np.ndarray
    spread: np.ndarray


def unit_range(series: np.ndarray, leading: int = 2, center: np.ndarray | float | None = None) -> UnitRange:
    """Scale the series into [-1, 1], each output by itself; the first `leading` axes run over its draws.

    `center` is the first draw if not given: exact for a constant series, as a mean is not.
    """
    center = np.asarray(series[(0,) * leading] if center is None else center)
    spread = spread_about(series, center, leading)
    return UnitRange((series - center) / spread, center, spread)


def spread_about(series: np.ndarray, center: np.ndarray | float, leading: int = 2, least: float = 0.0) -> np.ndarray:
    """Return the largest distance of every output from `center`, and 1 where it is at most `least` times `center`."""
    axes = tuple(range(leading))
    spread = np.maximum(series.max(axis=axes) - center, center - series.min(axis=axes))
    return np.where(spread > least * np.abs(center), spread, 1.0)
