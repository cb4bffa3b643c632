"""Deliberate bugs, each with the tests that must find it: row 17 of the promises.

`old` occurs exactly once in `file`, which tests/mutants/test_mutants.py checks, so that the list cannot rot. To run
them all: python -m tests.mutants
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """One replacement in one file of the package, and the pytest arguments of the tests that must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


BUGS = (
    # the operator
    Bug(
        "divergence dropped, networks",
        "stein/coordinates.py",
        "return divergence + (trial * scores).sum(-1)",
        "return (trial * scores).sum(-1)",
        ("tests/test_neural.py::test_mean_zero_by_quadrature[scalar]",),
    ),
    Bug(
        "divergence dropped, polynomials",
        "families/polynomial/polynomial.py",
        "child_stein[at + rows] += power * (2 * before[lower] - stein_before[lower])",
        "child_stein[at + rows] -= power * stein_before[lower]",
        ("tests/test_polynomial.py",),
    ),
    Bug(
        "divergence of a potential's hidden units without its factor 2",
        "families/neural/units.py",
        "psi -= 2 * t * (units.w * units.w).sum(axis=1)",
        "psi -= t * (units.w * units.w).sum(axis=1)",
        ("tests/test_potential.py::test_features_are_the_stein_operator_of_the_units",),
    ),
    Bug(
        "score with the wrong sign",
        "stein/coordinates.py",
        "s = samples.scores.reshape(-1, dim)[rows] * self.scale",
        "s = -samples.scores.reshape(-1, dim)[rows] * self.scale",
        ("tests/test_laws.py", "-k", "test_exact_for_polynomials and polynomial"),
    ),
    Bug(
        "scores moved by the factor instead of its transpose",
        "stein/coordinates.py",
        "return z @ np.linalg.inv(self.factor).T, s @ self.factor",
        "return z @ np.linalg.inv(self.factor).T, s @ self.factor.T",
        ("tests/test_laws.py", "-k", "test_exact_for_polynomials and polynomial"),
    ),
    Bug(
        "Jacobian of a positive parameter missing",
        "evidence/bijections.py",
        "return jnp.exp(x).reshape(self.shape), x.sum()",
        "return jnp.exp(x).reshape(self.shape), 0.0 * x.sum()",
        ("tests/evidence/test_bijections.py",),
    ),
    Bug(
        "Jacobian of an interval missing",
        "evidence/bijections.py",
        "slope = math.log(width) + jax.nn.log_sigmoid(x) + jax.nn.log_sigmoid(-x)",
        "slope = math.log(width) + jax.nn.log_sigmoid(x)",
        ("tests/evidence/test_bijections.py",),
    ),
    # chains and folds
    Bug(
        "chains and draws swapped",
        "families/problem.py",
        "return g.reshape(chains, draws, -1)",
        "return g.reshape(draws, chains, -1).swapaxes(0, 1)",
        ("tests/trust/test_chain_axis.py",),
    ),
    Bug(
        "random folds",
        "stein/folds.py",
        "index = np.arange(0, draws, step)",
        "index = np.random.default_rng(0).permutation(np.arange(0, draws, step))",
        ("tests/test_folds.py",),
    ),
    Bug(
        "fitted on the chains it is judged by",
        "stein/folds.py",
        "Fold(Block(np.setdiff1d(np.arange(chains), group), every)",
        "Fold(Block(np.arange(chains), every)",
        ("tests/test_folds.py",),
    ),
    Bug(
        "stacking weights of a fold from that fold too",
        "families/stack.py",
        "others = [np.sum(parts[:k] + parts[k + 1 :], axis=0) for k in range(len(parts))] if len(folds) > 1 else parts",
        "others = [total] * len(parts)",
        ("tests/trust/test_stack_weights.py",),
    ),
    Bug(
        "orbits whose states weigh alike",
        "stein/orbits.py",
        "weight = np.exp(energy.min(axis=1, keepdims=True) - energy)",
        "weight = np.exp(0.0 * (energy.min(axis=1, keepdims=True) - energy))",
        ("tests/test_orbits.py", "-k", "unbiased"),
    ),
    Bug(
        "a penalty chosen by leaving out one state of an orbit",
        "families/polynomial/ridge.py",
        "kept = np.eye(root.shape[1]) - hat - root[:, :, None] * root[:, None] / n",
        "kept = np.eye(root.shape[1]) * (1 - hat)",
        ("tests/test_orbits.py", "-k", "whole_orbits"),
    ),
    Bug(
        "the gap of one chain's folds forgotten",
        "stein/folds.py",
        "train = np.flatnonzero((index < start - gap) | (index >= stop + gap))",
        "train = np.flatnonzero((index < start) | (index >= stop))",
        ("tests/test_folds.py",),
    ),
    # error bars and claims
    Bug(
        "n for the effective size",
        "judging/error_bars.py",
        "ess[moving] = effective_draws(unit[..., moving])",
        "ess[moving] = float(chains * draws)",
        ("tests/test_error_bars.py",),
    ),
    Bug(
        "a one-sided quantile for a two-sided interval",
        "judging/error_bars.py",
        "0.5 + level / 2))",
        "level))",
        ("tests/test_error_bars.py",),
    ),
    Bug(
        "the kurtosis forgotten",
        "judging/error_bars.py",
        "kurtosis = np.asarray(error_ess) / FREEDOM.each",
        "kurtosis = np.full(np.shape(error_ess), np.inf)",
        ("tests/test_error_bars.py",),
    ),
    Bug(
        "in-sample standard error: the fit's own residuals",
        "estimating.py",
        "fit = method.cross_fit(samples, averaged, taken.plan, seed=taken.spaced.seed)",
        "fit = CrossFit(method.fit(samples, averaged, seed=taken.spaced.seed)(samples), {})",
        ("tests/test_estimate.py", "-k", "by_hand"),
    ),
    Bug(
        "leave-one-out residuals that leave nothing out",
        "families/polynomial/ridge.py",
        "residual /= kept[:, k, None]",
        "residual /= 1.0",
        ("tests/test_polynomial.py",),
    ),
    Bug(
        "no guard: a loss reported as a gain",
        "judging/verdict.py",
        "elif guard and (alarms or widened[k] >= gain_limit(plain.ess[k])):",
        "elif guard and alarms:",
        ("tests/test_estimate.py", "-k", "noise or guard"),
    ),
    Bug(
        "wrong scores noticed and used all the same",
        "judging/verdict.py",
        "elif guard and (alarms or widened[k] >= gain_limit(plain.ess[k])):",
        "elif guard and widened[k] >= gain_limit(plain.ess[k]):",
        ("tests/test_estimate.py", "-k", "wrong_scores"),
    ),
    Bug(
        "chains of f + g that are apart go unnoticed",
        "judging/verdict.py",
        "apart = (error > 0) & (spread >",
        "apart = (error < 0) & (spread >",
        ("tests/test_gain.py", "-k", "apart"),
    ),
    Bug(
        "a simpler method where chains are apart",
        "estimating.py",
        "kept = trusted | controlled.apart",
        "kept = trusted",
        ("tests/test_gain.py", "-k", "apart"),
    ),
    Bug(
        "penalties are looked for up to the first rise",
        "families/kernel/kernel.py",
        "errors.argmin(axis=0) - at) <= 1",
        "errors.argmin(axis=0) - at) <= 0",
        ("tests/test_kernel.py", "-k", "penalties or valley"),
    ),
    Bug(
        "delta method without its factor 2",
        "judging/quantiles.py",
        "draws = sd + (v - v.mean(axis=(0, 1))) / (2 * sd)",
        "draws = sd + (v - v.mean(axis=(0, 1))) / sd",
        ("tests/test_estimate.py", "-k", "delta_method"),
    ),
    # alarms
    Bug(
        "an alarm that never rings",
        "judging/diagnostics.py",
        "STEIN_LIMIT = 5.0",
        "STEIN_LIMIT = 500.0",
        ("tests/test_estimate.py", "-k", "wrong_scores"),
    ),
    Bug(
        "an alarm that rings by chance",
        "judging/diagnostics.py",
        "STEIN_LIMIT = 5.0",
        "STEIN_LIMIT = 3.0",
        ("tests/trust/test_alarms.py", "-k", "by_chance"),
    ),
    Bug(
        "chains may disagree",
        "judging/diagnostics.py",
        "if rhat[k] > limit[k]:",
        "if rhat[k] > 10 * limit[k]:",
        ("tests/test_estimate.py", "-k", "disagree"),
    ),
    # fitting
    Bug(
        "stale parameters: the best weights are those of the start",
        "families/neural/training.py",
        "best = jnp.where(better[:, None], params, state.best)",
        "best = state.best",
        ("tests/trust/test_networks.py::test_it_learns",),
    ),
    Bug(
        "the seed forgotten",
        "families/neural/fitting.py",
        "keys = jax.random.split(jax.random.key(seed), method.ensemble)",
        "keys = jax.random.split(jax.random.key(0), method.ensemble)",
        ("tests/test_neural.py::test_same_seed_same_bits_other_seed_other_bits",),
    ),
    Bug(
        "a resumed fit sees other minibatches",
        "families/neural/training.py",
        "first = jnp.asarray(sum(lengths[:i]))",
        "first = jnp.asarray(sum(lengths[done:i]))",
        ("tests/test_neural.py::test_killed_and_resumed_is_bitwise_the_same",),
    ),
    # files and pages
    Bug(
        "overwrites without being asked",
        "runtime/arrays.py",
        "if os.path.lexists(target) and not force:",
        "if False:",
        ("tests/test_store.py", "-k", "force"),
    ),
    Bug(
        "writes under the final name from the start",
        "runtime/arrays.py",
        'part = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")',
        "part = target; force and target.unlink(missing_ok=True)",
        ("tests/test_store.py", "-k", "interrupted"),
    ),
    Bug(
        "believes a header",
        "runtime/arrays.py",
        "if claimed != len(data) - start:",
        "if False:",
        ("tests/test_store.py", "-k", "headers"),
    ),
    Bug(
        "names of parameters as HTML",
        "report/charts.py",
        "return html.escape(clean(text, longest), quote=True)",
        "return clean(text, longest)",
        ("tests/test_report_page.py", "-k", "hostile_labels"),
    ),
    Bug(
        "pickle among the codecs",
        "samples/gate/zarr.py",
        'CODECS |= {"delta",',
        'CODECS |= {"pickle", "delta",',
        ("tests/test_store.py", "-k", "zarr_folder_cannot_run"),
    ),
)
