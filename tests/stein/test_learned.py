"""Learned coordinates: scores by finite differences, inverses, Stein's identity, exactness, and doing no harm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steincv as scv
from steincv.stein.learned.coordinates import KINDS, Learned
from steincv.stein.learned.grouped import Grouped, fit_groups
from steincv.stein.learned.layers import Affine, Couple
from steincv.stein.learned.screen import find_parents

CHAINS, DRAWS = 4, 400


class Groups:
    """Six effects with the scale exp(a_j h) around a mean that moves with h and u, and a bent last coordinate."""

    powers = np.array([0.3, 0.5, 0.7, 0.5, 0.4, 0.6])
    dim = 9

    def draw(self, n, seed=0):
        w = np.random.default_rng(seed).normal(size=(n, self.dim))
        return np.concatenate(
            [
                w[:, :2],
                w[:, 1:2] - 0.4 * w[:, :1] + np.exp(w[:, :1] * self.powers) * w[:, 2:8],
                np.log1p(np.exp(w[:, 8:])),
            ],
            axis=1,
        )

    def standard(self, x):
        """The independent normals behind x."""
        h, u = x[:, :1], x[:, 1:2]
        return np.concatenate(
            [h, u, (x[:, 2:8] - u + 0.4 * h) * np.exp(-h * self.powers), np.log(np.expm1(x[:, 8:]))], axis=1
        )

    def log_density(self, x):
        w = self.standard(x)
        last = x[:, 8] - np.log(np.expm1(x[:, 8]))  # log of dw/dx of the last
        return -0.5 * (w**2).sum(axis=1) - x[:, 0] * self.powers.sum() + last

    def score(self, x):
        w = self.standard(x)
        h, u, y = x[:, :1], x[:, 1:2], x[:, 8]
        small = np.exp(-h * self.powers)
        effects = -w[:, 2:8] * small
        by_u = -u[:, 0] - effects.sum(axis=1)
        by_h = -h[:, 0] + 0.4 * effects.sum(axis=1) + (self.powers * (w[:, 2:8] ** 2 - 1)).sum(axis=1)
        slope = 1 / -np.expm1(-y)
        return np.column_stack([by_h, by_u, effects, -w[:, 8] * slope + 1 - slope])


class Funnel:
    """Four coordinates with the scale exp(h / 2): exactly a coupling of a normal distribution."""

    dim = 5

    def draw(self, n, seed=0):
        w = np.random.default_rng(seed).normal(size=(n, self.dim))
        return np.concatenate([w[:, :1], np.exp(w[:, :1] / 2) * w[:, 1:]], axis=1)

    def score(self, x):
        h, w = x[:, :1], x[:, 1:] * np.exp(-x[:, :1] / 2)
        return np.concatenate([-h + ((w**2 - 1) / 2).sum(axis=1, keepdims=True), -w * np.exp(-h / 2)], axis=1)


class Hierarchy:
    """A mean, a log scale, and 88 effects that share them: each tells a hundredth of what is known of the mean."""

    dim = 90

    def draw(self, n, seed=0):
        w = np.random.default_rng(seed).normal(size=(n, self.dim))
        return np.concatenate([w[:, :2], w[:, :1] + np.exp(w[:, 1:2] / 2) * w[:, 2:]], axis=1)

    def score(self, x):
        small = np.exp(-x[:, 1:2] / 2)
        w = (x[:, 2:] - x[:, :1]) * small
        by_scale = -x[:, 1] + ((w**2 - 1) / 2).sum(axis=1)
        return np.column_stack([-x[:, 0] + (w * small).sum(axis=1), by_scale, -w * small])


def gradient(function, x, step=1e-5):
    moves = np.eye(x.shape[1]) * step
    return np.stack([(function(x + move) - function(x - move)) / (2 * step) for move in moves], axis=1)


@pytest.fixture(scope="module", params=KINDS)
def learned(request):
    model = Groups()
    x = model.draw(CHAINS * DRAWS)
    found = Learned.of(x, model.score(x), chains=CHAINS, kinds=[request.param])
    assert found is not None
    return found


def test_the_models_scores_are_right():
    model = Groups()
    x = model.draw(20, seed=3)
    np.testing.assert_allclose(model.score(x), gradient(model.log_density, x), rtol=1e-6, atol=1e-6)


def test_the_score_is_the_gradient_of_the_log_density(learned):
    model = Groups()
    x = model.draw(30, seed=1)
    z, s = learned(x, model.score(x))

    def log_density(z):
        return model.log_density(learned.inverse(z)) + learned.log_jacobian(z)

    np.testing.assert_allclose(s, gradient(log_density, z), rtol=1e-6, atol=1e-6)


def test_the_score_is_the_gradient_outside_of_the_draws_too(learned):
    """Where single factors still follow their parent and products do not, and where neither does."""
    z = np.random.default_rng(6).normal(size=(200, Groups.dim)) * np.linspace(2, 6, 200)[:, None]

    def log_density(z):
        return -0.5 * (learned.inverse(z) ** 2).sum(axis=1) + learned.log_jacobian(z)

    x = learned.inverse(z)
    again, s = learned(x, -x)
    np.testing.assert_allclose(again, z, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(s, gradient(log_density, z), rtol=1e-5, atol=1e-5 * np.abs(s).max())


def test_the_inverse_goes_back_from_everywhere(learned):
    model = Groups()
    x = model.draw(500, seed=2) * np.repeat([1.0, 3.0], 250)[:, None]  # half of them are far outside
    z, _ = learned(x, np.zeros_like(x))
    np.testing.assert_allclose(learned.inverse(z), x, rtol=1e-10, atol=1e-10)


def test_stein_features_have_mean_zero(learned):
    model = Groups()
    x = model.draw(200_000, seed=4)
    z, s = learned(x, model.score(x))
    i, j = np.triu_indices(model.dim)
    features = np.concatenate([s, z[:, i] * s[:, j] + z[:, j] * s[:, i] + 2.0 * (i == j)], axis=1)
    error = features.std(axis=0) / np.sqrt(len(features))
    assert (np.abs(features.mean(axis=0)) < 5 * error).all()


def test_draws_are_standard_and_the_divergence_falls(learned):
    model = Groups()
    x = model.draw(CHAINS * DRAWS)
    z, _ = learned(x, model.score(x))
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(z.T @ z / len(z), np.eye(model.dim), atol=1e-8)
    assert learned.fisher.learned < 0.95 * learned.fisher.affine


def test_scales_are_found_with_their_exponents():
    model = Groups()
    x = model.draw(CHAINS * DRAWS)
    found = Learned.of(x, model.score(x), chains=CHAINS, kinds=["coupled"])
    exponents = {scale.child: scale.exponent for scale in found.scales if scale.parent == 0}
    assert set(exponents) >= set(range(2, 8))
    np.testing.assert_allclose([exponents[k] for k in range(2, 8)], model.powers, atol=0.1)


def test_the_geometry_names_parents_and_children():
    model = Groups()
    x = model.draw(CHAINS * DRAWS)
    names = ["log_sigma", "mu", *(f"b[{j}]" for j in range(6)), "rate"]
    groups = Learned.of(x, model.score(x), chains=CHAINS).geometry(names)
    assert groups[0].parent == "log_sigma"
    assert set(groups[0].children) >= {f"b[{j}]" for j in range(6)}
    assert groups[0].strength > 1
    assert 0.8 < groups[0].share <= 1


def test_a_map_can_be_fitted_without_being_judged():
    model = Funnel()
    x = model.draw(CHAINS * DRAWS)
    s = model.score(x)
    judged, plain = Learned.of(x, s, chains=CHAINS), Learned.fit(x, s, chains=CHAINS)
    assert np.isnan(plain.fisher.learned)
    np.testing.assert_array_equal(plain(x, s), judged(x, s))


def test_a_coupling_of_a_normal_distribution_is_recovered():
    model = Funnel()
    x = model.draw(CHAINS * DRAWS)
    found = Learned.of(x, model.score(x), chains=CHAINS)
    fresh = model.draw(20_000, seed=1)
    z, s = found(fresh, model.score(fresh))
    assert np.mean((z + s) ** 2) < 0.01  # 0.45 in the best affine coordinates
    samples = scv.Samples(*(part.reshape(CHAINS, DRAWS, -1) for part in found(x, model.score(x))))
    h = x[:, 0].reshape(CHAINS, DRAWS)
    assert scv.estimate(samples, h**2, scv.Polynomial(2)).variance_ratio < 1e-2


def test_the_mean_of_many_effects_is_a_parent():
    model = Hierarchy()
    x = model.draw(CHAINS * DRAWS)
    found = Learned.of(x, model.score(x), chains=CHAINS, kinds=["coupled"])
    (couple,) = (layer for layer in found.layers if isinstance(layer, Couple))
    assert set(couple.parents) == {0, 1}
    assert len(couple.children) == 88
    fresh = model.draw(20_000, seed=1)
    z, s = found(fresh, model.score(fresh))
    # What whitening by so many draws leaves by itself where the map makes a model normal: about dim / n a coordinate.
    assert np.median(np.mean((z + s) ** 2, axis=1)) < 2 * model.dim / len(x)
    assert found.fisher.learned < 0.01 * found.fisher.affine


def test_a_banana_is_straightened():
    """x1 is 0.2 (x0^2 - 4) and noise: its location is bent by x0, and nothing is a scale."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(4, 400, 4))
    x[..., 0] *= 2
    x[..., 1] += 0.2 * (x[..., 0] ** 2 - 4)
    away = x[..., 1] - 0.2 * (x[..., 0] ** 2 - 4)
    s = -x
    s[..., 1] = -away
    s[..., 0] = -x[..., 0] / 4 + 0.4 * away * x[..., 0]
    map_ = Learned.of(x.reshape(-1, 4), s.reshape(-1, 4), chains=4)
    assert map_ is not None
    assert map_.fisher.learned < 0.01 * map_.fisher.affine
    found = scv.estimate(scv.Samples(x, s), x[..., 0] ** 2, scv.Polynomial(2), coordinates="learned")
    assert found.variance_ratio < 0.002  # .23 in coordinates learned from scales alone


