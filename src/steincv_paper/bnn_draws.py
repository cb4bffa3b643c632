"""The digits, the classifier, its draws by pSGLD and by tempering, and the single network of largest likelihood."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float

from steincv.networks.model import full_scores
from steincv.networks.predictive import predictions
from steincv.runtime.arrays import read_arrays, whole_file
from steincv.runtime.compile_cache import cache_folder
from steincv.runtime.validation import InputError
from steincv.samples.samples import Samples

from .classifier import DIM, Classifier
from .digits import load_digits
from .psgld import Steps, psgld

SIX, NINE, EIGHT = 6, 9, 8


@dataclass(frozen=True, eq=False)
class Problem:
    """The classifier of 6 (class 1) against 9, and images of 8: `seen` of them are fitted on, the others judged by."""

    model: Classifier
    images: Float[np.ndarray, "n 28 28"]
    seen: int
    source: str

    @classmethod
    def of(cls, data: str, training: int, seen: int, unseen: int, seed: int) -> "Problem":
        digits = load_digits(data or None)
        rng = np.random.default_rng([seed, 1])
        known = digits.only(SIX, NINE)
        pick = [rng.permutation(np.flatnonzero(known.labels == label))[: training // 2] for label in (SIX, NINE)]
        eights = digits.only(EIGHT).images
        if min(map(len, pick)) < training // 2 or len(eights) < seen + unseen:
            raise InputError(
                f"{digits.source}: {training // 2} images of 6 and 9 each and {seen + unseen} of 8 are needed; "
                f"there are {[int((digits.labels == label).sum()) for label in (SIX, NINE, EIGHT)]}."
            )
        rows = rng.permutation(np.concatenate(pick))
        model = Classifier(known.images[rows], (known.labels[rows] == SIX).astype(np.int64))
        return cls(model, eights[rng.permutation(len(eights))[: seen + unseen]], seen, digits.source)

    @property
    def digest(self) -> str:
        """Return what tells this problem from others: of all its images."""
        return hashlib.sha256(self.model.images.tobytes() + self.images.tobytes()).hexdigest()[:12]

    def starts(self, chains: int, seed: int) -> np.ndarray:
        """Return where each chain begins: where the likelihood already is, after a climb of its own."""
        return np.stack([fall(self.model, seed + k, 150) for k in range(chains)])

    def values(self, samples: Samples) -> Float[np.ndarray, "chain draw out"]:
        return predictions(samples, self.model.predict, self.images)


def fall(model: Classifier, seed: int, steps: int, prior: bool = True) -> np.ndarray:
    """Climb by Adam from a random start: on the posterior, or on the likelihood alone (the MLE network)."""
    optimizer = optax.adam(0.02)
    run = _climb.get((id(model), steps, prior))
    if run is None:

        def loss(theta: Any) -> Any:
            return -model.log_posterior(theta) + (0.0 if prior else model.log_prior(theta))

        def step(state: tuple, _: Any) -> tuple[tuple, None]:
            theta, moments = state
            updates, moments = optimizer.update(jax.grad(loss)(theta), moments)
            return (optax.apply_updates(theta, updates), moments), None

        run = jax.jit(lambda t: jax.lax.scan(step, (t, optimizer.init(t)), None, length=steps)[0][0])
        _climb[(id(model), steps, prior)] = run
    start = 0.3 * np.random.default_rng([seed, 2]).normal(size=DIM)
    return np.asarray(run(jnp.asarray(start, jnp.float32)))


_climb: dict[tuple, Any] = {}


def approximate(problem: Problem, chains: int, draws: int, warmup: int, thin: int, seed: int) -> Samples:
    """Sample by pSGLD. The draws are kept in the user's cache until all is fitted."""
    part = kept(chains, draws, warmup, thin, seed, problem.digest)
    if part is not None and part.exists():
        with suppress(InputError):
            arrays = read_arrays(part, ["draws", "scores"])
            return Samples(arrays["draws"], arrays["scores"])
    start = problem.starts(chains, seed)
    found = psgld(problem.model, start, draws=draws, warmup=warmup, thin=thin, steps=Steps(), seed=seed)
    if part is not None:
        with whole_file(part, force=True) as file:
            np.savez(file, draws=found.draws, scores=found.scores)
    return found


def converged(problem: Problem, file: str) -> tuple[Samples, dict[str, float]] | None:
    """Read draws by parallel tempering from `file`, or those that this package has; None if of other images.

    With them comes what the run says of itself.
    """
    path = Path(file) if file else Path(__file__).with_name("bnn_converged.npz")
    arrays = read_arrays(path, ["draws", "digest", "seconds", "restarts"])
    if str(arrays["digest"]) != problem.digest:
        return None
    said = {name: float(arrays[name]) for name in ("seconds", "restarts")}
    return Samples(arrays["draws"], full_scores(problem.model, arrays["draws"])), said


def kept(*name: Any) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / f"bnn-{'-'.join(map(str, name))}.npz"


def forget(*name: Any) -> None:
    part = kept(*name)
    if part is not None:
        with suppress(OSError):
            part.unlink(missing_ok=True)
