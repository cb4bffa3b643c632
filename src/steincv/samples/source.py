"""Sources of draws, in memory or in a file: both give draws and scores tile by tile."""

import abc
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..runtime.validation import GIB, InputError, reading, reserve
from .samples import LARGEST, Parameters, Samples
from .variables import Variable, rest


@dataclass(frozen=True)
class TileLimits:
    """Bytes of draws and scores, as float64, that are read at a time: the aim, and the most that chunks may force."""

    wanted: int = 32 << 20
    most: int = GIB


LIMITS = TileLimits()


class Tile(NamedTuple):
    """Draws `start` to `start + m` of all chains with their scores, and the columns that were asked for."""

    start: int
    draws: Float[np.ndarray, "chain m dim"]
    scores: Float[np.ndarray, "chain m dim"]
    others: tuple[np.ndarray, ...]


class Source(abc.ABC):
    """Draws and scores `(chain, draw, dim)` in float64, all finite, with names. `where` is what messages call it."""

    where: str
    names: tuple[str, ...]
    shape: tuple[int, int, int]

    @property
    @abc.abstractmethod
    def columns(self) -> Mapping[str, tuple[int, ...]]:
        """Names of the quantities that are there at every draw, and the shape of each at one draw."""

    @property
    @abc.abstractmethod
    def step(self) -> int:
        """Draws per chain that are read at a time: tiles begin at its multiples."""

    @abc.abstractmethod
    def _read(self, columns: Sequence[str], starts: Sequence[int]) -> Iterator[Tile]:
        """Yield the tiles of `step` draws that begin at `starts`."""

    def tiles(self, columns: Sequence[str] = ()) -> Iterator[Tile]:
        """Yield all draws."""
        self.require(columns)
        return self._read(columns, range(0, self.shape[1], self.step))

    def rows(self, index: Int[np.ndarray, " m"], columns: Sequence[str] = ()) -> Tile:
        """Gather the draws of these numbers, increasing, from every chain in one pass over the tiles that have any."""
        self.require(columns)
        chains, draws, dim = self.shape
        if len(index) and not (index[0] >= 0 and index[-1] < draws and (np.diff(index) > 0).all()):
            raise InputError(f"{self.where}: numbers of draws must increase from 0 to {draws - 1} at most.")
        shapes = [(dim,), (dim,), *(self.columns[name] for name in columns)]
        needed = 8.0 * chains * len(index) * sum(int(np.prod(shape)) for shape in shapes)
        reserve(f"{self.where}: {len(index)} draws of every chain", needed, "Use fewer draws.")
        whole = [np.empty((chains, len(index), *shape)) for shape in shapes]
        for tile in self._read(columns, np.unique(index // self.step * self.step).tolist()):
            low, high = np.searchsorted(index, [tile.start, tile.start + tile.draws.shape[1]])
            for into, part in zip(whole, (tile.draws, tile.scores, *tile.others), strict=True):
                into[:, low:high] = part[:, index[low:high] - tile.start]
        return Tile(0, whole[0], whole[1], tuple(whole[2:]))

    def every(self, step: int, columns: Sequence[str] = ()) -> Tile:
        """Gather the draws 0, `step`, 2 `step`, ... of every chain in one pass."""
        return self.rows(np.arange(0, self.shape[1], step), columns)

    def require(self, columns: Sequence[str]) -> None:
        """Refuse names of columns that are not there."""
        for name in columns:
            if name not in self.columns:
                there = ", ".join(list(self.columns)[:12]) or "nothing"
                raise InputError(f"{self.where}: holds no array `{name}`; it has {there} at every draw.")

    @abc.abstractmethod
    def close(self) -> None:
        """Close the file, where there is one."""

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, eq=False)
class MemorySource(Source):
    """Draws, scores and parameters in arrays; tiles are views of them."""

    draws: Float[np.ndarray, "chain draw dim"]
    scores: Float[np.ndarray, "chain draw dim"]
    names: tuple[str, ...]
    parameters: Parameters | None = None
    where: str = "the samples"

    @classmethod
    def of(cls, samples: Samples) -> "MemorySource":
        return cls(samples.draws, samples.scores, samples.names, samples.parameters)

    @property
    def shape(self) -> tuple[int, int, int]:  # type: ignore[override]
        chains, draws, dim = self.draws.shape
        return chains, draws, dim

    @property
    def columns(self) -> Mapping[str, tuple[int, ...]]:
        known = {} if self.parameters is None else self.parameters.arrays
        return {name: array.shape[2:] for name, array in known.items()}

    @property
    def step(self) -> int:
        chains, draws, dim = self.shape
        return max(1, min(draws, LIMITS.wanted // (16 * chains * dim)))

    def _read(self, columns: Sequence[str], starts: Sequence[int]) -> Iterator[Tile]:
        others = [self.parameters[name] for name in columns] if self.parameters is not None else []
        for start in starts:
            cut = slice(start, start + self.step)
            parts = tuple(np.asarray(other[:, cut], np.float64) for other in others)
            yield Tile(start, self.draws[:, cut], self.scores[:, cut], parts)

    def close(self) -> None:
        pass


@dataclass(frozen=True, eq=False)
class FileSource(Source):
    """Draws and scores that stay in their file, of which the next tile is read while the last is worked on."""

    where: str
    names: tuple[str, ...]
    draws: Variable
    scores: Variable
    variables: Mapping[str, Variable]
    closing: ExitStack = field(default_factory=ExitStack)

    @property
    def shape(self) -> tuple[int, int, int]:  # type: ignore[override]
        return self.draws.sizes.get("chain", 1), self.draws.sizes["draw"], len(self.names)

    @property
    def columns(self) -> Mapping[str, tuple[int, ...]]:
        return {name: _inner(variable) for name, variable in self.variables.items()}

    @property
    def step(self) -> int:
        """Draws per chain to read at a time: whole chunks of the file, and not much more than is wanted."""
        chains, draws, dim = self.shape
        wanted = max(1, LIMITS.wanted // (16 * chains * dim))
        chunk = min(draws, self.draws.chunks[self.draws.dims.index("draw")])
        step = min(draws, chunk * max(1, wanted // chunk))
        if 16 * chains * dim * step > LIMITS.most:
            raise InputError(
                f"{self.where}: its chunks hold {step} draws of every chain, {16 * chains * dim * step / GIB:.2g} GiB "
                f"with their scores. Write it with chunks of about {wanted} draws."
            )
        return step

    def _read(self, columns: Sequence[str], starts: Sequence[int]) -> Iterator[Tile]:
        chains, draws, dim = self.shape
        step = self.step
        others = [self.variables[name] for name in columns]
        width = 2 * dim + sum(int(np.prod(_inner(v))) for v in others)
        reserve(f"{self.where}: a tile of {step} draws", 48.0 * chains * width * step, "Write it in smaller chunks.")

        def read(start: int) -> Tile:
            cut = slice(start, min(start + step, draws))
            with reading(self.where):
                x, s, *more = (_tile(v, cut) for v in (self.draws, self.scores, *others))
            for name, array in (("draws", x), ("scores", s)):
                if array.size and not (array.min() > -LARGEST and array.max() < LARGEST):  # so is nothing with a NaN
                    chain, draw, k = map(int, np.argwhere(~(np.abs(array) < LARGEST))[0])
                    raise InputError(
                        f"{self.where}: the {name} hold {array[chain, draw, k]:.3g} at chain {chain}, draw "
                        f"{start + draw}: not finite, or too large for its coordinate. Remove that draw."
                    )
            return Tile(start, x, s, tuple(more))

        return _ahead(read, starts)

    def require(self, columns: Sequence[str]) -> None:
        super().require(columns)
        chains, draws, _ = self.shape
        for name in columns:
            variable = self.variables[name]
            if (variable.sizes.get("chain", 1), variable.sizes["draw"]) != (chains, draws):
                raise InputError(
                    f"{self.where}: `{name}` has shape {variable.shape}, expected one value at every draw."
                )

    def close(self) -> None:
        self.closing.close()


def _inner(variable: Variable) -> tuple[int, ...]:
    return tuple(variable.sizes[dim] for dim in rest(variable))


def _tile(variable: Variable, draws: slice) -> np.ndarray:
    """Read a range of draws as float64 `(chain, m, ...)`."""
    return np.ascontiguousarray(variable.arranged("chain", "draw", *rest(variable), draw=draws), np.float64)


def _ahead(read: Callable[[int], Tile], starts: Sequence[int]) -> Iterator[Tile]:
    """Yield what `read` gives for every start, one ahead, from a thread that ends with the loop."""
    with ThreadPoolExecutor(1, thread_name_prefix="steincv reader") as reader:
        pending: deque[Future[Tile]] = deque()
        for start in starts:
            pending.append(reader.submit(read, start))
            if len(pending) > 1:
                yield pending.popleft().result()
        if pending:
            yield pending.popleft().result()
