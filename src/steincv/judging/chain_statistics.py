r"""Effective sizes, R-hat and tail indices of many series at once, as arviz-stats defines them one by one.

The definitions are those of Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), Bayesian Analysis 16, and of Vehtari,
Simpson, Gelman, Yao, Gabry (2024), JMLR 25; `tests/test_error_bars.py` holds them to arviz-stats. They are written
again because every estimate needs them: importing arviz-stats takes longer than the estimate, and it goes through
thousands of outputs one after the other.
"""

import numpy as np
import scipy.special
from jaxtyping import Float


def effective_draws(series: Float[np.ndarray, "chain draw out"], entries: int = 2**22) -> Float[np.ndarray, " out"]:
    """Return the split-chain effective sample size of the mean of every output; all draws where it is constant.

    Series are looked at in pieces of so many `entries`, so that temporary arrays stay small.
    """
    chains, draws, outputs = series.shape
    if draws < 4:
        return np.full(outputs, float(chains * draws))
    half = _halves(series)
    step = max(1, entries // half[0].size)
    return np.concatenate([_effective(half[k : k + step]) for k in range(0, outputs, step)])


def _halves(series: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, "out part length"]:
    """Return first and last halves of all chains as chains; the middle draw of an odd number is left out.

    Outputs come first: the sums of one do not depend, to the bit, on how many others there are.
    """
    half = series.shape[1] // 2
    return np.ascontiguousarray(np.moveaxis(np.concatenate([series[:, :half], series[:, -half:]]), -1, 0))


def _effective(series: Float[np.ndarray, "out chain draw"]) -> Float[np.ndarray, " out"]:
    """Return effective sizes by Geyer's initial monotone sequence of sums of two autocorrelations."""
    outputs, chains, n = series.shape
    constant = np.ptp(series, axis=(1, 2)) < 1e-15
    means = series.mean(axis=2)
    # in twice the length no lag meets itself round the corner
    waves = np.fft.rfft(series - means[..., None], n=2 ** int(np.ceil(np.log2(2 * n))))
    power = (waves.real**2 + waves.imag**2).sum(axis=1) / chains
    covariance = np.fft.irfft(power)[:, :n] / n
    within = covariance[:, :1] * (n / (n - 1))
    whole = covariance[:, 0] + (means.var(axis=1, ddof=1) if chains > 1 else 0.0)
    rho = 1 - (within - covariance) / np.where(constant, 1.0, whole)[:, None]
    rho[:, 0] = 1.0
    pairs = rho[:, : n - n % 2].reshape(outputs, -1, 2)[:, : max(1, -(-(n - 2) // 2))].sum(axis=2)
    ended = pairs <= 0
    last = np.where(ended.any(axis=1), ended.argmax(axis=1), pairs.shape[1] - 1)
    each = np.arange(outputs)
    falling = np.minimum.accumulate(pairs, axis=1)
    falling[np.arange(pairs.shape[1]) >= last[:, None]] = 0.0
    even = rho[each, 2 * last]
    tau = -1 + 2 * falling.sum(axis=1) + np.where((even > 0) | (pairs[each, last] >= 0), even, 0.0)
    size = float(chains * n)
    return np.where(constant | np.isnan(tau), size, size / np.maximum(tau, 1 / np.log10(size)))


def rank_rhat(series: Float[np.ndarray, "chain draw out"]) -> Float[np.ndarray, " out"]:
    """Return the rank-normalised split R-hat, of locations and of scales, of every output; NaN where it has none."""
    if series.shape[0] < 2 or series.shape[1] < 4:
        return np.full(series.shape[-1], np.nan)
    half = _halves(series)
    folded = np.abs(half - np.median(half, axis=(1, 2), keepdims=True))
    return np.fmax(_rhat(_normal_scores(half)), _rhat(_normal_scores(folded)))


def _normal_scores(series: Float[np.ndarray, "out chain draw"]) -> Float[np.ndarray, "out chain draw"]:
    """Return normal quantiles of the average ranks among all draws (Blom 1958)."""
    flat = series.reshape(len(series), -1)
    rank = np.empty(flat.shape)
    for column, ranks in zip(flat, rank, strict=True):
        order = column.argsort()
        ordered = column[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        ties = np.diff(np.append(starts, len(order)))
        ranks[order] = np.repeat(starts + (ties + 1) / 2, ties)
    scores: np.ndarray = scipy.special.ndtri((rank - 3 / 8) / (rank.shape[1] + 1 / 4))
    return scores.reshape(series.shape)


def _rhat(series: Float[np.ndarray, "out chain draw"]) -> Float[np.ndarray, " out"]:
    n = series.shape[2]
    between = n * series.mean(axis=2).var(axis=1, ddof=1)
    within = series.var(axis=2, ddof=1).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that stand still
        return np.sqrt((between / within + n - 1) / n)


def pareto_index(draws: Float[np.ndarray, " n"], tail: str = "both", kept: float | None = None) -> float:
    """Return the Pareto k of the heavier tail of one series, or of its `"right"` one; NaN where there is none to fit.

    `kept`: how many draws a tail has, if not the usual three times the root of their number.
    """
    n = len(draws)
    usual = 3 * np.sqrt(n) if n > 225 else n / 5
    size = int(usual if kept is None else kept)
    if tail == "both":
        size = max(5, min(size, n // 2))
    if not 5 <= size < n:
        return np.nan
    ordered = np.sort(draws)
    found = [_tail_index(ordered[-size:] - ordered[-size - 1])]
    if tail == "both":
        found.append(_tail_index(ordered[size] - ordered[size - 1 :: -1]))
    return float(np.max(found))


def _tail_index(excess: Float[np.ndarray, " n"]) -> float:
    """Return k of a generalised Pareto distribution of ascending excesses (Zhang and Stephens 2009), drawn to 0.5."""
    n = len(excess)
    if excess[-1] - excess[0] < np.finfo(float).tiny:
        return np.nan
    count = 30 + int(np.sqrt(n))
    with np.errstate(all="ignore"):
        b = 1 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))
        b = b / (3 * excess[int(n / 4 + 0.5) - 1]) + 1 / excess[-1]
        k = np.log1p(-b[:, None] * excess).mean(axis=1)
        likelihood = n * (np.log(-b / k) - k - 1)
        weights = np.exp(likelihood - scipy.special.logsumexp(likelihood))
        counted = weights >= 10 * np.finfo(float).eps  # none, if a quarter of the excesses are 0
        found = np.log1p(-np.average(b[counted], weights=weights[counted]) * excess).mean() if counted.any() else 0.0
    return float((n * found + 5) / (n + 10))
