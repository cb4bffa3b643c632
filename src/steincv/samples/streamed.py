"""Draws that stay in their file, as the user holds them."""

from dataclasses import dataclass

from .opening import Openable, open_source
from .source import Source


@dataclass(frozen=True, eq=False)
class Streamed:
    """Draws and scores that stay in their file. `steincv.estimate` takes them; made by `Samples.open`."""

    source: Source

    @classmethod
    def open(cls, path: Openable) -> "Streamed":
        return cls(open_source(path))

    @property
    def chains(self) -> int:
        return self.source.shape[0]

    @property
    def dim(self) -> int:
        return self.source.shape[2]

    @property
    def size(self) -> int:
        """The number of draws, over all chains."""
        return self.source.shape[0] * self.source.shape[1]

    @property
    def names(self) -> tuple[str, ...]:
        return self.source.names

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> "Streamed":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        chains, draws, dim = self.source.shape
        return f"Streamed({self.source.where}: {chains} chains x {draws} draws x {dim} dimensions)"
