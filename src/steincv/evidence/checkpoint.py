"""The state of a long run in one file of arrays that appears whole or not at all."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.arrays import StrPath, read_arrays, refuse_target, whole_file
from ..runtime.validation import InputError

# Seconds between two writes: what a kill can cost.
INTERVAL = 10.0


@dataclass(eq=False)
class Checkpoint:
    """Where the state is kept, or nowhere; `identity` tells whether a file belongs to the same run."""

    path: Path | None
    identity: str
    last: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, path: StrPath | None, settings: Mapping[str, Any], *arrays: np.ndarray) -> "Checkpoint":
        if path is not None:
            refuse_target(path, force=True)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()
        identity = json.dumps([dict(settings), [a.shape for a in arrays], digest])
        return cls(None if path is None else Path(path), identity)

    def resume(self, state: Any, *kept: np.ndarray) -> tuple[int, int, Any]:
        """The number of jobs done and draws kept, and the state then; the draws are put into `kept`."""
        import jax
        import jax.numpy as jnp

        if self.path is None or not self.path.exists():
            return 0, 0, state
        leaves, structure = jax.tree.flatten(state)
        names = [f"leaf{i}" for i in range(len(leaves))]
        arrays = read_arrays(self.path, ["done", "identity", *names, *(f"kept{i}" for i in range(len(kept)))])
        if arrays["identity"].tobytes().decode() != self.identity:
            raise InputError(
                f"The checkpoint {self.path} belongs to another run (another model, ladder, seed or setting). "
                f"Delete it or name another file."
            )
        filled = len(arrays["kept0"])
        for i, target in enumerate(kept):
            target[:filled] = arrays[f"kept{i}"]
        old = [jnp.asarray(arrays[name]) for name in names]
        return int(arrays["done"]), filled, jax.tree.unflatten(structure, old)

    def keep(self, done: int, filled: int, state: Any, *kept: np.ndarray) -> None:
        """Write the state, if the last time is long enough ago."""
        if time.monotonic() - self.last >= INTERVAL:
            self.write(done, filled, state, *kept)

    def write(self, done: int, filled: int, state: Any, *kept: np.ndarray) -> None:
        import jax

        if self.path is None:
            return
        arrays: dict[str, Any] = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        arrays |= {f"kept{i}": target[:filled] for i, target in enumerate(kept)}
        identity = np.frombuffer(self.identity.encode(), np.uint8)
        with whole_file(self.path, force=True) as file:
            np.savez(file, done=np.array(done), identity=identity, **arrays)
        self.last = time.monotonic()

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)
