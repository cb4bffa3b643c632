"""Stacking: convex weights by brute force, and what they promise."""

import numpy as np
import pytest
from densities import bent_mixture
from scipy.optimize import nnls

import steincv as scv
from steincv.families.method import Member, Training
from steincv.families.racing import race
from steincv.families.stack import convex_weights, moments
from steincv.families.structured.curved import Curved
from steincv.stein.folds import make_folds


def test_weights_minimise_over_the_simplex():
    """Against every point of a grid on the simplex of three members."""
    rng = np.random.default_rng(0)
    grid = np.array([(a, b, c) for a in range(11) for b in range(11 - a) for c in range(11 - a - b)]) / 10
    for _ in range(20):
        root = rng.normal(size=(4, 4))
        second = root @ root.T
        w = convex_weights(second[None])[:, 0]
        assert (w >= 0).all()
        assert w.sum() <= 1 + 1e-12

        def variance(w, second=second):
            u = np.concatenate([[1 - w.sum()], w])
            return u @ second @ u

        assert variance(w) <= min(variance(g) for g in grid) + 1e-9


def test_weights_of_nothing_are_zero():
    zero = np.zeros((1, 3, 3))
    np.testing.assert_array_equal(convex_weights(zero), 0)
    only_members_vary = zero.copy()
    only_members_vary[0, 1, 1] = 1.0
    np.testing.assert_array_equal(convex_weights(only_members_vary), 0)


def test_moments_are_covariances():
    rng = np.random.default_rng(1)
    values, g = rng.normal(size=(2, 30, 1)), rng.normal(size=(2, 2, 30, 1))
    columns = np.stack([values.ravel(), (values + g[0]).ravel(), (values + g[1]).ravel()])
    np.testing.assert_allclose(moments(values, g)[0] / 60, np.cov(columns, ddof=0), rtol=1e-10)


def test_a_stack_of_one_is_that_one_or_less():
    samples = bent_mixture(2, 4, 200, 2)
    f = np.sin(samples.draws[..., 0])
    one, stack = (scv.estimate(samples, f, m) for m in (scv.Polynomial(2), scv.Stack([scv.Polynomial(2)])))
    assert stack.standard_error <= 1.02 * one.standard_error


def test_never_much_worse_than_its_best_member():
    samples = bent_mixture(3, 4, 250, 3)
    x = samples.draws
    values = np.stack([np.sin(x[..., 0]), x[..., 1] ** 2, np.tanh(x[..., 2] * x[..., 0])], axis=-1)
    members = [scv.Polynomial(1), scv.Polynomial(3), scv.Kernel(lengthscale=2.0), scv.MonteCarlo()]
    alone = np.array([scv.estimate(samples, values, m, guard=False).standard_error for m in members])
    stack = scv.estimate(samples, values, scv.Stack(members), guard=False)
    assert (stack.standard_error <= 1.05 * alone.min(axis=0)).all()
    weights = np.array([member["weight"] for member in stack.info["members"]])
    assert (weights >= 0).all()
    assert (weights.sum(axis=0) <= 1 + 1e-9).all()
    assert len(stack.info["members"]) == 4


def test_harmful_members_get_no_weight():
    """A linear function of a Gaussian is exact for degree 1; without a penalty 90 features of 100 draws do harm."""
    x = np.random.default_rng(4).normal(size=(4, 35, 12))
    stack = scv.Stack([scv.Polynomial(2, penalty=0), scv.Polynomial(1)])
    noisy = x[..., 0] + 0.3 * np.random.default_rng(5).normal(size=(4, 35))
    members = scv.estimate(scv.Samples(x, -x), noisy, stack).info["members"]
    assert members[0]["weight"][0] < 0.1
    assert members[1]["weight"][0] > 0.8


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_an_event_in_one_fold_only_is_weighted_in_units_of_f(scale):
    """f does not vary in three folds of four; the weights must not depend on its units there."""
    samples = bent_mixture(6, 4, 50, 2)
    f = np.zeros((4, 50))
    f[1, :3] = 1.0
    one, two = (
        scv.estimate(samples, v, scv.Stack([scv.Polynomial(1), scv.Polynomial(2)]), guard=False) for v in (f, scale * f)
    )
    assert float(two.mean) == pytest.approx(scale * float(one.mean), rel=1e-9)
    assert two.info["members"][0]["weight"] == pytest.approx(one.info["members"][0]["weight"], abs=1e-9)