def test_a_coordinate_that_stands_still_has_a_map_beside_it():
    rng = np.random.default_rng(6)
    h, w = rng.normal(size=(2, 800))
    x = np.stack([h, np.exp(0.5 * h) * w, np.full(800, 2.0)], axis=1)
    s = np.stack([-h + 0.5 * (w**2 - 1), -np.exp(-0.5 * h) * w, np.zeros(800)], axis=1)
    found = Learned.of(x, s, chains=4)
    assert found is not None
    assert np.isfinite(found(x, s)).all()


def test_scaling_shifting_and_permuting_change_nothing():
    model = Groups()
    x = model.draw(CHAINS * DRAWS)
    s = model.score(x)
    rng = np.random.default_rng(5)
    order, scale, shift = rng.permutation(model.dim), 10 ** rng.uniform(-3, 3, model.dim), rng.normal(size=model.dim)
    one = Learned.of(x, s, chains=CHAINS)
    two = Learned.of((scale * x + shift)[:, order], (s / scale)[:, order], chains=CHAINS)
    assert one.kind == two.kind
    np.testing.assert_allclose(two.fisher, one.fisher, rtol=0.05)


def test_a_normal_distribution_has_no_map():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 6)) @ rng.normal(size=(6, 6))
    precision = np.linalg.inv(np.cov(x.T))
    assert Learned.of(x, -x @ precision, chains=4) is None


