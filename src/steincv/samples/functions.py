"""f at the tiles of a source: the coordinates, columns of the source, or whatever can be called."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime.validation import InputError
from .samples import Samples
from .source import Source, Tile
from .values import Values, join, values_of


@dataclass(frozen=True, eq=False)
class Functions:
    """f: the coordinates, columns of the source by their names, or whatever `steincv.estimate` takes that is called."""

    f: Any
    names: tuple[str, ...]
    coordinates: tuple[str, ...]

    @classmethod
    def of(cls, f: Any, source: Source) -> "Functions":
        names = [f] if isinstance(f, str) else f if isinstance(f, list | tuple) else []
        if not all(isinstance(name, str) for name in names):
            raise InputError("`f` is a list, expected names of variables in the file.")
        callables = callable(f) or (isinstance(f, Mapping) and all(map(callable, f.values())))
        if f is not None and not names and not callables:
            raise InputError(
                f"`f` is a {type(f).__name__}; for draws in a file it is a function, a dict of functions, the name of "
                f"a variable in the file, or nothing for every coordinate."
            )
        source.require(names)
        return cls(f, tuple(names), source.names)

    def outputs(self, source: Source) -> int:
        """Return how many numbers f has at a draw."""
        if self.f is None:
            return len(self.coordinates)
        if self.names:
            return sum(int(np.prod(source.columns[name])) for name in self.names)
        return self(source.rows(np.arange(1))).array.shape[-1]

    def in_memory(self, tile: Tile) -> Any:
        """Return f as `steincv.estimate` takes it for samples that hold all draws of this tile."""
        return dict(zip(self.names, tile.others, strict=True)) if self.names else self.f

    def __call__(self, tile: Tile) -> Values:
        """Return f at the draws of a tile."""
        if self.f is None:
            return Values(tile.draws, self.coordinates, (len(self.coordinates),))
        if self.names:
            values = join(dict(zip(self.names, tile.others, strict=True)))
        else:
            values = values_of(self.f, Samples.trusted(tile.draws, tile.scores, self.coordinates))
        if not np.isfinite(values.array).all():
            chain, draw, out = np.argwhere(~np.isfinite(values.array))[0]
            raise InputError(f"`f` ({values.labels[out]}) is not finite at chain {chain}, draw {tile.start + draw}.")
        return values
