"""The geometry of a posterior: which parameters act as scales of which others, in their own names."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..runtime.arrays import read_about, read_arrays, write_arrays
from ..runtime.validation import InputError, StrPath, reading
from ..samples.samples import Samples
from ..samples.streamed import refuse_streamed
from ..stein.coordinates import check_standard
from ..stein.learned.coordinates import (
    REQUIREMENTS,
    Fisher,
    Group,
    Layer,
    Learned,
    LearnedCoordinates,
    affine_divergence,
    learned_coordinates,
)
from ..stein.learned.grouped import Grouped
from ..stein.learned.layers import Affine, Bend, Couple
from .terminal import clean
from .text import aligned, as_html

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

HEADER = ("parameter", "scales", "by", "per sd", "strength", "share")


class Words(NamedTuple):
    """From which strength on a parameter is said to act as a scale clearly, and to make a funnel; how much is printed.

    The strength is the sum of squared changes of log scales per standard deviation of the parent. Neal's funnel in 10
    dimensions has 9 * 1.5^2 = 20; the bundled draws of eight schools, with non-centred effects, have 0.03. A table has
    at most `rows` rows and `label` characters of a name.
    """

    clear: float = 0.1
    funnel: float = 1.0
    rows: int = 40
    label: int = 40


WORDS = Words()
# How it is written to a file.
FORMAT, VERSION = "steincv.Geometry", 1
LAYERS: dict[str, type[Layer]] = {"affine": Affine, "bend": Bend, "couple": Couple, "grouped": Grouped}
# Fields that hold places of coordinates, not numbers.
PLACES = ("parents", "children", "terms", "located", "parent")


@dataclass(frozen=True, eq=False)
class Geometry:
    """What the scores show of a posterior's shape. `print(geometry)` is a table with sentences below.

    - `names`: of the parameters.
    - `groups`: which parameter scales which others, the strongest first; each with `parent`, `children`, `exponents`,
      `strength` (over 1 is a funnel) and `share`, its part of the divergence from a normal distribution.
    - `fisher`: the Fisher divergence to a normal distribution per parameter, `affine` after the best linear map and
      `learned` after the learned one, on draws that it has not seen.
    - `learned`: the map to coordinates in which the posterior is closer to normal; None where the draws show none.
    - `draws`: how many draws it was found from.
    """

    names: tuple[str, ...]
    groups: tuple[Group, ...]
    fisher: Fisher
    learned: Learned | None
    draws: int

    @classmethod
    def of_map(cls, names: tuple[str, ...], learned: Learned | None, fisher: Fisher, draws: int) -> "Geometry":
        """Return the geometry that a map shows."""
        return cls(names, () if learned is None else learned.geometry(names), fisher, learned, draws)

    def sentences(self) -> list[str]:
        """Say in plain words what was found."""
        dim = len(self.names)
        said = []
        strong = [group for group in self.groups if group.strength >= WORDS.clear]
        for group in strong:
            kind = "a funnel" if group.strength >= WORDS.funnel else "clearly, but no funnel"
            shown = ", ".join(label for label, _ in blocks(group.children))
            said.append(f"{clean(group.parent, WORDS.label)} acts as the scale of {clean(shown, 80)}: {kind}.")
        if any(group.strength >= WORDS.funnel for group in strong):
            said.append("Children written as location + scale * (standard variable) often sample more easily.")
        least = max(REQUIREMENTS.draws, int(REQUIREMENTS.per_dimension * dim))
        if self.learned is None and self.draws < least:
            return [f"{self.draws} draws of {dim} parameters are too few to tell: at least {least} are needed."]
        if not strong:
            weak = "; the effects above are slight" if self.groups else ""
            said.append(f"No parameter acts as a scale of others{weak}.")
        divergence = f"Fisher divergence to a normal distribution, per parameter: {self.fisher.affine:.2g} in affine"
        if self.learned is not None and self.fisher.learned <= REQUIREMENTS.least:
            exact = "and more than a billion times less in learned coordinates: normal, to round-off."
            said.append(f"{divergence}, {exact}")
        elif self.learned is not None:
            less = float(f"{self.fisher.affine / self.fisher.learned:.1e}")
            said.append(f"{divergence} and {self.fisher.learned:.2g} in learned coordinates, {less:g} times less.")
        elif self.fisher.affine < REQUIREMENTS.least:
            said.append("The density is normal, to round-off.")
        else:
            said.append(f"{divergence} coordinates; no map that was tried is clearly closer.")
        return said

    def summary(self) -> "pandas.DataFrame":
        """Return one row per parameter and child of it.

        Its columns: the exponent, the change of the child's log scale per standard deviation of the parameter, and the
        strength and share of all its children together.
        """
        import pandas

        rows = [
            (group.parent, child, exponent, exponent * deviation(group), group.strength, group.share)
            for group in self.groups
            for child, exponent in zip(group.children, group.exponents, strict=True)
        ]
        return pandas.DataFrame(rows, columns=["parent", "child", "exponent", "log_scale_per_sd", "strength", "share"])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw by what factor each scale changes; see `plot_geometry`."""
        from .figures import plot_geometry

        return plot_geometry(self, ax)

    def save(self, path: StrPath, *, force: bool = False) -> None:
        """Write the geometry with its map to one .npz. An existing file is only replaced with `force=True`."""
        layers = () if self.learned is None else self.learned.layers
        arrays = {
            f"{k} {field.name}": value
            for k, layer in enumerate(layers)
            for field in fields(layer)
            if (value := getattr(layer, field.name)) is not None
        }
        kinds = {made: name for name, made in LAYERS.items()}
        about = {
            "format": FORMAT,
            "version": VERSION,
            "names": self.names,
            "fisher": self.fisher,
            "draws": self.draws,
            "kind": None if self.learned is None else self.learned.kind,
            "layers": [kinds[type(layer)] for layer in layers],
        }
        write_arrays(path, about, arrays, force=force)

    @classmethod
    def load(cls, path: StrPath) -> "Geometry":
        """Read back what `save` wrote."""
        with reading(path):
            about = read_about(path, "geometry", FORMAT, VERSION)
            names = tuple(map(str, about["names"]))
            fisher = Fisher(*map(float, about["fisher"]))
            learned = None
            if about["kind"] is not None:
                layers = tuple(_layer(path, k, LAYERS[kind], len(names)) for k, kind in enumerate(about["layers"]))
                sound = all(math.isfinite(each) and each > 0 for each in fisher)
                if not layers or not isinstance(layers[0], Affine) or not sound:
                    raise _changed(path)
                learned = Learned(layers, str(about["kind"]), fisher)
            return cls.of_map(names, learned, fisher, int(about["draws"]))

    def _rows(self) -> list[tuple[str, ...]]:
        """Return what scales what, with the median exponent of neighbouring children theta[0], theta[1], ..."""
        rows: list[tuple[str, ...]] = []
        for group in self.groups:
            parent, exponent = clean(group.parent, WORDS.label), dict(zip(group.children, group.exponents, strict=True))
            for label, members in blocks(group.children):
                middle = float(np.median([exponent[name] for name in members]))
                per_sd = f"{_digits(float(np.exp(middle * deviation(group))))}×"
                shape = (f"exp({_digits(middle)} {parent})", per_sd, _digits(group.strength), f"{group.share:.0%}")
                rows.append((parent, clean(label, WORDS.label), *shape))
        return rows

    def __repr__(self) -> str:
        rows = self._rows()
        lines = aligned([HEADER, *rows[: WORDS.rows]], range(3, len(HEADER))) if rows else []
        more = [f"... and {len(rows) - WORDS.rows} more; summary() has them all."] if len(rows) > WORDS.rows else []
        return "\n".join([*lines, *more, *self.sentences()])

    def _repr_html_(self) -> str:
        """Return the table and the sentences as HTML, for a notebook."""
        return as_html(HEADER, self._rows()[: WORDS.rows], self.sentences())


