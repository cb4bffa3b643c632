"""What a user's array may bring along: masked entries, names of its axes, labels of its columns."""

from collections.abc import Iterable

import numpy as np

from ..runtime.validation import InputError

AXES = ("chain", "draw")


def plain_array(name: str, value: object) -> np.ndarray:
    """Return an array with its axes called chain and draw first, if they are called so; refuse masked entries."""
    axes = _axes(value)
    if set(AXES) <= set(axes):
        value = value.transpose(*AXES, ...)  # type: ignore[attr-defined]
    several = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(one, np.ma.MaskedArray) for one in several):
        masked = np.ma.getmaskarray(np.ma.array(value))
        if masked.any():
            first = tuple(int(i) for i in np.argwhere(masked)[0])
            raise InputError(
                f"`{name}` is a masked array: {int(masked.sum())} of its {masked.size} entries are masked, the first "
                f"at index {first}, and there is no mean over draws that are missing. Leave those draws out of all "
                f"arrays, or fill what is known: {name}.filled(value)."
            )
    return np.asarray(value)


def with_draws_first(name: str, value: object) -> object:
    """Return draws or scores with their named axes in order; refuse names that leave the order open."""
    axes = _axes(value)
    known = [axis for axis in AXES if axis in axes]
    if len(known) != 1:
        return value  # none has a name, or both have: `plain_array` puts them in order
    if known == ["draw"] and len(axes) == 2:
        return value.transpose("draw", ...)  # type: ignore[attr-defined]
    if len(axes) != 3 or axes[AXES.index(known[0])] != known[0]:
        missing = next(axis for axis in AXES if axis not in axes)
        raise InputError(
            f"`{name}` has the axes {axes}, of which none is called {missing}: expected (chain, draw, dim), or (draw, "
            f"dim) of one chain. Name them: {name}.rename({{'...': '{missing}'}})."
        )
    return value


def column_labels(draws: object, scores: object) -> tuple[str, ...] | None:
    """Return the labels of the columns of labelled draws, or None; refuse scores that have them in another order."""
    first, second = (_labels(value) for value in (draws, scores))
    if first and second and first != second and set(first) == set(second):
        raise InputError(
            f"`scores` has its columns in another order, {', '.join(second[:6])}, than `draws`, "
            f"{', '.join(first[:6])}. Put them in one order first."
        )
    return first or None


def _axes(value: object) -> tuple[str, ...]:
    """Return the names of the axes of an array of xarray, nothing of any other."""
    axes = getattr(value, "dims", ())
    named = isinstance(axes, tuple) and hasattr(value, "coords") and hasattr(value, "transpose")
    return axes if named and all(isinstance(axis, str) for axis in axes) else ()


def _labels(value: object) -> tuple[str, ...]:
    """Return the labels of the columns of a data frame, or of the last axis of an array of xarray, if all are texts."""
    columns: object = getattr(value, "columns", None)
    more = [axis for axis in _axes(value) if axis not in AXES]
    if len(more) == 1 and more[0] in value.coords:  # type: ignore[attr-defined]
        columns = value.coords[more[0]].values.tolist()  # type: ignore[attr-defined]
    found = tuple(columns) if isinstance(columns, Iterable) else ()
    return found if all(isinstance(label, str) for label in found) and len(set(found)) == len(found) else ()
