"""Networks fitted to streamed draws: minibatches from windows of the file, the next one read during training.

A network needs far fewer draws than such a file has: `steps` minibatches. They are taken from windows, each a random
choice of draws from some pieces of the file; a new one for every segment of the training. Validation draws, and the
shallow potentials whose outer weights are solved for, use draws from all over the file that fit into memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..families.method import Control, Problem
from ..families.neural.neural import PENALTIES, Neural, _pretrains, controls, grid_of_tasks
from ..families.neural.potential_fit import validation_draws
from ..families.neural.stretch import Stretch
from ..families.neural.trials import Potential
from ..runtime.compile_cache import compile_cache
from ..runtime.memory import reserve
from ..runtime.validation import InputError
from ..samples.source import Tile as Piece
from .coordinates import FoldMap
from .moments import Sums
from .polynomial import Moments
from .segments import Range, RangeFold

if TYPE_CHECKING:
    from .passes import Stream

# Draws of a fold that are kept in memory at most, from all over the file.
THINNED = 50_000
# Draws of a fold in a window at most, and the pieces of the file that it comes from.
WINDOW, PIECES = 32_768, 4


def fit_networks(
    method: Neural, stream: "Stream", sums: list[Sums], maps: list[FoldMap], seed: int
) -> tuple[list[Callable[[np.ndarray, np.ndarray], np.ndarray]], list[dict[str, Any]]]:
    """A control variate of every fold, as a function of provisional t and s, coordinates first, in units of f."""
    if method.checkpoint is not None:
        raise InputError("`checkpoint` is not for draws in a file. Leave it out.")
    units = [Moments.of(s) for s in sums]
    fits = [_Fold(stream, fold, m, unit) for fold, m, unit in zip(stream.folds, maps, units, strict=True)]
    problems = _thinned(stream, fits)
    trial = method.trial
    shallow = isinstance(trial, Potential) and trial.depth == 1 and trial.activation == "tanh"
    if shallow and method.solver == "auto" and method.center:
        controls = method.solve(problems, seed)
    else:
        with compile_cache():
            controls = _train(method, stream, fits, problems, seed)
    evaluators = [_in_units_of_f(c, fit, stream.target.scale) for c, fit in zip(controls, fits, strict=True)]
    return evaluators, [{**c.info, "draws": s.count} for c, s in zip(controls, sums, strict=True)]


def _in_units_of_f(control: Control, fit: "_Fold", scale: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    size = (scale * fit.unit.deviation)[:, None]

    def evaluate(t: np.ndarray, s: np.ndarray) -> np.ndarray:
        z, scores = fit.map(t, s)
        return control.evaluate(z.T, scores.T).T * size

    return evaluate


@dataclass(frozen=True, eq=False)
class _Fold:
    """The fitting draws of a fold, its coordinates and its units of f."""

    stream: "Stream"
    fold: RangeFold
    map: FoldMap
    unit: Moments

    def rows(self, pieces: list[Piece], picked: list[tuple[int, int, np.ndarray]]) -> tuple[np.ndarray, ...]:
        """z, s and y, draws first, at (piece, chain, draws within the piece)."""
        source, functions = self.stream.source, self.stream.functions
        found = []
        for p, chain, index in picked:
            piece = pieces[p]
            draws, scores, *others = (a[chain, index][None] for a in (piece.draws, piece.scores, *piece.others))
            part = Piece(piece.start, draws, scores, tuple(others))
            x, score = (np.asarray(a[0], np.float64) for a in part[1:3])
            t, s = self.stream.provisional(x, score, source.where, chain, piece.start)
            z, score = self.map(t, s)
            f = (functions(part).array[0] - self.stream.target.center) / self.stream.target.scale
            found.append((z.T, score.T, (f - self.unit.mean) / self.unit.deviation))
        return tuple(np.concatenate([x[i] for x in found]) for i in range(3))


def _training(fold: RangeFold, validate: bool) -> list[Range]:
    """The fitting draws less those that `_potential_fit.validation_draws` holds out: a fifth, in the middle."""
    if not validate:
        return list(fold.train)
    parts = []
    for r in fold.train:
        size = max(1, (r.stop - r.start) // 5)
        middle = r.start + (r.stop - r.start - size) // 2
        parts += [Range(r.chain, r.start, middle), Range(r.chain, middle + size, r.stop)]
    return parts


def _thinned(stream: "Stream", fits: list[_Fold]) -> list[Problem]:
    """Every fold's problem on draws from all over the file: a few from every piece."""
    dim, outputs = stream.source.shape[2], len(stream.target.center)
    reserve(
        "The draws that networks are fitted on",
        8.0 * len(fits) * THINNED * (2 * dim + outputs) * 4,
        "Use fewer functions.",
    )
    thins = [-(-fit.fold.fitted_on // THINNED) for fit in fits]
    found: list[dict[int, list]] = [{i: [] for i in range(len(fit.fold.train))} for fit in fits]
    for piece in stream.source.tiles(stream.functions.names):
        stop = piece.start + piece.draws.shape[1]
        for fit, thin, mine in zip(fits, thins, found, strict=True):
            for i, r in enumerate(fit.fold.train):
                low = max(r.start, piece.start)
                index = np.arange(low + (r.start - low) % thin, min(r.stop, stop), thin) - piece.start
                if len(index):
                    mine[i].append(fit.rows([piece], [(0, r.chain, index)]))
    problems = []
    for fit, mine in zip(fits, found, strict=True):
        rows = [row for i in sorted(mine) for row in mine[i]]
        z, s, y = (np.concatenate([row[i] for row in rows]) for i in range(3))
        offset = (stream.target.center / stream.target.scale + fit.unit.mean) / fit.unit.deviation
        problems.append(Problem(z, s, y, offset, len({r.chain for r in fit.fold.train})))
    return problems


def _train(method: Neural, stream: "Stream", fits: list[_Fold], problems: list[Problem], seed: int) -> list[Control]:
    """As `neural._fit_networks`, with a new window of draws for every segment."""
    import jax
    import jax.numpy as jnp

    from ..families.neural.training import PRECISION, SEGMENTS, Settings, State, Task, _segment, _start
    from ..runtime.progress import bar

    outputs, dim = problems[0].y.shape[1], problems[0].z.shape[1]
    choose = method.penalty == "auto"
    penalties = PENALTIES if method.penalty == "auto" else (float(method.penalty),)
    validate = method.early_stop or choose
    grid = (len(fits), outputs, len(penalties), method.ensemble)
    draws = [fit.fold.fitted_on for fit in fits]
    task = grid_of_tasks(method, problems, grid, penalties, draws, seed)
    batch = int(min(method.batch, *draws))
    settings = Settings(method.trial, method.steps, batch, method.rate, method.center, validate)
    lengths = [len(part) for part in np.array_split(np.arange(method.steps), SEGMENTS) if len(part)]
    stretches = [Stretch.of(p) for p in problems]

    def train(task: Task, seed: int) -> State:
        windows = _windows(stream, fits, problems, stretches, len(lengths), batch * max(lengths), validate, seed)
        with (
            jax.default_matmul_precision(PRECISION),
            bar("training networks", len(lengths), method.progress) as advance,
        ):
            state, first = _start(task, settings, dim), 0
            for length, window in zip(lengths, windows, strict=True):
                state = _segment(state, task, window, jnp.asarray(first), settings, length)
                first += length
                advance(1)
        return state

    if method.center and _pretrains(method, problems):
        large = task._replace(
            penalty=jnp.ones_like(task.penalty), key=jax.random.split(jax.random.key(seed + 1), len(task.key))
        )
        task = task._replace(center=train(large, seed + 1).center)
    state = train(task, seed)
    return controls(method.trial, state, grid, penalties, choose, problems, stretches)


def _windows(
    stream: "Stream",
    fits: list[_Fold],
    problems: list[Problem],
    stretches: list[Stretch],
    count: int,
    wanted: int,
    validate: bool,
    seed: int,
) -> Iterator[Any]:
    """`count` windows on the devices there are: training draws from some pieces, and the same validation draws."""
    from ..families.neural.sharding import place
    from ..families.neural.training import Batch

    rng = np.random.default_rng(seed)
    source = stream.source
    starts = np.arange(0, source.shape[1], source.step)
    each = min(PIECES, len(starts))
    chosen = [rng.choice(starts, each, replace=False) for _ in range(count)]
    size = min(WINDOW, wanted)
    kept = [validation_draws(len(p.z), p.chains) for p in problems]
    held = [np.flatnonzero(h)[:: max(1, h.sum() // (THINNED // 10))] for h in kept]
    valid = max(map(len, held)) if validate else 0
    pieces = source.tiles(stream.functions.names, starts=[int(s) for row in chosen for s in row])
    for _ in range(count):
        some = [next(pieces) for _ in range(each)]
        rows: list[tuple[np.ndarray, ...]] = []
        for fit, problem, stretch, h, among in zip(fits, problems, stretches, held, kept, strict=True):
            picked = _pick(some, _training(fit.fold, validate), size, rng)
            if picked:
                z, s, y = fit.rows(some, picked)
            else:  # no piece has draws that this fold may see
                index = rng.choice(np.flatnonzero(~among) if validate else len(problem.z), size)
                z, s, y = problem.z[index], problem.s[index], problem.y[index]
            if validate:
                z, s, y = (np.concatenate([a, b[h]]) for a, b in ((z, problem.z), (s, problem.s), (y, problem.y)))
            role = np.zeros((2, size + valid))
            role[0, :size] = 1
            role[1, size : size + len(h) * validate] = 1
            more = size + valid - len(z)
            z, s = stretch(z, s)
            rows.append((*(np.pad(a, [(0, more), (0, 0)]) for a in (z, s, y)), *role))
        whole: list[Any] = [np.stack([np.float32(row[i]) for row in rows]) for i in range(5)]
        yield place(Batch(*whole), 1)
    for _ in pieces:  # the reader ends
        pass


def _pick(
    pieces: list[Piece], ranges: list[Range], size: int, rng: np.random.Generator
) -> list[tuple[int, int, np.ndarray]]:
    """`size` draws out of those of the ranges that the pieces have, at random: piece, chain and draws in the piece."""
    cells = [
        (
            p,
            r.chain,
            max(r.start, piece.start) - piece.start,
            min(r.stop, piece.start + piece.draws.shape[1]) - piece.start,
        )
        for p, piece in enumerate(pieces)
        for r in ranges
    ]
    cells = [cell for cell in cells if cell[3] > cell[2]]
    if not cells:
        return []
    edges = np.cumsum([0, *(stop - start for _, _, start, stop in cells)])
    drawn = np.sort(rng.integers(edges[-1], size=size))
    cuts = np.searchsorted(drawn, edges)
    return [
        (p, chain, drawn[low:high] - edge + start)
        for (p, chain, start, _), edge, low, high in zip(cells, edges, cuts[:-1], cuts[1:], strict=False)
        if high > low
    ]
