"""What the default did besides fitting: members left out, orbits, draws to fit on; one line each."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from .clean import clean, short_method


class Shown(NamedTuple):
    """Members that are said to be left out, at most, and characters of a reason and of advice."""

    members: int = 8
    reason: int = 120
    advice: int = 400


SHOWN = Shown()


def effort(info: Mapping[str, Any]) -> list[str]:
    """Return the lines, none where nothing is to be said; `info` may come from a file and hold anything."""
    lines = _left_out(info.get("left_out")), _orbits(info.get("orbits")), _fitting(info.get("fitting")), _net(info)
    return [line for line in lines if line]


def _left_out(entries: object) -> str:
    if not isinstance(entries, list | tuple):
        return ""
    pairs = [entry for entry in entries if isinstance(entry, list | tuple) and len(entry) == 2]
    said = [f"{short_method(str(name), 80)} ({clean(str(why), SHOWN.reason)})" for name, why in pairs]
    more = f" and {len(said) - SHOWN.members} more" if len(said) > SHOWN.members else ""
    return f"Left out: {', '.join(said[: SHOWN.members])}{more}." if said else ""


def _orbits(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return ""
    states, gradients, step, seconds, lost, sampler, averaging = (
        _number(entry.get(name)) for name in ("states", "gradients", "step", "seconds", "lost", "sampler", "averaging")
    )
    if states <= 1 and seconds > 0:
        return f"Orbits: none, because one gradient per draw would take {seconds:.3g} s."
    if states <= 1 and isinstance(entry.get("why"), str):
        return f"Orbits: none, because f is not known at new points: {clean(entry['why'], SHOWN.reason)}"
    if states <= 1 and sampler >= 0:
        return f"Orbits: none, because the sampler took {sampler:,.0f} gradients only."
    if not (states > 1 and gradients > 0 and step > 0):
        return ""
    alone = f"; {lost:.1%} of the draws are alone, their orbits left the support" if lost > 0 else ""
    beside = f" (the sampler took {sampler:,.0f})" if sampler >= 0 else ""
    mean = f"; averaged over them, f alone gains {averaging:.2g}" if averaging > 0 else ""
    states_said = f"Orbits: {states:.0f} states around every draw, {gradients:,.0f} gradients{beside}"
    return f"{states_said}, steps of {step:.2g}{mean}{alone}."


def _net(info: Mapping[str, Any]) -> str:
    said = info.get("net_gain")
    return clean(said, SHOWN.advice) if isinstance(said, str) else ""


def _fitting(said: object) -> str:
    """Return why draws that were given to fit on were not."""
    return f"Draws to fit on were {clean(said, SHOWN.reason)}" if isinstance(said, str) else ""


def _number(value: object) -> float:
    """Return a finite number, or NaN for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return math.nan
