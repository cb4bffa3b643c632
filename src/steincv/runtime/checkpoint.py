"""The state of a long run in one file of arrays that appears whole or not at all."""

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .arrays import read_arrays, refuse_target, whole_file
from .validation import InputError, StrPath

# Seconds between two writes: what a kill can cost.
INTERVAL = 10.0

State = TypeVar("State")


class Run(NamedTuple):
    """What tells a run from others: a word for it, what others differ in (for a message), settings and arrays."""

    kind: str
    differs: str
    settings: object
    arrays: Iterable[np.ndarray]


@dataclass(eq=False)
class Checkpoint:
    """Where the state of a run is kept, or nowhere if `path` is None."""

    path: Path | None
    run: Run
    identity: str
    last: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, path: StrPath | None, run: Run) -> "Checkpoint":
        """Prepare to keep a run in the file `path`. Nothing is written yet."""
        if path is None:
            return cls(None, run, "")
        refuse_target(path, force=True)
        arrays = [np.ascontiguousarray(a) for a in run.arrays]
        digest = hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()
        return cls(Path(path), run, json.dumps([run.settings, [a.shape for a in arrays], digest]))

    def resume(self, state: State, *kept: np.ndarray) -> tuple[int, int, State]:
        """Return how many jobs are done, how many draws are kept, and the state then; draws are put into `kept`."""
        if self.path is None or not self.path.exists():
            return 0, 0, state
        leaves, structure = jax.tree.flatten(state)
        names = [f"leaf{i}" for i in range(len(leaves))]
        arrays = read_arrays(self.path, ["done", "identity", *names, *(f"kept{i}" for i in range(len(kept)))])
        if arrays["identity"].tobytes().decode() != self.identity:
            raise InputError(
                f"The checkpoint {self.path} belongs to another {self.run.kind} ({self.run.differs}). "
                f"Delete it or name another file."
            )
        filled = len(arrays["kept0"]) if kept else 0
        for i, target in enumerate(kept):
            target[:filled] = arrays[f"kept{i}"]
        old = [jnp.asarray(arrays[name]) for name in names]
        return int(arrays["done"]), filled, jax.tree.unflatten(structure, old)

    def keep(self, done: int, filled: int, state: object, *kept: np.ndarray) -> None:
        """Write the state, if the last time is long enough ago."""
        if time.monotonic() - self.last >= INTERVAL:
            self.write(done, filled, state, *kept)

    def write(self, done: int, filled: int, state: object, *kept: np.ndarray) -> None:
        """Write the state after `done` jobs, and the first `filled` of the draws kept."""
        if self.path is None:
            return
        arrays = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        arrays |= {f"kept{i}": target[:filled] for i, target in enumerate(kept)}
        identity = np.frombuffer(self.identity.encode(), np.uint8)
        with whole_file(self.path, force=True) as file:
            np.savez(file, allow_pickle=False, done=np.array(done), identity=identity, **arrays)
        self.last = time.monotonic()

    def remove(self) -> None:
        """Delete the file: the run is over."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
