"""The evidence of tempered particles: closed forms, honest errors, runs that differ, and clear words."""

import numpy as np
import pytest

import steincv as scv

DIM, NOISE, DATUM = 3, 0.5, 1.5


def particles(seed, t, shape=(4, 100), dim=DIM):
    """Exact draws of theta ~ N(0, 1), y = 1.5 with noise N(0, .25) in every coordinate, at temperature t."""
    precision = 1 + t / NOISE**2
    mean = t / NOISE**2 * DATUM / precision
    x = mean + np.random.default_rng([seed, int(1e6 * t)]).normal(size=(*shape, dim)) / np.sqrt(precision)
    likelihood = (-0.5 * (x - DATUM) ** 2 / NOISE**2 - 0.5 * np.log(2 * np.pi * NOISE**2)).sum(axis=-1)
    return scv.Samples(x, -precision * (x - mean)), likelihood


EXACT = DIM * (-0.5 * DATUM**2 / (1 + NOISE**2) - 0.5 * np.log(2 * np.pi * (1 + NOISE**2)))
LADDER = np.linspace(0, 1, 9) ** 2


def run(seed, method=None, last=False, **more):
    found = [particles(seed, t, **more) for t in (LADDER if last else LADDER[:-1])]
    method = scv.Polynomial(3) if method is None else method
    return scv.smc_evidence([s for s, _ in found], [v for _, v in found], LADDER, method)


def test_closed_form_and_honest_errors(as_users_have_it):
    """Thirty sets: each within four errors, most within two, and a tenth of the plain squared error at most."""
    found = [run(seed) for seed in range(30)]
    off = np.array([(r.mean - EXACT, r.plain.mean - EXACT) for r in found])
    error = np.array([(r.standard_error, r.plain.standard_error) for r in found])
    assert (np.abs(off) < 4 * error).all()
    assert ((np.abs(off) < 2 * error).mean(axis=0) > 0.8).all()
    better, plain = (off**2).mean(axis=0)
    assert better < 0.1 * plain
    one = found[0]
    assert np.allclose(one.controlled.mean(), one.mean)
    assert np.allclose(sum(row["increment"] for row in one.info["steps"]), one.mean)


def test_the_last_particles_are_not_needed():
    first, second = run(0), run(0, last=True)
    assert first.mean == second.mean


def test_weighted_particles():
    """Particles that were never resampled: all from the prior, weighted by the likelihood so far."""
    prior, value = particles(0, 0.0, (4, 4000), 1)
    ladder = np.array([0.0, 0.1, 0.3, 1.0])
    steps = []
    for t in ladder[:-1]:
        x = prior.draws
        steps.append(scv.Samples(x, -x + t * (DATUM - x) / NOISE**2, log_weights=t * value))
    result = scv.smc_evidence(steps, [value] * 3, ladder, scv.Polynomial(2))
    assert abs(result.mean - EXACT / DIM) < 4 * result.standard_error
    assert result.variance_ratio < 0.5


def test_runs_that_differ_widen_the_error_bar():
    """Each run's particles are all shifted alike, as if they had one ancestor: no error within a run tells of it."""
    rng = np.random.default_rng(0)
    samples, values = [], []
    for t in LADDER[:-1]:
        s, v = particles(0, t, (8, 50))
        samples.append(s)
        values.append(v)
    shift = 0.5 * rng.normal(size=(8, 1))
    usual = scv.smc_evidence(samples, values, LADDER, scv.MonteCarlo())
    moved = scv.smc_evidence(samples, [v + shift for v in values], LADDER, scv.MonteCarlo())
    assert moved.standard_error > 2 * usual.standard_error
    assert np.allclose(moved.standard_error, moved.info["between_runs"])
    assert moved._average.degrees_of_freedom == 7


def test_a_bayes_factor_of_two_kinds():
    first = run(0)
    posterior, _ = particles(0, 1.0)

    def density(x):
        away = (DATUM - x) / NOISE
        constant = -0.5 * DIM * (np.log(2 * np.pi) + np.log(2 * np.pi * NOISE**2))
        return -0.5 * x @ x - 0.5 * away @ away + constant, -x + away / NOISE

    found = scv.bayes_factor(first, scv.bridge(posterior, density))
    assert abs(found.log) < 4 * found.standard_error


BAD = {
    "too few": (lambda s, v: scv.smc_evidence(s[:-1], v, LADDER), "`samples_per_step` has 7 entries"),
    "too few values": (lambda s, v: scv.smc_evidence(s, v[:3], LADDER), "`log_likelihoods` has 3 entries"),
    "not samples": (lambda s, v: scv.smc_evidence([x.draws for x in s], v, LADDER), "step 0 has a ndarray"),
    "temperatures": (lambda s, v: scv.smc_evidence(s, v, LADDER[::-1]), "`temperatures`"),
    "shape": (lambda s, v: scv.smc_evidence(s, [x[:, 1:] for x in v], LADDER), "`log_likelihoods` of step 0 has shape"),
    "not a method": (lambda s, v: scv.smc_evidence(s, v, LADDER, "best"), "`method`"),
    "no lists": (lambda s, v: scv.smc_evidence(3, v, LADDER), "one entry a step"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case, as_users_have_it):
    call, word = BAD[case]
    found = [particles(0, t, (4, 10)) for t in LADDER[:-1]]
    with pytest.raises(scv.InputError, match=word):
        call([s for s, _ in found], [v for _, v in found])
