"""The diagnostics of one set of draws and scores, with what each number means and what to do next."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from ..judging.diagnostics import DETAILS, LOW_ESS, STEIN_LIMIT, TAIL_LIMIT, SteinCheck, limits_of_rhat, stein_check
from ..judging.error_bars import average, split_rhat, tail_index
from ..runtime.validation import listed
from ..samples.samples import Samples
from .terminal import clean
from .text import rich_rows

# Share of draws that may equal an earlier one: half of the proposals rejected, as by a random walk in one dimension.
MOST_REPEATS = 0.5


@dataclass(frozen=True, eq=False)
class Check:
    """What can be seen from the draws and scores alone, one entry per coordinate.

    `score_z` and `product_z` are z values of the means of $s_i$ and $(x_i - m_i) s_i + 1$, zero for correct
    scores. `repeats` counts draws whose value has occurred before; `mismatched` counts draws that equal an
    earlier one in every coordinate but have another score.
    """

    names: tuple[str, ...]
    stein: SteinCheck
    score_z: np.ndarray
    product_z: np.ndarray
    ess: np.ndarray
    rhat: np.ndarray
    rhat_limit: np.ndarray
    tail: np.ndarray
    repeats: np.ndarray
    mismatched: int
    size: int

    @property
    def order(self) -> np.ndarray:
        """Coordinates, the most suspicious first."""
        return np.argsort(-np.maximum(np.abs(self.score_z), np.abs(self.product_z)), kind="stable")


def check(samples: Samples) -> Check:
    """Return all diagnostics of `samples`."""
    stein = stein_check(samples)  # first: it refuses coordinates that are constant or dependent
    draws = samples.draws
    flat = draws.reshape(-1, samples.dim)
    rhat = split_rhat(draws)
    return Check(
        samples.names,
        stein,
        *coordinate_z(samples),
        ess=average(draws).ess,
        rhat=rhat,
        rhat_limit=limits_of_rhat(draws, rhat),
        tail=tail_index(draws),
        repeats=np.array([samples.size - len(np.unique(column)) for column in flat.T]),
        mismatched=_mismatched(flat, samples.scores.reshape(-1, samples.dim)),
        size=samples.size,
    )


def coordinate_z(samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """Return z values of the means of $s_i$ and $(x_i - m_i) s_i + 1$, one per coordinate: zero for correct scores."""
    flat = samples.draws.reshape(-1, samples.dim)
    unit = (samples.draws - flat.mean(axis=0)) / flat.std(axis=0)
    scores = samples.scores * flat.std(axis=0)
    means = (average(series) for series in (scores, unit * scores + 1))
    score_z, product_z = (m.mean / np.where(m.standard_error > 0, m.standard_error, np.inf) for m in means)
    return score_z, product_z


def _mismatched(draws: np.ndarray, scores: np.ndarray) -> int:
    """Count draws equal to an earlier one whose score is another: a score is a function of its draw."""
    _, first, group = np.unique(draws, axis=0, return_index=True, return_inverse=True)
    same = np.isclose(scores, scores[first[group.reshape(-1)]], rtol=1e-5, atol=0).all(axis=1)
    return int((~same).sum())


def findings(found: Check) -> list[tuple[bool, str]]:
    """Return every diagnostic in plain words: whether it is fine, and a sentence, with the next step if not."""
    return [
        _scores(found),
        _pairs(found),
        effective(found.names, found.ess, found.size),
        chains(found.names, found.rhat, found.rhat_limit),
        tails(found.names, found.tail),
        _repeated(found),
    ]


def _scores(found: Check) -> tuple[bool, str]:
    z = abs(found.stein.z[found.stein.worst])
    if z <= STEIN_LIMIT:
        return True, (
            f"Scores fit the draws: the largest of {len(found.stein.z)} Stein means is {z:.1f} standard "
            f"errors from zero (up to {STEIN_LIMIT:g} is chance). Control variates are safe to use."
        )
    chance = f"(up to {STEIN_LIMIT:g} is chance)"
    said = f"Scores do not fit the draws: a Stein mean is {z:.1f} standard errors from zero {chance}."
    dim = len(found.names)
    if found.stein.mean[2 * dim] > DETAILS.opposite * dim:  # of z . s + dim: z . s is dim on average, not -dim
        return False, (
            f"{said} The scores have the opposite sign: are they the gradient of the potential, which is minus the log "
            f"density? Next: give -scores."
        )
    return False, (
        f"{said} Next: at one draw, compare the score of "
        f"{clean(found.names[found.order[0]], 40)} with finite differences of the log density; in "
        f"unconstrained coordinates the log Jacobian belongs to that density."
    )


def _pairs(found: Check) -> tuple[bool, str]:
    if found.mismatched == 0:
        return True, "Scores belong to their draws: no two equal draws have different scores."
    return False, (
        f"{found.mismatched} draws equal an earlier one but have another score. Next: look for scores "
        f"shifted by one draw, or stored for proposals instead of accepted draws."
    )


def effective(names: Sequence[str], ess: np.ndarray, size: int) -> tuple[bool, str]:
    """Say whether there are enough effective draws for the error bars."""
    low = ess < LOW_ESS
    if not low.any():
        return True, f"Effective draws: at least {ess.min():.0f} of {size}. Error bars can be believed."
    return False, (
        f"Few effective draws (under {LOW_ESS}) for {_some(names, low)}; the fewest are "
        f"{ess.min():.0f}. Next: run the sampler longer, or read the intervals as a rough guide."
    )


def chains(names: Sequence[str], rhat: np.ndarray, limit: np.ndarray) -> tuple[bool, str]:
    """Say whether the chains agree."""
    apart, worst = rhat > limit, int(np.argmax(rhat - limit))
    if not apart.any():
        return True, f"Chains agree: R-hat is at most {rhat.max():.3f} (limit {limit[worst]:.3f})."
    return False, (
        f"Chains disagree about {_some(names, apart)}: R-hat up to {rhat.max():.3f} (limit "
        f"{limit[worst]:.3f}). Next: run longer or reparametrise; no mean over these chains can be trusted, "
        f"controlled or not."
    )


def tails(names: Sequence[str], khat: np.ndarray) -> tuple[bool, str]:
    """Say whether the tails are light enough for a variance to exist."""
    heavy = khat > TAIL_LIMIT
    if not heavy.any():
        return True, (
            f"Tails are light enough for error bars: Pareto k is at most {khat.max():z.2f} (limit {TAIL_LIMIT:g})."
        )
    return False, (
        f"Heavy tails for {_some(names, heavy)}: Pareto k up to {khat.max():.2f} (limit "
        f"{TAIL_LIMIT:g}), so the variance may be infinite. Next: estimate a bounded function "
        f"of it, or reparametrise."
    )


def _repeated(found: Check) -> tuple[bool, str]:
    most = found.repeats.max()
    if most == 0:
        return True, "No draw is repeated."
    share = f"Repeated draws: {most} of {found.size} at most"
    if most <= MOST_REPEATS * found.size:
        return True, f"{share}, as rejected proposals leave them; the effective size accounts for them."
    return False, f"{share}. Next: check that no chain is a copy of another; else tune the sampler's step size."


def _some(names: Sequence[str], which: np.ndarray) -> str:
    return listed([clean(name, 40) for name, kept in zip(names, which, strict=True) if kept])


def check_table(found: Check, most: int = 30) -> Table:
    """Return a table of one line per coordinate, the most suspicious first."""
    left = len(found.names) - most
    note = f"... and {left} more; --json has them all." if left > 0 else ""
    header = ("coordinate", "z score", "z draw·score", "ESS", "R-hat", "tail k", "repeats")
    rows = []
    for k in found.order[:most]:
        cells = [
            (clean(found.names[k], 40), False),
            (f"{found.score_z[k]:.1f}", abs(found.score_z[k]) > STEIN_LIMIT),
            (f"{found.product_z[k]:.1f}", abs(found.product_z[k]) > STEIN_LIMIT),
            (f"{found.ess[k]:.0f}", found.ess[k] < LOW_ESS),
            (f"{found.rhat[k]:.3f}", found.rhat[k] > found.rhat_limit[k]),
            (f"{found.tail[k]:.2f}", found.tail[k] > TAIL_LIMIT),
            (f"{found.repeats[k]}", found.repeats[k] > MOST_REPEATS * found.size),
        ]
        rows.append([(cell, "red" if bad else "") for cell, bad in cells])
    return rich_rows(header, rows, range(1, len(header)), note)
