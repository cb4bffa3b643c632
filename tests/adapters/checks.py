"""What every adapter must show: scores of the library's own density, and Stein means of zero."""

import numpy as np

import steincv as scv
from steincv.judging.diagnostics import STEIN_LIMIT, stein_check


def differences(log_density, x, step=1e-3):
    """The gradient by central differences of sixth order."""
    weights = {1: 45 / 60, 2: -9 / 60, 3: 1 / 60}
    gradient = np.zeros(len(x))
    for i in range(len(x)):
        for k, weight in weights.items():
            for sign in (1, -1):
                y = np.array(x, float)
                y[i] += sign * k * step
                gradient[i] += sign * weight * float(log_density(y)) / step
    return gradient


def check_scores(samples, log_density, draws=3):
    """Relative 1e-5, of the largest entry of a score where one of them is near zero."""
    total = samples.draws.shape[1]
    for draw in np.linspace(0, total - 1, draws).astype(int):
        chain = draw % samples.chains
        score = samples.scores[chain, draw]
        found = differences(log_density, samples.draws[chain, draw])
        np.testing.assert_allclose(score, found, rtol=1e-5, atol=1e-6 * np.abs(score).max())


def check_log_density(samples, log_density, rows=40):
    """The model's own function gives the scores to 1e-8, and the library's log density up to a constant.

    Asked for other numbers of points, it gives the same at each of them.
    """
    flat, scores = (a.reshape(-1, samples.dim)[:rows] for a in (samples.draws, samples.scores))
    values, gradients = samples.log_density(flat)
    assert values.shape == (len(flat),)
    assert values.dtype == gradients.dtype == np.float64
    np.testing.assert_allclose(gradients, scores, rtol=1e-8, atol=1e-8)
    expected = np.array([float(log_density(x)) for x in flat[:5]])
    np.testing.assert_allclose(values[:5] - values[0], expected - expected[0], rtol=1e-8, atol=1e-8)
    away = flat[:3] + 0.1
    value, gradient = samples.log_density(away)
    np.testing.assert_allclose(gradient[1], differences(log_density, away[1]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(samples.log_density(away[1:2])[1][0], gradient[1], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(value[0] - values[0], float(log_density(away[0])) - expected[0], rtol=1e-8, atol=1e-8)


def check_orbits(samples, names=None):
    """The parameters are known at new points: at the draws `constrain` gives the kept ones, and orbits run by name."""
    few = samples.select(np.arange(samples.chains), np.arange(60))
    constrained = [few.constrain(x) for x in few.draws[0, :3]]
    assert set(few.parameters.shown) <= set(constrained[0])
    for name in set(constrained[0]) & set(few.parameters.arrays):
        found = np.stack([np.asarray(row[name]) for row in constrained])
        np.testing.assert_allclose(found, few.parameters[name][0, :3], rtol=1e-5, atol=1e-5)
    with_orbits = scv.estimate(few, names, scv.Polynomial(1), orbits=4)
    alone = scv.estimate(few, names, scv.Polynomial(1), orbits=0)
    assert with_orbits.labels == alone.labels
    assert with_orbits.info["orbits"]["states"] == 4
    assert (np.abs(with_orbits.mean - alone.mean) < 6 * alone.plain.standard_error).all()
    assert np.median(with_orbits.standard_error / alone.standard_error) < 1


def check_stein(samples):
    assert np.abs(stein_check(samples).z).max() <= STEIN_LIMIT


def check_table(samples, means, **options):
    """`estimate` without an f lists the user's parameters, constrained, in the model's order."""
    result = scv.estimate(samples, method=scv.Polynomial(2), **options)
    assert result.labels == tuple(means)
    np.testing.assert_allclose(result.plain.mean, list(means.values()), rtol=1e-5, atol=1e-6)
    return result


def entries(name, array):
    """Label and mean of every entry of `(chain, draw, ...)`."""
    array = np.asarray(array, dtype=np.float64)
    shape = array.shape[2:]
    means = array.mean(axis=(0, 1))
    return {f"{name}[{', '.join(map(str, i))}]" if shape else name: float(means[i]) for i in np.ndindex(*shape)}


def check_summary(make, az, data, names):
    """`summary` has ArviZ's labels in its order, and every column that ArviZ has, to ArviZ's rounding.

    - `make(stat_focus)`: ours. `data`: the same draws, of which ArviZ (`az`, on either side of 1.0) makes its tables.
    """
    for focus, table in _tables_of_arviz(az, data, names).items():
        ours = make(focus).frame()
        assert list(ours.index) == list(table.index), (list(ours.index), list(table.index))
        shared = [name for name in table.columns if not name.startswith(("hdi", "eti"))]
        assert len(shared) > 3, list(table.columns)
        places = {name: 2 if name == "r_hat" else 0 if name in ("ess_bulk", "ess_tail") else 3 for name in shared}
        unit = np.array([10.0 ** -places[name] for name in shared])
        # a number on the edge of a digit may round to either side
        assert (np.abs(ours[shared] - table[shared]).to_numpy() <= 0.501 * unit).all()
        assert list(dict.fromkeys(label.split("[")[0] for label in ours.index)) == list(names)


def _tables_of_arviz(az, data, names):
    if int(az.__version__.split(".")[0]) < 1:
        return {focus: az.summary(data, names, stat_focus=focus, hdi_prob=0.9) for focus in ("mean", "median")}
    kinds = {"mean": "all", "median": "all_median"}
    tables = {focus: az.summary(data, names, kind=kind, ci_prob=0.9, round_to="none") for focus, kind in kinds.items()}
    # ArviZ 1 takes the tails' effective sizes at the ends of its default interval, 5.5 and 94.5 %, not at 5 and 95 %
    return {focus: table.drop(columns="ess_tail") for focus, table in tables.items()}
