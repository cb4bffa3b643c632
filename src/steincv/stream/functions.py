"""f at streamed draws: the coordinates, variables of the file, or whatever can be called."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime.validation import InputError
from ..samples.samples import Samples
from ..samples.source import Source, Tile as Piece
from ..samples.values import Values, _join, values_of


@dataclass(frozen=True, eq=False)
class Functions:
    """f: the coordinates, variables of the file by their names, or whatever `steincv.estimate` takes that is called."""

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

    @property
    def linear(self) -> bool:
        """Whether f is the coordinates themselves, whose products are in the sums already."""
        return self.f is None

    def __call__(self, piece: Piece) -> Values:
        draws = np.asarray(piece.draws, np.float64)
        if self.f is None:
            return Values(draws, self.coordinates, (len(self.coordinates),))
        if self.names:
            others = (np.asarray(other, np.float64) for other in piece.others)
            values = _join(dict(zip(self.names, others, strict=True)))
        else:
            values = values_of(self.f, Samples.trusted(draws, np.asarray(piece.scores), self.coordinates))
        if not np.isfinite(values.array).all():
            where = np.argwhere(~np.isfinite(values.array))[0]
            raise InputError(
                f"`f` ({values.labels[where[2]]}) is not finite at chain {where[0]}, draw {piece.start + where[1]}."
            )
        return values
