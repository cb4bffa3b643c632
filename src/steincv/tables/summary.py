"""`summary`: one table in the shape of ArviZ's, with control variates beside it."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .. import adapters
from ..estimating import estimate
from ..families.method import Method
from ..report.terminal import clean
from ..report.text import LONGEST_LABEL, aligned, as_html, plus_minus, times
from ..result import Estimate, asked_for, called, messages
from ..runtime.validation import InputError
from ..samples.files import DRAWS, SCORES, read_samples
from ..samples.samples import Samples
from ..samples.streamed import Streamed

if TYPE_CHECKING:
    import pandas

# Digits after the point of a number that is known exactly.
MOST_DIGITS = 12
# The quantiles whose smaller effective size is ArviZ's `ess_tail`.
TAIL = (0.05, 0.95)
DIAGNOSTICS = {"mean": ("ess_bulk", "ess_tail", "r_hat"), "median": ("ess_median", "ess_tail", "r_hat")}
# The module that a type is from, and the adapter of its objects.
HOMES: dict[str, Callable[..., Samples]] = {
    "numpyro": adapters.from_numpyro,
    "blackjax": adapters.from_blackjax,
    "cmdstanpy": adapters.from_cmdstan,
    "stan": adapters.from_stan,
    "emcee": adapters.from_emcee,
}
# What ArviZ's summary takes and this one does not, and what to write instead.
ARVIZ = {
    "hdi_prob": "its interval is equal-tailed, not of highest density. Write ci_prob=0.94.",
    "round_to": "numbers are printed to their error. Of the data frame: summary(...).frame(round_to=2).",
    "kind": 'write stat_focus="mean" or "median"; effective sizes and R-hat are always there.',
    "filter_vars": "names are whole ones. Write var_names=[...], or var_names='~name' for all others.",
    "stat": "it has mean, sd, median and interval. For other quantiles: estimate(..., stat=('mean', 0.1)).",
}
LABELLED = ("InferenceData", "DataTree", "Dataset")


def summary(
    x: object,
    *more: object,
    var_names: str | Sequence[str] | None = None,
    stat_focus: Literal["mean", "median"] = "mean",
    ci_prob: float = 0.9,
    ci_kind: Literal["eti"] = "eti",
    method: Method | None = None,
    seed: int = 0,
    **options: Any,
) -> "Summary":
    """Return mean, sd, median and an equal-tailed interval of every parameter, with their Monte Carlo errors.

    **Arguments:**

    - `x`: `Samples`, a file of draws and scores, or what an adapter takes: a NumPyro `MCMC`, a trace of PyMC or nutpie,
      ArviZ data, a fit of Stan, states of BlackJAX, an emcee sampler. `more` is what its adapter takes besides, such as
      `summary(trace, model)`.
    - `var_names`: only these parameters, by their names as ArviZ has them; with `~` before a name all others.
    - `stat_focus`: "mean" has mean, sd and median; "median" has the median and, without control, ArviZ's `mad`.
    - `ci_prob`: the probability of the interval between its two quantiles. `ci_kind` is "eti", equal-tailed.
    - `method`, `seed` and other `options`: as for `estimate`.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 250, 2))
    >>> table = scv.summary(scv.Samples(x, -x, names=["a", "b"]), method=scv.Polynomial(2))
    >>> [float(q) for q in table.frame().loc["a", ["median_cv", "eti_95%_cv"]].round(4)]
    [0.0, 1.6449]
    """
    for name in ARVIZ.keys() & options.keys():
        raise InputError(f"`summary` has no `{name}`: {ARVIZ[name]}")
    if stat_focus not in DIAGNOSTICS:
        raise InputError(f'`stat_focus` must be "mean" or "median", got {stat_focus!r}.')
    if not (isinstance(ci_prob, float | np.floating) and 0 < ci_prob < 1):
        raise InputError(f"`ci_prob` must lie strictly between 0 and 1, got {ci_prob!r}.")
    if ci_kind != "eti":
        raise InputError(
            f'`ci_kind` must be "eti", got {ci_kind!r}. The ends of a highest density interval lie where the density '
            f"has the same height, which a distribution function hardly says: their error would be many times that of "
            f"quantiles. Take the equal-tailed interval."
        )
    # to the digits of a percentage: 1 - 0.9 is not 0.1
    tail = round((1 - float(ci_prob)) / 2, 12)
    levels = (tail, 0.5, round(1 - tail, 12))
    samples = recognise(x, *more)
    names: Sequence[str | float] = ("mean", "sd") if stat_focus == "mean" else ("mean",)
    result = estimate(samples, method=method, stat=(*names, *levels), seed=seed, **options)
    return Summary(result, stat_focus, levels, _kept(result.labels, var_names, names_in(x)))


@dataclass(frozen=True, eq=False)
class Summary:
    """The table. `frame()` is a data frame; `result` is the `Estimate` behind it, with its sd and quantiles."""

    result: Estimate
    stat_focus: str
    levels: tuple[float, float, float]
    kept: tuple[int, ...]

    @property
    def parts(self) -> Mapping[str, Estimate]:
        """The estimate of every column, by ArviZ's name of it."""
        low, middle, high = self.levels
        part = {"median": self.result.quantile(middle)}
        if self.stat_focus == "mean":
            assert self.result.sd is not None
            part = {"mean": self.result, "sd": self.result.sd, **part}
        return part | {f"eti_{100 * p:g}%": self.result.quantile(p) for p in (low, high)}

    def frame(self, round_to: int | None = None) -> "pandas.DataFrame":
        """Return a data frame: ArviZ's columns, which are plain, then those with control variates.

        `NAME_cv` and `mcse_NAME_cv` are value and Monte Carlo error with control variates, `digits_NAME` how many
        digits after the point may be printed of it, `gain_NAME` how many times as many draws the plain one would need.
        """
        import pandas

        pick = list(self.kept)
        plain, better = ({name: part.flat()[i] for name, part in self.parts.items()} for i in (0, 1))
        sd = {} if self._weighted else {"sd": self.result.values.std(axis=(0, 1), ddof=1)}  # ArviZ counts n - 1
        columns: dict[str, Any] = {name: sd.get(name, average.mean)[pick] for name, average in plain.items()}
        if self.stat_focus == "median" and not self._weighted:
            distance = np.abs(self.result.values - plain["median"].mean)
            columns = {"median": columns.pop("median"), "mad": np.median(distance, axis=(0, 1))[pick], **columns}
        columns |= {f"mcse_{name}": average.standard_error[pick] for name, average in plain.items()}
        columns |= {name: found[pick] for name, found in self._diagnostics().items()}
        columns |= {f"{name}_cv": average.mean[pick] for name, average in better.items()}
        columns |= {f"mcse_{name}_cv": average.standard_error[pick] for name, average in better.items()}
        columns |= {f"digits_{name}": digits(average.standard_error[pick]) for name, average in better.items()}
        columns |= {f"gain_{name}": np.asarray(part.gain).reshape(-1)[pick] for name, part in self.parts.items()}
        found = [dict.fromkeys(s.name for part in self.parts.values() for s in part.status[k]) for k in pick]
        columns["status"] = [", ".join(names) for names in found]
        frame = pandas.DataFrame(columns, index=[self.result.labels[k] for k in pick])
        return frame if round_to is None else frame.round(round_to)

    @property
    def _weighted(self) -> bool:
        """Whether draws have weights: there is no such table in ArviZ."""
        return "weights" in self.result.info

    def _diagnostics(self) -> dict[str, np.ndarray]:
        """Return effective sizes and R-hat as ArviZ has them; of draws with weights the effective size of the mean."""
        if self._weighted:
            return {"ess": self.result.flat()[0].ess}
        from arviz_stats.base import array_stats  # which takes a second

        values, axes = self.result.values, {"chain_axis": 0, "draw_axis": 1}
        found = {}
        for name in DIAGNOSTICS[self.stat_focus]:
            kind = name.removeprefix("ess_")
            how = {} if name == "r_hat" else {"method": kind, "prob": TAIL if kind == "tail" else None}
            with np.errstate(divide="ignore", invalid="ignore"):  # a constant has none
                measure = array_stats.rhat if name == "r_hat" else array_stats.ess
                found[name] = np.asarray(measure(values, **how, **axes))
        return found

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of the printed table: of every parameter a plain row and a controlled one."""
        parts, found = self.parts, self._diagnostics()
        rows = [("", "", *(name.removeprefix("eti_") for name in parts), "gain", *found)]
        pairs = [*zip(*(part.flat() for part in parts.values()), strict=True)]
        gain = np.median([np.asarray(part.gain).reshape(-1) for part in parts.values()], axis=0)
        for k in self.kept:
            plain, better = ([plus_minus(a.mean[k], a.standard_error[k]) for a in each] for each in pairs)
            shown = [f"{x[k]:.2f}" if name == "r_hat" else f"{x[k]:.0f}" for name, x in found.items()]
            label = clean(self.result.labels[k], LONGEST_LABEL)
            rows += [(label, "plain", *plain, "", *shown)]
            rows += [("", "controlled", *better, times(float(gain[k])), *[""] * len(shown))]
        return rows

    def notes(self) -> list[str]:
        """Return what happened, each message once, with the outputs it is about."""
        about = messages((part.labels[k], part.status[k]) for part in self.parts.values() for k in self.kept)
        return [f"{message} [{', '.join(labels)}]" for message, labels in about.items()]

    def __repr__(self) -> str:
        rows = self.rows()
        return "\n".join([*aligned(rows, range(2, len(rows[0]))), "", *map(clean, self.notes())]).rstrip()

    def _repr_html_(self) -> str:
        header, *rows = self.rows()
        return as_html(header, rows, list(map(clean, self.notes())))

    def report(self, path: "str | os.PathLike[str]", *, force: bool = False) -> None:
        """Write the page of the result, which has every quantile."""
        self.result.report(path, force=force)


def digits(error: np.ndarray) -> np.ndarray:
    """Return how many digits after the point are certain: two standard errors are less than one of the last.

    >>> digits(np.array([0.05, 0.004, 12.0, 0.0])).tolist()
    [1, 2, -2, 12]
    """
    with np.errstate(divide="ignore"):
        found = np.floor(-np.log10(2 * error) + 1e-9)
    return np.minimum(np.where(error > 0, found, MOST_DIGITS), MOST_DIGITS).astype(int)


def _kept(labels: Sequence[str], var_names: str | Sequence[str] | None, order: Sequence[str]) -> tuple[int, ...]:
    """Return the numbers of the outputs to show: those asked for, or all, in the order of the data where it has one."""
    found = dict.fromkeys(k for name in order for k in called(name, labels))
    every = (*found, *(k for k in range(len(labels)) if k not in found))
    if var_names is None:
        return every
    wanted = asked_for(var_names, [labels[k] for k in every])
    if not wanted:
        raise InputError(f"`var_names` = {var_names!r} leaves none of {', '.join(labels)}.")
    for name in wanted:
        if not called(name, labels):
            raise InputError(f"`var_names` has {name!r}; there are {', '.join(labels)}.")
    return tuple(dict.fromkeys(k for name in wanted for k in called(name, labels)))


# Whatever a library of a sampler returned, by the name of its type: no library is imported for it ------


def recognise(x: object, *more: object) -> Samples | Streamed:
    """Return the samples of x; `more` goes to its adapter, such as the model of a PyMC trace."""
    if isinstance(x, Samples | Streamed):
        return x
    if isinstance(x, str | os.PathLike):
        return read_samples(x)
    kind = type(x)
    home = kind.__module__.split(".")[0]
    if home in HOMES:
        return HOMES[home](x, *more)
    if kind.__name__ in LABELLED:
        group = adapters.arviz.groups_of(x)
        stats = group("sample_stats")
        known = stats is not None and DRAWS in stats and SCORES in stats
        return adapters.from_arviz(x) if known and not more else adapters.from_pymc(x, *more)
    raise InputError(
        f"there is no adapter for a {kind.__module__}.{kind.__name__}. Give a steincv.Samples, or what NumPyro, PyMC, "
        f"nutpie, ArviZ, BlackJAX, Stan or emcee returned."
    )


def names_in(x: object) -> tuple[str, ...]:
    """Return the parameters of labelled data in its own order, which a table of ArviZ has; none of anything else."""
    if type(x).__name__ not in LABELLED:
        return ()
    posterior = adapters.arviz.groups_of(x)("posterior")
    return () if posterior is None else tuple(map(str, posterior.data_vars))
