"""Derivatives by powers of prior and likelihood, against closed forms of a conjugate model."""

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest

import steincv as scv

mpl.use("agg")
DIM = 3


class Conjugate:
    """theta ~ N(1, 2 I), y = X theta + N(0, I): with powers a, b of prior and likelihood the posterior is normal."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(12, DIM))
        self.y = self.x @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=12)

    def posterior(self, a=1.0, b=1.0):
        precision = a * np.eye(DIM) / 2 + b * self.x.T @ self.x
        return np.linalg.solve(precision, a * np.ones(DIM) / 2 + b * self.x.T @ self.y), np.linalg.inv(precision)

    def samples(self, seed, shape=(4, 500)):
        mean, spread = self.posterior()
        x = mean + np.random.default_rng(seed).normal(size=(*shape, DIM)) @ np.linalg.cholesky(spread).T
        return scv.Samples(x, -(x - mean) @ np.linalg.inv(spread))

    def log_prior(self, x):
        return -0.25 * ((x - 1) ** 2).sum(-1)

    def log_likelihood(self, x):
        return -0.5 * ((self.y - x @ self.x.T) ** 2).sum(-1)

    def exact(self, moment, step=1e-4):
        """Return the derivatives of a function of the posterior's mean and covariance, by prior and by likelihood."""
        up = moment(*self.posterior(a=1 + step)), moment(*self.posterior(b=1 + step))
        down = moment(*self.posterior(a=1 - step)), moment(*self.posterior(b=1 - step))
        return np.concatenate([(u - d) / (2 * step) for u, d in zip(up, down, strict=True)])


def squares(mean, spread):
    return np.append(mean, mean[0] ** 2 + spread[0, 0])


@pytest.mark.parametrize(("method", "sets"), [(scv.Polynomial(3), 10), (None, 4)])
def test_closed_forms_and_a_tenth_of_the_plain_variance(method, sets, as_users_have_it):
    """Means and a second moment: within four errors, as the interval has them, and ten times less variance."""
    model = Conjugate()
    exact = model.exact(squares)
    off = []
    for seed in range(sets):
        samples = model.samples(seed)
        x = samples.draws
        f = np.concatenate([x, x[..., :1] ** 2], axis=-1)
        logs = {"log_prior": model.log_prior(x), "log_likelihood": model.log_likelihood(x)}
        result = scv.sensitivity(samples, f, **logs, method=method, seed=seed)
        low, high = result.interval(0.9999).T
        assert ((low - 1e-6 < exact) & (exact < high + 1e-6)).all()
        assert (np.abs(result.plain.mean - exact) < 4.5 * result.plain.standard_error).all()
        off.append([result.mean - exact, result.plain.mean - exact])
    better, plain = np.mean(np.square(off), axis=0)
    assert (better < 0.1 * plain).all()


def test_squares_are_exact_in_a_conjugate_model(as_users_have_it):
    """A square times a quadratic log density is a quartic: left to kernels, one in ten was beyond three errors."""
    model = Conjugate()
    exact = model.exact(lambda mean, spread: mean**2 + np.diag(spread))
    for seed in range(3):
        samples = model.samples(seed)
        x = samples.draws
        result = scv.sensitivity(
            samples, x**2, log_prior=model.log_prior(x), log_likelihood=model.log_likelihood(x), seed=seed
        )
        assert np.abs(result.mean - exact).max() < 1e-6


def test_three_errors_are_no_less_than_an_interval(as_users_have_it):
    """Products left to a kernel have far draws that one or two of carry the error: it is told wider."""
    model = Conjugate()
    x = (samples := model.samples(0, (4, 200))).draws
    kernel = scv.Kernel("rational quadratic", degree=1)
    result = scv.sensitivity(samples, x**2, log_prior=model.log_prior(x), method=kernel)
    half = np.diff(result.interval(0.95))[:, 0] / 2
    controlled = np.array(result.method) != "plain"
    assert controlled.all()
    raw = scv.estimate(samples, (x**2 - (x**2).mean()) * (model.log_prior(x) - 1)[..., None], kernel)
    assert (raw._average.degrees_of_freedom < 3).any()  # that is what intervals know
    assert (3 * result.standard_error >= half * (1 - 1e-9)).all()