def geometry(samples: Samples) -> Geometry:
    """Find which parameters act as scales of which others, from draws and scores alone.

    A hierarchical model's standard deviation scales its effects, and the posterior is a funnel: the scores show it.
    The map that `estimate(..., coordinates="learned")` uses is fitted to all draws here, and described in the
    parameters' own names, which are those of the unconstrained coordinates.

    **Arguments:**

    - `samples`: `Samples(...)`, with at least 100 draws, and one draw per parameter.

    >>> import numpy as np, steincv as scv
    >>> rng = np.random.default_rng(0)
    >>> h, w = rng.normal(size=(2, 4, 250))
    >>> x = np.stack([h, np.exp(h) * w], axis=-1)  # w has the scale exp(h)
    >>> scores = np.stack([-h + w**2 - 1, -w / np.exp(h)], axis=-1)
    >>> found = scv.geometry(scv.Samples(x, scores, names=["log_tau", "theta"]))
    >>> found.groups[0].parent, found.groups[0].children, round(found.groups[0].exponents[0], 1)
    ('log_tau', ('theta',), 1.0)
    """
    refuse_streamed(samples, "geometry")
    check_standard(samples)
    found = learned_coordinates(samples, samples)
    if isinstance(found, LearnedCoordinates):
        return Geometry.of_map(samples.names, found.learned, found.learned.fisher, samples.size)
    x, s = (a.reshape(-1, samples.dim) for a in (samples.draws, samples.scores))
    affine = affine_divergence(x, s, samples.chains)
    return Geometry.of_map(samples.names, None, Fisher(affine, affine), samples.size)