def test_a_fitted_stack_is_the_weighted_sum():
    samples = bent_mixture(7, 4, 80, 2)
    f = np.sin(samples.draws[..., 0])
    members = [scv.Polynomial(1), scv.Polynomial(3)]
    fitted = scv.Stack(members).fit(samples, f)
    parts = np.stack([m.fit(samples, f)(samples)[..., 0] for m in members])
    np.testing.assert_allclose(
        fitted(samples)[..., 0], np.einsum("m,mcd->cd", np.ravel(fitted.info["weights"]), parts), atol=1e-10
    )


def test_stacks_nest():
    samples = bent_mixture(8, 4, 60, 2)
    inner = scv.Stack([scv.Polynomial(1), scv.Polynomial(2)])
    result = scv.estimate(samples, samples.draws[..., 0], scv.Stack([inner, scv.Polynomial(3)]))
    assert np.isfinite(result.mean)


@pytest.mark.parametrize("failures", [1, 2])
def test_weights_where_the_solver_goes_in_circles(failures, monkeypatch):
    """SciPy's nnls raises. Asked another way it has the same weights; if it raises again the best column is left."""
    root = np.random.default_rng(3).normal(size=(20, 4)) * [1.0, 0.3, 0.2, 0.4]
    second = (root.T @ root)[None]
    wanted = convex_weights(second) if failures == 1 else [[0.0], [1.0], [0.0]]
    asked = []

    def solver(*arguments):
        asked.append(arguments)
        if len(asked) <= failures:
            raise RuntimeError("Maximum number of iterations reached.")
        return nnls(*arguments)

    monkeypatch.setattr("steincv.families.stack.nnls", solver)
    np.testing.assert_allclose(convex_weights(second), wanted, atol=1e-8)
    assert len(asked) == 2


def test_a_race_is_run_by_sketches():
    """A kernel at many landmarks sends fewer into the race; what then goes into the stack is the kernel itself."""
    kernel = scv.Kernel("rational quadratic", degree=2, landmarks=500)
    assert kernel.sketch() == scv.Kernel("rational quadratic", degree=2, landmarks=200)
    for itself in (scv.Kernel(), scv.Kernel(landmarks=60), scv.Polynomial(3), scv.Neural()):
        assert itself.sketch() is itself
    assert Curved().sketch() == Curved().sketch(2) == Curved()
    assert Curved().sketch(8) == Curved().sketch(8).sketch(8) == Curved(states=2)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 400, 2)) + np.array([1.0, 1.0]) * rng.choice([-1, 1], size=(4, 400, 1))
    f = np.sin(x[..., :1] * 2) + x[..., 1:] ** 2
    training = Training(x, np.tanh(x.sum(-1, keepdims=True)) - x, f, tuple(make_folds(4, 400)), ("a", "b"), 0, 4)
    (found,), dropped = race(training, [Member(kernel), Member(scv.Polynomial(1))], [])
    assert dropped == [Member(scv.Polynomial(1))]
    member, fit = found
    assert member.method is kernel
    assert [fold["landmarks"] for fold in fit.info["folds"]] == [500] * 4
    np.testing.assert_array_equal(fit.g, training.fit([Member(kernel)])[0].g)


def test_members_are_fitted_on_the_folds_that_are_asked_for():
    x = np.random.default_rng(0).normal(size=(4, 50, 2))
    training = Training(x, -x, x[..., :1] ** 3, tuple(make_folds(4, 50)), ("a", "b"), 0, 4)
    members = [Member(scv.Polynomial(1)), Member(scv.Polynomial(3))]
    whole = training.fit(members)
    for one, all_, which in zip(training.fit(members, [[0], [1, 3]]), whole, ([0], [1, 3]), strict=True):
        for k, fold in enumerate(training.folds):
            expected = fold.test.take(all_.g) if k in which else 0
            np.testing.assert_array_equal(fold.test.take(one.g), np.broadcast_to(expected, (1, 50, 1)))
        assert len(one.info["folds"]) == len(which)
