"""A result on stdout: a table with sentences, or JSON."""

import json
import math

import numpy as np

from ..judging.error_bars import Average
from ..result import Estimate
from ..samples.samples import Samples
from .store import plain_data
from .terminal import console, say
from .text import effort, rich_table


def show(result: Estimate, seconds: float) -> None:
    """Print the table, what was gained, the warnings and the time it took."""
    console().print(rich_table(result))
    say(result.gained())
    for warning in result.warnings():
        say(warning, bullet="-")
    for line in effort(result.info):
        say(line)
    say(f"Took {seconds:.1f} s, of which the fit {result.info.get('seconds', 0.0):.1f} s.")


def as_json(result: Estimate, samples: Samples, seconds: float) -> dict[str, object]:
    """Return everything the table shows and more, without the draws."""
    chains, draws, dim = samples.draws.shape
    return {
        "chains": chains,
        "draws": draws,
        "dim": dim,
        "seconds": seconds,
        "gained": result.gained(),
        "effort": effort(result.info),
        "outputs": outputs(result),
        "sd": None if result.sd is None else outputs(result.sd),
        "quantiles": {f"{level:g}": outputs(one) for level, one in result.quantiles.items()},
    }


def outputs(result: Estimate) -> list[dict[str, object]]:
    """Return one entry per output: plain and controlled mean, error bars, method and statuses."""

    def numbers(average: Average, k: int) -> dict[str, object]:
        return {
            "mean": average.mean[k],
            "standard_error": average.standard_error[k],
            "ess": average.ess[k],
            "interval_95": average.interval(0.95)[k],
        }

    plain, better = result.flat()
    ratio, gain = result.variance_ratio.reshape(-1), np.asarray(result.gain).reshape(-1)
    ends = result.gain_interval(0.9).reshape(-1, 2)
    return [
        {
            "label": label,
            "plain": numbers(plain, k),
            "controlled": numbers(better, k),
            "variance_ratio": ratio[k],
            "gain": gain[k],
            "gain_interval_90": ends[k],
            "method": result.method[k],
            "status": [{"code": s.code.name, "message": s.message} for s in result.status[k]],
        }
        for k, label in enumerate(result.labels)
    ]


def print_json(data: dict[str, object]) -> None:
    """Print JSON as the standard has it: what is not finite becomes null."""

    def finite(value: object) -> object:
        if isinstance(value, dict):
            return {key: finite(item) for key, item in value.items()}
        if isinstance(value, list):
            return [finite(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    print(json.dumps(finite(plain_data(data)), indent=2, allow_nan=False))