def test_functions_and_arrays_agree_and_names_are_kept():
    model = Conjugate()
    samples = model.samples(0, (4, 200))
    by_array = scv.sensitivity(samples, log_prior=model.log_prior(samples.draws), method=scv.Polynomial(3))
    by_function = scv.sensitivity(samples, log_prior=lambda x: -0.25 * jnp.sum((x - 1) ** 2), method=scv.Polynomial(3))
    assert np.allclose(by_array.mean, by_function.mean)
    assert by_array.labels == ("prior[x[0]]", "prior[x[1]]", "prior[x[2]]")
    both = scv.sensitivity(
        samples,
        lambda x: {"first": x[0]},
        log_prior=model.log_prior(samples.draws),
        log_likelihood=model.log_likelihood(samples.draws),
        method=scv.Polynomial(3),
    )
    assert both.labels == ("prior[first]", "likelihood[first]")
    assert np.allclose(both["prior"].mean, by_array.mean[0])
    assert list(both.summary().index) == list(both.labels)
    _, spread = model.posterior()
    assert np.allclose(both.info["sd"], np.sqrt(spread[0, 0]), rtol=0.1)
    # the sum of both is the derivative by a power of the whole posterior, which moves no mean of a normal
    assert abs(both.mean.sum()) < 4 * np.hypot(*both.standard_error) + 1e-6
    picture = scv.plot_sensitivity(both)
    assert len(picture.get_yticklabels()) == 1


def test_constants_do_not_matter_and_a_flat_prior_moves_nothing():
    model = Conjugate()
    samples = model.samples(1, (4, 100))
    log = model.log_prior(samples.draws)
    first, second = (scv.sensitivity(samples, log_prior=v, method=scv.Polynomial(2)) for v in (log, log + 1e3))
    assert np.allclose(first.mean, second.mean, atol=1e-8)
    flat = scv.sensitivity(samples, log_prior=np.zeros((4, 100)), method=scv.Polynomial(2))
    assert (flat.mean == 0).all()
    assert (flat.standard_error == 0).all()


def test_weighted_draws():
    model = Conjugate()
    mean, spread = model.posterior()
    wide = mean + 1.5 * np.random.default_rng(0).normal(size=(4, 1000, DIM)) @ np.linalg.cholesky(spread).T
    away = ((wide - mean) @ np.linalg.inv(spread) * (wide - mean)).sum(axis=-1)
    samples = scv.Samples(wide, -(wide - mean) @ np.linalg.inv(spread), log_weights=-0.5 * away * (1 - 1 / 1.5**2))
    result = scv.sensitivity(samples, log_prior=model.log_prior(wide), method=scv.Polynomial(3))
    exact = model.exact(lambda mean, spread: mean)[:DIM]
    assert (np.abs(result.mean - exact) < 4 * result.standard_error + 1e-6).all()


BAD = {
    "nothing": (lambda s: scv.sensitivity(s), "`log_prior` or `log_likelihood` is needed"),
    "shape": (lambda s: scv.sensitivity(s, log_prior=np.zeros(3)), "expected"),
    "data": (lambda s: scv.sensitivity(s, log_likelihood=np.zeros((4, 20, 12))), "12 numbers at every draw"),
    "not samples": (lambda s: scv.sensitivity(s.draws, log_prior=np.zeros((4, 20))), "`samples` must be"),
    "a picture of something else": (lambda s: scv.plot_sensitivity(scv.estimate(s)), "result of sensitivity"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case, as_users_have_it):
    call, word = BAD[case]
    with pytest.raises(scv.InputError, match=word):
        call(Conjugate().samples(0, (4, 20)))