def test_few_draws_have_no_map():
    x = Groups().draw(20)
    assert Learned.of(x, Groups().score(x), chains=2) is None


def test_draws_far_out_stay_finite(learned):
    x = np.full((2, Groups.dim), 1e6) * [[1.0], [-1.0]]
    z, s = learned(x, np.ones_like(x))
    assert np.isfinite(z).all()
    assert np.isfinite(s).all()
    assert np.isfinite(learned.log_jacobian(z)).all()


def test_affine_layers_of_dependent_columns_scale_only():
    x = np.repeat(np.random.default_rng(0).normal(size=(50, 1)), 2, axis=1)
    assert Affine.of(x, True).factor is None


class Effects:
    """Eight effects, normal given their mean and scale, as a hierarchical model and normal data make them.

    `power` is that of exp(h) in their standard deviation; `centred`: the parameters are the effects themselves.
    """

    def __init__(self, power, centred):
        self.power, self.centred = power, centred
        self.known, self.data = np.linspace(0.2, 8.0, 8), np.linspace(-1.0, 2.0, 8)

    def effects(self, mu, h, w):
        prior = jnp.exp(-2 * self.power * h)
        precision = prior + self.known
        return (mu * prior + self.known * self.data) / precision + w / jnp.sqrt(precision)

    def parameters(self, w):
        mu, h = 0.7 * w[0], 0.5 * w[1] / abs(self.power)
        effects = self.effects(mu, h, w[2:])
        written = effects if self.centred else (effects - mu) / jnp.exp(self.power * h)
        return jnp.concatenate([jnp.array([mu, h]), written])

    def draw(self, n):
        """Draws and scores; that of x = T(w) for a normal w is -J^-T (w + the gradient of log |det J| in w)."""

        def one(w):
            jacobian = jax.jacfwd(self.parameters)(w)
            size = jax.grad(lambda v: jnp.linalg.slogdet(jax.jacfwd(self.parameters)(v))[1])(w)
            return self.parameters(w), -jnp.linalg.solve(jacobian.T, w + size)

        with jax.enable_x64(True):
            return map(np.asarray, jax.vmap(one)(np.random.default_rng(5).normal(size=(n, 10))))


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("power", [1.0, 0.5, -0.5])
def test_groups_are_found_however_a_model_is_written(power, centred):
    x, s = Effects(power, centred).draw(CHAINS * DRAWS)
    found = Learned.of(x, s, chains=CHAINS)
    (groups,) = (layer for layer in found.layers if isinstance(layer, Grouped))
    np.testing.assert_array_equal(groups.children, np.arange(2, 10))
    np.testing.assert_array_equal(groups.located, [0])
    rates = groups.rate[groups.rate != 0] / found.layers[0].scale[1]
    np.testing.assert_allclose(rates, [-2 * power] if centred else sorted([power, 2 * power]), rtol=1e-12)
    assert found.fisher.learned < 1e-6 * found.fisher.affine
    without = Learned.of(x, s, chains=CHAINS, kinds=KINDS[1:])
    assert found.fisher.learned < 1e-3 * without.fisher.learned


