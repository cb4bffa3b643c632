"""Where control variates are fitted besides the draws: on orbits around them, and on draws that are only fitted on."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from ..judging.error_bars import average
from ..runtime.validation import InputError, whole_number
from ..samples.log_density import LogDensity
from ..samples.samples import LARGEST, Samples, finite_array
from ..samples.values import values_of
from ..stein.coordinates import Coordinates, Standardise
from ..stein.folds import Fold
from ..stein.orbits import SETTINGS, Orbits, check_model, find_step, orbits
from .method import Kind, Training
from .polynomial.polynomial import feature_count


class Price(NamedTuple):
    """How much `orbits="auto"` spends.

    Eight states gained 2 to 20 times, in 3 to 26 dimensions, for one to eight seconds (`benchmarks/orbits_default.py`).
    """

    states: int = 8
    # Seconds of gradients, judged by the time that a few of them take, and how many those are: where draws are scarce
    # for the features of a quadratic, and where there are `plenty` of them for each.
    seconds: float = 30.0
    cheap: float = 3.0
    plenty: int = 20
    probed: int = 64


PRICE = Price()
# Draws from which orbits are run while the step is looked for.
TRIAL_DRAWS = SETTINGS.trial_draws * SETTINGS.rounds


@dataclass(frozen=True, eq=False)
class Points:
    """Draws, or the states of orbits around them, with f at each; chains after the first `chains` only to fit on."""

    draws: Float[np.ndarray, "chain state dim"]
    scores: Float[np.ndarray, "chain state dim"]
    values: Float[np.ndarray, "chain state out"]
    chains: int
    states: int
    weight: Float[np.ndarray, "chain state"] | None  # in its orbit, or of a draw from another distribution
    info: Mapping[str, Any]

    def training(
        self,
        targets: Callable[[np.ndarray], np.ndarray],
        folds: Sequence[Fold],
        names: tuple[str, ...],
        seed: int,
        coordinates: str,
    ) -> Training:
        data = (self.draws, self.scores, targets(self.values), tuple(folds), names, seed, self.chains, coordinates)
        return Training(*data, self.states, self.weight)

    def judged(
        self, plain: Float[np.ndarray, "chain draw out"], averaged: Float[np.ndarray, "chain draw column"]
    ) -> "Points":
        """Return the same, with what averaging f over orbits gained by itself, the median over outputs."""
        if self.states == 1:
            return self
        before, after = (average(a[..., : plain.shape[-1]], tails=False).standard_error for a in (plain, averaged))
        moving = after > 0
        gain = float(np.median((before[moving] / after[moving]) ** 2)) if moving.any() else 1.0
        return replace(self, info={**self.info, "orbits": {**self.info["orbits"], "averaging": gain}})


def gather(
    samples: Samples,
    f: Any,
    values: Float[np.ndarray, "chain draw out"],
    wanted: int | Literal["auto"],
    coordinates: str,
    folds: Sequence[Fold],
    seed: int,
) -> Points:
    """Return all points to fit on, with the values of f there; the draws themselves where nothing else is asked for."""
    chains, draws, _ = samples.draws.shape
    states, info = _states(samples, f, wanted, min(fold.train.size for fold in folds))
    x, s, weight = samples.draws, samples.scores, None
    if states > 1:
        x, s, weight, about = _around(samples, states, coordinates, folds, seed)
        info = {"orbits": {**info.get("orbits", {}), **about}}
        at_draws, values = values, _at(x, f, samples)
        lost = _stay_home((x, s, values), weight, (samples.draws, samples.scores, at_draws), states)
        info["orbits"]["lost"] += lost
    if samples.fitting is not None and samples.parameters is not None and samples.constrain is None:
        # some adapters know the parameters at the draws only, and hand over the warm-up of every run that kept it
        info = {**info, "fitting": f"not used: {_unknown(samples, f)}"}
    elif samples.fitting is not None:
        more = [_as_chains(a, draws, states) for a in samples.fitting]
        found = finite_array("f at `fitting`", _at(more[0], f, samples, "fitting"))
        values = np.concatenate([values, found])
        x, s = np.concatenate([x, more[0]]), np.concatenate([s, more[1]])
        if weight is not None:
            weight = np.concatenate([weight, np.full(more[0].shape[:2], 1 / states)])
    if samples.log_weights is not None:
        weight = np.exp(samples.log_weights - samples.log_weights.max())
        weight = weight / weight.mean()
    return Points(x, s, values, chains, states, weight, info)


def _stay_home(orbits: tuple[np.ndarray, ...], weight: np.ndarray, draws: tuple[np.ndarray, ...], states: int) -> float:
    """Replace every orbit with a state at which f is not finite by its draw; return the share of these orbits.

    Started from any of its other states it would be replaced as well, so that means are what they were.
    """
    usable = (np.abs(orbits[-1]) < LARGEST).all(axis=-1).reshape(*draws[0].shape[:2], states)
    lost = ~usable.all(axis=-1)
    every = np.repeat(lost, states, axis=1)
    for orbit, draw in zip(orbits, draws, strict=True):
        orbit[every] = np.repeat(draw[lost], states, axis=0)
    weight[every] = np.tile(np.eye(1, states)[0], int(lost.sum()))
    return float(lost.mean())


def _states(samples: Samples, f: Any, wanted: Any, n: int) -> tuple[int, dict[str, Any]]:
    """Return how many states every orbit has, 1 for none, and what is said about it."""
    if wanted != "auto":
        states = whole_number("orbits", wanted, 0)
        if states > 1 and samples.log_weights is not None:
            raise InputError("`orbits` are not for draws with `log_weights`. Leave one of them out.")
        if states > 1 and samples.log_density is None:
            raise InputError(
                "`orbits` ask the model, which `samples` does not know. Give Samples(..., log_density=...): a function "
                "of one unconstrained vector that JAX can differentiate, or that returns value and gradient."
            )
        if states > 1 and (why := _unknown(samples, f)):
            raise InputError(f"`orbits` need f at new points: {why}")
        return max(states, 1), {}
    if samples.log_density is None or samples.log_weights is not None or _unknown(samples, f):
        return 1, {}
    states = PRICE.states
    if samples.gradients is not None:  # no more than the sampler took, those that look for the step among them
        states = min(states, (samples.gradients - 3 * PRICE.probed) // (samples.size + TRIAL_DRAWS))
    if states <= 1:
        return 1, {"orbits": {"states": 1, "sampler": samples.gradients}}
    try:
        if samples.parameters is not None:
            _at(samples.draws[:1], f, samples)
    except InputError as error:  # values kept at the draws alone, such as those that Stan generates
        return 1, {"orbits": {"states": 1, "why": str(error)}}
    each, compiling = seconds_per_gradient(samples.log_density, samples.draws.reshape(-1, samples.draws.shape[-1]))
    seconds = each * samples.draws.shape[0] * samples.draws.shape[1]
    scarce = n < PRICE.plenty * feature_count(samples.draws.shape[-1], 2)
    affordable = 1 + int((PRICE.seconds if scarce else PRICE.cheap) / max(seconds, 1e-9))
    if affordable <= 1:
        return 1, {"orbits": {"states": 1, "seconds": seconds, "compiling": compiling}}
    return min(states, affordable), {"orbits": {"compiling": compiling}}


def _unknown(samples: Samples, f: Any) -> str:
    """Say why f cannot be evaluated at new points, if so."""
    if samples.parameters is not None and samples.constrain is None:
        return "`samples` holds arrays of parameters; give it the function `constrain` as well."
    if f is None or _names_of(f, samples):
        return ""
    each = f.values() if isinstance(f, Mapping) else [f]
    if any(not (g is None or callable(g)) for g in each):
        return "give it as a function, not as an array of values at the draws."
    return ""


def seconds_per_gradient(model: LogDensity, x: Float[np.ndarray, "n dim"]) -> tuple[float, float]:
    """Measure what a gradient takes, and how much longer the first ones took, which may have to be compiled."""
    some = x[: PRICE.probed]
    times = [time.perf_counter()]
    for _ in range(2):
        model(some)
        times.append(time.perf_counter())
    first, second = np.diff(times).tolist()
    return second / len(some), max(first - second, 0.0)


def _around(
    samples: Samples, states: int, coordinates: str, folds: Sequence[Fold], seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Run orbits from all draws, each in coordinates of its fold, which have not seen it."""
    model: LogDensity = samples.log_density  # type: ignore[assignment]
    chains, draws, dim = samples.draws.shape
    flat = samples.draws.reshape(-1, dim), samples.scores.reshape(-1, dim)
    start, before = time.perf_counter(), model.spent[0]
    check_model(*flat, model, Standardise.of(samples).scale)
    kind: Kind = "affine" if coordinates == "affine" else "learned"
    blank = np.zeros((chains, draws, 1))
    training = Training(samples.draws, samples.scores, blank, tuple(folds), samples.names, seed, chains)
    training.prepare([kind])
    maps: list[Coordinates] = [training.problem(k, kind).coordinates for k in range(len(folds))]
    step = find_step(*flat, model, maps[0], states, seed)
    x, s = (np.repeat(a, states, axis=1) for a in (samples.draws, samples.scores))
    weight = np.zeros((chains, draws * states))
    weight[:, ::states] = 1.0  # draws that are in no test fold stay alone
    effective, lost = [], []
    for k, (fold, each) in enumerate(zip(folds, maps, strict=True)):
        rng = np.random.default_rng([seed, k])
        for block in [fold.test] if len(folds) > 1 else [fold.test, fold.train]:
            at_draws, at_scores = (block.take(a).reshape(-1, dim) for a in (samples.draws, samples.scores))
            found: Orbits = orbits(at_draws, at_scores, model, each, states, step, rng)
            at = np.ix_(block.chains, (block.draws[:, None] * states + np.arange(states)).ravel())
            shape = (len(block.chains), len(block.draws) * states)
            x[at], s[at] = found.draws.reshape(*shape, dim), found.scores.reshape(*shape, dim)
            weight[at] = found.weight.reshape(shape)
            effective.append(found.effective)
            lost.append(found.weight[:, 0] == 1.0)
    info = {
        "states": states,
        "step": step,
        "effective": float(np.concatenate(effective).mean()),
        "lost": float(np.concatenate(lost).mean()),
        "gradients": model.spent[0] - before,
        "sampler": samples.gradients,
        "seconds": time.perf_counter() - start,
    }
    return x, s, weight, info


def _at(x: np.ndarray, f: Any, samples: Samples, what: str = "orbits") -> np.ndarray:
    """Evaluate f at new points `(chain, state, dim)`."""
    if why := _unknown(samples, f):
        raise InputError(f"`{what}` need f at new points: {why}")
    names = _names_of(f, samples)
    wanted = (lambda p: {name: p[name] for name in names}) if names else f
    return values_of(wanted, Samples.at(x, samples)).array


def _names_of(f: Any, samples: Samples) -> tuple[str, ...]:
    """Return the parameters that f names, where it does."""
    if samples.parameters is None:
        return ()
    if f is None:
        return samples.parameters.shown
    names = (f,) if isinstance(f, str) else f
    return tuple(names) if isinstance(names, list | tuple) and all(isinstance(n, str) for n in names) else ()


def _as_chains(points: np.ndarray, draws: int, states: int) -> np.ndarray:
    """Lay points out as chains as long as the others, evenly spaced; every one of them is an orbit of equal states."""
    count = max(1, len(points) // draws)
    some = points[np.linspace(0, len(points) - 1, count * draws).astype(int)].reshape(count, draws, -1)
    return np.repeat(some, states, axis=1)
