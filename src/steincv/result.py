"""The one result: the controlled estimate with the plain one always beside it."""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from .judging.diagnostics import Code, Status
from .judging.error_bars import Average
from .judging.verdict import Gain, Words, gain_of, ratio_of
from .runtime.validation import InputError, listed

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Estimate:
    """Estimates of the means of several outputs of f.

    - `mean`, `standard_error`, `ess`, `interval(level)`: with control variates; shaped like f's outputs (one flat
      axis where f is a dict).
    - `plain`: the same without.
    - `variance_ratio`: squared standard error over the plain one; below 1 is a gain.
    - `gain`, `gain_interval(level)`: how many times as many draws the plain mean would need, and how sure that is.
    - `controlled`: `(chain, draw, out)`, draws whose plain mean is the estimate. `values`: f itself.
    - `method`, `status`: for every output, what was used and what happened.
    - `info`: members, weights and seconds of the fit; members left out and why; orbits, where there are any.
    - `sd`: an `Estimate` of the standard deviation of f where it was asked for, `estimate(..., stat=("mean", "sd"))`;
      None otherwise.
    - `quantiles`: an `Estimate` of every quantile that was asked for, by its level.
    """

    labels: tuple[str, ...]
    shape: tuple[int, ...]
    values: Float[np.ndarray, "chain draw out"]
    controlled: Float[np.ndarray, "chain draw out"]
    plain: Average
    _average: Average
    method: tuple[str, ...]
    status: tuple[tuple[Status, ...], ...]
    info: Mapping[str, Any]
    sd: "Estimate | None" = None
    quantiles: "Mapping[float, Estimate]" = field(default_factory=dict)

    def flat(self) -> tuple[Average, Average]:
        """The plain and the controlled average, with one axis."""
        return self.plain.reshape((-1,)), self._average.reshape((-1,))

    @property
    def mean(self) -> np.ndarray:
        return self._average.mean

    @property
    def standard_error(self) -> np.ndarray:
        return self._average.standard_error

    @property
    def ess(self) -> np.ndarray:
        """Effective size of the controlled draws; their variance is the smaller one."""
        return self._average.ess

    def interval(self, level: float = 0.95) -> np.ndarray:
        """Intervals for the means, of shape `(output, 2)`: lower and upper end of each."""
        return self._average.interval(level)

    @property
    def variance_ratio(self) -> np.ndarray:
        return ratio_of(self.plain, self._average)

    def quantile(self, level: float) -> "Estimate":
        """Return the estimate of a quantile that was asked for: `estimate(..., stat=("mean", 0.05))`."""
        if level not in self.quantiles:
            known = ", ".join(f"{p:g}" for p in self.quantiles) or "none"
            raise InputError(f'there is no quantile {level!r}, but {known}; ask with stat=("mean", {level!r}).')
        return self.quantiles[level]

    def parts(self) -> "list[tuple[str, Estimate]]":
        """Return everything that was estimated of f, each with the form of its name: `{}`, `sd({})`, `5%({})`."""
        sd = [] if self.sd is None else [("sd({})", self.sd)]
        return [("{}", self), *sd, *((f"{100 * p:g}%({{}})", one) for p, one in self.quantiles.items())]

    @property
    def gain(self) -> Gain:
        """How many times as many draws the plain mean would need: the number to quote, with `gain.interval(0.9)`.

        Less than `1 / variance_ratio`, which is of the draws that came: those that have not come are counted too. 1
        where the plain mean is reported, infinite where the status is `exact`.
        """
        used = np.array([m != "plain" for m in self.method]).reshape(self.shape)
        exact = np.array([any(s.code is Code.EXACT for s in found) for found in self.status]).reshape(self.shape)
        return gain_of(self.plain, self._average, used, exact, self.values, self.controlled)

    def gain_interval(self, level: float = 0.9) -> np.ndarray:
        """Intervals for the gains, of shape `(output, 2)`: lower and upper end of each."""
        return self.gain.interval(level)

    def __getitem__(self, name: str) -> "Estimate":
        """The outputs called `name`, or `name[...]`."""
        kept = [self.labels.index(name)] if name in self.labels else called(name, self.labels)
        if not kept:
            raise KeyError(f"{name!r}; the outputs are {', '.join(self.labels)}")
        shape = () if name in self.labels else (len(kept),)
        pick = np.array(kept)
        plain, better = (average[pick].reshape(shape) for average in self.flat())
        return Estimate(
            tuple(self.labels[i] for i in kept),
            shape,
            self.values[..., pick],
            self.controlled[..., pick],
            plain,
            better,
            tuple(self.method[i] for i in kept),
            tuple(self.status[i] for i in kept),
            self.info,
            None if self.sd is None else self.sd[name],
            {level: one[name] for level, one in self.quantiles.items()},
        )

    def summary(self, var_names: str | Sequence[str] | None = None, round_to: int | None = None) -> "pandas.DataFrame":
        """A data frame with ArviZ's labels: plain and controlled side by side.

        `gain`, between `gain_low` and `gain_high` at 90 %, is what may be quoted: how many times as many draws the
        plain mean would need. `vrf` is the bare ratio of squared standard errors, `ess_equiv` that times `ess_mean`.
        `var_names` are the outputs to show, or with `~` before a name all others.
        """
        import pandas

        plain, better = self.flat()
        with np.errstate(divide="ignore"):
            vrf = 1 / self.variance_ratio.reshape(-1)
        columns: dict[str, Any] = {
            "mean": plain.mean,
            "mcse_mean": plain.standard_error,
            "ess_mean": plain.ess,
            "mean_cv": better.mean,
            "mcse_cv": better.standard_error,
            "vrf": vrf,
            "ess_equiv": plain.ess * vrf,
            "gain": np.asarray(self.gain).reshape(-1),
        }
        columns["gain_low"], columns["gain_high"] = self.gain_interval().reshape(-1, 2).T
        if self.sd is not None:
            old, new = self.sd.flat()
            columns |= {"sd": old.mean, "mcse_sd": old.standard_error}
            columns |= {"sd_cv": new.mean, "mcse_sd_cv": new.standard_error}
        columns |= {"method": self.method, "status": [", ".join(s.name for s in found) for found in self.status]}
        frame = pandas.DataFrame(columns, index=list(self.labels))
        if var_names is not None:
            wanted = asked_for(var_names, self.labels)
            kept = sorted({k for name in wanted for k in called(name, self.labels)})
            if not kept:
                raise InputError(f"`var_names` = {var_names!r} leaves none of {', '.join(self.labels)}.")
            frame = frame.iloc[kept]
        return frame if round_to is None else frame.round(round_to)

    def gained(self) -> str:
        """What was gained, in one sentence."""
        helped = np.array([m != "plain" for m in self.method])
        constant = np.array([any(s.code is Code.CONSTANT for s in found) for found in self.status])
        alarm = next((s for found in self.status for s in found if s.code is Code.STEIN_MEAN), None)
        if alarm is not None and not helped.any():
            return "The plain means are reported, because the scores do not fit the draws."
        total = int((~constant).sum())
        if total == 0:
            return "Every output is constant: there is nothing to reduce."
        if self.info.get("method") == "plain":
            return "The plain means, as asked for: no control variate was fitted."
        if not helped.any():
            return f"Control variates did not help for any of {total} outputs, so the plain means are reported."
        told = self.gains_told()
        order = sorted(np.flatnonzero(~constant), key=lambda k: float(np.asarray(self.gain).reshape(-1)[k]))
        middle, least, most = (told[order[i]] for i in ((total - 1) // 2, 0, -1))
        if total == 1:
            return f"The same draws now give what {middle.amount} as many would{middle.between}."
        return (
            f"The same draws now give what {middle.amount} as many would{middle.between}, median over {total} outputs. "
            f"{int(helped.sum())} of {total} outputs improved: the least gains {least.amount}, the most {most.amount}."
        )

    def gains_told(self) -> list[Words]:
        """The gain of every output in words: about so many times, between these, or more than so many."""
        gain = self.gain
        rows = zip(np.asarray(gain).reshape(-1), gain.interval().reshape(-1, 2), strict=True)
        return [Words.of(float(g), float(low), float(high)) for g, (low, high) in rows]

    def warnings(self) -> list[str]:
        """The messages attached to the outputs, each once, with the outputs it is about."""
        about = messages(zip(self.labels, self.status, strict=True))
        return [f"{message} [{listed(labels)}]" for message, labels in about.items()]

    def __repr__(self) -> str:
        from .report.terminal import clean
        from .report.text import effort, table

        return "\n".join([table(self), "", self.gained(), *map(clean, self.warnings()), *effort(self.info)])

    def _repr_html_(self) -> str:
        from .report.text import html_table

        return html_table(self)

    def report(self, path: "str | os.PathLike[str]", *, force: bool = False) -> None:
        """Write one page that explains the result: a file that needs no network, for a browser of any size."""
        from .report.page import write_report

        write_report(self, path, force=force)

    def to_arviz(self) -> Any:
        """The controlled draws as ArviZ's data, with dims chain and draw: its tables and plots work on them."""
        from .adapters.arviz import to_arviz

        return to_arviz(self)

    def save(self, path: "str | os.PathLike[str]", *, force: bool = False) -> None:
        """Write everything to one file of arrays and JSON, whole or not at all."""
        from .report.store import save_estimate

        save_estimate(self, path, force=force)

    @staticmethod
    def load(path: "str | os.PathLike[str]") -> "Estimate":
        """Read back what `save` wrote."""
        from .report.store import load_estimate

        return load_estimate(path)


def called(name: str, labels: Sequence[str]) -> list[int]:
    """Return the places of the labels `name` and `name[...]`."""
    return [k for k, label in enumerate(labels) if label == name or label.startswith(f"{name}[")]


def asked_for(var_names: str | Iterable[str], labels: Sequence[str]) -> list[str]:
    """Return the names to show: those given or, as in ArviZ, all labels but `name` where one of them is `~name`.

    >>> asked_for("~b", ["a", "b[0]", "b[1]", "c"]), asked_for(["c", "a"], ["a", "c"])
    (['a', 'c'], ['c', 'a'])
    """
    names = [var_names] if isinstance(var_names, str) else list(var_names)
    without = [name[1:] for name in names if name.startswith("~") and not called(name, labels)]
    if not without:
        return names
    if unknown := [name for name in without if not called(name, labels)]:
        said = f"`var_names` leaves out {', '.join(unknown)}, which is not there; there are {', '.join(labels[:20])}."
        warnings.warn(said, stacklevel=3)
    out = {k for name in without for k in called(name, labels)}
    return [label for k, label in enumerate(labels) if k not in out]


def messages(outputs: Iterable[tuple[str, Sequence[Status]]]) -> dict[str, list[str]]:
    """Return every message once, with the labels of the outputs that it is about."""
    about: dict[str, dict[str, None]] = {}
    for label, found in outputs:
        for status in found:
            about.setdefault(str(status), {})[label] = None
    return {message: list(labels) for message, labels in about.items()}