def test_groups_are_left_out_where_other_maps_are_better():
    """Effects that are bent, not normal, given their scale: exp of normal ones."""
    x, s = Effects(1.0, True).draw(CHAINS * DRAWS)
    bent, scores = x.copy(), s.copy()
    bent[:, 2:] = np.sinh(x[:, 2:])
    slope = np.cosh(x[:, 2:])
    scores[:, 2:] = s[:, 2:] / slope - np.tanh(x[:, 2:]) / slope
    found = Learned.of(bent, scores, chains=CHAINS)
    others = Learned.of(bent, scores, chains=CHAINS, kinds=KINDS[1:])
    groups = Learned.of(bent, scores, chains=CHAINS, kinds=KINDS[:1])
    assert found.fisher.learned == min(one.fisher.learned for one in (others, groups) if one is not None)


def test_a_parameter_far_too_wide_for_an_exponent_makes_no_group():
    """Its exponentials would overflow."""
    x, s = Effects(1.0, True).draw(CHAINS * DRAWS)
    x, s = x * np.where(np.arange(10) == 1, 1e4, 1.0), s / np.where(np.arange(10) == 1, 1e4, 1.0)
    with np.errstate(over="raise", invalid="raise"):
        found = Learned.of(x, s, chains=CHAINS)
    assert not any(isinstance(layer, Grouped) for layer in found.layers)


def test_a_parent_that_only_bends_locations_is_no_scale():
    """The first of two parents bends a coordinate and scales none; the second scales a group."""
    x, s = Effects(1.0, True).draw(CHAINS * DRAWS)
    w = np.random.default_rng(8).normal(size=(len(x), 2))
    x = np.column_stack([x, w[:, 0], w[:, 1] + 2 * w[:, 0] ** 2])
    s = np.column_stack([s, -w[:, 0] + 4 * w[:, 0] * w[:, 1], -w[:, 1]])
    flat, scores = Affine.of(x, False)(x, s)
    shape = find_parents(flat, scores, np.zeros(0, int))
    assert not shape.scaled[:, 1 + list(shape.parents).index(10)].any()
    groups = fit_groups(flat, scores, x.std(axis=0), shape)
    np.testing.assert_array_equal(groups.children, np.arange(2, 10))
    assert set(groups.parent[groups.rate != 0]) == {1}