def deviation(group: Group) -> float:
    """Return the standard deviation of a group's parent."""
    size = float(np.linalg.norm(group.exponents))
    return float(np.sqrt(group.strength)) / size if size > 0 else 0.0


def blocks(names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return labels of runs of neighbours with the names in them.

    >>> blocks(["a", "b[0]", "b[1]", "b[2]", "b[4]"])
    [('a', ['a']), ('b[0..2]', ['b[0]', 'b[1]', 'b[2]']), ('b[4]', ['b[4]'])]
    """
    runs: list[tuple[str, int, list[str]]] = []  # the name before the bracket, the last number, members
    for name in names:
        found = re.fullmatch(r"(.*)\[(\d{1,9})\]", name, re.DOTALL)
        base, number = (found[1], int(found[2])) if found else (name, -1)
        if found and runs and runs[-1][:2] == (base, number - 1) and number > 0:
            runs[-1] = (base, number, [*runs[-1][2], name])
        else:
            runs.append((base, number, [name]))
    return [
        (members[0] if len(members) == 1 else f"{base}[{last - len(members) + 1}..{last}]", members)
        for base, last, members in runs
    ]


def _digits(number: float) -> str:
    """Return two significant digits: `1.0`, `0.014`, `-0.50`."""
    return f"{number:#.2g}".rstrip(".")


# Files ---------------------------------------------------------------------------------------------


def _layer(path: StrPath, k: int, kind: type[Layer], dim: int) -> Layer:
    """Return layer number k, its arrays checked: finite, of shapes that fit together, and places that exist."""
    stored = read_arrays(
        path,
        [f"{k} {field.name}" for field in fields(kind) if field.name != "factor"],
        [f"{k} factor"] if kind is Affine else [],
    )
    arrays = {name.split(" ")[1]: array for name, array in stored.items()}
    if kind is Grouped:
        children, located, bases = (len(arrays[name]) for name in ("children", "located", "parent"))
        shapes = {"children": (children,), "located": (located,), "precision": (children, bases)}
        shapes |= dict.fromkeys(("parent", "rate", "low", "high"), (bases,))
        shapes |= {"natural": (children, bases, 1 + located)}
        highest = dict.fromkeys(PLACES, dim)
        if arrays["precision"].shape == shapes["precision"] and not _positive(arrays["precision"]):
            raise _changed(path)
    elif kind is Couple:
        parents, children, terms = (len(arrays[name]) for name in PLACES[:3])
        shapes = {"parents": (parents,), "children": (children,), "terms": (terms, 2)}
        shapes |= {"location": (children, terms), "log_scale": (children, terms), "low": (parents,), "high": (parents,)}
        highest = {"parents": dim, "children": dim, "terms": 1 + 2 * parents}
    else:
        shapes, highest = {name: (dim, dim) if name == "factor" else (dim,) for name in arrays}, {}
    for name, array in arrays.items():
        whole = name in PLACES
        sound = array.shape == shapes[name] and array.dtype == (np.int64 if whole else np.float64)
        if not sound or not np.isfinite(array).all():
            raise _changed(path)
        if whole and not ((array >= 0) & (array < highest[name])).all():
            raise _changed(path)
    return kind(**arrays)


def _positive(precision: np.ndarray) -> bool:
    return bool((precision >= 0).all() and (precision.sum(axis=1) > 0).all())


def _changed(path: StrPath) -> InputError:
    return InputError(f"{path}: the parts of the saved geometry do not fit together; the file was changed.")
